package comm

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPlaceOfProcessors: a machine of two sockets with two cores each, of two threads. Each socket
// is a NUMA node.
func TestPlaceOfProcessors(t *testing.T) {
	sys := fstest.MapFS{}
	file := func(name, text string) { sys[name] = &fstest.MapFile{Data: []byte(text + "\n")} }
	for i, cpu := range []string{"cpu0", "cpu1", "cpu2", "cpu3", "cpu4", "cpu5", "cpu6", "cpu7"} {
		socket, core := string(rune('0'+i/2%2)), string(rune('0'+i%2))
		file(cpu+"/topology/physical_package_id", socket)
		file(cpu+"/topology/core_id", core)
		file(cpu+"/node"+socket+"/meminfo", "")
	}
	file("cpu8/topology/physical_package_id", "-1")
	file("cpu8/topology/core_id", "nonsense")
	file("cpu8/nodes", "")
	place := func(kind SplitKind, cpus ...int) int { return placeOf(sys, cpus, kind) }
	for _, kind := range []SplitKind{SplitNUMA, SplitSocket} {
		require.Positive(t, place(kind, 0))
		assert.Equal(t, place(kind, 0), place(kind, 0, 1, 4, 5))
		assert.Equal(t, place(kind, 2), place(kind, 7, 6))
		assert.NotEqual(t, place(kind, 0), place(kind, 2))
		assert.Zero(t, place(kind, 0, 2))
	}
	require.Positive(t, place(SplitCore, 0))
	assert.Equal(t, place(SplitCore, 0), place(SplitCore, 0, 4), "two threads of a core")
	assert.Zero(t, place(SplitCore, 0, 1))
	seen := map[int]bool{}
	for cpu := range 4 {
		seen[place(SplitCore, cpu)] = true
	}
	assert.Len(t, seen, 4, "core 0 of one socket is not core 0 of the other one")
	for _, kind := range []SplitKind{SplitNUMA, SplitSocket, SplitCore} {
		assert.Zero(t, place(kind, 8), "the machine does not say")
		assert.Zero(t, place(kind, 9), "no such processor")
		assert.Zero(t, place(kind), "not known where this process may run")
	}
	assert.Zero(t, place(SplitNode, 0))
	assert.NotEmpty(t, allowedCPUs())
}
