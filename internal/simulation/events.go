package simulation

import (
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// What a module tells its PML, by way of the tap.

// lateRead is the buffer of a read that may still be written to.
type lateRead struct {
	peer int
	buf  []byte
}

// lateByte is what comes into it last.
const lateByte = 0xDD

// Arrived implements btl.Events.
func (t *tap) Arrived(_ btl.Module, peer int, tag btl.Tag, frag []byte) {
	if len(t.untold) > 0 {
		frag = slices.Clone(frag)
		t.untold = append(t.untold, func() { t.arrived(peer, tag, frag) })
		return
	}
	t.arrived(peer, tag, frag)
}

func (t *tap) arrived(peer int, tag btl.Tag, frag []byte) {
	w := t.w
	w.note(evArrive, peer, t.rank, t.rail, uint64(tag), uint64(len(frag)))
	f, err := w.ranks[t.rank].p.Look(tag, frag)
	if err != nil {
		w.fail("nonsense", "rank %d sent rank %d nonsense: %v", peer, t.rank, err)
	}
	w.cover(peer, t.rank, f)
	w.ranks[t.rank].matching.hear(peer, f)
	if w.ladder != nil {
		w.ladder.arrive(t, peer, f, len(frag))
	}
	w.ranks[t.rank].p.Arrived(t, peer, tag, frag)
}

// Failed implements btl.Events. It cannot wait: operations are about to be called back.
func (t *tap) Failed(_ btl.Module, peer int, err *btl.Error) {
	t.tellAll()
	t.w.note(evFail, t.rank, peer, t.rail, uint64(err.Class), 0)
	t.w.tellOf(t.rank, "rail %d to %s fails: %v", t.rail, peerName(peer), err)
	t.w.ranks[t.rank].p.Failed(t, peer, err)
}

// Drained implements btl.Events. The PML hears of it after a while, perhaps, and of all that comes later after that.
func (t *tap) Drained(_ btl.Module, peer int) {
	if len(t.untold) == 0 {
		if t.w.rng.IntN(4) > 0 {
			t.drained(peer)
			return
		}
		t.tellAt = t.w.net.Now() + 1<<t.w.rng.IntN(25)
	}
	t.untold = append(t.untold, func() { t.drained(peer) })
}

// tell tells what was held back, when its time has come.
func (t *tap) tell() {
	if len(t.untold) > 0 && t.w.net.Now() >= t.tellAt {
		t.tellAll()
	}
}

func (t *tap) tellAll() {
	untold := t.untold
	t.untold = nil
	for _, f := range untold {
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
	t.w.tellOf(t.rank, "rail %d to %s is drained", t.rail, peerName(peer))
	t.w.ranks[t.rank].p.Drained(t, peer)
}
