package main

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProcesses checks that processes print figures on standard output, and each mistake once, with
// its exit status.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	mpirun, bench := filepath.Join(dir, "mpirun-go"), filepath.Join(dir, "bench")
	for path, pkg := range map[string]string{mpirun: "../mpirun-go", bench: "."} {
		out, err := exec.Command("go", "build", "-o", path, pkg).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	launch := func(args ...string) (status int, stdout, stderr string) {
		cmd := exec.Command(args[0], args[1:]...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
			require.NoError(t, err)
		}
		return cmd.ProcessState.ExitCode(), out.String(), errs.String()
	}
	with := func(ranks, args string) []string {
		return append([]string{mpirun, "-n", ranks, "--oversubscribe", "--timeout", "1m", bench}, strings.Fields(args)...)
	}

	status, stdout, stderr := launch(with("2", "latency -m 8:64K -i 5 -x 1 --validate")...)
	assert.Equal(t, 0, status, stderr)
	assert.Contains(t, stdout, "# mpigo latency, 2 ranks, sm\n# Size          Latency (us)\n8    ")
	assert.Equal(t, 2+14, strings.Count(stdout, "\n"))

	status, stdout, stderr = launch(with("4", "allreduce -m 8:8 -i 5 -x 1 --json --validate")...)
	assert.Equal(t, 0, status, stderr)
	assert.Regexp(t, `^{"bench":"allreduce","size":8,"value":[0-9.e+]+,"min":.*,"max":.*,"unit":"us","ranks":4,"btl":"sm"}\n$`, stdout)

	status, stdout, stderr = launch(with("2", "empty")...)
	assert.Equal(t, []any{0, "", ""}, []any{status, stdout, stderr})

	for args, want := range map[string]string{
		"latency -m 8:4": "bench: latency: -m \"8:4\": the range from 8 to 4 bytes is empty (mpirun-go bench --help)\n",
		"latency":        "bench: latency: it takes 2 ranks, not 3: mpirun-go bench -n 2 latency (mpirun-go bench --help)\n",
	} {
		status, stdout, stderr = launch(with("3", args)...)
		assert.Equal(t, statusUsage, status)
		assert.Empty(t, stdout)
		assert.Equal(t, 1, strings.Count(stderr, "bench: "), stderr)
		assert.Contains(t, stderr, want)
	}
	// Without a launcher.
	status, stdout, _ = launch(bench, "barrier", "--local", "3", "-i", "5", "-x", "1")
	assert.Equal(t, 0, status)
	assert.Contains(t, stdout, "# mpigo barrier, 3 ranks, loop\n")
	status, _, stderr = launch(bench, "nothing")
	assert.Equal(t, statusUsage, status)
	assert.Equal(t, 1, strings.Count(stderr, "\n"))
}
