package simulation

import (
	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/pml"
)

// Unexpected bytes of a rank: the PML may hold as much as the windows of all peers allow, plus
// answers that came before their turn, which need no window.

// numberedHeaderBytes is the length of the header that the PML does not count as unexpected bytes.
const numberedHeaderBytes = 16

// unexpected has the bytes that a rank may hold beside its windows, and the last peak that was
// checked.
type unexpected struct {
	// early holds the fragments of each peer that the PML keeps until their turn: by number, the
	// bytes that need no window. They are 0 for a message.
	early []map[uint32]int64
	peak  int64
}

// arrived gives a fragment to the rank's PML, and checks the unexpected bytes.
func (r *rank) arrived(t *tap, peer int, tag btl.Tag, frag []byte, f pml.Fragment) {
	u := &r.unexpected
	turn, before := -1, r.earlyAnswerBytes()
	if f.Numbered {
		turn = r.p.Turn(peer, f.Number)
	}
	bytes := r.outsideWindow(f, frag)
	r.p.Arrived(t, peer, tag, frag)
	isTaken := turn >= 0 && r.p.Turn(peer, f.Number) < 0
	switch {
	case isTaken && turn > 0:
		u.early[peer][f.Number] = bytes
	case isTaken:
		u.forget(peer, f.Number+1)
	}
	r.checkWindow(before)
}

// forget removes the fragments from a peer whose turn has come: those without a gap after next.
func (u *unexpected) forget(peer int, next uint32) {
	for _, is := u.early[peer][next]; is; _, is = u.early[peer][next] {
		delete(u.early[peer], next)
		next++
	}
}

// outsideWindow returns the bytes of a fragment that the PML holds outside of any window. A NACK
// that replaces a message counts as that message.
func (r *rank) outsideWindow(f pml.Fragment, frag []byte) int64 {
	const kindAt = 24 // of the replaced fragment
	name := f.Name
	if name == "NACK" {
		name = r.p.FragmentName(btl.Tag(frag[kindAt]))
	}
	if !f.Numbered || isMessage(name) {
		return 0
	}
	return int64(len(frag) - numberedHeaderBytes)
}

// earlyAnswerBytes returns the number of bytes that the PML holds now outside of any window. The
// PML forgets the fragments of a lost peer.
func (r *rank) earlyAnswerBytes() (sum int64) {
	for peer, early := range r.unexpected.early {
		if len(early) > 0 && r.p.PeerState(peer) == bml.PeerLost {
			clear(early)
		}
		for _, bytes := range early {
			sum += bytes
		}
	}
	return sum
}

// checkWindow checks that the rank's PML does not hold more unexpected bytes than the windows of
// all peers and the early answers allow, and did not since the last check. before is the number of
// bytes of early answers at that time.
func (r *rank) checkWindow(before int64) {
	s, st, u := &r.w.plan.setup, r.p.Stats(), &r.unexpected
	if s.window == 0 {
		return
	}
	windows, now := s.window*int64(s.ranks), r.earlyAnswerBytes()
	check := func(held, answers int64) {
		if held > windows+answers {
			r.w.fail("bounded", "rank %d held %d unexpected bytes, but its windows are %d, and answers before their turn %d", r.rank, held, windows, answers)
		}
	}
	check(st.UnexpectedBytes, now)
	if st.UnexpectedPeakBytes > u.peak {
		u.peak = st.UnexpectedPeakBytes
		check(u.peak, max(before, now))
	}
}
