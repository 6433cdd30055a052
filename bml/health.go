package bml

import (
	"slices"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// health says how far a rail to a peer, or the module at one of its ends, is trusted, from 0 to
// fullHealth. A failure lowers it, by the side that the error is evidence against; time without a
// failure raises it. A rail that has just come back has little health, and so a small share of long
// messages. The idea is that of LNet health (Lustre manual).
type health int

const (
	fullHealth health = 1000
	// trusted is what a rail needs to be the first because of its latency.
	trusted health = 500
	// modulePenalty is what the failure of a rail takes from the module at the end that the error
	// is evidence against: after three failures in a row the module has nothing left.
	modulePenalty health = 400

	// A rail or module that is up gains recoverStep every recoverPeriod: full health after 0.8 s.
	recoverPeriod        = 100 * time.Millisecond
	recoverStep   health = 125
)

// recovery is what is known of a rail since it failed.
type recovery struct {
	cause error  // of the last failure while it was up, or why it never was; nil if none
	wasUp bool   // it has been up at some time
	epoch uint32 // of the incarnation that failed last

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
	delivers  bool            // a PROBE was delivered: the path works, the peer is busy
	flaps     int             // failures since the rail was calm last
	upSince   int64           // engine's time
}

// RailEvent says that a rail to a peer has failed, or has come back.
type RailEvent struct {
	Rail string // name
	Peer int    // rank in the job
	Up   bool
	// Again: the rail had been up before.
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
	b.cfg.OnRail(RailEvent{Rail: rl.name(), Peer: rl.peer.rank, Up: cause == nil, Again: rl.recovery.wasUp, Alternate: rl.alternate, Cause: cause, Left: left})
}

// end is a module of this rank, or of one peer as this rank sees it: a failure at that end says
// something about every rail that uses the module.
type end struct {
	health health
	timer  *progress.Timer // while it recovers
	peer   *Peer           // whose module it is; nil: this rank's
}

// ownModule is a module of this rank.
type ownModule struct {
	end
	module btl.Module
	probes int // PROBEs under way
}

// ownModuleOf returns what is known of a module.
func (b *BML) ownModuleOf(m btl.Module) *ownModule {
	for _, d := range b.ownModules {
		if d.module == m {
			return d
		}
	}
	d := &ownModule{module: m, end: end{health: fullHealth}}
	b.ownModules = append(b.ownModules, d)
	return d
}

// farEnd is the end of a rail at the peer. Rails to the same module share it.
func (pr *Peer) farEnd(remote int) *end {
	for i := range pr.rails {
		if rl := &pr.rails[i]; rl.far != nil && int(rl.remote) == remote {
			return rl.far
		}
	}
	return &end{health: fullHealth, peer: pr}
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
	if class == btl.ClassUsage || class == btl.ClassClosed || class == btl.ClassFlushed {
		return // no evidence
	}
	// Nothing may ever lead an alternate to the peer, which says nothing of its module.
	isHopeless := rl.alternate && !rl.recovery.wasUp
	if (side == btl.SideLocal || side == btl.SideBoth) && !isHopeless {
		b.penalizeEnd(&rl.own.end, modulePenalty)
	}
	if (side == btl.SideRemote || side == btl.SideBoth) && !isHopeless {
		b.penalizeEnd(rl.far, modulePenalty)
	}
	rl.health = 0 // it has failed, whichever side is at fault
}

// penalizeEnd takes from the health of a module.
func (b *BML) penalizeEnd(e *end, penalty health) {
	e.health = max(e.health-penalty, 0)
	b.preferBy(e)
	b.recoverEnd(e)
}

// recoverEnd gives a module its health back over time.
func (b *BML) recoverEnd(e *end) {
	if e.timer != nil || e.health == fullHealth {
		return
	}
	e.timer = b.eng.After(int64(recoverPeriod), func() {
		e.timer = nil
		e.health = min(e.health+recoverStep, fullHealth)
		b.preferBy(e)
		b.recoverEnd(e)
	})
}

// preferBy chooses anew among the rails to the peers that a module leads to.
func (b *BML) preferBy(e *end) {
	for _, pr := range b.peers {
		if pr != nil && (e.peer == nil || e.peer == pr) && slices.ContainsFunc(pr.rails, func(rl Rail) bool { return &rl.own.end == e || rl.far == e }) {
			b.prefer(pr)
		}
	}
}

// recover gives health back to a rail that is up. Its timer ends when the rail fails.
func (b *BML) recover(rl *Rail) {
	rl.health = min(rl.health+recoverStep, fullHealth)
	b.prefer(rl.peer)
	switch {
	case rl.health < fullHealth:
		b.later(rl, recoverPeriod, b.recover)
	case rl.alternate:
		b.later(rl, idleAlternate, b.closeAlternate)
	}
}

// later runs f after a time, in place of what was to come next for the rail.
func (b *BML) later(rl *Rail, after time.Duration, f func(rl *Rail)) {
	rc := &rl.recovery
	if rc.timer != nil {
		b.eng.StopTimer(rc.timer)
	}
	rc.timer = b.eng.After(int64(after), func() {
		rc.timer = nil
		if rl.peer.IsAlive() {
			f(rl)
		}
	})
}
