package comm_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSettingThatRanksMustShareIsNamed: where one rank has another value of a setting that all must
// have the same, the error names the setting, the ranks and their values as the user wrote them.
func TestSettingThatRanksMustShareIsNamed(t *testing.T) {
	mpirun, err := launcherFile()
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	for _, c := range []struct{ btl, set, want string }{
		{"self,tcp", "MPIGO_TCP_FRAG_BYTES=64K", "tcp.frag.bytes is (128K at rank 0 and 64K at rank 1|64K at rank 1 and 128K at rank 0): set it"},
		{"self,sm", "MPIGO_SM_FRAG_BYTES=32K", "sm.frag.bytes is (64K at rank 0 and 32K at rank 1|32K at rank 1 and 64K at rank 0): set it"},
	} {
		script := `if [ "$MPIGO_RANK" = 1 ]; then export ` + c.set + `; fi; exec "$0"`
		got := execute(t, "calls", mpirun, "-n", "2", "--oversubscribe", "--timeout", "3m", "--btl", c.btl, "--set", "pml.grace=100ms", "sh", "-c", script, self)
		assert.Equal(t, 1, got.status, c.set)
		assert.Regexp(t, c.want, got.stderr) // of the rank that fails first
	}
}
