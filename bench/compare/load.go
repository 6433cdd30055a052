package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Other work on the machine, or on its host, makes results slower and less reproducible.

const (
	// idleWatch is how long the machine is observed before anything is measured.
	idleWatch = time.Second
	// mostOthers is the share of the cores' time that others may take without a warning. The
	// kernel's accounting is not more precise.
	mostOthers = 0.1
)

// usage is how the cores' time was used since boot, in seconds of all cores together.
type usage struct {
	all, idle float64
	own       float64 // by this process and its children that have ended
}

// usageNow returns false if the system does not report usage.
func usageNow() (usage, bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return usage{}, false
	}
	u, err := parseStat(string(text))
	for _, processes := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var r unix.Rusage
		err = errors.Join(err, unix.Getrusage(processes, &r))
		u.own += float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
	}
	return u, err == nil
}

// parseStat reads the first line of /proc/stat, which sums up all cores: user, nice, system, idle,
// iowait, irq, softirq and steal (time that the host gave to others), in hundredths of a second.
// The fields after these are part of user.
func parseStat(text string) (u usage, err error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return u, fmt.Errorf("/proc/stat: %q does not sum up all cores", line)
	}
	for i, field := range fields[1:9] {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return u, fmt.Errorf("/proc/stat: %w", err)
		}
		u.all += float64(n) / 100
		if i == 3 || i == 4 {
			u.idle += float64(n) / 100
		}
	}
	return u, nil
}

// othersSince returns the share of the cores' time that others used between two moments.
func (u usage) othersSince(before usage) float64 {
	all := u.all - before.all
	if all <= 0 {
		return 0
	}
	others := all - (u.idle - before.idle) - (u.own - before.own)
	return min(max(others/all, 0), 1)
}

// watchOthers calls f and returns the share of the cores' time that others used meanwhile.
func watchOthers(f func()) (share float64, known bool) {
	before, known := usageNow()
	f()
	after, still := usageNow()
	return after.othersSince(before), known && still
}

// watchIdle checks whether the machine is busy before anything is measured.
func (m *measurement) watchIdle() {
	if share, known := watchOthers(func() { time.Sleep(idleWatch) }); known {
		m.res.Machine.OthersBefore = percent(share)
		m.warn(busy(share, "before the measurement"))
	}
}

// keepOthers records the share that others used in a round.
func (m *measurement) keepOthers(round int, share float64) {
	m.res.Machine.OthersDuring = append(m.res.Machine.OthersDuring, percent(share))
	m.warn(busy(share, fmt.Sprintf("in round %d", round)))
}

// busy returns a warning if others used too much.
func busy(share float64, when string) string {
	if share <= mostOthers {
		return ""
	}
	return fmt.Sprintf("the machine is busy: others used %s of its cores' time %s, which makes figures worse; measure while nothing else runs",
		percent(share), when)
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }
