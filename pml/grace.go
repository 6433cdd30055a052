package pml

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// The grace time bounds how long requests wait for a rail that delivers. It ends in one of two
// ways.
//
//   - No rail to the peer is up, and none has come back for that long.
//   - A fragment, or a message that goes in pieces, has failed, is tried again, and fails once more
//     when the grace time since its first failure is over and no rail is up that has not failed
//     with it.
//
// The second is for paths that deliver probes, and not what follows them. A rail that comes back
// does not stop that time; only the delivery of what had failed does.
//
// Time is counted in parts, by a timer for each, so a rank that makes no calls for long, and so
// tries nothing, loses one part at most.

const (
	// leastGrace is the least grace time of what may be tried on another rail at once, and that for
	// a rail which was never needed, and has to be opened first.
	leastGrace = int64(2 * time.Second)

	// graceParts is how many parts the grace time has.
	graceParts = 10
)

// graceClock counts the parts of the grace time that pass while something is wrong with the rails
// to a peer.
type graceClock struct {
	timer *progress.Timer // of the part that runs; nil if the clock stands
	parts uint32          // so far
	until uint32          // the clock runs until then, and longer while no rail is up
}

// isNeeded reports whether something is still counted, other than the time without a rail.
func (g *graceClock) isNeeded() bool { return g.parts < g.until }

// trouble is what a fragment or a message has met so far.
type trouble struct {
	by    railSet // the rails that have failed with it; 0: none
	until uint32  // when its grace time is over, by the peer's clock
	last  error   // why the last one has
}

// gracePart is the length of a part.
func (p *PML) gracePart() int64 {
	grace := p.cfg.GraceNanos
	if grace <= 0 {
		grace = leastGrace
	}
	return max(grace/graceParts, 1)
}

// graceEnd is when, by the peer's clock, a time that begins now is over. It starts the clock.
func (p *PML) graceEnd(pr *peer, nanos int64) uint32 {
	end := pr.grace.parts + uint32(nanos/p.gracePart())
	if pr.grace.timer != nil {
		return end + 1 // some of this part is over
	}
	p.startGrace(pr)
	return end
}

func (p *PML) startGrace(pr *peer) {
	pr.grace.timer = p.eng.After(p.gracePart(), func() {
		pr.grace.timer = nil
		p.gracePartOver(pr)
	})
}

func (p *PML) endGrace(pr *peer) {
	if pr.grace.timer != nil {
		p.eng.StopTimer(pr.grace.timer)
		pr.grace.timer = nil
	}
}

// gracePartOver is called when a part of the grace time is over. While a PROBE was delivered, and
// only not answered, the peer is busy elsewhere, and the part does not count.
func (p *PML) gracePartOver(pr *peer) {
	if pr.failing != nil || pr.lost != nil || p.closed != nil {
		return
	}
	works := false
	for i := range pr.rails {
		rl := &pr.rails[i]
		works = works || rl.state == railProbing && rl.mending.works
	}
	if !works {
		pr.grace.parts++
	}
	switch {
	case pr.stranded != nil && pr.grace.parts >= pr.strandedUntil:
		p.fail(pr, p.causeOf(pr.stranded), nil)
	case pr.stranded != nil || pr.grace.isNeeded():
		p.startGrace(pr)
	}
}

// mayTryAgain notes that rails have failed with a fragment or a message. If it is to be given up,
// the peer fails, and it reports false.
func (p *PML) mayTryAgain(pr *peer, t *trouble, by railSet, err error) bool {
	if t.by == 0 {
		t.until = p.graceEnd(pr, p.gracePart()*graceParts)
		pr.grace.until = max(pr.grace.until, t.until)
	}
	t.by |= by
	t.last = err
	for i := range pr.rails { // a flush says less than what it is of
		if by == 1<<i {
			t.last = cmp.Or(pr.rails[i].mending.cause, err)
		}
	}
	if pr.grace.parts < t.until || pr.up&^t.by != 0 {
		return true
	}
	p.fail(pr, fmt.Errorf("every rail fails with the same message for longer than the grace time: %w", p.causeOf(t.last)), nil)
	return false
}

// mayPostAgain is mayTryAgain for an operation.
func (p *PML) mayPostAgain(pr *peer, op *btl.Op, err error) bool {
	by := ^railSet(0)
	var be *btl.Error
	if errors.As(err, &be) {
		for i := range pr.rails {
			if pr.rails[i].module.Attrs().Name == be.Rail {
				by = 1 << i
			}
		}
	}
	t := trouble{by: railSet(op.Hdr[opTrouble]), until: binary.LittleEndian.Uint32(op.Hdr[opUntil:])}
	may := p.mayTryAgain(pr, &t, by, err)
	op.Hdr[opTrouble] = byte(t.by)
	binary.LittleEndian.PutUint32(op.Hdr[opUntil:], t.until)
	return may
}

// strand is called when no rail to a peer is up any more. What is to be sent waits for one to come
// back.
func (p *PML) strand(rl *rail, err error) {
	pr := rl.peer
	var be *btl.Error
	isOver := errors.As(err, &be) && be.Class == btl.ClassClosed && be.Side == btl.SideRemote
	mayReturn := false
	for i := range pr.rails {
		mayReturn = mayReturn || pr.rails[i].reopen != nil
	}
	grace := p.cfg.GraceNanos
	if pr.hasUntried() {
		grace = max(grace, leastGrace)
	}
	if isOver || !mayReturn || grace <= 0 {
		p.fail(pr, p.causeOf(err), nil)
		return
	}
	pr.stranded, pr.barred, pr.strandedUntil = err, true, p.graceEnd(pr, grace)
	for i := range pr.rails {
		if other := &pr.rails[i]; other.state == railDown {
			p.plan(other) // one that flaps is better than none
		}
	}
}

// hasUntried reports whether a rail leads to the peer that was never up, because it was not needed.
func (pr *peer) hasUntried() bool {
	for i := range pr.rails {
		if rl := &pr.rails[i]; rl.reopen != nil && !rl.mending.wasUp && rl.tier > pr.rails[0].tier {
			return true
		}
	}
	return false
}

// rescue goes on with a peer to whom a rail leads again.
func (p *PML) rescue(pr *peer) {
	pr.stranded = nil
	if !pr.grace.isNeeded() {
		p.endGrace(pr)
	}
	q := pr.waiting
	pr.waiting = btl.Queue{}
	for !q.Empty() {
		p.send(pr, q.Pop())
	}
	p.release(pr)
	p.settled(pr)
}
