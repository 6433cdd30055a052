package remote

import (
	"sync"
	"syscall"
	"time"

	"go.uber.org/atomic"
)

// The launcher pings each host every pingInterval. A host is lost if nothing arrives from it for
// maxMissedPings intervals. The launcher counts intervals instead of time, so that it does not lose
// all hosts after it has been stopped for a while. A daemon waits longer for its launcher, because
// a user may have stopped the launcher: it ends after maxMissedIntervals intervals (five minutes).
const (
	pingInterval       = 5 * time.Second
	maxMissedPings     = 6
	maxMissedIntervals = 60
)

// endPingInterval is the ping interval from the job's end on. From then on the launcher does not
// wait long for a silent host: when the daemon of such a host sees the end of its channel, it kills
// the job's processes, as it does on kindKill.
const endPingInterval = 250 * time.Millisecond

// launcherMonitor detects, in a daemon, that the launcher is gone although its channel is open, for
// example because its machine has lost power. It waits without limit for a launcher that was
// stopped by Ctrl-Z. The zero value is ready to use.
type launcherMonitor struct {
	missed  int // intervals since the last frame from the launcher
	stopped bool
}

func (m *launcherMonitor) reset() { m.missed = 0 }

// onSignal records a signal to all ranks, which the launcher also applies to itself.
func (m *launcherMonitor) onSignal(sig syscall.Signal) {
	switch sig {
	case syscall.SIGTSTP:
		m.stopped = true
	case syscall.SIGCONT:
		m.stopped = false
	}
}

// tick is called at every interval. It reports whether the launcher is gone.
func (m *launcherMonitor) tick() bool {
	m.missed++
	return m.missed > maxMissedIntervals && !m.stopped
}

// ticksPerLimit is the number of ticks that a time limit is divided into. A silenceTimer counts
// ticks instead of time for the same reason as the launcher counts pings.
const ticksPerLimit = 20

// tickInterval returns the duration of a tick of the given limit.
func tickInterval(limit time.Duration) time.Duration {
	return max(limit/ticksPerLimit, time.Millisecond)
}

// silenceTimer is a timer that restarts at each sign of life. The zero value is a timer that has
// just started.
type silenceTimer struct {
	alive atomic.Bool // set at a sign of life, by any goroutine
	ticks int         // ticks since the last sign of life
}

// tick is called at every tick. It reports whether limits times the time limit has passed without a
// sign of life.
func (t *silenceTimer) tick(limits int) bool {
	if t.alive.Swap(false) {
		t.ticks = 0
		return false
	}
	t.ticks++
	return t.ticks >= limits*ticksPerLimit
}

// waitTimeout waits for wg for at most limit, and reports whether wg is done.
func waitTimeout(wg *sync.WaitGroup, limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}
