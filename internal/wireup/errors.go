package wireup

import (
	"errors"
	"fmt"
)

// Errors for errors.Is.
var (
	// FromEnv. Run as a world of one rank.
	ErrNoLauncher = errors.New("no process manager: neither PMI_FD nor PMI_PORT is set")
	// Other ranks exist, but cannot be reached.
	ErrLauncher = errors.New("launched without PMI-1")
	// Another process has joined as this rank.
	ErrJoined = errors.New("has joined the job already")
	// A PMI variable is invalid.
	ErrEnv = errors.New("bad environment")

	// Exchanges.
	ErrRank     = errors.New("bad rank or size")
	ErrProtocol = errors.New("PMI protocol error") // the peer sent a line that breaks the protocol
	ErrTimeout  = errors.New("timed out")
	ErrLost     = errors.New("connection lost")
	ErrClosed   = errors.New("closed") // by this side: Close, Finalize, Fail
	ErrRefused  = errors.New("refused")
	ErrNotFound = errors.New("no such key")
	ErrKey      = errors.New("bad key")
	ErrTooLarge = errors.New("value too large")
	ErrBarrier  = errors.New("barrier cannot complete") // a *BarrierError has the cause
	ErrCard     = errors.New("bad business card")
	// The process manager does not offer this.
	ErrUnsupported = errors.New("not supported by the process manager")
	ErrSecret      = errors.New("bad job secret")

	// NewServer and Serve.
	ErrConfig       = errors.New("bad configuration")
	ErrTaken        = errors.New("rank is served already")
	ErrNotFinalized = errors.New("ended without PMI finalize")
	ErrAborted      = errors.New("aborted the job")
)

// BarrierError says which rank has left, so that no barrier can complete any more. It Is
// ErrBarrier.
type BarrierError struct {
	Rank  int
	State State // StateNeverInited, StateFinalized, StateAborted or StateGone
}

// Error returns one line.
func (e *BarrierError) Error() string {
	return fmt.Sprintf("%s: %v", e.Cause(), ErrBarrier)
}

// Cause says which rank has left, and how.
func (e *BarrierError) Cause() string {
	how := "ended without Init"
	switch e.State {
	case StateFinalized:
		how = "has finalized"
	case StateAborted:
		how = "has aborted the job"
	case StateGone:
		how = "is gone"
	}
	return fmt.Sprintf("rank %d %s", e.Rank, how)
}

// Unwrap makes errors.Is(err, ErrBarrier) true.
func (e *BarrierError) Unwrap() error { return ErrBarrier }
