package bml

import (
	"slices"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// health says how far a rail to a peer, or the module at one of its ends, is trusted, from 0 to
// fullHealth. A failure lowers the health of the side that the error points to; deliveries raise
// it. The idea is that of LNet health (Lustre manual).
type health int

const (
	fullHealth health = 1000
	// trusted is the least health of a rail that is preferred for its latency.
	trusted health = 500
	// modulePenalty is what a rail's failure takes from a module that may be at fault: three
	// failures in a row leave nothing.
	modulePenalty health = 400

	// A rail or module gains recoverStep for each recoverPeriod in which something was delivered:
	// full health after 0.8 s.
	recoverPeriod        = 100 * time.Millisecond
	recoverStep   health = 125
)

// recovery is the state of a rail's failures and its return.
type recovery struct {
	cause error  // of the last failure while it was up, or why it never was; nil if none
	epoch uint32 // of the incarnation that failed last
	// wasUp: it has been up at some time. A rail that had an endpoint when the peer was resolved
	// starts up, before the peer has answered by it. The peer may have had no endpoint, and see the
	// rail as never up.
	wasUp bool

	failedAt int64 // engine's time of the failure; 0 once its operations were posted again

	isUntold bool // RAILDOWN is not sent, because no rail was up
	// isAsked: the peer waits for a RAILDOWNACK of the incarnation askedEpoch.
	isAsked    bool
	askedEpoch uint32
	// ours and theirs are the delivery counters of the last drained incarnation that has carried
	// anything, here and at the peer.
	ours, theirs deliveryCounters

	timer     *progress.Timer // of the next step; nil if there is none
	attempts  int             // to make the next incarnation, since the last one was up
	probes    int             // periods in which this incarnation has not delivered a PROBE
	isProbing bool            // a PROBE is under way
	hasPlace  bool            // and counts in ownModule.probes
	isClosing bool            // it is not needed here, and the peer is asked to close it
	delivers  bool            // a PROBE was delivered: the path works, the peer is busy
	flaps     int             // failures since the rail was calm last
	upSince   int64           // engine's time
}

// RailEvent says that a rail to a peer has failed, or has come back.
type RailEvent struct {
	Rail string // name
	Peer int    // rank in the job
	// Remote is the number of the peer's module at the other end.
	Remote int
	Up     bool
	// Again: the rail was up before, or was opened when the peer was resolved.
	Again bool
	// Alternate: another rail has the same name, and leads to another module of the peer.
	Alternate bool
	// Cause of the failure.
	Cause error
	// Left is how many rails to the peer are up now.
	Left int
}

func (b *BML) tellRail(rl *Rail, cause error) {
	if b.cfg.OnRail == nil {
		return
	}
	left := 0
	for i := range rl.peer.rails {
		if rl.peer.up.Has(i) {
			left++
		}
	}
	b.cfg.OnRail(RailEvent{Rail: rl.name(), Peer: rl.peer.rank, Remote: int(rl.remote), Up: cause == nil, Again: rl.recovery.wasUp, Alternate: rl.alternate || rl.isFurther(), Cause: cause, Left: left})
}

// isFurther reports whether an earlier rail has the same module, and so the same name.
func (rl *Rail) isFurther() bool { return rl.peer.by(rl.module, 1<<rl.index-1) != nil }

// trustee has health: it is a rail, a module of this rank, or a peer's module as this rank sees it.
// Events on a rail count for the modules at its ends, and so for every rail that uses them.
type trustee struct {
	health health
	// deliveredBytes went by its rails, with headers; seenBytes is their number when this period
	// began.
	deliveredBytes, seenBytes int64
	peak                      peak            // highest rate of its rails
	timer                     *progress.Timer // of the period; nil in full health
	hasGained                 bool            // by a TRIAL, in this period
	peer                      *Peer           // nil: a module of this rank
}

// railsOf lists the rails of a trustee to peers that are alive.
func (b *BML) railsOf(t *trustee) (rails []*Rail) {
	for _, pr := range b.peers {
		if pr == nil || !pr.IsAlive() || t.peer != nil && t.peer != pr {
			continue
		}
		for i := range pr.rails {
			if rl := &pr.rails[i]; t == &rl.trustee || t == &rl.own.trustee || t == rl.far {
				rails = append(rails, rl)
			}
		}
	}
	return rails
}

// ownModule is a module of this rank.
type ownModule struct {
	trustee
	module btl.Module
	probes int // PROBEs under way, of those that count
}

// ownModuleOf returns the record of a module.
func (b *BML) ownModuleOf(m btl.Module) *ownModule {
	for _, d := range b.ownModules {
		if d.module == m {
			return d
		}
	}
	d := &ownModule{module: m, trustee: trustee{health: fullHealth}}
	b.ownModules = append(b.ownModules, d)
	return d
}

// farEnd is the end of a rail at the peer. Rails to the same module share it.
func (pr *Peer) farEnd(remote int) *trustee {
	for i := range pr.rails {
		if rl := &pr.rails[i]; rl.far != nil && int(rl.remote) == remote {
			return rl.far
		}
	}
	return &trustee{health: fullHealth, peer: pr}
}

// trust is how far a rail is trusted: its own health, or that of a module at its ends if it is
// lower.
func (rl *Rail) trust() health { return min(rl.health, rl.own.health, rl.far.health) }

// penalize lowers the health of a rail that has failed, and of the module that the error points to.
func (b *BML) penalize(rl *Rail, err error, wasUp bool) {
	rc := &rl.recovery
	if wasUp && !isClosed(err) {
		calm := int((b.eng.Now() - rc.upSince) / int64(calmPeriod))
		rc.flaps = max(rc.flaps-calm, 0) + 1
	}
	class, side := evidence(err)
	if !isEvidence(class) {
		return
	}
	// A rail that was only ever probed may lead nowhere: its failure is no evidence against its
	// modules. A rail that had an endpoint from the start should lead there.
	if rc.wasUp {
		own, far := penaltyOf(class, side)
		b.penalizeEnd(&rl.own.trustee, own)
		b.penalizeEnd(rl.far, far)
	}
	rl.health = 0 // it has failed, whichever side is at fault
}

// isEvidence reports whether errors of a class are evidence against a rail.
func isEvidence(class btl.Class) bool {
	return class != btl.ClassUsage && class != btl.ClassClosed && class != btl.ClassFlushed
}

// penaltyOf is what an error takes from the health of the modules at its rail's ends. Only failures
// of this rank's own port or device are certain.
func penaltyOf(class btl.Class, side btl.Side) (own, far health) {
	switch {
	case !isEvidence(class):
		return 0, 0
	case side == btl.SideLocal && (class == btl.ClassDevice || class == btl.ClassPath):
		return fullHealth, 0
	case side == btl.SideLocal:
		return modulePenalty, 0
	case side == btl.SideRemote:
		return 0, modulePenalty
	case side == btl.SideBoth:
		return modulePenalty, modulePenalty
	}
	return 0, 0
}

// penalizeEnd lowers the health of a module. Earlier deliveries in this period give nothing back.
func (b *BML) penalizeEnd(t *trustee, penalty health) {
	if penalty == 0 {
		return
	}
	b.stopTimer(&t.timer)
	if before := t.health; before > 0 {
		t.health = max(before-penalty, 0)
		b.preferBy(t) // a rail to each of its peers may have failed just now
	}
	b.recover(t)
}

// recover gives health back: one step for each period with a delivery. Without a delivery, a TRIAL
// goes by an idle rail of the trustee. Its delivery gives a step at once, the only one of its
// period. While no rail of the trustee is up, recovery stops.
func (b *BML) recover(t *trustee) {
	if t.timer != nil || t.health == fullHealth {
		return
	}
	t.seenBytes, t.hasGained = t.deliveredBytes, false
	t.timer = b.eng.After(int64(recoverPeriod), func() {
		t.timer = nil
		up := slices.DeleteFunc(b.railsOf(t), func(rl *Rail) bool { return rl.state != railUp })
		if len(up) == 0 {
			return
		}
		if t.deliveredBytes > t.seenBytes && !t.hasGained {
			b.gain(t)
		} else if i := slices.IndexFunc(up, (*Rail).isIdle); i >= 0 {
			rl := up[i]
			b.try(rl, func(err error) {
				if err == nil && rl.state == railUp && !t.hasGained {
					t.hasGained = true
					b.gain(t)
				}
			})
		}
		b.recover(t)
	})
}

// isIdle reports whether no operation is under way on a rail, or waits for it.
func (rl *Rail) isIdle() bool { return rl.underWay == 0 && rl.queue.Empty() }

// gain gives a step of health back.
func (b *BML) gain(t *trustee) {
	t.health = min(t.health+recoverStep, fullHealth)
	b.preferBy(t)
	if t.health == fullHealth {
		b.stopTimer(&t.timer)
	}
}

// stopTimer stops a timer, if there is one.
func (b *BML) stopTimer(t **progress.Timer) {
	if *t != nil {
		b.eng.StopTimer(*t)
		*t = nil
	}
}

// preferBy chooses anew the rails and alternates to the peers of a trustee's rails.
func (b *BML) preferBy(t *trustee) {
	var last *Peer
	for _, rl := range b.railsOf(t) {
		if rl.peer != last {
			last = rl.peer
			b.prefer(last)
			b.useAlternates(last)
		}
	}
}

// later runs f after a time, in place of the rail's scheduled step.
func (b *BML) later(rl *Rail, after time.Duration, f func(rl *Rail)) {
	rc := &rl.recovery
	b.stopTimer(&rc.timer)
	rc.timer = b.eng.After(int64(after), func() {
		rc.timer = nil
		if rl.peer.IsAlive() {
			f(rl)
		}
	})
}
