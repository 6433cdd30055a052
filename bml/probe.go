package bml

import (
	"errors"
	"time"

	"github.com/mpigo/mpigo/btl"
)

// A rail comes back as follows. When this half of the failed incarnation is drained, this rank
// waits, makes the next incarnation and sends a PROBE by it. The peer makes or joins that
// incarnation, and answers with a PROBEACK. The rail is up at the peer when the PROBEACK is
// delivered, and here when it arrives.

const (
	// firstReopen is the delay before the next incarnation is made. It doubles with each failed
	// attempt, up to maxReopen, and with each failure of a rail that had come back, up to maxHold.
	// A rail that stays up for calmPeriod has one failure forgiven.
	firstReopen = 5 * time.Millisecond
	maxReopen   = 500 * time.Millisecond
	maxHold     = 30 * time.Second
	calmPeriod  = 10 * time.Second

	// A PROBE that was not delivered is sent again after probePeriod; after maxProbes such periods
	// the incarnation fails. A PROBE that was delivered, and not answered, is sent again after
	// reminderPeriod: the peer is busy, or could not answer.
	probePeriod    = 200 * time.Millisecond
	maxProbes      = 10
	reminderPeriod = 2 * time.Second

	// maxModuleProbes is how many PROBEs a module has under way. Each is as long as the longest
	// fragment, and takes room from fragments to other peers. Rails that have never been up may
	// have no path, so they are probed only while the module has fewer than maxUnprovenProbes under
	// way. Such a rail gives its place to another one if its PROBE is not delivered within
	// probePeriod.
	maxModuleProbes, maxUnprovenProbes = 32, 8

	// An alternate that has not been needed for idleAlternate is closed.
	idleAlternate = 5 * time.Second
)

// planReopen schedules the next incarnation of a rail that is down. A spare rail is reopened only
// when it is needed.
func (b *BML) planReopen(rl *Rail) {
	rc := &rl.recovery
	if rl.peer.isSpare(rl) {
		return
	}
	wait := min(firstReopen<<min(rc.attempts, 10), maxReopen)
	switch {
	case rl.peer.up == 0:
	case rc.attempts == 0 && rc.flaps > 1:
		wait = min(firstReopen<<min(rc.flaps, 20), maxHold)
	case rl.alternate && !rc.wasUp:
		wait = min(firstReopen<<min(rc.attempts, 20), maxHold)
	}
	b.later(rl, wait, func(rl *Rail) {
		if !rl.peer.isSpare(rl) {
			b.reopen(rl)
			b.probe(rl)
		}
	})
}

// useAlternates opens the alternates that are needed, and closes the others after idleAlternate. A
// rail that recovers health stays open: it may be needed again (health.go).
func (b *BML) useAlternates(pr *Peer) {
	for i := range pr.rails {
		switch rl := &pr.rails[i]; {
		case !rl.alternate:
		case rl.state != railUp:
			b.open(rl)
		case pr.needs(rl):
			b.stopTimer(&rl.recovery.timer)
			rl.recovery.isClosing = false
		case rl.health == fullHealth && rl.recovery.timer == nil:
			b.later(rl, idleAlternate, b.closeAlternate)
		}
	}
}

// closeAlternate asks the peer to close an alternate that is not needed here, and repeats that
// while the peer needs it. The end that was asked closes the rail. Without asking, the peer would
// see a failure, lower the health of its modules, and need alternates again.
func (b *BML) closeAlternate(rl *Rail) {
	if rl.state != railUp || rl.peer.needs(rl) || rl.peer.up == 0 {
		return
	}
	rl.recovery.isClosing = true
	b.sendAboutRail(rl, TagRailDown, railHeader{epoch: rl.endpoint.Epoch(), notNeeded: true})
	b.later(rl, idleAlternate, b.closeAlternate)
}

// notNeeded is why an end closes a rail.
func (rl *Rail) notNeeded() *btl.Error {
	return &btl.Error{Rail: rl.name(), Peer: rl.peer.rank, Class: btl.ClassClosed, Side: btl.SideLocal, Native: "not needed"}
}

// open schedules the next incarnation of a rail, unless that has been done.
func (b *BML) open(rl *Rail) {
	if rl.state == railDown && rl.recovery.timer == nil {
		b.planReopen(rl)
	}
}

// reopen makes the next incarnation, and the rail is probing then. If that fails, it is tried again
// later. A rail without Reopen stays down.
func (b *BML) reopen(rl *Rail) {
	rc := &rl.recovery
	if rl.reopen == nil { // a peer may still send a PROBE
		return
	}
	rc.attempts++
	ep, err := rl.reopen()
	var be *btl.Error
	switch {
	case errors.As(err, &be) && be.Class == btl.ClassPeerGone:
		b.fail(rl.peer, b.CauseOf(err), nil)
		return
	case rl.alternate && errors.Is(err, btl.ErrUnreachable):
		return // the modules have no path
	case err != nil:
		b.countError(rl, err)
		b.planReopen(rl)
		return
	case ep.State() != btl.Up:
		b.planReopen(rl)
		return
	}
	b.moveRail(rl, railProbing)
	b.adopt(rl, ep)
	if j := rl.peer.judge; j != nil {
		j.Renew(int(rl.index), b.eng.Now())
	}
	rc.probes, rc.delivers, rc.isClosing = 0, false, false
	b.later(rl, probePeriod, b.probe)
}

// probe sends a PROBE by the new incarnation, and again until it is answered.
func (b *BML) probe(rl *Rail) {
	rc := &rl.recovery
	if rl.state != railProbing {
		return
	}
	most := maxModuleProbes
	if !rc.wasUp {
		most = maxUnprovenProbes
	}
	if !rc.wasUp {
		rl.giveUpPlace()
	}
	hasRoom := rc.isProbing || rl.own.probes < most
	period := probePeriod
	switch {
	case rc.delivers:
		period = reminderPeriod
		b.countLate(rl)
	case !hasRoom: // not probed now
	default:
		if rc.probes++; rc.probes > maxProbes {
			b.failRail(rl, &btl.Error{Rail: rl.name(), Peer: rl.peer.rank, Class: btl.ClassTimeout, Native: "PROBE"})
			return
		}
	}
	b.later(rl, period, b.probe)
	if hasRoom && !rc.isProbing {
		rc.isProbing, rc.hasPlace = true, true
		rl.own.probes++
		b.postProbe(rl, TagProbe, func(isDelivered bool) {
			rc.isProbing = false
			rl.giveUpPlace()
			if isDelivered {
				rc.delivers = true
			}
		})
	}
}

// giveUpPlace frees the rail's place among the module's PROBEs, if it has one.
func (rl *Rail) giveUpPlace() {
	if rl.recovery.hasPlace {
		rl.recovery.hasPlace = false
		rl.own.probes--
	}
}

// postProbe posts a PROBE or PROBEACK. isDelivered says that it was delivered, and that the same
// incarnation is still being probed. The message is as long as the longest fragment: a path may
// lose only long ones.
func (b *BML) postProbe(rl *Rail, tag btl.Tag, then func(isDelivered bool)) {
	epoch := rl.endpoint.Epoch()
	h := railHeader{epoch: epoch, counters: rl.recovery.ours, padding: uint32(rl.sendBytes - railBytes)}
	b.postAbout(rl, tag, h, func(err error) {
		isProbed := rl.state == railProbing && epoch == rl.endpoint.Epoch()
		then(err == nil && isProbed && rl.peer.IsAlive())
	})
}

// postAbout posts a message about a rail by that rail.
func (b *BML) postAbout(rl *Rail, tag btl.Tag, h railHeader, then func(err error)) {
	n := int(h.padding)
	if len(b.padding) < n {
		b.padding = make([]byte, n)
	}
	op := b.GetOp()
	op.Tag, op.HdrLen, op.Payload, op.bound = tag, railBytes, b.padding[:n], true
	h.sender, h.receiver, h.version = rl.local, rl.remote, b.cfg.Version
	h.encode(op.Hdr[:])
	op.Then = func(op *Op, err error) {
		b.PutOp(op)
		then(err)
	}
	b.post(rl, op)
}

// probeArrived handles a PROBE, by an incarnation that the peer has made or joined.
func (b *BML) probeArrived(_ *Peer, by btl.Module, rl *Rail, h railHeader) {
	if rl == nil || rl.module != by {
		return // this rank does not use the rail
	}
	if rl.state == railDown {
		b.reopen(rl)
	}
	if rl.state == railDown || rl.endpoint.Epoch() != h.epoch {
		return // the peer probes again
	}
	b.postProbe(rl, TagProbeAck, func(isDelivered bool) {
		if isDelivered {
			b.railReturned(rl)
		}
	})
}

// probeAckArrived handles a PROBEACK.
func (b *BML) probeAckArrived(_ *Peer, by btl.Module, rl *Rail, h railHeader) {
	if rl != nil && rl.module == by && rl.state == railProbing && h.epoch == rl.endpoint.Epoch() {
		b.railReturned(rl)
	}
}

// railReturned puts a probed rail in use.
func (b *BML) railReturned(rl *Rail) {
	pr, rc := rl.peer, &rl.recovery
	b.moveRail(rl, railUp)
	if rc.wasUp {
		b.stats.RailsReturned++
	}
	rc.attempts, rc.upSince = 0, b.eng.Now()
	b.prefer(pr)
	if rc.wasUp || !rl.isExtra {
		b.tellRail(rl, nil)
	}
	rc.wasUp = true
	for _, t := range []*trustee{&rl.trustee, &rl.own.trustee, rl.far} {
		b.recover(t)
	}
	b.stopTimer(&rc.timer) // of the next PROBE
	b.useAlternates(pr)
	for i := range pr.rails {
		if other := &pr.rails[i]; other.recovery.isUntold && other.state != railUp {
			b.sendRailDown(other)
		}
	}
	if pr.HasPath() { // RAILDOWN may have found the rail down again
		b.pathFound(pr)
	}
}
