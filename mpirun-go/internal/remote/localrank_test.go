package remote

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A program cannot be executed while it is open for writing. Other errors are final.
func TestStartOfBusyProgramIsRepeated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700))
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	starts, closeAt := 0, 0 // closeAt: the start before which the writer closes the program
	start := func() error {
		if starts++; starts == closeAt {
			require.NoError(t, writer.Close())
		}
		return exec.Command(path).Run()
	}
	assert.ErrorIs(t, whileBusy(start), unix.ETXTBSY)
	assert.Equal(t, 1+maxBusyTries, starts)
	starts, closeAt = 0, 4
	assert.NoError(t, whileBusy(start))
	assert.GreaterOrEqual(t, starts, 4) // more if another test is about to fork
	require.NoError(t, os.Remove(path))
	starts, closeAt = 0, 0
	assert.ErrorIs(t, whileBusy(start), os.ErrNotExist)
	assert.Equal(t, 1, starts)
}
