package remote

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A program cannot be executed while it is open for writing.
func TestStartOfBusyProgramIsRepeated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700))
	run := func() error { return exec.Command(path).Run() }
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	assert.ErrorIs(t, whileBusy(run), unix.ETXTBSY)
	time.AfterFunc(3*busyWait, func() { writer.Close() })
	assert.NoError(t, whileBusy(run))
	require.NoError(t, os.Remove(path))
	begin := time.Now()
	assert.ErrorIs(t, whileBusy(run), os.ErrNotExist)
	assert.Less(t, time.Since(begin), maxBusyTries*busyWait)
}
