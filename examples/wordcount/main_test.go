package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/mpitest"
)

func wordcount(t *testing.T, n int, cfg config) string {
	t.Helper()
	var out bytes.Buffer
	mpitest.Run(t, n, func(t testing.TB, world *comm.Comm) {
		require.NoError(t, run(world, cfg, &out))
	})
	return out.String()
}

func write(t *testing.T, root, name, text string) {
	path := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestRunOnSmallTree(t *testing.T) {
	root := t.TempDir()
	const a, c, notGo = "package p\n\nvar x, größe = y, 1 // x in a comment\n",
		"package q\nfunc x(y int) string { return `x` }\n",
		"@ \" unfinished x\n"
	write(t, root, "a.go", a)
	write(t, root, "b/c.go", c)
	write(t, root, "b/not go.go", notGo)
	write(t, root, "b/empty.go", "")
	write(t, root, "b/other.txt", "x x x\n")
	require.NoError(t, os.Symlink(filepath.Join(root, "a.go"), filepath.Join(root, "link.go")))

	want := "files                   4\n" +
		"lines                   6\n" +
		fmt.Sprintf("bytes        %12d\n", len(a+c+notGo)) +
		"identifiers             9\n" +
		"distinct                7\n\n" +
		"    1           2  x\n" +
		"    2           2  y\n" +
		"    3           1  größe\n"
	for _, n := range []int{1, 2, 3, 6} {
		assert.Equal(t, want, wordcount(t, n, config{root: root, exts: []string{".go"}, top: 3}), "%d ranks", n)
	}
}

// TestRunPrintsWhatOnePassFinds compares the output for several numbers of ranks with one pass over
// the files.
func TestRunPrintsWhatOnePassFinds(t *testing.T) {
	root := goPackages(t)
	files, err := list(root, []string{".go"})
	require.NoError(t, err)
	words := make(map[string]int64)
	var sum totals
	for _, f := range files {
		require.NoError(t, countFile(f.path, words, &sum))
	}
	sum.Distinct = int64(len(words))
	var best []word
	for text, count := range words {
		best = append(best, word{text, count})
	}
	var want bytes.Buffer
	require.NoError(t, report(&want, sum, top(best, 50)))

	assert.Greater(t, len(cut(files)), 4)
	for _, n := range []int{1, 2, 4, 7} {
		assert.Equal(t, want.String(), wordcount(t, n, config{root: root, exts: []string{".go"}, top: 50}), "%d ranks", n)
	}
}

func TestRunReportsProgress(t *testing.T) {
	var told bytes.Buffer
	wordcount(t, 3, config{root: goPackages(t), exts: []string{".go"}, progress: &told})
	assert.Regexp(t, `^wordcount: +[1-9]0 % of \d+ files\n`, told.String())
	assert.Contains(t, told.String(), "wordcount: 100 % of ")
}

func TestRunWithoutFilesFails(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct{ root, want string }{
		{"/no/such/folder", "rank 0: lstat /no: no such file or directory"},
		{empty, "no file under " + empty + " ends in .go or .s"},
	} {
		err := comm.RunLocal(3, func(world *comm.Comm) error {
			return run(world, config{root: c.root, exts: []string{".go", ".s"}}, &bytes.Buffer{})
		})
		assert.ErrorContains(t, err, c.want)
	}
}

// TestCountAllWithMissingFileFails checks that a file that disappears ends the job.
func TestCountAllWithMissingFileFails(t *testing.T) {
	for _, n := range []int{1, 3} {
		err := comm.RunLocal(n, func(world *comm.Comm) error {
			spans := []span{}
			paths := []string{"/no/such/file"}
			if world.Rank() == 0 {
				spans = append(spans, span{0, 1})
			}
			_, _, err := countAll(world, spans, paths, nil)
			return err
		})
		assert.ErrorIs(t, err, os.ErrNotExist)
	}
}

func TestCutWordDecodesAppendWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.Custom(func(t *rapid.T) word {
			return word{rapid.String().Draw(t, "text"), rapid.Int64Range(0, 1<<62).Draw(t, "count")}
		})).Draw(t, "words")
		var b []byte
		for _, w := range words {
			b = appendWord(b, w)
		}
		for _, want := range words {
			got, rest, err := cutWord(b)
			require.NoError(t, err)
			require.Equal(t, want, got)
			b = rest
		}
		require.Empty(t, b)
	})
}

func FuzzCutWord(f *testing.F) {
	f.Add(appendWord(nil, word{"word", 300}))
	f.Add([]byte{1, 5, 'x'})
	f.Add([]byte{0xff})
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		w, rest, err := cutWord(b)
		if err == nil {
			again, _, err := cutWord(appendWord(nil, w))
			require.NoError(t, err)
			require.Equal(t, w, again)
			require.Less(t, len(rest), len(b))
		}
	})
}

func TestTop(t *testing.T) {
	words := []word{{"b", 2}, {"a", 2}, {"c", 3}, {"d", 1}}
	rand.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
	assert.Equal(t, []word{{"c", 3}, {"a", 2}, {"b", 2}}, top(words, 3))
	assert.Len(t, top(words, 10), 4)
	assert.Empty(t, top(words, 0))
}

func TestCut(t *testing.T) {
	files := []file{{"a", 10}, {"b", spanBytes}, {"c", spanBytes - 1}, {"d", 1}, {"e", 0}}
	assert.Equal(t, []span{{0, 2}, {2, 4}, {4, 5}}, cut(files))
	assert.Empty(t, cut(nil))
}

// goPackages returns a directory of Go's own source.
func goPackages(t *testing.T) string {
	src, err := goSource()
	require.NoError(t, err)
	return filepath.Join(src, "go")
}
