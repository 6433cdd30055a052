package pml

import (
	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// upper is a PML with the methods of bml.Upper, which are not part of the API of PML.
type upper PML

var (
	_ bml.Upper       = (*upper)(nil)
	_ btl.Events      = (*PML)(nil)
	_ progress.Poller = (*PML)(nil)
	_ progress.Idler  = (*PML)(nil)
)

func (u *upper) pml() *PML { return (*PML)(u) }

// NewPeer implements bml.Upper.
func (u *upper) NewPeer(rank int) *bml.Peer {
	pr := new(peer)
	pr.credit.init(u.cfg.WindowBytes)
	u.peers[rank] = pr
	return &pr.Peer
}

// Admit implements bml.Upper: it counts a fragment in the peer's windows.
func (u *upper) Admit(bp *bml.Peer, tag btl.Tag, frag []byte, early bool) error {
	p, pr := u.pml(), u.peers[bp.Rank()]
	kind, bytes, err := p.cost(pr, tag, frag)
	if err != nil {
		return err
	}
	if err := p.countRTS(pr, kind, bytes); err != nil || !early {
		return err
	}
	return p.buffer(pr, kind, bytes)
}

// Forget implements bml.Upper.
func (u *upper) Forget(bp *bml.Peer, tag btl.Tag, frag []byte) {
	p, pr := u.pml(), u.peers[bp.Rank()]
	if kind, bytes, err := p.cost(pr, tag, frag); err == nil {
		p.unbuffer(pr, kind, bytes)
	}
}

// Resume implements bml.Upper.
func (u *upper) Resume(t *bml.Transfer) {
	switch r := t.Owner.(type) {
	case *SendRequest:
		r.advance()
	case *RecvRequest:
		r.advance()
	}
}

// Lost implements bml.Upper.
func (u *upper) Lost(bp *bml.Peer) { u.pml().peerLost(u.peers[bp.Rank()]) }

// Recheck implements bml.Upper.
func (u *upper) Recheck() { u.pml().recheckAll() }

// Failed implements btl.Events.
func (p *PML) Failed(m btl.Module, to btl.Path, err *btl.Error) { p.bml.Failed(m, to, err) }

// Drained implements btl.Events.
func (p *PML) Drained(m btl.Module, to btl.Path) { p.bml.Drained(m, to) }

// Arrived implements btl.Events. It tries the fast path first, a short message whose receive is
// posted. The table of kinds has the handlers of all other fragments.
func (p *PML) Arrived(m btl.Module, rank int, tag btl.Tag, frag []byte) {
	if tag == tagMatch && uint(rank) < uint(len(p.peers)) {
		if pr := p.peers[rank]; pr != nil && p.matchFast(pr, frag) {
			return
		}
	}
	p.bml.Arrived(m, rank, tag, frag)
	if uint(rank) < uint(len(p.peers)) && p.closed == nil {
		pr := p.peer(rank)
		if p.blockedPeers > 0 {
			p.grantIfAwaited(pr)
		}
		p.tellFinalized(pr)
	}
}
