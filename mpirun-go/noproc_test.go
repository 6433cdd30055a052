package main

import (
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Without /proc the launcher says so in one line, and runs programs that do not need it.
func TestJobWithoutProc(t *testing.T) {
	const hide = "umount -l /proc && "
	private := func(script string) *exec.Cmd {
		return exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script)
	}
	if out, err := private(hide + "true").CombinedOutput(); err != nil {
		t.Skipf("no mount namespaces here: %v: %s", err, out)
	}
	out, err := private(hide + "exec mpirun-go -n 2 --oversubscribe echo started").CombinedOutput()
	require.NoError(t, err, "%s", out)
	// The race detector's own warnings of the missing /proc.
	out = regexp.MustCompile(`(?m)^==\d+==WARNING: .*\n`).ReplaceAll(out, nil)
	assert.Regexp(t, `^mpirun-go: warning: /proc is not mounted: [^\n]*\nstarted\nstarted\n$`, string(out))
}
