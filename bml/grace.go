package bml

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// The grace time bounds how long operations wait for a rail that delivers. It ends in two cases:
//
//   - No rail to the peer is up, and none has come back for that long.
//   - An operation or a transfer fails again after the grace time since its first failure, and
//     every rail that is up has failed with it.
//
// The second case is for paths that deliver probes and lose what follows. A rail that comes back
// does not restart the time; only delivery ends it.
//
// In the first case the time is extended while a rail that was never needed before is probed for
// the first time: it may have had to wait until others were probed (probe.go).
//
// A timer counts the time in parts, so a rank that makes no calls for long loses one part at most.
// A part in which a PROBE was delivered, but not answered, does not count: the peer is only busy.

const (
	// minGrace is the least grace time of an operation that another rail can take at once, and of a
	// peer with a rail that was never needed, and has to be opened first.
	minGrace = 2 * time.Second
	// graceParts is how many parts the grace time has.
	graceParts = 10
)

// graceClock counts the parts of the grace time that pass while something is wrong with the rails
// to a peer.
type graceClock struct {
	timer *progress.Timer // of the running part; nil while the clock stands still
	parts uint32          // so far
	until uint32          // the clock runs until then, and longer while no rail is up
}

// isNeeded reports whether the clock counts for an operation or a transfer.
func (g *graceClock) isNeeded() bool { return g.parts < g.until }

// trouble is what an operation or a transfer has met so far.
type trouble struct {
	by    RailSet // the rails that have failed with it; 0: none
	until uint32  // when its grace time is over, by the peer's clock
	last  error   // why the last of them failed
}

// gracePart is the length of a part, in nanoseconds.
func (b *BML) gracePart() int64 {
	grace := b.cfg.Grace
	if grace <= 0 {
		grace = minGrace
	}
	return max(int64(grace)/graceParts, 1)
}

// startGrace starts the peer's clock, and returns when, by that clock, a time that begins now is
// over.
func (b *BML) startGrace(pr *Peer, nanos int64) uint32 {
	end := pr.grace.parts + uint32(nanos/b.gracePart())
	if pr.grace.timer != nil {
		return end + 1 // some of the running part is over
	}
	b.startGracePart(pr)
	return end
}

// startGracePart runs the clock for a part. If far more than graceParts are left, the timer counts
// several: with a short grace time, minGrace has many parts, and a rank that makes few progress
// calls would wait for each.
func (b *BML) startGracePart(pr *Peer) {
	left := int32(pr.grace.until - pr.grace.parts)
	if pr.AwaitsPath() {
		left = max(left, int32(pr.graceEnd-pr.grace.parts))
	}
	parts := max(left/graceParts, 1)
	pr.grace.timer = b.eng.After(int64(parts)*b.gracePart(), func() {
		pr.grace.timer = nil
		b.gracePartOver(pr, uint32(parts))
	})
}

func (b *BML) stopGrace(pr *Peer) {
	b.stopTimer(&pr.grace.timer)
}

// gracePartOver is called when some parts are over. The clock of a peer that fails is stopped.
func (b *BML) gracePartOver(pr *Peer, parts uint32) {
	delivers := false
	for i := range pr.rails {
		rl := &pr.rails[i]
		delivers = delivers || rl.state == railProbing && rl.recovery.delivers
	}
	if !delivers {
		pr.grace.parts += parts
	}
	isOver := pr.AwaitsPath() && pr.grace.parts >= pr.graceEnd
	if isOver && pr.triesUntried() {
		pr.graceEnd = pr.grace.parts + 1 + uint32(int64(probePeriod)/b.gracePart())
		isOver = false
	}
	switch {
	case isOver:
		b.fail(pr, b.CauseOf(pr.whyNoPath()), nil)
	case pr.AwaitsPath() || pr.grace.isNeeded():
		b.startGracePart(pr)
	}
}

// mayTryAgain notes that rails have failed with an operation or a transfer. It reports false if
// there is no further attempt; the peer is failing then.
func (b *BML) mayTryAgain(pr *Peer, t *trouble, by RailSet, err error) bool {
	if t.by == 0 {
		t.until = b.startGrace(pr, b.gracePart()*graceParts)
		pr.grace.until = max(pr.grace.until, t.until)
	}
	t.by |= by
	t.last = err
	for i := range pr.rails { // the rail's cause says more than a flush
		if by == 1<<i {
			t.last = cmp.Or(pr.rails[i].recovery.cause, err)
		}
	}
	if pr.grace.parts < t.until || pr.up&^t.by != 0 {
		return true
	}
	b.fail(pr, fmt.Errorf("every rail fails with the same message for longer than the grace time: %w", b.CauseOf(t.last)), nil)
	return false
}

// mayPostAgain is mayTryAgain for an operation.
func (b *BML) mayPostAgain(op *Op, err error) bool {
	pr := op.peer
	by := ^RailSet(0)
	if be := (*btl.Error)(nil); errors.As(err, &be) && be.Rail == pr.rails[op.rail].name() {
		by = 1 << op.rail
	}
	return b.mayTryAgain(pr, &op.trouble, by, err)
}

// checkPath is called when a rail is down. If no other one is up, the operations to the peer wait
// for one to come back.
func (b *BML) checkPath(rl *Rail, err error) {
	pr := rl.peer
	if pr.up != 0 || !pr.HasPath() && pr.cause != nil {
		return
	}
	var be *btl.Error
	isClosedThere := errors.As(err, &be) && be.Class == btl.ClassClosed && be.Side == btl.SideRemote
	mayReturn := false
	for i := range pr.rails {
		mayReturn = mayReturn || pr.rails[i].reopen != nil
	}
	grace := b.cfg.Grace
	if pr.hasUntried() {
		grace = max(grace, minGrace)
	}
	if isClosedThere || !mayReturn || grace <= 0 {
		b.fail(pr, b.CauseOf(err), nil)
		return
	}
	if pr.HasPath() {
		b.move(pr, PeerNoPath)
	}
	pr.cause, pr.graceEnd = err, b.startGrace(pr, int64(grace))
	pr.stopInline()
	for i := range pr.rails {
		if other := &pr.rails[i]; other.state == railDown {
			b.planReopen(other) // a rail that flaps is better than none
		}
	}
}

// isUntried reports whether a rail was never up, because it was not needed.
func (pr *Peer) isUntried(rl *Rail) bool {
	return rl.reopen != nil && !rl.recovery.wasUp && (rl.tier > pr.rails[0].tier || rl.alternate)
}

// hasUntried reports whether an untried rail leads to the peer.
func (pr *Peer) hasUntried() bool {
	for i := range pr.rails {
		if pr.isUntried(&pr.rails[i]) {
			return true
		}
	}
	return false
}

// triesUntried reports whether an untried rail is being probed for the first time. That takes at
// most maxProbes periods.
func (pr *Peer) triesUntried() bool {
	for i := range pr.rails {
		rl := &pr.rails[i]
		if rc := &rl.recovery; pr.isUntried(rl) && rl.state == railProbing && rc.attempts == 1 && rc.isProbing {
			return true
		}
	}
	return false
}

// pathFound posts what waited for a path to the peer.
func (b *BML) pathFound(pr *Peer) {
	pr.cause = nil
	if !pr.grace.isNeeded() {
		b.stopGrace(pr)
	}
	pr.empty(&pr.waiting, func(op *Op) { b.Send(pr, op) })
	b.settled(pr)
}
