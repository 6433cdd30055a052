package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// machine describes the properties of the machine that affect the results.
type machine struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	Cache       string `json:"cache"` // the largest
	Kernel      string `json:"kernel"`
	Go          string `json:"go"`
	Mpigo       string `json:"mpigo"`
	OpenMPI     string `json:"openmpi,omitempty"`
	MPICH       string `json:"mpich,omitempty"`
	LoadAtStart string `json:"loadAtStart"` // runnable processes: averages over 1, 5 and 15 minutes
	LoadAtEnd   string `json:"loadAtEnd"`
	// The share of the cores' time that others used, among them the host: before anything was
	// measured, and in each round.
	OthersBefore string   `json:"othersBefore,omitempty"`
	OthersDuring []string `json:"othersDuring,omitempty"`
}

func describeMachine(ctx context.Context) machine {
	return machine{
		CPU: cpuModel(), Cores: runtime.NumCPU(), Cache: largestCache(), Kernel: kernel(),
		Go: runtime.Version(), Mpigo: firstLine(ctx, "git", "describe", "--always", "--dirty"),
		OpenMPI: firstLine(ctx, "mpirun.openmpi", "--version"), MPICH: mpichVersion(ctx),
		LoadAtStart: loadAverage(),
	}
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// largestCache returns the size of the last-level cache.
func largestCache() string {
	files, _ := filepath.Glob("/sys/devices/system/cpu/cpu0/cache/index*/size")
	if len(files) == 0 {
		return ""
	}
	text, _ := os.ReadFile(files[len(files)-1]) // Glob sorts them
	return strings.TrimSpace(string(text))
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// firstLine returns the first line that a command prints, or "" if the command does not exist.
func firstLine(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

// mpichVersion returns MPICH's version and device.
func mpichVersion(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "mpichversion").Output()
	if err != nil {
		return ""
	}
	var parts []string
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(line, ":")
		if name == "MPICH Version" || name == "MPICH Device" {
			parts = append(parts, strings.TrimSpace(value))
		}
	}
	return strings.Join(parts, " ")
}
