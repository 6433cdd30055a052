package stdin_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/mpirun-go/internal/stdin"
)

// target accepts up to limit bytes (-1: all) and then fails, like a pipe whose reader is gone.
type target struct {
	strings.Builder
	limit  int
	closed int
}

func (t *target) Write(p []byte) (int, error) {
	if t.limit >= 0 && t.Len()+len(p) > t.limit {
		return 0, os.ErrClosed
	}
	return t.Builder.Write(p)
}

func (t *target) Close() error {
	t.closed++
	return nil
}

func TestCopyWritesToAllTargets(t *testing.T) {
	a, b := &target{limit: -1}, &target{limit: -1}
	text := strings.Repeat("line\n", 50000)
	require.NoError(t, stdin.Copy(strings.NewReader(text), []io.WriteCloser{a, b}))
	assert.True(t, text == a.String() && text == b.String())
	assert.Equal(t, []int{1, 1}, []int{a.closed, b.closed})
}

func TestCopySkipsFailedTarget(t *testing.T) {
	all, some, none := &target{limit: -1}, &target{limit: 3}, &target{limit: 0}
	err := stdin.Copy(iotest.OneByteReader(strings.NewReader("abcdef")), []io.WriteCloser{none, all, some})
	require.NoError(t, err)
	assert.Equal(t, []string{"abcdef", "abc", ""}, []string{all.String(), some.String(), none.String()})
	assert.Equal(t, []int{1, 1, 1}, []int{all.closed, some.closed, none.closed})
}

func TestCopyEndsWithLastTarget(t *testing.T) {
	forever := iotest.OneByteReader(strings.NewReader(strings.Repeat("x", 1<<20)))
	require.NoError(t, stdin.Copy(forever, []io.WriteCloser{&target{limit: 5}}))
	left, err := io.ReadAll(forever)
	require.NoError(t, err)
	assert.Len(t, left, 1<<20-6)
}

func TestCopyReturnsSourceError(t *testing.T) {
	errSource := errors.New("source failed")
	a := &target{limit: -1}
	err := stdin.Copy(io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(errSource)), []io.WriteCloser{a})
	assert.Equal(t, errSource, err)
	assert.Equal(t, "ab", a.String())
	assert.Equal(t, 1, a.closed)
}

func TestSourceOfTerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	assert.False(t, stdin.IsTerminal(null))
	assert.Equal(t, null, stdin.Source(null))

	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer terminal.Close()
	assert.True(t, stdin.IsTerminal(terminal))
	assert.Equal(t, stdin.Terminal{File: terminal}, stdin.Source(terminal))
}
