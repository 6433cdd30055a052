package bml

import (
	"errors"
	"time"

	"github.com/mpigo/mpigo/btl"
)

// How a rail comes back: when this half of the failed incarnation is drained, the next one is made
// after a while, and a PROBE goes by it. The peer makes or joins that incarnation, and answers with
// a PROBEACK. A delivered PROBEACK puts the rail in use at its sender, an arriving one at its
// receiver.

const (
	// firstReopen is how soon the next incarnation is made. It doubles with each attempt in vain,
	// up to maxReopen, and with each failure of a rail that had come back, up to maxHold. A rail
	// that stays up for calmPeriod has one failure forgiven.
	firstReopen = 5 * time.Millisecond
	maxReopen   = 500 * time.Millisecond
	maxHold     = 30 * time.Second
	calmPeriod  = 10 * time.Second

	// A PROBE that was not delivered is sent again after probePeriod; after maxProbes of them the
	// incarnation is given up. A PROBE that was delivered, and not answered, is sent again after
	// reminderPeriod: the peer is busy, or could not answer then.
	probePeriod    = 200 * time.Millisecond
	maxProbes      = 10
	reminderPeriod = 2 * time.Second

	// maxModuleProbes is how many PROBEs a module has under way. Each is as long as the longest
	// fragment, and takes room from fragments to other peers. Rails that have never been up may
	// have no path, so they leave most of these to other rails, and give their place to another one
	// if their PROBE is not delivered within probePeriod: many may lead nowhere.
	maxModuleProbes, maxUnprovenProbes = 32, 8

	// An alternate that has not been needed for idleAlternate is closed.
	idleAlternate = 5 * time.Second
)

// planReopen has the next incarnation of a rail that is down made after a while. That of a spare
// rail is made when the rail is needed.
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

// useAlternates opens the alternates that are of use now, and closes others after a while. Those
// that recover recover first (health.go): they may be needed again before.
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

// closeAlternate asks the peer to close an alternate that is not needed here, now and while the
// peer needs it. What is up at both ends has to be closed by an end that was told: to the other one
// it would look like a failure, which would lower the health of its modules, so that alternates
// were needed again.
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

// open has the next incarnation of a rail made, unless that is under way.
func (b *BML) open(rl *Rail) {
	if rl.state == railDown && rl.recovery.timer == nil {
		b.planReopen(rl)
	}
}

// reopen makes the next incarnation, whose rail is railProbing then. If that cannot be now, it is
// tried again later, unless the rail has no Reopen.
func (b *BML) reopen(rl *Rail) {
	rc := &rl.recovery
	if rl.reopen == nil { // a peer may send a PROBE all the same
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
		return // and never will be
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
	case !hasRoom: // it is not tried now
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

// giveUpPlace lets another rail of the module be probed in place of this one, if it has a place.
func (rl *Rail) giveUpPlace() {
	if rl.recovery.hasPlace {
		rl.recovery.hasPlace = false
		rl.own.probes--
	}
}

// postProbe posts a PROBE or PROBEACK, and says whether it was delivered by the incarnation that is
// being probed at that time, while the peer is alive. It is as long as the longest fragment: a path
// that loses those, and no short ones, does not work.
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

// probeArrived takes a PROBE, by an incarnation that the peer has begun or joined.
func (b *BML) probeArrived(_ *Peer, by btl.Module, rl *Rail, h railHeader) {
	if rl == nil || rl.module != by {
		return // of a rail that this rank does not use
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

// probeAckArrived takes a PROBEACK.
func (b *BML) probeAckArrived(_ *Peer, by btl.Module, rl *Rail, h railHeader) {
	if rl != nil && rl.module == by && rl.state == railProbing && h.epoch == rl.endpoint.Epoch() {
		b.railReturned(rl)
	}
}

// railReturned puts a rail in use again.
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
