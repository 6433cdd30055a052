// Package cgroup reads the limits that control groups set to this process.
package cgroup

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// CPUs returns how many of a number of processors the quota of this process's cgroups allows to use
// all the time, at least 1. A quota of 1.5 processors allows 1. root is the root of the file
// system.
func CPUs(root string, cpus int) int {
	quota, _, _ := Limits(root)
	if quota <= 0 || quota >= float64(cpus) {
		return cpus
	}
	return max(1, int(quota))
}

// Limits returns the smallest limits of this process's cgroups and their ancestors, for both
// versions of cgroups: see the kernel's cgroup-v2.rst and cgroup-v1/memory.rst. Without a limit,
// quota is 0 and memory is -1. used is the memory in use in the cgroup that has the limit.
func Limits(root string) (quota float64, memory, used int64) {
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
				quota = lessQuota(quota, strings.Fields(firstLine(root, path.Join(at, "cpu.max"))))
				memory, used = lessMemory(memory, used, firstLine(root, path.Join(at, "memory.max")), firstLine(root, path.Join(at, "memory.current")))
			}
			for controller := range strings.SplitSeq(controllers, ",") {
				at := path.Join("sys/fs/cgroup", controller, dir)
				switch controller {
				case "cpu":
					quota = lessQuota(quota, []string{firstLine(root, path.Join(at, "cpu.cfs_quota_us")), firstLine(root, path.Join(at, "cpu.cfs_period_us"))})
				case "memory":
					memory, used = lessMemory(memory, used, firstLine(root, path.Join(at, "memory.limit_in_bytes")), firstLine(root, path.Join(at, "memory.usage_in_bytes")))
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

// firstLine returns the first line of a file, or "".
func firstLine(root, name string) string {
	text, _ := os.ReadFile(filepath.Join(root, name))
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}
