package remote

import (
	"syscall"
	"time"
)

// A host is asked whether it is there every pulse, and lost if it has said nothing for silence of these. Pulses are counted, so that a
// launcher that was stopped for a while does not take its own silence for that of others. A daemon is more patient with its launcher,
// which somebody may have stopped.
const (
	pulse    = 5 * time.Second
	silence  = 6
	patience = 60
)

// attention is a daemon's to its launcher, whose machine may vanish without the end of the channel being seen. A launcher that
// was stopped by Ctrl-Z is waited for without a limit. The zero value begins to listen.
type attention struct {
	quiet   int // pulses since it was heard
	stopped bool
}

func (a *attention) heard() { a.quiet = 0 }

// passes notes a signal to all ranks, which the launcher heeds itself.
func (a *attention) passes(sig syscall.Signal) {
	switch sig {
	case syscall.SIGTSTP:
		a.stopped = true
	case syscall.SIGCONT:
		a.stopped = false
	}
}

// missing is to be asked every pulse.
func (a *attention) missing() bool {
	a.quiet++
	return a.quiet > patience && !a.stopped
}
