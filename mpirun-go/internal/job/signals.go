package job

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/mpirun-go/internal/diagnose"
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
		if s == syscall.SIGINT && !r.failed() && !r.interrupted && !r.quitting && r.canAsk() {
			r.onInterrupt()
			return
		}
		r.endNow = true
		again := r.failure != nil || r.interrupted
		r.terminate(r.signalFailure(s), s, r.signalGrace())
		if again {
			r.kill()
			r.setSilenceLimit(repeatedSignalGrace)
		}
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

const (
	// interruptAskLimit bounds the time for which a first SIGINT waits for the ranks' answers. The
	// wait ends once all have answered and one has made progress.
	interruptAskLimit = time.Second
	// interruptLimit bounds the time from the first SIGINT to the end, if the analysis takes long.
	interruptLimit = 2 * time.Second
	// briefLines is the number of lines of a report that a SIGINT prints.
	briefLines = 3
)

// onInterrupt passes SIGINT on to the ranks. A user who interrupts a job often does so because it
// hangs. So it first asks the ranks, and prints why if none of them makes progress. A second signal
// ends the job at once.
func (r *run) onInterrupt() {
	r.interrupted = true
	end := func() {
		if r.failure == nil {
			r.endNow = true
			r.terminate(r.signalFailure(syscall.SIGINT), syscall.SIGINT, r.signalGrace())
		}
	}
	r.after(interruptLimit, end)
	peers, info := r.peers(), r.Info()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), interruptAskLimit)
		defer cancel()
		ctx, stop := r.untilDone(ctx)
		defer stop()
		brief := diagnose.New(info, introspect.AskAll(ctx, introspect.WantReport, peers)).Brief(briefLines)
		r.post(func() {
			if r.failure == nil && r.alive > 0 && brief != "" {
				r.printLine("got signal 2 (interrupt) while no rank made progress. Why:\n" + brief +
					"(Ctrl-\\ in place of Ctrl-C prints the whole report before the job ends; mpirun-go diagnose does while it runs)")
			}
			end()
		})
	}()
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
