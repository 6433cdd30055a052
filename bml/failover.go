package bml

import (
	"errors"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// What happens when a rail fails, in this order:
//
//  1. The BTL reports the failure (Failed), and calls back what it had accepted. The rail takes no
//     more traffic. The operations in its queue go by another rail.
//  2. A piece of a transfer that was called back with an error goes by another rail at once. Other
//     fragments go to the replay queue, except PROBEs.
//  3. Each rank sends RAILDOWN by another rail when its half has failed. A rank that gets RAILDOWN
//     fails its half.
//  4. The BTL reports that the endpoint is drained (Drained): nothing of that incarnation touches
//     memory here any more. Each rank answers the other's RAILDOWN with RAILDOWNACK when its own
//     half is drained.
//  5. When no endpoint to the peer is draining, the replay queue is posted again, under the old
//     numbers. The peer drops duplicates.
//  6. Finished transfers that waited until their buffers are safe (fence.go) go on.
//
// An alternate that is not needed any more is closed by the same steps, but does not count as
// failed: a RAILDOWN asks the peer to begin (closeAlternate).
//
// If no other rail can carry RAILDOWN, the PROBE of the next incarnation stands for it (probe.go):
// a rank makes the next incarnation only when its half of the last one is drained.

// Failed implements btl.Events. A module that does not lead to a peer affects it only if the BTL
// says that the peer's process has ended.
func (b *BML) Failed(m btl.Module, to btl.Path, err *btl.Error) {
	if to != btl.WholeModule {
		if to.Peer < 0 || to.Peer >= len(b.peers) {
			return
		}
		if pr := b.Peer(to.Peer); err.Class == btl.ClassPeerGone || pr.uses(m) || pr.IsUnknown() {
			b.wayFailed(pr, way{m, int(to.Module)}, err)
		}
		return
	}
	b.forgetFallen(m)
	b.fallen = append(b.fallen, fallenRail{module: m, cause: err})
	for _, pr := range b.peers {
		if pr != nil && pr.uses(m) {
			b.wayFailed(pr, way{m, allModules}, err)
		}
	}
}

// wayFailed handles the failure of a way to a peer.
func (b *BML) wayFailed(pr *Peer, w way, err *btl.Error) {
	if pr.state == PeerLost || b.closed != nil {
		return
	}
	if pr.state != PeerFailing && err.Class != btl.ClassPeerGone {
		if b.railsFailed(pr, w, err) {
			return
		}
		pr.drains(w)
		if len(pr.rails) == 0 && b.Resolve(pr) != nil {
			b.fail(pr, b.CauseOf(err), &w)
			return
		}
		if b.railsFailed(pr, w, err) {
			return
		}
		if pr.up != 0 { // its fragments came by that module, and will come by another one
			pr.via = nil
			return
		}
	}
	b.fail(pr, b.CauseOf(err), &w)
}

// railsFailed takes the rails of a way out of use. It reports whether there are any.
func (b *BML) railsFailed(pr *Peer, w way, err error) bool {
	rails := pr.on(w)
	b.takeOut(pr, err, rails...)
	return len(rails) > 0
}

// railFailed takes a rail out of use.
func (b *BML) railFailed(rl *Rail, err error) { b.takeOut(rl.peer, err, rl) }

// takeOut takes out of use rails to a peer that failed together. Their endpoints call back the
// operations that they have accepted, before or after this call. Of a failing peer all endpoints
// fail, and those that are drained already are not waited for again.
func (b *BML) takeOut(pr *Peer, err error, rails ...*Rail) {
	if pr.state == PeerFailing {
		return
	}
	var failed []*Rail
	var wereUp RailSet
	tookTraffic := pr.up
	for _, rl := range rails {
		if rl.state == railFailing || rl.state == railDown {
			continue // already out of use
		}
		failed = append(failed, rl)
		if rl.state == railUp {
			wereUp |= 1 << rl.index
		}
		if rl.recovery.isClosing { // this end asked the peer to close it
			b.stopRail(rl, rl.notNeeded())
		} else {
			b.stopRail(rl, err)
		}
	}
	if len(failed) == 0 {
		return
	}
	b.prefer(pr)
	b.checkPath(failed[0], err)
	b.useAlternates(pr)
	for _, rl := range failed {
		pr.empty(&rl.queue, func(op *Op) { b.divert(rl, op) })
		if wereUp.Has(int(rl.index)) && !isClosed(rl.recovery.cause) && (!rl.alternate || tookTraffic.Has(int(rl.index))) {
			b.stats.RailsFailed++
			if pr.IsAlive() {
				b.tellRail(rl, err)
			}
		}
		b.sendRailDown(rl)
	}
}

// stopRail moves a rail to failing, and records the failure.
func (b *BML) stopRail(rl *Rail, err error) {
	pr, rc := rl.peer, &rl.recovery
	wasUp := rl.state == railUp
	b.moveRail(rl, railFailing)
	b.stopTimer(&rc.timer)
	b.stopTimer(&rl.timer)
	rc.epoch = rl.endpoint.Epoch()
	if wasUp || rc.cause == nil {
		rc.cause = err // a failed probe does not replace the cause
	}
	if wasUp { // otherwise only probes were posted by it
		rc.failedAt = b.eng.Now()
		pr.drains(rl.way())
	}
	b.countError(rl, err)
	b.penalize(rl, err, wasUp)
}

// isClosed reports whether a rail has ended because one end closed it.
func isClosed(err error) bool {
	var be *btl.Error
	return errors.As(err, &be) && be.Class == btl.ClassClosed
}

// drains notes that the endpoints of a way to the peer have to be drained.
func (pr *Peer) drains(w way) {
	if !slices.Contains(pr.draining, w) {
		pr.draining = append(pr.draining, w)
	}
}

// maxRetries is how often an operation is posted again: an operation that fails every rail is
// itself at fault.
const maxRetries = 100

// replay queues an operation that a rail has called back with an error, to be posted again. If
// posting it again cannot help, the operation ends.
func (b *BML) replay(op *Op, err error) {
	pr := op.peer
	if !pr.IsAlive() || b.closed != nil {
		op.Then(op, b.finalError(pr, err))
		return
	}
	if isUsage(err) { // no evidence against the path
		if op.mistakes++; pr.isRefused(int(op.mistakes)) {
			b.refuse(op, err)
			return
		}
	} else if !b.mayPostAgain(op, err) {
		op.Then(op, b.finalError(pr, err))
		return
	}
	if op.retries++; op.retries > maxRetries {
		b.fail(pr, CauseOf(err), nil)
		op.Then(op, b.finalError(pr, err))
		return
	}
	op.hasCopy = false
	push(&pr.replay, op)
	// Without a draining endpoint no Drained follows, and an operation must not be posted from
	// inside the BTL's call.
	if len(pr.draining) == 0 && !pr.isSettling {
		pr.isSettling = true
		b.postpone(work{kind: workSettle, peer: pr})
	}
}

// finalError is the final error of an operation that a rail called back with err. If the peer is
// failing, it is the cause of that, and not a consequence such as a flush.
func (b *BML) finalError(pr *Peer, err error) error {
	if !pr.IsAlive() {
		return pr.cause
	}
	return b.CauseOf(err)
}

// sendRailDown tells the peer that this half of a rail has failed, as soon as a rail is up.
func (b *BML) sendRailDown(rl *Rail) {
	rc := &rl.recovery
	if rc.isUntold = rl.peer.up == 0; rc.isUntold {
		return
	}
	b.sendAboutRail(rl, TagRailDown, railHeader{epoch: rc.epoch})
}

// sendAboutRail posts a message about a rail by the first rail.
func (b *BML) sendAboutRail(rl *Rail, tag btl.Tag, h railHeader) {
	h.sender, h.receiver = rl.local, rl.remote
	b.sendRailHeader(rl.peer, tag, h)
}

func (b *BML) sendRailHeader(pr *Peer, tag btl.Tag, h railHeader) {
	op := b.GetOp()
	op.Tag, op.HdrLen, op.Then = tag, railBytes, func(op *Op, _ error) { b.PutOp(op) }
	h.version = b.cfg.Version
	h.encode(op.Hdr[:])
	b.Send(pr, op)
}

// railDownArrived handles a RAILDOWN: this half fails, too, if its incarnation is that of the
// message or an earlier one, whose failure this rank may have missed.
func (b *BML) railDownArrived(pr *Peer, by btl.Module, rl *Rail, h railHeader) {
	if h.gaveUp {
		err := &btl.Error{Rail: by.Attrs().Name, Peer: pr.rank, Class: btl.ClassPath, Side: btl.SideRemote, Native: "RAILDOWN", Err: errGaveUp}
		b.fail(pr, b.CauseOf(err), nil)
		return
	}
	if h.notNeeded {
		if rl != nil && rl.state == railUp && rl.endpoint.Epoch() == h.epoch && !pr.needs(rl) {
			b.failRail(rl, rl.notNeeded())
		}
		return
	}
	if rl != nil && rl.endpoint != nil && rl.endpoint.Epoch() <= h.epoch && rl.state != railDown {
		if rc := &rl.recovery; !rc.isAsked || rc.askedEpoch < h.epoch {
			rc.isAsked, rc.askedEpoch = true, h.epoch
		}
		if rl.state != railFailing {
			b.failRail(rl, &btl.Error{Rail: rl.name(), Peer: pr.rank, Class: btl.ClassPath, Side: btl.SideRemote, Native: "RAILDOWN", Err: errOtherEnd})
		}
		return
	}
	h.counters = deliveryCounters{}
	if rl != nil {
		h.counters = rl.recovery.ours
	}
	h.sender, h.receiver = h.receiver, h.sender // this rank may not know the rail
	b.sendRailHeader(pr, TagRailDownAck, h)
}

var (
	errOtherEnd = errors.New("the peer's end of the rail has failed")
	errGaveUp   = errors.New("the peer has given this rank up")
)

// failRail fails this half of a rail. The endpoint is failed in the next progress call, because
// this may run inside a call of it.
func (b *BML) failRail(rl *Rail, err *btl.Error) {
	b.railFailed(rl, err)
	b.postpone(work{kind: workFailRail, rail: rl, cause: err})
}

// Drained implements btl.Events.
func (b *BML) Drained(m btl.Module, to btl.Path) {
	if to != btl.WholeModule {
		if to.Peer >= 0 && to.Peer < len(b.peers) && b.peers[to.Peer] != nil {
			b.wayDrained(b.peers[to.Peer], way{m, int(to.Module)})
		}
		return
	}
	for i := range b.fallen {
		if f := &b.fallen[i]; f.module == m {
			f.drained = true
		}
	}
	for _, pr := range b.peers {
		if pr != nil {
			b.wayDrained(pr, way{m, allModules})
		}
	}
	// A request may wait for an unknown peer that only this module led to.
	b.postpone(work{kind: workRecheck})
}

// wayDrained handles the drain of a way to a peer.
func (b *BML) wayDrained(pr *Peer, w way) {
	rails := pr.on(w)
	pr.draining = slices.DeleteFunc(pr.draining, func(d way) bool {
		return d == w || d.module == w.module && w.remote == allModules ||
			slices.ContainsFunc(pr.on(d), func(rl *Rail) bool { return slices.Contains(rails, rl) })
	})
	for _, rl := range rails {
		if rl.state == railFailing {
			b.railDrained(rl)
		}
	}
	if len(pr.draining) == 0 {
		pr.drained()
	}
	b.settled(pr) // transfers may wait for a rail that was already down
	b.loseDrained(pr)
}

// railDrained is called when this half of a failed rail is drained.
func (b *BML) railDrained(rl *Rail) {
	pr, rc := rl.peer, &rl.recovery
	b.moveRail(rl, railDown)
	rc.countDelivered(rl.endpoint)
	if rc.isAsked {
		rc.isAsked = false
		b.sendAboutRail(rl, TagRailDownAck, railHeader{epoch: rc.askedEpoch, counters: rc.ours})
	}
	b.compareCounters(rl)
	if !pr.IsAlive() {
		return
	}
	b.planReopen(rl)
	b.settled(pr)
}

// settled posts the replay queue once all failed endpoints are drained here, and resumes the
// transfers that waited for a fence.
func (b *BML) settled(pr *Peer) {
	if !pr.IsAlive() {
		return
	}
	b.resumeAll(pr, waitsForFence)
	if len(pr.draining) > 0 || !pr.IsAlive() {
		return
	}
	pr.empty(&pr.replay, func(op *Op) {
		if op.isResent {
			op.isResent = false
			b.stats.Resent++
			b.stats.ResentBytes += int64(op.Len())
		}
		if op.mistakes > 0 && pr.up != 0 {
			b.post(pr.nextRail(op.rail), op)
		} else {
			b.Send(pr, op)
		}
	})
	b.switched(pr)
}

// switched records how long the failover took.
func (b *BML) switched(pr *Peer) {
	if pr.AwaitsPath() {
		return
	}
	for i := range pr.rails {
		if rc := &pr.rails[i].recovery; rc.failedAt != 0 {
			b.stats.SwitchNanos = max(b.stats.SwitchNanos, b.eng.Now()-rc.failedAt)
			rc.failedAt = 0
		}
	}
}

// aboutRail makes the handler of a message about a rail.
func (b *BML) aboutRail(arrived func(pr *Peer, by btl.Module, rl *Rail, h railHeader)) func(*Peer, btl.Module, []byte) error {
	return func(pr *Peer, by btl.Module, frag []byte) error {
		var h railHeader
		if err := h.decode(frag, b.cfg.Version); err != nil {
			return err
		}
		if b.Resolve(pr) != nil || !pr.IsAlive() {
			return nil
		}
		rl := pr.between(h.receiver, h.sender)
		if rl != nil && h.counters.epoch != 0 {
			if rl.recovery.theirs = h.counters; b.compareCounters(rl) {
				return nil
			}
		}
		arrived(pr, by, rl, h)
		return nil
	}
}
