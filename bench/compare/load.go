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

// What others do on the machine, or to it, makes figures worse and lets them scatter.

const (
	// lookBefore is how long the machine is looked at before anything is measured.
	lookBefore = time.Second
	// mostOthers is the share of the cores' time that others may take without a warning: the bookkeeping is
	// that coarse.
	mostOthers = 0.1
)

// usage is what the cores have done since the machine was started, in seconds of all of them together.
type usage struct {
	all, idle float64
	own       float64 // by this process and those that it has started, once they have ended
}

// usageNow gives false where that cannot be found out.
func usageNow() (usage, bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return usage{}, false
	}
	u, err := parseStat(string(text))
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var r unix.Rusage
		err = errors.Join(err, unix.Getrusage(who, &r))
		u.own += float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
	}
	return u, err == nil
}

// parseStat reads the first line of /proc/stat, which is about all cores: user, nice, system, idle, iowait, irq,
// softirq, steal (what the host has given to others), in hundredths of a second. What follows is counted in user.
func parseStat(text string) (u usage, err error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return u, fmt.Errorf("/proc/stat: %q is no line of all cores", line)
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

// othersSince is the share of the cores' time that was others' between two looks.
func (u usage) othersSince(before usage) float64 {
	all := u.all - before.all
	if all <= 0 {
		return 0
	}
	others := all - (u.idle - before.idle) - (u.own - before.own)
	return min(max(others/all, 0), 1)
}

// watchOthers calls f, and gives the share that others took meanwhile.
func watchOthers(f func()) (share float64, known bool) {
	before, known := usageNow()
	f()
	after, still := usageNow()
	return after.othersSince(before), known && still
}

// lookAround finds out whether the machine is busy before anything is measured.
func (s *session) lookAround() {
	if share, known := watchOthers(func() { time.Sleep(lookBefore) }); known {
		s.res.Machine.OthersBefore = percent(share)
		s.warn(busy(share, "before the measurement"))
	}
}

// lookBack keeps what others took in a round.
func (s *session) lookBack(round int, share float64) {
	s.res.Machine.OthersDuring = append(s.res.Machine.OthersDuring, percent(share))
	s.warn(busy(share, fmt.Sprintf("in round %d", round)))
}

// busy is the warning that is due, if any.
func busy(share float64, when string) string {
	if share <= mostOthers {
		return ""
	}
	return fmt.Sprintf("the machine is busy: others took %s of its cores' time %s, which makes figures worse and scatter; measure when nothing else runs",
		percent(share), when)
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }
