package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/tunable"
)

// files makes files below a new directory.
func files(t *testing.T, contents map[string]string) string {
	root := t.TempDir()
	for name, text := range contents {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
	}
	return root
}

func TestCgroupLimitsAreTheLeastOfAllLevels(t *testing.T) {
	quota, memory, used := cgroupLimits(files(t, map[string]string{
		"proc/self/cgroup":                    "0::/a/b\n",
		"sys/fs/cgroup/a/b/cpu.max":           "max 100000\n",
		"sys/fs/cgroup/a/b/memory.max":        "2147483648\n",
		"sys/fs/cgroup/a/b/memory.current":    "5\n",
		"sys/fs/cgroup/a/cpu.max":             "150000 100000\n",
		"sys/fs/cgroup/a/memory.max":          "1073741824\n",
		"sys/fs/cgroup/a/memory.current":      "7\n",
		"sys/fs/cgroup/memory.max":            "max\n",
		"sys/fs/cgroup/cpu.max":               "400000 100000\n",
		"sys/fs/cgroup/elsewhere/a/b/cpu.max": "1 100000\n",
	}))
	assert.Equal(t, 1.5, quota)
	assert.EqualValues(t, 1<<30, memory)
	assert.EqualValues(t, 7, used)
}

func TestCgroupLimitsOfVersion1(t *testing.T) {
	quota, memory, used := cgroupLimits(files(t, map[string]string{
		"proc/self/cgroup": "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n1:name=systemd:/\n",
		"sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us":       "50000\n",
		"sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us":      "100000\n",
		"sys/fs/cgroup/cpu/cpu.cfs_quota_us":                "-1\n",
		"sys/fs/cgroup/cpu/cpu.cfs_period_us":               "100000\n",
		"sys/fs/cgroup/memory/memory.limit_in_bytes":        "9223372036854771712\n",
		"sys/fs/cgroup/memory/docker/memory.usage_in_bytes": "3\n",
		"sys/fs/cgroup/memory/docker/memory.limit_in_bytes": "1000\n",
	}))
	assert.Equal(t, 0.5, quota)
	assert.EqualValues(t, 1000, memory)
	assert.EqualValues(t, 3, used)
}

func TestCgroupLimitsWithoutAny(t *testing.T) {
	for _, contents := range []map[string]string{{}, {"proc/self/cgroup": "garbage\n0::\n0::/../..\n", "sys/fs/cgroup/cpu.max": "x y\n", "sys/fs/cgroup/memory.max": "-5\n"}} {
		quota, memory, _ := cgroupLimits(files(t, contents))
		assert.Zero(t, quota)
		assert.EqualValues(t, -1, memory)
	}
}

func TestHasCapability(t *testing.T) {
	root := files(t, map[string]string{"proc/self/status": "Name:\tx\nCapPrm:\t0\nCapEff:\t0000000000004000\nCapBnd:\t0\n"})
	assert.True(t, hasCapability(root, capIPCLock))
	assert.False(t, hasCapability(root, capIPCLock+1))
	assert.False(t, hasCapability(t.TempDir(), capIPCLock))
}

func TestCollectOfThisMachine(t *testing.T) {
	f := collect("/", tunable.Set{})
	assert.NotEmpty(t, f.Kernel)
	assert.NotEmpty(t, f.Build)
	assert.Positive(t, f.CPUs)
	assert.Positive(t, f.Files)
	assert.Positive(t, f.ClockNanos)
	assert.NotEmpty(t, f.Interfaces)
}

func TestChosenWord(t *testing.T) {
	assert.Equal(t, "advise", chosenWord("always within_size [advise] never deny force"))
	assert.Empty(t, chosenWord(""))
}

func TestReachOfNoMemoryFails(t *testing.T) {
	assert.Error(t, reach("/proc/self/fd/9999"))
	name := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(name, make([]byte, sharedBytes), 0o666))
	assert.ErrorContains(t, reach(name), "is not the memory of the rank")
}
