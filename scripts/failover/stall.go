package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stallLog records when a processor of the machine did not run what was to run, and when a device
// did not accept a work request at once: soft-RoCE sends packets in the caller's time, other
// callers' too. A busy or emulated machine adds these times to all others.
type stallLog struct {
	mu  sync.Mutex
	all []stall // guarded by mu
}

type stall struct {
	at       time.Time // its end
	duration time.Duration
}

// watch begins to record, by a thread on each processor.
func (l *stallLog) watch() {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		fatal(fmt.Errorf("processors: %w", err))
	}
	for cpu := range len(allowed) * 64 {
		if allowed.IsSet(cpu) {
			go l.watchProcessor(cpu)
		}
	}
}

// shortest is how long something has to take to be a stall.
const shortest = 3 * time.Millisecond

// end records what began at a time, if it was a stall.
func (l *stallLog) end(begin time.Time) {
	now := time.Now()
	if d := now.Sub(begin); d > shortest {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, stall{now, d})
	}
}

func (l *stallLog) watchProcessor(cpu int) {
	const tick = time.Millisecond
	runtime.LockOSThread()
	var one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		fmt.Fprintf(os.Stderr, "failover: processor %d: %v\n", cpu, err)
	}
	sleep := unix.NsecToTimespec(int64(tick))
	for {
		before := time.Now()
		_ = unix.Nanosleep(&sleep, nil)
		l.end(before.Add(tick))
	}
}

// between returns the stalls that ended between two moments, in order.
func (l *stallLog) between(from, to time.Time) (list []stall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if s.at.After(from) && s.at.Before(to) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b stall) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	return list
}

// longest returns the longest stall that ended between two moments.
func (l *stallLog) longest(from, to time.Time) (longest time.Duration) {
	for _, s := range l.between(from, to) {
		longest = max(longest, s.duration)
	}
	return longest
}

// within returns the most that all processors together stalled in any time of a length between two
// moments, but no more than the length.
func (l *stallLog) within(length time.Duration, from, to time.Time) (most time.Duration) {
	list := l.between(from, to)
	length = max(length, 0)
	var sum time.Duration
	first := 0
	for _, s := range list {
		for ; s.at.Sub(list[first].at) > length; first++ {
			sum -= list[first].duration
		}
		sum += s.duration
		most = max(most, sum)
	}
	return min(most, length)
}
