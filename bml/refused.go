package bml

import (
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/btl"
)

// A rail may call an operation invalid: it refuses the operation for its length, or ends it with an
// error of ClassUsage. That is no evidence against the path, and other rails are tried. When none
// takes the operation, it ends with a *RefusedError, and the layer above posts a replacement. If
// every rail refuses the replacement, or an operation without a number, the peer is given up.

// maxMistakes is how often an operation may be called invalid; each rail is tried at least once.
const maxMistakes = 3

// RefusedError ends an operation that no rail takes, though nothing is wrong with the rails.
type RefusedError struct{ Cause error }

func (e *RefusedError) Error() string { return fmt.Sprintf("no rail takes it: %v", e.Cause) }
func (e *RefusedError) Unwrap() error { return e.Cause }

// IsRefused reports whether an error is a *RefusedError.
func IsRefused(err error) bool {
	if err == nil {
		return false
	}
	var r *RefusedError
	return errors.As(err, &r)
}

// isRefused reports whether an operation with this many mistakes is refused.
func (pr *Peer) isRefused(mistakes int) bool { return mistakes > max(maxMistakes, len(pr.rails)) }

// refuse ends an operation that no rail takes.
func (b *BML) refuse(op *Op, err error) {
	if !op.numbered || op.isReplacement {
		b.fail(op.peer, CauseOf(err), nil)
		op.Then(op, b.finalError(op.peer, err))
		return
	}
	op.Then(op, &RefusedError{err})
}

// usageError is the error of an operation that a rail refused when it was posted: the same as if
// the rail had taken it and called it invalid.
func (rl *Rail) usageError(err error) error {
	var be *btl.Error
	if errors.As(err, &be) && be.Class == btl.ClassUsage {
		return err
	}
	return &btl.Error{Rail: rl.name(), Peer: rl.peer.rank, Class: btl.ClassUsage, Side: btl.SideLocal, Err: err}
}

// nextRail is the rail for an operation that was called invalid: the next one that is up after the
// last one tried.
func (pr *Peer) nextRail(last uint8) *Rail {
	n := len(pr.rails)
	for i := 1; i <= n; i++ {
		if at := (int(last) + i) % n; pr.up.Has(at) {
			return &pr.rails[at]
		}
	}
	return pr.first
}
