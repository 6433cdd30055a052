package doctor

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// buildHash is a short hash of the executable, "" if it cannot be read.
func buildHash() string {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

// capIPCLock is the number of the capability that lifts RLIMIT_MEMLOCK (capabilities(7)).
const capIPCLock = 14

// hasCapability reports whether this process has a capability.
func hasCapability(root string, number uint) bool {
	text, _ := os.ReadFile(filepath.Join(root, "proc/self/status"))
	_, rest, _ := strings.Cut(string(text), "\nCapEff:")
	set, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	mask, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
	return err == nil && mask>>number&1 == 1
}

func mtu(root, name string) int {
	n, _ := strconv.Atoi(readLine(root, path.Join("sys/class/net", name, "mtu")))
	return n
}

// cgroupLimits returns the smallest limits of this process's cgroups and their ancestors, for both
// versions of cgroups: see the kernel's cgroup-v2.rst and cgroup-v1/memory.rst. Without a limit,
// quota is 0 and memory is -1. used is the memory in use in the cgroup that has the limit.
func cgroupLimits(root string) (quota float64, memory, used int64) {
	memory = -1
	text, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
			if controllers == "" {
				at := path.Join("sys/fs/cgroup", dir)
				quota = lessQuota(quota, strings.Fields(readLine(root, path.Join(at, "cpu.max"))))
				memory, used = lessMemory(memory, used, readLine(root, path.Join(at, "memory.max")), readLine(root, path.Join(at, "memory.current")))
			}
			for controller := range strings.SplitSeq(controllers, ",") {
				at := path.Join("sys/fs/cgroup", controller, dir)
				switch controller {
				case "cpu":
					quota = lessQuota(quota, []string{readLine(root, path.Join(at, "cpu.cfs_quota_us")), readLine(root, path.Join(at, "cpu.cfs_period_us"))})
				case "memory":
					memory, used = lessMemory(memory, used, readLine(root, path.Join(at, "memory.limit_in_bytes")), readLine(root, path.Join(at, "memory.usage_in_bytes")))
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return quota, memory, used
}

// lessQuota returns the smaller of two quotas. fields are the quota and period of the second one;
// max or -1 means no quota.
func lessQuota(quota float64, fields []string) float64 {
	if len(fields) != 2 {
		return quota
	}
	allowed, err1 := strconv.ParseFloat(fields[0], 64)
	period, err2 := strconv.ParseFloat(fields[1], 64)
	if err1 != nil || err2 != nil || !(allowed > 0) || !(period > 0) {
		return quota
	}
	if n := allowed / period; quota == 0 || n < quota {
		return n
	}
	return quota
}

// lessMemory returns the smaller of two limits, with its usage. A limit above half of the largest
// int64 means no limit: cgroups version 1 has no word for that.
func lessMemory(memory, used int64, limit, usage string) (int64, int64) {
	n, err := strconv.ParseInt(limit, 10, 64)
	if err != nil || n > math.MaxInt64/2 || n < 0 || memory >= 0 && memory <= n {
		return memory, used
	}
	used, _ = strconv.ParseInt(usage, 10, 64)
	return n, used
}
