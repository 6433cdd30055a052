// Package examples_test runs the examples as a user does: as processes, through
// mpirun-go.
package examples_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// programs is a directory with the examples and the launcher.
type programs struct {
	dir string
}

func build(t *testing.T) programs {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-o", dir+string(filepath.Separator),
		"../mpirun-go", "./ring", "./pi", "./wordcount", "./heat2d", "./failover")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return programs{dir}
}

// run runs an example on n ranks in a directory of its own, and returns its output.
func (p programs) run(t *testing.T, n int, example string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	all := append([]string{"-n", strconv.Itoa(n), "--oversubscribe", filepath.Join(p.dir, example)}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(p.dir, "mpirun-go"), all...)
	cmd.Dir = t.TempDir()
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	return o.String(), e.String(), err
}

// mustRun is like run for an example that must succeed and print nothing on standard error.
func (p programs) mustRun(t *testing.T, n int, example string, args ...string) string {
	t.Helper()
	stdout, stderr, err := p.run(t, n, example, args...)
	require.NoError(t, err, "%s on %d ranks: %s", example, n, stderr)
	require.Empty(t, stderr, "%s on %d ranks", example, n)
	return stdout
}

func TestExamples(t *testing.T) {
	p := build(t)

	t.Run("ring", func(t *testing.T) {
		for _, n := range []int{1, 2, 4, 16} {
			want := fmt.Sprintf("a ring of %d, 5 laps\n", n)
			for lap := 1; lap <= 5; lap++ {
				want += fmt.Sprintf("lap %d: back from rank %d after %d hops, ranks add up to %d\n",
					lap, n-1, lap*n, lap*n*(n-1)/2)
			}
			assert.Equal(t, want, p.mustRun(t, n, "ring", "-laps", "5"))
		}
	})

	t.Run("pi", func(t *testing.T) {
		one := p.mustRun(t, 1, "pi", "-intervals", "1000000")
		assert.Contains(t, one, "pi is about 3.14159265358")
		for _, n := range []int{2, 4, 16} {
			assert.Equal(t, one, p.mustRun(t, n, "pi", "-intervals", "1000000"))
		}
	})

	t.Run("wordcount", func(t *testing.T) {
		goroot, err := exec.Command("go", "env", "GOROOT").Output()
		require.NoError(t, err)
		root := filepath.Join(strings.TrimSpace(string(goroot)), "src", "go")
		one := p.mustRun(t, 1, "wordcount", "-top", "30", root)
		assert.Regexp(t, `^files +\d+\nlines +\d+\nbytes +\d+\nidentifiers +\d+\ndistinct +\d+\n\n    1 +\d+  \w+\n`, one)
		assert.Equal(t, 6+30, strings.Count(one, "\n"))
		for _, n := range []int{2, 4, 16} {
			assert.Equal(t, one, p.mustRun(t, n, "wordcount", "-top", "30", root))
		}
	})

	t.Run("heat2d", func(t *testing.T) {
		heat := func(n int, args ...string) (string, []byte) {
			picture := filepath.Join(t.TempDir(), "plate.png")
			out := p.mustRun(t, n, "heat2d", append(args, "-size", "61x121", "-steps", "150", "-o", picture)...)
			data, err := os.ReadFile(picture)
			require.NoError(t, err)
			out, found := strings.CutSuffix(out, "picture    "+picture+"\n")
			assert.True(t, found, "the output names the file")
			return out, data
		}
		one, picture := heat(1)
		assert.Regexp(t, `^plate      61 x 121\nsteps      150\nresidual   0\.0\d+\nmean       0\.\d+\n$`, one)
		for _, n := range []int{2, 4, 6, 16} {
			out, same := heat(n)
			assert.Equal(t, one, out, "%d ranks", n)
			assert.True(t, bytes.Equal(picture, same), "%d ranks: the picture differs", n)
		}
		out, same := heat(6, "-grid", "6x1")
		assert.Equal(t, one, out)
		assert.True(t, bytes.Equal(picture, same))
	})

	t.Run("failover", func(t *testing.T) {
		// Without a launcher it cuts seven cables. The ranks at both ends tell of all failures. The
		// later ones of a rail are in one line.
		stdout, stderr, err := p.run(t, 1, "failover", "-time", "1s", "-rate", "50")
		require.NoError(t, err, stderr)
		assert.Regexp(t, `every byte checked\nrails      failed 7 times, came back 7 times; \d+\.\d [kM]B were sent again\n$`, stdout)
		failures := strings.Count(stderr, " failed: ") + strings.Count(stderr, " failed once more ")
		for _, more := range regexp.MustCompile(` failed (\d+) (?:more )?times `).FindAllStringSubmatch(stderr, -1) {
			n, err := strconv.Atoi(more[1])
			require.NoError(t, err)
			failures += n
		}
		assert.Equal(t, 2*7, failures, stderr)

		// As a job of two ranks it cuts nothing.
		stdout = p.mustRun(t, 2, "failover", "-time", "300ms")
		assert.Contains(t, stdout, "every byte checked\nrails      failed 0 times, came back 0 times; 0.0 kB were sent again\n")
	})

	t.Run("flags", func(t *testing.T) {
		for _, c := range []struct {
			n    int
			args []string
			want string
		}{
			{4, []string{"ring", "-laps", "-1"}, "-laps is -1: it cannot be negative\n"},
			{4, []string{"ring", "-no-such-flag"}, "flag provided but not defined: -no-such-flag\n"},
			{1, []string{"ring", "x"}, "unexpected argument \"x\"\n"},
			{1, []string{"pi", "-intervals", "0"}, "-intervals is 0: it must be at least 1\n"},
			{1, []string{"wordcount", "-top", "-1"}, "-top is -1: it cannot be negative\n"},
			{2, []string{"heat2d", "-size", "100"}, "-size: \"100\" is not of the form ROWSxCOLUMNS, such as 360x720\n"},
			{2, []string{"failover", "-time", "0s"}, "-time is 0s: it must be positive\n"},
			{1, []string{"failover", "-every", "1us"}, "-every is 1\u00b5s: it must be at least 10ms\n"},
			{1, []string{"failover", "-rate", "-1"}, "-rate is -1: it must be positive\n"},
		} {
			stdout, stderr, err := p.run(t, c.n, c.args[0], c.args[1:]...)
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, c.args)
			assert.Equal(t, 2, exit.ExitCode(), c.args)
			assert.Empty(t, stdout, c.args)
			// Rank 0 prints it for all.
			assert.True(t, strings.HasPrefix(stderr, c.want+"Usage"), stderr)
			assert.Equal(t, 1, strings.Count(stderr, c.want), stderr)
			assert.NotContains(t, stderr, "mpigo: ")
		}
	})

	t.Run("errors", func(t *testing.T) {
		for _, c := range []struct {
			n    int
			args []string
			want string
		}{
			{3, []string{"wordcount", "/no/such/folder"}, "rank 0: lstat /no: no such file or directory\n"},
			{2, []string{"heat2d", "-grid", "2x2"}, "-grid is 2x2, which needs 4 ranks, but there are 2\n"},
			{2, []string{"heat2d", "-size", "20x20", "-steps", "1", "-o", "no/such/folder.png"}, "no such file or directory\n"},
			{3, []string{"failover"}, "the program takes 2 ranks, or 1, which makes 2 itself; there are 3\n"},
		} {
			stdout, stderr, err := p.run(t, c.n, c.args[0], c.args[1:]...)
			assert.Error(t, err, c.args)
			assert.Empty(t, stdout, c.args)
			assert.Contains(t, stderr, c.want)
		}
	})

	t.Run("help", func(t *testing.T) {
		for _, example := range []string{"ring", "pi", "wordcount", "heat2d", "failover"} {
			_, stderr, err := p.run(t, 4, example, "-help")
			assert.NoError(t, err, example)
			assert.Equal(t, 1, strings.Count(stderr, "Usage"), example)
			assert.NotContains(t, stderr, "mpi", example)
		}
	})
}
