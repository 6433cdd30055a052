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

	"github.com/mpigo/mpigo/internal/profile"
	"github.com/mpigo/mpigo/internal/trace"
)

func TestClearRemovesFilesOfItsKindAlone(t *testing.T) {
	for kind, own := range map[Kind][]string{
		Profile:    {"profile.0.json", ".new-profile.12.json.77"},
		Trace:      {"trace.0.json", "trace.12.json"},
		CPUProfile: {"cpu.3.pprof"},
	} {
		dir := filepath.Join(t.TempDir(), "a[b]*") // no pattern
		require.NoError(t, kind.Clear(dir), "it does not exist")
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "trace.d.json"), 0o777))
		others := []string{"cpu.txt", "notes.json", "profile.html", "trace.json"}
		for _, name := range append(own, others...) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
		}
		require.NoError(t, kind.Clear(dir))
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		var left []string
		for _, e := range entries {
			left = append(left, e.Name())
		}
		assert.ElementsMatch(t, append(others, "trace.d.json"), left, kind)
	}
}

func TestClearMatchesPath(t *testing.T) {
	for _, kind := range []Kind{Profile, CPUProfile, Trace} {
		assert.True(t, kind.IsValid())
		assert.True(t, kind.has(filepath.Base(kind.Path("x", 7))), kind)
		assert.Positive(t, kind.MaxBytes())
	}
	assert.False(t, Kind("../x").IsValid())
}

// put writes the trace or profile of a rank.
func (k Kind) put(t *testing.T, dir string, rank, size int) {
	var b bytes.Buffer
	if k == Profile {
		require.NoError(t, (&profile.File{Rank: rank, Size: size}).Write(&b))
	} else {
		require.NoError(t, (&trace.File{Rank: rank, Size: size}).Write(&b))
	}
	require.NoError(t, os.WriteFile(k.Path(dir, rank), b.Bytes(), 0o666))
}

func TestJobSizeIsThatOfTheFirstGoodFile(t *testing.T) {
	for _, kind := range []Kind{Profile, Trace} {
		dir := filepath.Join(t.TempDir(), "a[b]*") // no pattern
		require.NoError(t, os.Mkdir(dir, 0o777))
		size, err := kind.JobSize(t.Context(), dir)
		require.NoError(t, err)
		assert.Zero(t, size)

		ofNoRank := []string{"profile.old.json", "trace.old.json", "trace.json", "profile.-1.json", "trace.01.json"}
		for _, name := range ofNoRank {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o666))
		}
		for _, rank := range []int{10, 2} {
			kind.put(t, dir, rank, 12)
		}
		require.NoError(t, os.WriteFile(kind.Path(dir, 0), []byte(`{"v":1,"ra`), 0o666)) // truncated
		size, err = kind.JobSize(t.Context(), dir)
		require.NoError(t, err)
		assert.Equal(t, 12, size)

		kind.put(t, dir, 1, 10) // of a later job
		_, err = kind.JobSize(t.Context(), dir)
		assert.EqualError(t, err, kind.Path(dir, 1)+" is of a job of size 10, and "+kind.Path(dir, 10)+
			" of another job: remove the files of one")
	}
}

func TestJobSizeFailsInOneLine(t *testing.T) {
	dir := t.TempDir()
	for rank := range 5 {
		require.NoError(t, os.WriteFile(Trace.Path(dir, rank), []byte("{}"), 0o666))
	}
	_, err := Trace.JobSize(t.Context(), dir)
	assert.ErrorContains(t, err, dir+" has no trace that can be read: rank 0: not a trace of this version")
	assert.ErrorContains(t, err, "; and 2 more")
	assert.NotContains(t, err.Error(), "\n")
	_, err = Trace.JobSize(t.Context(), filepath.Join(dir, "none"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestReadEndsWithContextAndRefusesFIFO(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, unix.Mkfifo(Trace.Path(dir, 0), 0o666)) // nobody writes to it
	_, err := Read(t.Context(), Trace.Path(dir, 0), trace.Read)
	assert.ErrorContains(t, err, "is no regular file")

	Trace.put(t, dir, 1, 2)
	why := errors.New("too long")
	ctx, cancel := context.WithCancelCause(t.Context())
	f, err := Read(ctx, Trace.Path(dir, 1), func(r io.Reader) (*trace.File, error) {
		cancel(why)
		return trace.Read(r)
	})
	assert.Nil(t, f)
	assert.Equal(t, why, err)
	_, err = Trace.JobSize(ctx, dir)
	assert.Equal(t, why, err)
}
