package coll

import "sync/atomic"

// Short paths of blocking collectives. Two ranks on one host exchange short contributions through
// their area without a schedule. Each does what it would do in a meeting (meeting.go), so the other
// one may take the general way.
//
// Each reports whether the collective is over. If it reports false, the caller, which has checked
// the arguments, makes the same call in the general way: this rank may have put its contribution
// into its slot, and the meeting goes on from there. So errors, waits for a late rank, calls that
// do not match, and everything unusual are left to the general way. It also has all collectives in
// views with a context, with profiles, traces or checked mode, and with operations of the program's
// own.

const (
	// shortLooks is how often a short path looks for the other rank's slot: for a fraction of a
	// microsecond, in which the rank makes no progress.
	shortLooks = 512
	// MostShort is the most bytes that a rank contributes on a short path. In the general way a
	// vector of so many is one block, which each rank combines whole (Tuning.SharedShortBytes).
	MostShort = 4 << 10
)

// shortCalls are the hashes of the calls in signatures. Never written.
var shortCalls = struct{ barrier, allreduce, reduce, bcast, allgather, alltoall uint64 }{
	hashOf("barrier"), hashOf("allreduce"), hashOf("reduce"), hashOf("bcast"), hashOf("allgather"), hashOf("alltoall"),
}

// BarrierShort is the short path of a barrier.
func (t *Team) BarrierShort() bool {
	sign := Signature{Call: shortCalls.barrier, Root: NoRoot}
	if !t.mayBeShort(0) || !t.exchange(&sign, nil) {
		return false
	}
	t.endShort()
	return true
}

// AllreduceShort is the short path of an allreduce. in is nil for in place. The operation returns.
func (t *Team) AllreduceShort(in, out []byte, r Reduction) bool {
	mine := in
	if in == nil {
		mine = out
	}
	sign := Signature{Call: shortCalls.allreduce, Root: NoRoot, Bytes: uint64(len(out)), Kind: r.kind()}
	if len(out) == 0 || !t.mayBeShort(len(out)) || !t.exchange(&sign, mine) {
		return false
	}
	t.combineTwo(in, out, r.Op, t.rank == 0)
	t.endShort()
	return true
}

// ReduceShort is the short path of a reduce. Only the root has out.
func (t *Team) ReduceShort(in, out []byte, r Reduction, root int) bool {
	mine := in
	if in == nil {
		mine = out
	}
	sign := Signature{Call: shortCalls.reduce, Root: int64(root), Bytes: uint64(len(mine)), Kind: r.kind()}
	if len(mine) == 0 || !t.mayBeShort(len(mine)) {
		return false
	}
	if t.rank != root {
		if !t.putShort(&sign, mine) {
			return false
		}
		t.endShort()
		return true
	}
	if in != nil {
		mine = nil // the other rank does not need it
	}
	if !t.exchange(&sign, mine) {
		return false
	}
	t.combineTwo(in, out, r.Op, r.Commutes || root == 0)
	t.passRounds(t.shortStamp() + 1)
	t.endShort()
	return true
}

// BcastShort is the short path of a bcast.
func (t *Team) BcastShort(buf []byte, root int) bool {
	sign := Signature{Call: shortCalls.bcast, Root: int64(root), Bytes: uint64(len(buf))}
	if len(buf) == 0 || !t.mayBeShort(len(buf)) {
		return false
	}
	if t.rank == root {
		if !t.putShort(&sign, buf) {
			return false
		}
		t.wake()
	} else {
		if !t.awaitShort(&sign) {
			return false
		}
		copy(buf, t.theirs(len(buf)))
		t.passRounds(t.shortStamp() + 1)
	}
	t.endShort()
	return true
}

// AllgatherShort is the short path of an allgather. in is nil for in place.
func (t *Team) AllgatherShort(in, out []byte) bool {
	n := len(out) / 2
	sign := Signature{Call: shortCalls.allgather, Root: NoRoot, Bytes: uint64(len(out))}
	if n == 0 || !t.mayBeShort(n) {
		return false
	}
	if in == nil {
		in = out[t.rank*n:][:n]
	}
	if !t.exchange(&sign, in) {
		return false
	}
	copy(out[t.rank*n:], in)
	copy(out[(1-t.rank)*n:], t.theirs(n))
	t.endShort()
	return true
}

// AlltoallShort is the short path of an alltoall. in is nil for in place.
func (t *Team) AlltoallShort(in, out []byte) bool {
	if in == nil {
		in = out
	}
	n := len(out) / 2
	sign := Signature{Call: shortCalls.alltoall, Root: NoRoot, Bytes: uint64(len(out))}
	if n == 0 || !t.mayBeShort(len(out)) || !t.exchange(&sign, in) {
		return false
	}
	copy(out[t.rank*n:], in[t.rank*n:][:n])
	copy(out[(1-t.rank)*n:], t.theirs(2 * n)[t.rank*n:][:n])
	t.endShort()
	return true
}

// mayBeShort reports whether the next collective, which puts so many bytes into a slot, may take
// its short path: no other one is under way or has failed, and nobody has probed for a mismatch.
func (t *Team) mayBeShort(bytes int) bool {
	a := t.area
	if a == nil || t.size != 2 || a.ranks != 2 || bytes > MostShort || bytes*areaEntries > a.block || t.tuning != nil {
		return false
	}
	t.hub.keepMoving()
	return len(t.calls) == 0 && !t.hasFailures() && t.unfit == nil && len(t.probes) == 0 && t.noFurther == 0 &&
		t.area != nil && t.next%originSpan != 0 && (len(t.kept) == 0 || t.kept[t.next] == nil)
}

// shortStamp is the stamp of the round of the next collective.
func (t *Team) shortStamp() uint64 { return (t.count + 1) << roundBits }

// putShort comes to the round, with this rank's contribution, if there is room. It wakes the other
// rank if that has come before.
func (t *Team) putShort(sign *Signature, mine []byte) bool {
	a, stamp := t.area, t.shortStamp()
	t.passRounds(stamp)
	if !a.isPut(stamp) {
		if rank, _ := a.reserve(stamp, len(mine)); rank != nobody {
			return false
		}
		copy(a.place(stamp, len(mine)), mine)
		a.sign(stamp, sign)
		a.short = stamp
		a.publish(stamp)
		if a.hasCome(1-a.self, stamp) {
			t.wake()
		}
	}
	return true
}

// exchange comes to the round with this rank's contribution, and waits a little until the other
// rank has come with the same call.
func (t *Team) exchange(sign *Signature, mine []byte) bool {
	if !t.putShort(sign, mine) || !t.awaitShort(sign) {
		return false
	}
	t.area.allArrived(t.shortStamp())
	return true
}

// awaitShort waits a little until the other rank has come to the round, and reports whether it has,
// with the same call.
func (t *Team) awaitShort(sign *Signature) bool {
	a, stamp := t.area, t.shortStamp()
	word := a.published(1-a.self, stamp)
	for range shortLooks {
		if atomic.LoadUint64(word) == stamp {
			return a.signature(1-a.self, stamp) == *sign
		}
	}
	return false
}

// theirs is what the other rank has put into its slot.
func (t *Team) theirs(bytes int) []byte { return t.area.at(1-t.area.self, t.shortStamp(), bytes) }

// combineTwo combines the contributions of both ranks into out, as combining.doubling and
// combining.tree do. left says that this rank's is the left operand. in is nil for in place.
func (t *Team) combineTwo(in, out []byte, op Combiner, left bool) {
	theirs := t.theirs(len(out))
	switch {
	case !left:
		copy(out, in)
		op.Combine(theirs, out)
	case in == nil: // out is overwritten
		in = t.area.at(t.area.self, t.shortStamp(), len(out))
		fallthrough
	default:
		copy(out, theirs)
		op.Combine(in, out)
	}
}

// EndedShort reports whether the last collective of the team ended on its short path. It is for
// tests.
func (t *Team) EndedShort() bool { return t.count > 0 && t.lastShort == t.count }

// endShort counts a collective that is over.
func (t *Team) endShort() {
	seq := t.next
	t.next = nextNumber(seq)
	t.count++
	t.lastShort = t.count
	t.p.Engine().CountCompletion(false)
	if t.ctx.HasUnexpected() {
		t.discardPassed(seq, false)
	}
}
