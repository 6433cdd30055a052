package remote

import (
	"sync"
	"syscall"
	"time"

	"go.uber.org/atomic"
)

// A host is asked whether it is there every pulse, and lost if it has said nothing for silence of these. Pulses are counted, so that a
// launcher that was stopped for a while does not take its own silence for that of others. A daemon is more patient with its launcher,
// which somebody may have stopped.
const (
	pingInterval       = 5 * time.Second
	maxMissedPings     = 6
	maxMissedIntervals = 60
)

// From the job's end on, hosts are asked more often: one that does not answer is not waited for. The end of its channel has the same effect there as
// the order to end the job's processes.
const endPingInterval = 250 * time.Millisecond

// attention is a daemon's to its launcher, whose machine may vanish without the end of the channel being seen. A launcher that
// was stopped by Ctrl-Z is waited for without a limit. The zero value begins to listen.
type launcherMonitor struct {
	missed  int // pulses since it was heard
	stopped bool
}

func (a *launcherMonitor) heard() { a.missed = 0 }

// passes notes a signal to all ranks, which the launcher heeds itself.
func (a *launcherMonitor) onSignal(sig syscall.Signal) {
	switch sig {
	case syscall.SIGTSTP:
		a.stopped = true
	case syscall.SIGCONT:
		a.stopped = false
	}
}

// missing is to be asked every pulse.
func (a *launcherMonitor) tick() bool {
	a.missed++
	return a.missed > maxMissedIntervals && !a.stopped
}

// waitParts is how many parts a limit on waiting has. They are counted, for the same reason as pulses.
const ticksPerLimit = 20

// waitPart is how long one of them is.
func tickInterval(limit time.Duration) time.Duration {
	return max(limit/ticksPerLimit, time.Millisecond)
}

// wait is for somebody who may take so long to show a sign of life, and then the same again. The zero value begins to wait.
type silenceTimer struct {
	heard atomic.Bool // for all: there was a sign
	ticks int         // that went by without
}

// over is to be asked every part: whether limits, so many, have passed without a sign.
func (w *silenceTimer) tick(limits int) bool {
	if w.heard.Swap(false) {
		w.ticks = 0
		return false
	}
	w.ticks++
	return w.ticks >= limits*ticksPerLimit
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
