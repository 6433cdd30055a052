package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

func TestLimitsAreTheLeastOfAllLevels(t *testing.T) {
	quota, memory, used := Limits(files(t, map[string]string{
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

func TestLimitsOfVersion1(t *testing.T) {
	quota, memory, used := Limits(files(t, map[string]string{
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

func TestLimitsWithoutAny(t *testing.T) {
	for _, contents := range []map[string]string{{}, {"proc/self/cgroup": "garbage\n0::\n0::/../..\n", "sys/fs/cgroup/cpu.max": "x y\n", "sys/fs/cgroup/memory.max": "-5\n"}} {
		quota, memory, _ := Limits(files(t, contents))
		assert.Zero(t, quota)
		assert.EqualValues(t, -1, memory)
	}
}

func TestCPUsOfAQuotaAreWholeProcessors(t *testing.T) {
	for quota, want := range map[string]int{"max": 4, "50000": 1, "100000": 1, "150000": 1, "250000": 2, "400000": 4, "900000": 4} {
		root := files(t, map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": quota + " 100000\n"})
		assert.Equal(t, want, CPUs(root, 4), quota)
	}
	assert.Equal(t, 4, CPUs(t.TempDir(), 4))
}
