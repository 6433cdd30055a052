package bml

import (
	"slices"

	"github.com/mpigo/mpigo/bml/rating"
	"github.com/mpigo/mpigo/btl"
)

// Numbered fragments go by the first rail, so that they arrive in order. With several rails up, the
// first rail is the one that should deliver them soonest.

// shorts is a list of numbered fragments that endpoints have.
type shorts struct{ oldest, youngest *Op }

func (l *shorts) isEmpty() bool { return l.oldest == nil }

func (l *shorts) add(op *Op) {
	if op.older = l.youngest; op.older == nil {
		l.oldest = op
	} else {
		op.older.younger = op
	}
	l.youngest = op
}

func (l *shorts) remove(op *Op) {
	if op.older == nil {
		l.oldest = op.younger
	} else {
		op.older.younger = op.younger
	}
	if op.younger == nil {
		l.youngest = op.older
	} else {
		op.younger.older = op.older
	}
	op.older, op.younger = nil, nil
}

// chooseFirst chooses the first rail anew. It is called when no numbered fragment is under way, so
// that fragments stay in order, or when some were under way for long, and the first rail may be
// overloaded. Fragments queued for the old first rail go by the new one.
func (b *BML) chooseFirst(pr *Peer, now int64) {
	var set rating.Set
	for i := range pr.rails {
		if rl := &pr.rails[i]; pr.up.Has(i) && rl.tier == pr.first.tier && rl.trust() >= trusted && rl.queue.Empty() {
			set |= 1 << i
		}
	}
	old := pr.first
	i := pr.judge.Short(set, int(old.index), shortBytes, now)
	if i == int(old.index) {
		return
	}
	pr.chosen, pr.idleAt = &pr.rails[i], now
	b.useFirst(pr, i)
	pr.empty(&old.queue, func(op *Op) {
		if op.bound {
			push(&old.queue, op)
		} else {
			b.Send(pr, op)
		}
	})
}

// shortBytes is the length of the message for which the first rail is chosen.
const shortBytes = 64

// copyShorts sends copies of the oldest numbered fragments by another rail, if that would deliver
// them much sooner: all later ones wait for them at the peer. The peer drops the duplicate.
func (b *BML) copyShorts(pr *Peer, now int64) {
	for op := pr.shorts.oldest; op != nil; op = op.younger {
		if op.hasCopy {
			continue
		}
		i := pr.judge.Again(rating.Set(pr.withRoom(pr.up)), int64(op.bytes), pr.judge.Due(int(op.rail), op.mark, now), now)
		if i < 0 {
			return
		}
		op.hasCopy = true
		c := b.GetOp()
		c.Tag, c.HdrLen, c.Hdr, c.Payload = op.Tag, op.HdrLen, op.Hdr, slices.Clone(op.Payload)
		c.numbered, c.bound, c.isCopy = true, true, true
		c.twin, op.twin = op, c
		c.Then = b.copyDone
		b.stats.TwiceBytes += int64(op.bytes)
		b.post(&pr.rails[i], c)
	}
}

// copyDone is called when a copy has ended. A delivered copy delivers the original, too. If the
// original's endpoint can go on from a copy of the payload, the original ends at once.
func (b *BML) copyDone(c *Op, err error) {
	op := c.twin
	if op != nil {
		op.twin = nil
	}
	b.PutOp(c)
	if op == nil || err != nil || op.state != opPosted {
		return
	}
	op.Answered = true
	pr := op.peer
	ep := pr.rails[op.rail].endpoint
	if op.released != nil || ep.State() != btl.Up || !ep.Rebind(&op.Op, slices.Clone(op.Payload)) {
		return
	}
	pr.shorts.remove(op)
	op.isCopy = true
	// The endpoint still has the original, so the owner gets another operation in its place.
	stub := b.GetOp()
	stub.Tag, stub.HdrLen, stub.Hdr, stub.Request, stub.peer = op.Tag, op.HdrLen, op.Hdr, op.Request, pr
	then := op.Then
	op.Request, op.Then, op.bound = nil, func(op *Op, _ error) { b.PutOp(op) }, true
	then(stub, nil)
}
