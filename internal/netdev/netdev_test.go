package netdev

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWiresAreThoseBelow(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"eth0", "eth1", "bond0/lower_eth0", "bond0/lower_eth1", "bond0.7/lower_bond0", "a/lower_b", "b/lower_a"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/class/net", name), 0o700))
	}
	assert.Equal(t, []string{"eth0"}, Wires(root, "eth0"))
	assert.Equal(t, []string{"bond0.7", "bond0", "eth0", "eth1"}, Wires(root, "bond0.7"))
	assert.Equal(t, []string{"eth1", "bond0", "eth0"}, Wires(root, "eth1", "bond0"))
	assert.Equal(t, []string{"a", "b"}, Wires(root, "a"), "a circle ends")
	assert.Equal(t, []string{"gone", "../x"}, Wires(root, "gone", "../x"))
	assert.Empty(t, Wires(root))
}
