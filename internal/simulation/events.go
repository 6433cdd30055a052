package simulation

import (
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// The events of a module, which a tap passes on to the PML of its rank.

// lateRead is the buffer of a failed read. The transport may write to it until the endpoint is
// drained.
type lateRead struct {
	peer int
	buf  []byte
}

// lateByte is what the tap writes there when the endpoint is drained: the worst that the contract
// permits.
const lateByte = 0xDD

// Arrived implements btl.Events.
func (t *tap) Arrived(_ btl.Module, peer int, tag btl.Tag, frag []byte) {
	if len(t.pending) > 0 {
		frag = slices.Clone(frag)
		t.pending = append(t.pending, func() { t.arrived(peer, tag, frag) })
		return
	}
	t.arrived(peer, tag, frag)
}

func (t *tap) arrived(peer int, tag btl.Tag, frag []byte) {
	w := t.w
	w.note(evArrive, peer, t.rank, t.rail, uint64(tag), uint64(len(frag)))
	f, err := w.ranks[t.rank].p.Look(tag, frag)
	if err != nil {
		w.fail("protocol", "rank %d sent rank %d a malformed fragment: %v", peer, t.rank, err)
	}
	w.cover(peer, t.rank, f)
	w.ranks[t.rank].matching.fragment(peer, f)
	if w.ladder != nil {
		w.ladder.arrive(t, peer, f, len(frag))
	}
	w.ranks[t.rank].p.Arrived(t, peer, tag, frag)
}

// Failed implements btl.Events. The tap does not delay it, because callbacks of operations follow.
func (t *tap) Failed(_ btl.Module, peer int, err *btl.Error) {
	t.reportAll()
	t.w.note(evFail, t.rank, peer, t.rail, uint64(err.Class), 0)
	t.w.traceOf(t.rank, "rail %d to %s fails: %v", t.rail, peerName(peer), err)
	t.w.ranks[t.rank].p.Failed(t, peer, err)
}

// Drained implements btl.Events. The tap may delay it, and then delays all later events, too.
func (t *tap) Drained(_ btl.Module, peer int) {
	if len(t.pending) == 0 {
		if t.w.rng.IntN(4) > 0 {
			t.drained(peer)
			return
		}
		t.pendingUntil = t.w.net.Now() + 1<<t.w.rng.IntN(25)
	}
	t.pending = append(t.pending, func() { t.drained(peer) })
}

// reportDue reports the delayed events when their time has come.
func (t *tap) reportDue() {
	if len(t.pending) > 0 && t.w.net.Now() >= t.pendingUntil {
		t.reportAll()
	}
}

func (t *tap) reportAll() {
	pending := t.pending
	t.pending = nil
	for _, f := range pending {
		f()
	}
}

func (t *tap) drained(peer int) {
	t.late = slices.DeleteFunc(t.late, func(l lateRead) bool {
		if peer != btl.AllPeers && peer != l.peer {
			return false
		}
		for i := range l.buf {
			l.buf[i] = lateByte
		}
		return true
	})
	t.endRefused()
	t.w.note(evDrain, t.rank, peer, t.rail, 0, 0)
	t.w.traceOf(t.rank, "rail %d to %s is drained", t.rail, peerName(peer))
	t.w.ranks[t.rank].p.Drained(t, peer)
}
