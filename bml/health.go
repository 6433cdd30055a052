package bml

import (
	"slices"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// health says how far a rail to a peer, or the module at one of its ends, is trusted, from 0 to
// fullHealth. A failure lowers it, by the side that the error is evidence against; what is
// delivered raises it. The idea is that of LNet health (Lustre manual).
type health int

const (
	fullHealth health = 1000
	// trusted is what a rail needs to be the first because of its latency.
	trusted health = 500
	// modulePenalty is what the failure of a rail takes from a module that may be at fault: after
	// three failures in a row the module has nothing left.
	modulePenalty health = 400

	// A rail or module gains recoverStep for each recoverPeriod in which something was delivered:
	// full health after 0.8 s.
	recoverPeriod        = 100 * time.Millisecond
	recoverStep   health = 125
)

// recovery is what is known of a rail since it failed.
type recovery struct {
	cause error  // of the last failure while it was up, or why it never was; nil if none
	epoch uint32 // of the incarnation that failed last
	// wasUp: it has been up at some time. A rail with an endpoint when the peer was resolved starts
	// up, before the peer has answered by it. The peer may have had none, and see it otherwise.
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
	hasPlace  bool            // and is counted among those of the module (ownModule.probes)
	isClosing bool            // the peer is asked to close it: it is not needed here
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
	// Again: the rail had been up before, or was opened when the peer was resolved.
	Again bool
	// Alternate: it leads to another module of the peer than the other rail of this name.
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

// isFurther reports whether another rail of the same module, and so of the same name, comes before.
func (rl *Rail) isFurther() bool { return rl.peer.by(rl.module, 1<<rl.index-1) != nil }

// trustee is what has health: a rail, a module of this rank, or a module of one peer as this rank
// sees it. What happens on a rail counts for the modules at its ends, and so for every rail that
// uses them.
type trustee struct {
	health health
	// deliveredBytes went by its rails, with headers; seenBytes of them before this period.
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

// ownModuleOf returns what is known of a module.
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

// trust is how far a rail is trusted: no more than the modules at its ends.
func (rl *Rail) trust() health { return min(rl.health, rl.own.health, rl.far.health) }

// penalize takes from the health of a rail that has failed, and of the module that the error is
// evidence against.
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
	// A rail that was only ever probed may lead nowhere, which says nothing of its modules. One
	// that had an endpoint from the start is expected to lead there.
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

// penaltyOf is what an error takes from the modules at the ends of its rail. This rank knows that
// its own port or device does not work, and only suspects all else.
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

// penalizeEnd takes from the health of a module. What was delivered before in this period gives
// nothing back.
func (b *BML) penalizeEnd(t *trustee, penalty health) {
	if penalty == 0 {
		return
	}
	b.stopTimer(&t.timer)
	if before := t.health; before > 0 {
		t.health = max(before-penalty, 0)
		b.preferBy(t) // looks at all peers, to each of which a rail may have failed just now
	}
	b.recover(t)
}

// recover gives health back for what is delivered: one step for each period in which something was.
// If nothing was, a rail of it that is up and idle is tried. The delivery of that gives a step at
// once, which is the only one of its period. Without a rail that is up this ends, and goes on when
// one returns.
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

// isIdle reports whether nothing is under way by a rail, or waits for it.
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

// preferBy chooses anew among the rails, and alternates, to the peers that a trustee's rails lead
// to.
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

// later runs f after a time, in place of what was to come next for the rail.
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
