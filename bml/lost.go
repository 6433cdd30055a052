package bml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// A peer ends when its process has ended, or its last rail has failed and will not come back.
// Success means delivered: fragments of sends that succeeded at the peer must still arrive here. A
// BTL hands them up, and calls back what is under way, before it reports the endpoint drained.
// Until then the peer is failing:
//
//   - Fragments from it are handed up, unless it has broken the protocol.
//   - Nothing is posted to it any more. New operations wait in the queue of the first rail.
//   - Its other endpoints are failed too.
//
// When the last endpoint is drained, no fragment can come and no device touches memory any more:
// the peer is lost, and every operation to it ends.

// fallenRail is a module of this rank that has failed as a whole, and has made no endpoint since.
type fallenRail struct {
	module  btl.Module
	cause   error
	drained bool
}

// forgetFallen forgets that a module has failed as a whole.
func (b *BML) forgetFallen(m btl.Module) {
	if len(b.fallen) > 0 {
		b.fallen = slices.DeleteFunc(b.fallen, func(f fallenRail) bool { return f.module == m })
	}
}

// HasFallen reports whether a module of this rank has failed as a whole. A peer that is unknown may
// then be unreachable.
func (b *BML) HasFallen() bool { return len(b.fallen) > 0 }

// whyFallen is why an endpoint was down before anything was posted by it.
func (b *BML) whyFallen(m btl.Module) error {
	for _, f := range b.fallen {
		if f.module == m {
			return f.cause
		}
	}
	return btl.ErrFailed
}

// isUsage reports whether an error is about an operation, and is no evidence against the rail.
func isUsage(err error) bool {
	var be *btl.Error
	return errors.As(err, &be) && be.Class == btl.ClassUsage && !IsRefused(err)
}

// CauseOf makes the error of the operations that a rail's error ends. It Is ErrProcFailed or
// ErrUnreachable, unless a rail refused the operation.
func CauseOf(err error) error {
	if errors.Is(err, request.ErrProcFailed) || errors.Is(err, request.ErrUnreachable) || IsRefused(err) {
		return err
	}
	var be *btl.Error
	if errors.As(err, &be) && (be.Class == btl.ClassPeerGone || be.Class == btl.ClassClosed) {
		return fmt.Errorf("%w: %w", request.ErrProcFailed, err)
	}
	return fmt.Errorf("%w: %w", request.ErrUnreachable, err)
}

// CauseOf is the function CauseOf, except that a rail that closes after Leave gives Leave's cause.
func (b *BML) CauseOf(err error) error {
	if b.leaving != nil && isClosed(err) {
		return b.leaving
	}
	return CauseOf(err)
}

// Fail gives a peer up.
func (b *BML) Fail(pr *Peer, cause error) { b.fail(pr, cause, nil) }

// fail gives a peer up. w is the way whose failure says so, nil if there is none.
func (b *BML) fail(pr *Peer, cause error, w *way) {
	if pr.state == PeerLost || b.closed != nil {
		return
	}
	if w != nil {
		pr.drains(*w)
	}
	if pr.state != PeerFailing {
		b.move(pr, PeerFailing)
		pr.cause = cause
		pr.stopInline()
		b.stopGrace(pr)
		b.failLater(pr)
	}
}

// failLater has every endpoint to a peer failed in the next progress call, because this may run
// inside a call of one.
func (b *BML) failLater(pr *Peer) {
	pr.isFailDeferred = true
	b.postpone(work{kind: workFailPeer, peer: pr})
}

// failEndpoints fails the endpoints to a peer, if they are not down already.
func (b *BML) failEndpoints(pr *Peer) {
	for i := range pr.rails {
		rl := &pr.rails[i]
		if rl.endpoint == nil {
			continue
		}
		rl.endpoint.Fail(pr.cause)
		if rl.endpoint.State() == btl.Failed {
			pr.drains(rl.way()) // also if it failed before it was in use here
		}
	}
	pr.isFailDeferred = false
	b.loseDrained(pr)
}

// loseDrained loses a failing peer if nothing can come from it any more.
func (b *BML) loseDrained(pr *Peer) {
	if pr.state == PeerFailing && len(pr.draining) == 0 && !pr.isFailDeferred {
		b.lose(pr, pr.cause)
	}
}

// ProtocolError gives up a peer that has sent an invalid fragment. Without that fragment the
// sequence, or a message, has a gap, so nothing from the peer is handed up any more. The peer is
// lost when its rails are drained: until then they may read and write the buffers of its
// operations.
func (b *BML) ProtocolError(pr *Peer, err error) {
	b.stats.Malformed++
	pr.isIgnored = true
	pr.heard = cmp.Or(pr.heard, pr.via) // its half of that rail does not fail by itself
	b.fail(pr, fmt.Errorf("%w: rank %d broke the protocol: %w", request.ErrUnreachable, pr.rank, err), nil)
}

// lose ends every operation to a peer, with cause.
func (b *BML) lose(pr *Peer, cause error) {
	if pr.state == PeerLost {
		return
	}
	if b.closed != nil {
		cause = b.closed
	}
	wasFailing := pr.state == PeerFailing
	b.move(pr, PeerLost)
	pr.cause, pr.draining = cause, nil
	pr.drained()
	pr.stopInline()
	b.stopGrace(pr)
	if !wasFailing && len(pr.rails) > 0 {
		b.failLater(pr) // so that the peer learns of it
	}
	if pr.heard != nil && !errors.Is(cause, request.ErrProcFailed) {
		b.reject(pr, pr.heard) // its half was up then, and may still be
	}
	for _, e := range pr.early {
		b.upper.Forget(pr, e.tag, e.frag)
	}
	pr.early = nil
	for _, q := range pr.queues() {
		for !q.Empty() {
			b.end(pop(q), cause, false)
		}
	}
	b.upper.Lost(pr)
}
