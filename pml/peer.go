package pml

import "github.com/mpigo/mpigo/btl"

// peer is what is known of one other rank, or of this rank as its own peer.
type peer struct {
	rank int

	// The ways there, from the first time that something is sent. first is the one for all but
	// large messages; of it are:
	rails       []rail
	first       *rail
	inliner     btl.Inliner // nil if its endpoint is none
	inlineBytes int         // longest fragment to go inline
	eagerBytes  int         // longest message to go with its MATCH
	// rdmaBytes is the shortest message that remote access moves better; 0 if no rail has it.
	rdmaBytes int
	// getters and putters are the rails that read and write remotely, in either direction; up are those
	// that take traffic. first is one of these, if there is one.
	getters, putters, up railSet

	// via is the rail by which fragments of the peer arrive; nil before the first.
	via btl.Module

	// barred says that sends do not go at once: the peer is stranded, failing or lost, or others are held.
	barred bool
	// stranded is why no rail is up, while one may come back: until the grace clock says
	// strandedUntil. waiting is what is to be posted then.
	stranded      error
	strandedUntil uint32
	grace         graceClock
	waiting       btl.Queue
	// limbo holds operations whose delivery is unknown since their rail failed, until no rail is draining.
	limbo btl.Queue
	// unfenced is how many rails have failed of which it is not known that both halves are drained.
	unfenced int
	// failing is why nothing is posted to this peer any more; draining, by which of its rails
	// something may still come. lost is why nothing comes either.
	failing  error
	draining []btl.Module
	lost     error
	// heard is by which rail something came while failing.
	heard btl.Module
	// left is why the peer sends nothing any more though it is not lost, nil if it has not said so; deaf, that it
	// matches nothing either. toldLeft says that this rank has told it the same of itself.
	left           error
	deaf, toldLeft bool

	// sendSeq counts the fragments sent that are matched, recvSeq those handed on here.
	sendSeq, recvSeq uint64
	// early holds fragments with a sequence number above recvSeq.
	early map[uint64]*earlyFrag

	credit credit
	// held are sends that wait to be announced, in order.
	held sendQueue
}

// earlyFrag is a fragment that came before its turn.
type earlyFrag struct {
	in   incoming
	data []byte // a copy
}

func (p *PML) peer(rank int) *peer {
	if pr := p.peers[rank]; pr != nil {
		return pr
	}
	pr := &peer{rank: rank}
	pr.credit.init(p.cfg.WindowBytes)
	p.peers[rank] = pr
	return pr
}
