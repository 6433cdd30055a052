package job

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// onSignal deals with a signal to the launcher.
func (r *run) onSignal(sig os.Signal) {
	s, _ := sig.(syscall.Signal)
	switch s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		if r.lastSignal.isRepeat(s, time.Now()) {
			return
		}
		r.impatient = true
		if r.failure != nil {
			r.kill()
			r.setSilenceLimit(repeatedSignalGrace)
			return
		}
		// What has gone wrong before the signal stays the reason, be it that it was held.
		v := r.rootCause()
		if v == nil {
			v = &failure{status: statusSignal + int(s), line: fmt.Sprintf("got signal %d (%v)", int(s), s)}
		}
		r.terminate(v, s, signalGrace)
	case syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH:
		if r.starting > 0 { // a rank may run of which one has not heard yet
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

// repeatGrace is how soon a signal that comes again counts as the same one. Timeout(1) sends
// its signal to the launcher and then to its own process group, which the launcher is in.
const repeatGrace = 200 * time.Millisecond

// repeated finds signals that come again. The zero value has seen none.
type signalFilter struct {
	last syscall.Signal
	at   time.Time
}

// is reports whether s, which has come now, is the last one again.
func (p *signalFilter) isRepeat(s syscall.Signal, now time.Time) bool {
	if s == p.last && now.Sub(p.at) < repeatGrace {
		return true
	}
	p.last, p.at = s, now
	return false
}
