package wireup

import (
	"errors"
	"fmt"
)

// What a caller may decide on with errors.Is.
var (
	ErrNoLauncher   = errors.New("no process manager: neither PMI_FD nor PMI_PORT is set") // FromEnv: be a world of one
	ErrLauncher     = errors.New("launched without PMI-1")                                 // FromEnv: there are other ranks, but no way to them
	ErrEnv          = errors.New("bad environment")                                        // FromEnv: a PMI variable makes no sense
	ErrRank         = errors.New("bad rank or size")
	ErrProtocol     = errors.New("breach of the PMI protocol") // the other side said what makes no sense
	ErrTimeout      = errors.New("timed out")
	ErrLost         = errors.New("connection lost")
	ErrClosed       = errors.New("closed") // by this side: Close, Finalize, Fail
	ErrRefused      = errors.New("refused")
	ErrNotFound     = errors.New("no such key")
	ErrKey          = errors.New("bad key")
	ErrTooLarge     = errors.New("value too large")
	ErrConfig       = errors.New("bad configuration")          // NewServer
	ErrTaken        = errors.New("rank is served already")     // Serve
	ErrNotFinalized = errors.New("ended without PMI finalize") // Serve
	ErrAborted      = errors.New("aborted the job")            // Serve
	ErrBarrier      = errors.New("barrier cannot complete")    // Serve, Barrier; a *BarrierError says why
	ErrCard         = errors.New("bad business card")
	ErrSecret       = errors.New("bad job secret")
)

// BarrierError says which rank has left, so that no barrier can complete any more. It
// Is ErrBarrier.
type BarrierError struct {
	Rank  int
	State State // it left in: StateNeverInited, StateFinalized, StateAborted or StateGone
}

// Error is one line.
func (e *BarrierError) Error() string {
	how := "ended without Init"
	switch e.State {
	case StateFinalized:
		how = "has finalized"
	case StateAborted:
		how = "has aborted the job"
	case StateGone:
		how = "is gone"
	}
	return fmt.Sprintf("rank %d %s: %v", e.Rank, how, ErrBarrier)
}

// Unwrap makes errors.Is(err, ErrBarrier) true.
func (e *BarrierError) Unwrap() error { return ErrBarrier }
