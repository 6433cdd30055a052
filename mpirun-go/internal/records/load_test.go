package records

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/trace"
)

func traceForm() Form[trace.File] {
	return Form[trace.File]{
		Kind: Trace,
		Read: trace.Read,
		Of:   func(f *trace.File) (int, Job) { return f.Rank, Job{f.Job, f.Size} },
	}
}

// put writes the trace of a rank of a job.
func put(t *testing.T, dir string, rank int, job Job) {
	var b bytes.Buffer
	require.NoError(t, (&trace.File{Job: job.ID, Rank: rank, Size: job.Size}).Write(&b))
	require.NoError(t, os.WriteFile(Trace.Path(dir, rank), b.Bytes(), 0o666))
}

func TestLoadOfAnyJobTakesThatOfTheFirstGoodFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[b]*") // no pattern
	require.NoError(t, os.Mkdir(dir, 0o777))
	_, err := traceForm().Load(t.Context(), dir, Job{})
	none := (*NoneError)(nil)
	require.ErrorAs(t, err, &none)
	assert.EqualError(t, err, dir+" has no trace of a rank")

	ofNoRank := []string{"trace.old.json", "trace.json", "trace.-1.json", "trace.01.json", "profile.1.json"}
	for _, name := range ofNoRank {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o666))
	}
	for _, rank := range []int{3, 2} {
		put(t, dir, rank, Job{"a", 4})
	}
	require.NoError(t, os.WriteFile(Trace.Path(dir, 0), []byte(`{"v":1,"ra`), 0o666)) // truncated
	files, err := traceForm().Load(t.Context(), dir, Job{})
	require.NoError(t, err)
	assert.Equal(t, Job{"a", 4}, files.Job)
	assert.Equal(t, []int{0, 1}, files.Missing)
	require.Len(t, files.List, 2)
	assert.Equal(t, 2, files.List[0].Rank)
	require.Len(t, files.Why, 1)
	assert.Contains(t, files.Why[0], "rank 0: not a trace of this version")
}

func TestLoadOfAnyJobRefusesFilesOfTwo(t *testing.T) {
	for name, other := range map[string]func(t *testing.T, dir string){
		"same size":          func(t *testing.T, dir string) { put(t, dir, 2, Job{"b", 3}) },
		"another size":       func(t *testing.T, dir string) { put(t, dir, 2, Job{"b", 4}) },
		"too high a rank":    func(t *testing.T, dir string) { put(t, dir, 3, Job{"b", 4}) },
		"no identity":        func(t *testing.T, dir string) { put(t, dir, 2, Job{"", 3}) },
		"a high, a bad file": func(t *testing.T, dir string) { require.NoError(t, os.WriteFile(Trace.Path(dir, 3), nil, 0o666)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for rank := range 2 {
				put(t, dir, rank, Job{"a", 3})
			}
			_, err := traceForm().Load(t.Context(), dir, Job{})
			require.NoError(t, err)
			other(t, dir)
			_, err = traceForm().Load(t.Context(), dir, Job{})
			assert.ErrorContains(t, err, Trace.Path(dir, 0)+` is of job "a" with 3 ranks, and `+dir+"/trace.")
			assert.ErrorContains(t, err, "of another job: remove the files of one")
		})
	}
}

func TestLoadOfAJobIgnoresFilesOfOthers(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, 0, Job{"b", 3}) // an earlier job, or one at the same time
	put(t, dir, 1, Job{"a", 3})
	put(t, dir, 2, Job{"a", 4})
	put(t, dir, 3, Job{"a", 4})
	files, err := traceForm().Load(t.Context(), dir, Job{"a", 3})
	require.NoError(t, err)
	require.Len(t, files.List, 1)
	assert.Equal(t, 1, files.List[0].Rank)
	assert.Equal(t, []int{0, 2}, files.Missing)
	assert.Equal(t, []string{"rank 0: its file is of another job", "rank 2: its file is of another job"}, files.Why)
}

func TestLoadFailsInOneLine(t *testing.T) {
	dir := t.TempDir()
	for rank := range 5 {
		require.NoError(t, os.WriteFile(Trace.Path(dir, rank), []byte("{}"), 0o666))
	}
	_, err := traceForm().Load(t.Context(), dir, Job{})
	assert.ErrorContains(t, err, dir+" has no trace that can be read: rank 0: not a trace of this version")
	assert.ErrorContains(t, err, "; and 2 more")
	assert.NotContains(t, err.Error(), "\n")
	_, err = traceForm().Load(t.Context(), filepath.Join(dir, "none"), Job{})
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestLoadRefusesFIFOAndFileOfAnotherRank(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, unix.Mkfifo(Trace.Path(dir, 0), 0o666)) // nobody writes to it
	put(t, dir, 1, Job{"a", 3})
	require.NoError(t, os.Rename(Trace.Path(dir, 1), Trace.Path(dir, 2)))
	put(t, dir, 1, Job{"a", 3})
	files, err := traceForm().Load(t.Context(), dir, Job{"a", 3})
	require.NoError(t, err)
	require.Len(t, files.Why, 2)
	assert.Contains(t, files.Why[0], "is no regular file")
	assert.Equal(t, "rank 2: its file is of rank 1", files.Why[1])
}

func TestLoadEndsWithContext(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, 1, Job{"a", 2})
	why := errors.New("too long")
	ctx, cancel := context.WithCancelCause(t.Context())
	f := traceForm()
	f.Read = func(r io.Reader) (*trace.File, error) {
		cancel(why)
		return trace.Read(r)
	}
	_, err := f.Load(ctx, dir, Job{})
	assert.Equal(t, why, err)
}
