package job

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// onSignal handles a signal to the launcher.
func (r *run) onSignal(sig os.Signal) {
	s, _ := sig.(syscall.Signal)
	switch s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		if r.lastSignal.isRepeat(s, time.Now()) {
			return
		}
		if s == syscall.SIGQUIT && r.failure == nil && !r.quitting && r.canAsk() {
			r.onQuit()
			return
		}
		r.endNow = true
		if r.failure != nil {
			r.kill()
			r.setSilenceLimit(repeatedSignalGrace)
			return
		}
		r.terminate(r.signalFailure(s), s, r.signalGrace())
	case syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH:
		if r.starting > 0 { // a rank may be running whose start is not reported yet
			r.postponed = append(r.postponed, s)
			return
		}
		for _, k := range r.ranks {
			k.Signal(s)
		}
	case syscall.SIGTSTP:
		r.signalGroups(syscall.SIGTSTP)
		if r.cfg.Flush != nil {
			r.cfg.Flush()
		}
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	case syscall.SIGCONT:
		r.signalGroups(syscall.SIGCONT)
	}
}

// signalFailure returns the job's failure if signal s ends it. A failure before the signal, even a
// pending one, stays the job's failure.
func (r *run) signalFailure(s syscall.Signal) *failure {
	if f := r.rootCause(); f != nil {
		return f
	}
	return &failure{status: statusSignal + int(s), line: fmt.Sprintf("got signal %d (%v)", int(s), s)}
}

// onQuit prints a report, and then ends the job by SIGTERM, because at SIGQUIT each rank would
// print all its stacks. A second SIGQUIT during the report is passed on to the ranks.
func (r *run) onQuit() {
	r.quitting = true
	r.reportAndEnd("got signal 3 (quit). What the ranks were doing:", func() {
		r.endNow = true
		r.terminate(r.signalFailure(syscall.SIGQUIT), syscall.SIGTERM, r.signalGrace())
	})
}

// repeatWindow is the time within which a repeated signal counts as the same one. Timeout(1) sends
// its signal to the launcher and then to its own process group, which includes the launcher.
const repeatWindow = 200 * time.Millisecond

// signalFilter detects repeated signals. Its zero value has seen no signal.
type signalFilter struct {
	last syscall.Signal
	at   time.Time
}

// isRepeat reports whether s, received at time now, repeats the last signal.
func (f *signalFilter) isRepeat(s syscall.Signal, now time.Time) bool {
	if s == f.last && now.Sub(f.at) < repeatWindow {
		return true
	}
	f.last, f.at = s, now
	return false
}
