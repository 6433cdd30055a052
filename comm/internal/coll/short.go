package coll

import (
	"sync/atomic"

	"github.com/mpigo/mpigo/comm/internal/area"
	"github.com/mpigo/mpigo/internal/calls"
)

// Short paths of blocking collectives. The ranks of one host exchange short contributions through
// their area without a schedule. Each acts as in a meeting (meeting.go), so others may take the
// general way. Without the short paths, a collective of 8 bytes takes 1.8 to 1.9 times as long.
//
// Each reports whether the collective is over. If it is not, the caller, which has checked the
// arguments, makes the same call in the general way: the meeting goes on from there, even if this
// rank has filled its slot and is counted. The general way handles errors, late ranks and
// mismatched calls. It also handles all collectives in views with a context, with profiles, traces
// or checked mode, and with user-defined operations.

const (
	// shortLooks is how often a short path polls while it waits: for a fraction of a microsecond,
	// in which the rank makes no progress.
	shortLooks = 512
	// shortYields is how often it yields instead if ranks share processor cores. Usually every
	// other rank of the core has to run once.
	shortYields = 4
	// MostCombined is the most bytes that a rank contributes to a reduction on a short path. The
	// general way combines a vector of this length whole (Tuning.SharedShortBytes).
	MostCombined = 4 << 10
	// MostCopied is the same for the other collectives. In the general way this length is one block
	// (Tuning.SharedPieceBytes).
	MostCopied = 16 << 10
)

// BarrierShort is the short path of a barrier.
func (t *Team) BarrierShort() bool {
	sign := Signature{Call: uint64(calls.Barrier), Root: NoRoot}
	if !t.mayBeShort(0) {
		return false
	}
	if t.size == 2 {
		if !t.exchange(&sign, nil) {
			return false
		}
	} else if !t.meetShort(&sign, nil, nil, nil, Reduction{}) {
		return false
	}
	t.endShort()
	return true
}

// AllreduceShort is the short path of an allreduce. in is nil for in place. The operation must
// return (Reduction.Returns).
func (t *Team) AllreduceShort(in, out []byte, r Reduction) bool {
	mine := in
	if in == nil {
		mine = out
	}
	sign := Signature{Call: uint64(calls.Allreduce), Root: NoRoot, Bytes: uint64(len(out)), Kind: r.kind()}
	if len(out) == 0 || !t.mayBeShort(len(out)) {
		return false
	}
	if t.size == 2 {
		if !t.exchange(&sign, mine) {
			return false
		}
		t.combineTwo(in, out, r.Op, t.rank == 0)
	} else if !t.meetShort(&sign, mine, in, out, r) {
		return false
	}
	t.endShort()
	return true
}

// ReduceShort is the short path of a reduce. Only the root has out.
func (t *Team) ReduceShort(in, out []byte, r Reduction, root int) bool {
	mine := in
	if in == nil {
		mine = out
	}
	sign := Signature{Call: uint64(calls.Reduce), Root: int64(root), Bytes: uint64(len(mine)), Kind: r.kind()}
	if len(mine) == 0 || !t.mayBeShort(len(mine)) {
		return false
	}
	if t.rank != root {
		if !t.comeShort(&sign, mine) {
			return false
		}
		t.endShort()
		return true
	}
	if in != nil {
		mine = nil // the other ranks do not need it
	}
	if !t.exchange(&sign, mine) {
		return false
	}
	if t.size == 2 {
		t.combineTwo(in, out, r.Op, r.Commutes || root == 0)
	} else {
		t.combineAll(in, out, r, orderTree, root)
	}
	t.endShort()
	return true
}

// BcastShort is the short path of a bcast.
func (t *Team) BcastShort(buf []byte, root int) bool {
	sign := Signature{Call: uint64(calls.Bcast), Root: int64(root), Bytes: uint64(len(buf))}
	if len(buf) == 0 || !t.mayBeShort(len(buf)) {
		return false
	}
	a, stamp := t.area, t.shortStamp()
	if t.rank == root {
		if !t.fillShort(&sign, buf) {
			return false
		}
		a.Publish(stamp)
		t.area.Wake()
	} else {
		t.area.PassRounds(stamp)
		if !t.awaitShort(a.Published(root, stamp), stamp) || signatureIn(a, root, stamp) != sign {
			return false
		}
		copy(buf, a.At(root, stamp, len(buf)))
	}
	t.endShort()
	return true
}

// AllgatherShort is the short path of an allgather. in is nil for in place.
func (t *Team) AllgatherShort(in, out []byte) bool {
	n := len(out) / t.size
	sign := Signature{Call: uint64(calls.Allgather), Root: NoRoot, Bytes: uint64(len(out))}
	if n == 0 || !t.mayBeShort(n) {
		return false
	}
	mine := in
	if in == nil {
		mine = out[t.rank*n:][:n]
	}
	if !t.exchange(&sign, mine) {
		return false
	}
	for rank := range t.size {
		if rank != t.rank {
			copy(out[rank*n:][:n], t.area.At(rank, t.shortStamp(), n))
		}
	}
	if in != nil {
		copy(out[t.rank*n:], in)
	}
	t.endShort()
	return true
}

// AlltoallShort is the short path of an alltoall. in is nil for in place.
func (t *Team) AlltoallShort(in, out []byte) bool {
	if in == nil {
		in = out
	}
	n := len(out) / t.size
	sign := Signature{Call: uint64(calls.Alltoall), Root: NoRoot, Bytes: uint64(len(out))}
	if n == 0 || !t.mayBeShort(len(out)) || !t.exchange(&sign, in) {
		return false
	}
	for rank := range t.size {
		to := out[rank*n:][:n]
		if rank == t.rank {
			copy(to, in[rank*n:])
		} else {
			copy(to, t.area.At(rank, t.shortStamp(), t.size*n)[t.rank*n:])
		}
	}
	t.endShort()
	return true
}

// mayBeShort reports whether the next collective, which puts bytes into a slot, may take its short
// path: no other one is under way or has failed, and no rank has probed for a mismatch.
func (t *Team) mayBeShort(bytes int) bool {
	a := t.area
	if a == nil || a.Ranks != t.size || bytes > MostCopied || bytes*area.CellsInTurn > a.Block || t.tuning != nil {
		return false
	}
	t.hub.keepMoving()
	return len(t.calls) == 0 && !t.hasFailures() && t.unfit == nil && len(t.probes) == 0 && t.noFurther == 0 &&
		t.area != nil && t.next%originSpan != 0
}

// shortStamp is the stamp of the round of the next collective.
func (t *Team) shortStamp() uint64 { return area.Stamp(t.count+1, 0) }

// fillShort fills this rank's slot for the round, if there is room.
func (t *Team) fillShort(sign *Signature, mine []byte) bool {
	a, stamp := t.area, t.shortStamp()
	t.area.PassRounds(stamp)
	if a.IsPut(stamp) {
		return true
	}
	if rank, _ := a.Reserve(stamp, len(mine)); rank != area.Nobody {
		return false
	}
	copy(a.Place(stamp, len(mine)), mine)
	sign.append(a.Sign(stamp))
	a.Filled(stamp)
	return true
}

// comeShort comes to the round with this rank's contribution, and wakes the others if it is the
// last one. It reports whether it could come.
func (t *Team) comeShort(sign *Signature, mine []byte) bool {
	if !t.fillShort(sign, mine) {
		return false
	}
	a, stamp := t.area, t.shortStamp()
	last, ok := false, true
	if a.Ranks > 2 {
		last, ok = a.Arrive(stamp)
	} else if !a.HasCome(a.Self, stamp) {
		a.Publish(stamp)
		last = a.HasCome(1-a.Self, stamp)
	}
	if last {
		t.area.Wake()
	}
	return ok
}

// exchange comes to the round with this rank's contribution, and waits a little until all others
// have come with the same call.
func (t *Team) exchange(sign *Signature, mine []byte) bool {
	a, stamp := t.area, t.shortStamp()
	if !t.comeShort(sign, mine) {
		return false
	}
	if a.Ranks == 2 {
		other := 1 - a.Self
		if !t.awaitShort(a.Published(other, stamp), stamp) || signatureIn(a, other, stamp) != *sign {
			return false
		}
	} else if !t.awaitShort(a.Count(stamp), a.AllCounted(stamp)) || !t.isSameCall(sign) {
		return false
	}
	a.AllArrived(stamp)
	return true
}

// meetShort is a barrier or an allreduce of more than two ranks: the last one to come combines for
// all.
func (t *Team) meetShort(sign *Signature, mine, in, out []byte, r Reduction) bool {
	if !t.fillShort(sign, mine) {
		return false
	}
	a, stamp := t.area, t.shortStamp()
	last, ok := a.Arrive(stamp)
	switch {
	case !ok, last && !t.isSameCall(sign):
		return false
	case last:
		if len(out) > 0 {
			t.combineAll(in, out, r, orderDoubling, 0)
			copy(a.ResultPlace(stamp, len(out)), out)
		}
		a.Finish(stamp)
		t.area.Wake()
	case !t.awaitShort(a.Done(stamp), stamp):
		return false
	default:
		result, ok := a.Result(stamp, len(out))
		if !ok {
			return false
		}
		copy(out, result)
	}
	a.AllArrived(stamp)
	return true
}

// isSameCall reports whether all ranks, which have come to the round, have made the same call.
func (t *Team) isSameCall(sign *Signature) bool {
	for rank := range t.area.Ranks {
		if rank != t.area.Self && signatureIn(t.area, rank, t.shortStamp()) != *sign {
			return false
		}
	}
	return true
}

// awaitShort waits a little for a store of another rank to the area.
func (t *Team) awaitShort(word *uint64, target uint64) bool {
	eng := t.p.Engine()
	if eng.YieldsAtOnce() {
		yields, ok := eng.YieldUntil(word, target, shortYields)
		t.hub.quiet += yields * quietYield
		return ok
	}
	for range shortLooks {
		if atomic.LoadUint64(word) == target {
			return true
		}
	}
	return false
}

// combineTwo combines the contributions of two ranks into out, as combining.doubling and
// combining.tree do. left says that this rank's is the left operand. in is nil for in place.
func (t *Team) combineTwo(in, out []byte, op Combiner, left bool) {
	a, stamp := t.area, t.shortStamp()
	theirs := a.At(1-a.Self, stamp, len(out))
	switch {
	case !left:
		copy(out, in)
		op.Combine(theirs, out)
	case in == nil: // out is overwritten
		in = a.At(a.Self, stamp, len(out))
		fallthrough
	default:
		copy(out, theirs)
		op.Combine(in, out)
	}
}

// combineAll combines the contributions of all ranks into out. in is this rank's, or nil for in
// place. root is that of a reduce.
func (t *Team) combineAll(in, out []byte, r Reduction, o order, root int) {
	if n := o.tempsOf(t.size, len(out)); len(t.shortTemps) < n {
		t.shortTemps = make([]byte, o.tempsOf(t.size, MostCombined))
	}
	c := combining{
		a: t.area, stamp: t.shortStamp(), block: len(out), bytes: len(out), order: o, op: r.Op, commutes: r.Commutes,
		root: root, own: in, temps: t.shortTemps,
	}
	c.into(out, 0)
}

// EndedShort reports whether the last collective of the team ended on its short path. It is for
// tests.
func (t *Team) EndedShort() bool { return t.count > 0 && t.lastShort == t.count }

// endShort counts a collective that is over. This rank reads nothing of it any more.
func (t *Team) endShort() {
	seq := t.next
	t.next = nextNumber(seq)
	t.count++
	t.lastShort = t.count
	t.area.PassRounds(t.shortStamp())
	t.p.Engine().CountCompletion(false)
	if t.ctx.HasUnexpected() {
		t.discardPassed(seq)
	}
}
