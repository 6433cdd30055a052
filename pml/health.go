package pml

import (
	"cmp"
	"errors"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// health says how far a rail to a peer, or a rail of this rank as a whole, is to be trusted, from 0 to fullHealth. A failure
// takes from it, by what it is evidence of; time without one gives back. A rail that has come back begins with little, and so
// with a small share of long messages.
type health int

const (
	fullHealth health = 1000
	// trusted is what a rail needs so that it is the first of those that are up, by its latency.
	trusted health = 500

	// deviceDebit is what the failure of a way takes from its device, if it is evidence against that. The way itself has
	// nothing left.
	deviceDebit = 400

	recoverEvery = 100 * time.Millisecond
	recoverStep  = 125

	// firstRetry is how soon the next incarnation is tried. It doubles with each attempt in vain, up to mostRetry, and with each failure
	// of a rail that had come back, up to mostHold; that is forgotten by one in calmPeriod.
	firstRetry = 5 * time.Millisecond
	mostRetry  = 500 * time.Millisecond
	mostHold   = 30 * time.Second
	calmPeriod = 10 * time.Second

	// probeEvery: a PROBE that was not delivered is sent again, and after so many of them the incarnation is given up. One that
	// was, and is not answered, is sent again more seldom: the peer may be busy, or was not able to answer then.
	probeEvery     = 200 * time.Millisecond
	mostProbes     = 10
	reminderPeriod = 2 * time.Second

	// mostProbing is how many PROBEs one device has under way: each is as long as a fragment can
	// be, and takes room that other peers' fragments need.
	mostProbing = 32
)

// mending is what is known of a rail since it failed.
type mending struct {
	cause error  // of the last failure of what was up, or why it never was; nil if there is none
	wasUp bool   // it has been up, at some time
	epoch uint32 // of the incarnation that failed last
	since int64  // when; 0 once all was posted again

	unfenced bool // the peer's half may not be Drained yet; counted in peer.unfenced
	untold   bool // the peer was not told, because no rail was up
	// What was counted of the last incarnation that has carried anything, when that was Drained, here and there.
	ours, theirs tally
	// isAsked: the peer wants to know when our half of an incarnation is Drained.
	isAsked    bool
	askedEpoch uint32

	timer    *progress.Timer // of whatever comes next; nil if nothing does
	attempts int             // to make the next incarnation, since the last one was up
	probes   int             // periods in which this incarnation has not delivered one
	asking   bool            // a PROBE is under way
	works    bool            // a PROBE was delivered: it is only that the peer is busy elsewhere
	flaps    int             // failures that are not forgotten
	upSince  int64
}

// RailEvent says that a way to a peer has failed, or has come back.
type RailEvent struct {
	Rail string
	Peer int
	Up   bool
	// Anew says that it had been up before.
	Anew bool
	// Cause of the failure.
	Cause error
	// Left is how many rails to the peer are up now.
	Left int
}

func (p *PML) tellRail(rl *rail, cause error) {
	if p.cfg.OnRail == nil {
		return
	}
	left := 0
	for i := range rl.peer.rails {
		if rl.peer.up.has(i) {
			left++
		}
	}
	p.cfg.OnRail(RailEvent{Rail: rl.module.Attrs().Name, Peer: rl.peer.rank, Up: cause == nil, Anew: rl.mending.wasUp, Cause: cause, Left: left})
}

// later has f run after a time, in place of whatever was to come next for the rail.
func (p *PML) later(rl *rail, after time.Duration, f func(rl *rail)) {
	m := &rl.mending
	if m.timer != nil {
		p.eng.StopTimer(m.timer)
	}
	m.timer = p.eng.After(int64(after), func() {
		m.timer = nil
		if pr := rl.peer; pr.lost == nil && pr.failing == nil && p.closed == nil {
			f(rl)
		}
	})
}

// device is a rail of this rank, to whomever it leads: what fails at this end of it says something about all its ways.
type device struct {
	module btl.Module
	health health
	timer  *progress.Timer // while it recovers
	probes int             // under way
}

// deviceOf is the device of a module, which it makes known.
func (p *PML) deviceOf(m btl.Module) *device {
	for _, d := range p.devices {
		if d.module == m {
			return d
		}
	}
	d := &device{module: m, health: fullHealth}
	p.devices = append(p.devices, d)
	return d
}

// trust is how far a rail to a peer is to be trusted: no more than its device.
func (rl *rail) trust() health { return min(rl.health, rl.device.health) }

// hurt takes from the health of a rail that has failed, of its device, or of both: by which end the error is evidence against.
func (p *PML) hurt(rl *rail, err error, wasUp bool) {
	m := &rl.mending
	var be *btl.Error
	isOurs := errors.As(err, &be)
	if wasUp && !isClosed(err) {
		m.flaps = max(m.flaps-int((p.eng.Now()-m.upSince)/int64(calmPeriod)), 0) + 1
	}
	side := btl.SideRemote
	if isOurs {
		if be.Class == btl.ClassUsage || be.Class == btl.ClassClosed || be.Class == btl.ClassFlushed {
			return // no evidence
		}
		side = be.Side
	}
	if side == btl.SideLocal || side == btl.SideBoth {
		rl.device.health = max(rl.device.health-deviceDebit, 0)
		p.weigh(rl.device)
		p.nurse(rl.device)
	}
	rl.health = 0 // it has failed, whosever fault that is
	rl.weigh()
}

// nurse gives a device its health back, with time.
func (p *PML) nurse(d *device) {
	if d.timer != nil || d.health == fullHealth {
		return
	}
	d.timer = p.eng.After(int64(recoverEvery), func() {
		d.timer = nil
		d.health = min(d.health+recoverStep, fullHealth)
		p.weigh(d)
		p.nurse(d)
	})
}

// weigh gives all ways by a device the share that they have at its health.
func (p *PML) weigh(d *device) {
	for _, pr := range p.peers {
		for i := 0; pr != nil && i < len(pr.rails); i++ {
			if rl := &pr.rails[i]; rl.device == d {
				rl.weigh()
				p.prefer(pr)
			}
		}
	}
}

// weigh gives a rail the share of long messages that it has at its health.
func (rl *rail) weigh() {
	full := max(rl.module.Attrs().BandwidthMBps, 1)
	rl.weight = max(full*int64(rl.trust())/int64(fullHealth), 1)
}

// recover gives health back to a rail that is up.
func (p *PML) recover(rl *rail) {
	if rl.state != railUp {
		return
	}
	rl.health = min(rl.health+recoverStep, fullHealth)
	rl.weigh()
	p.prefer(rl.peer)
	if rl.health < fullHealth {
		p.later(rl, recoverEvery, p.recover)
	}
}

// plan has the next incarnation of a rail that is down made after a while. That of a spare one, which nobody needs now, is made when it is
// needed.
func (p *PML) plan(rl *rail) {
	m := &rl.mending
	if rl.reopen == nil || rl.peer.isSpare(rl) {
		return
	}
	wait := min(firstRetry<<min(m.attempts, 10), mostRetry)
	if m.attempts == 0 && m.flaps > 1 && rl.peer.up != 0 {
		wait = min(firstRetry<<min(m.flaps, 20), mostHold)
	}
	p.later(rl, wait, p.tryReopen)
}

// tryReopen makes the next incarnation, and asks the peer whether it works.
func (p *PML) tryReopen(rl *rail) {
	if rl.state != railDown || !p.opens(rl) {
		return
	}
	p.ask(rl)
}

// opens makes the next incarnation. It reports false if that cannot be now; it is tried again later.
func (p *PML) opens(rl *rail) bool {
	rl.mending.attempts++
	ep, err := rl.reopen()
	var be *btl.Error
	switch {
	case errors.As(err, &be) && be.Class == btl.ClassPeerGone:
		p.fail(rl.peer, p.causeOf(err), nil)
		return false
	case err != nil || ep.State() != btl.Up:
		p.plan(rl)
		return false
	}
	p.moveRail(rl, railProbing)
	p.adopt(rl, ep)
	rl.mending.probes, rl.mending.works = 0, false
	p.later(rl, probeEvery, p.ask)
	return true
}

// ask sends a PROBE by the new incarnation, and again until there is an answer.
func (p *PML) ask(rl *rail) {
	m := &rl.mending
	if rl.state != railProbing {
		return
	}
	hasRoom := m.asking || rl.device.probes < mostProbing
	every := probeEvery
	switch {
	case m.works:
		every = reminderPeriod
	case !hasRoom: // it has not been tried
	default:
		if m.probes++; m.probes > mostProbes {
			p.bringDown(rl, &btl.Error{Rail: rl.module.Attrs().Name, Peer: rl.peer.rank, Class: btl.ClassTimeout, Side: btl.SideBoth, Native: "PROBE"})
			return
		}
	}
	p.later(rl, every, p.ask)
	if hasRoom && !m.asking {
		m.asking = true
		rl.device.probes++
		p.postProbe(rl, tagProbe, p.probeDone)
	}
}

// postProbe posts a PROBE or PROBEACK. It is as long as the longest fragment that the rail takes: a
// path that loses those, and no short ones, is one that does not work.
func (p *PML) postProbe(rl *rail, tag btl.Tag, done func(*btl.Op, error)) {
	op := p.getOp()
	op.Tag, op.HdrLen, op.Owner, op.Done = tag, railBytes, rl, done
	n := rl.sendBytes - railBytes
	if len(p.padding) < n {
		p.padding = make([]byte, n)
	}
	op.Payload = p.padding[:n]
	h := railHdr{rail: rl.local, epoch: rl.endpoint.Epoch(), tally: rl.mending.ours, padding: uint32(n)}
	h.encode(op.Hdr[:])
	p.post(rl, op)
}

// probeDelivered takes back the operation of a PROBE or PROBEACK. It reports whether that was delivered by the incarnation that is
// being probed now.
func (p *PML) probeDelivered(op *btl.Op, err error) (rl *rail, delivered bool) {
	rl = op.Owner.(*rail)
	epoch := epochOf(op.Header())
	p.putOp(op)
	return rl, err == nil && rl.state == railProbing && epoch == rl.endpoint.Epoch()
}

// onProbeDone is called when a PROBE was delivered, or not.
func (p *PML) onProbeDone(op *btl.Op, err error) {
	rl, delivered := p.probeDelivered(op, err)
	rl.mending.asking = false
	rl.device.probes--
	if delivered {
		rl.mending.probes, rl.mending.works = 0, true
	}
}

// probed takes a PROBE, which has come by an incarnation that the peer has begun or joined.
func (p *PML) probed(rl *rail, h railHdr) {
	if h.epoch > rl.mending.epoch {
		p.fence(rl)
	}
	if rl.state == railDown && !p.opens(rl) || rl.state == railFailing || rl.endpoint.Epoch() != h.epoch {
		return // it asks again
	}
	p.postProbe(rl, tagProbeAck, p.probeAckDone)
}

// onProbeAckDone is called when a PROBEACK was delivered, or not. If it was, the rail works both ways.
func (p *PML) onProbeAckDone(op *btl.Op, err error) {
	if rl, delivered := p.probeDelivered(op, err); delivered {
		p.railReturned(rl)
	}
}

// probeAnswered takes a PROBEACK.
func (p *PML) probeAnswered(rl *rail, h railHdr) {
	if rl.state == railProbing && h.epoch == rl.endpoint.Epoch() {
		p.fence(rl)
		p.railReturned(rl)
	}
}

// railReturned puts a rail in use again.
func (p *PML) railReturned(rl *rail) {
	pr, m := rl.peer, &rl.mending
	p.moveRail(rl, railUp)
	if m.wasUp {
		p.stats.RailsReturned++
	}
	m.attempts, m.upSince = 0, p.eng.Now()
	p.prefer(pr)
	p.tellRail(rl, nil)
	m.wasUp = true
	p.later(rl, recoverEvery, p.recover)
	for i := range pr.rails {
		if other := &pr.rails[i]; other.mending.untold && other.state != railUp {
			p.tellDown(other)
		}
	}
	if pr.stranded != nil {
		p.rescue(pr)
	}
}

// prefer finds the rails that take traffic, those of the lowest tier that has one which is up, and the first of them: of
// the trusted ones that of the lowest latency, else the healthiest.
func (p *PML) prefer(pr *peer) {
	best := -1
	pr.up = 0
	for i := range pr.rails {
		rl := &pr.rails[i]
		if rl.state != railUp || best >= 0 && rl.tier > pr.rails[best].tier {
			continue
		}
		pr.up |= 1 << i
		if best < 0 || pr.rails[best].trust() < trusted && rl.trust() > pr.rails[best].trust() {
			best = i
		}
	}
	if best >= 0 && (pr.first != &pr.rails[best] || pr.inliner != nil) {
		p.preferFirst(pr, best)
	}
}

// findFallen finds the rails of a peer, just found, that are down already.
func (p *PML) findFallen(pr *peer) {
	for i := range pr.rails {
		if rl := &pr.rails[i]; rl.endpoint == nil {
			rl.state = railDown
		}
	}
	p.prefer(pr)
	for i := range pr.rails {
		if rl := &pr.rails[i]; rl.endpoint != nil && rl.endpoint.State() != btl.Up {
			p.railFailed(rl, p.whyFallen(rl.module))
		}
	}
	for i := range pr.rails {
		if rl := &pr.rails[i]; rl.state == railDown {
			p.plan(rl)
		}
	}
	if pr.up == 0 && pr.stranded == nil && pr.failing == nil {
		p.strand(&pr.rails[0], cmp.Or(pr.rails[0].mending.cause, p.whyFallen(pr.rails[0].module)))
	}
}

// isSpare reports whether a rail would take no traffic if it were up.
func (pr *peer) isSpare(rl *rail) bool { return pr.up != 0 && rl.tier > pr.first.tier }

// whyFallen is why an endpoint was down before anything was posted by it.
func (p *PML) whyFallen(m btl.Module) error {
	for _, f := range p.fallen {
		if f.module == m {
			return f.cause
		}
	}
	return btl.ErrFailed
}
