package bml

import (
	"github.com/mpigo/mpigo/btl"
)

// PeerState says what this rank can expect of a peer; the package comment has the table.
type PeerState uint8

const (
	PeerNew PeerState = iota
	PeerConnecting
	PeerUp
	PeerDegraded
	PeerNoPath
	PeerFailing
	PeerLost

	peerStates
)

var peerNames = [peerStates]string{"new", "connecting", "up", "degraded", "no path", "failing", "lost"}

func (s PeerState) String() string { return peerNames[s] }

// StateSet is a set of peer states.
type StateSet uint8

func (set StateSet) has(s PeerState) bool { return set>>s&1 != 0 }

const (
	// hasPath: a rail takes operations.
	hasPath StateSet = 1<<PeerUp | 1<<PeerDegraded
	// awaitsPath: operations wait for a rail to come up.
	awaitsPath StateSet = 1<<PeerConnecting | 1<<PeerNoPath
	// Alive is every state of a peer that is not given up.
	Alive = 1<<PeerNew | awaitsPath | hasPath
	// Reachable is every state in which fragments from the peer count: those of a failing peer do.
	Reachable = Alive | 1<<PeerFailing
)

// peerLegal is the table of transitions; the package comment says when each happens.
var peerLegal = [peerStates]StateSet{
	PeerNew:        1<<PeerConnecting | 1<<PeerFailing | 1<<PeerLost,
	PeerConnecting: 1<<PeerUp | 1<<PeerFailing | 1<<PeerLost,
	PeerUp:         1<<PeerDegraded | 1<<PeerNoPath | 1<<PeerFailing | 1<<PeerLost,
	PeerDegraded:   1<<PeerUp | 1<<PeerNoPath | 1<<PeerFailing | 1<<PeerLost,
	PeerNoPath:     hasPath | 1<<PeerFailing | 1<<PeerLost,
	PeerFailing:    1 << PeerLost,
}

// Peer is the channel to one rank. The layer above embeds it in its own record of that rank, so
// that a short message follows one pointer.
type Peer struct {
	b     *BML
	rank  int
	state PeerState

	// first takes all operations but the pieces of transfers; nil while the peer is new. useFirst
	// sets the next fields for short messages, and stopInline clears them when the path is gone, or
	// fragments wait for room. The fields that a short message uses stand together, in two cache
	// lines.
	first         *Rail
	inliner       btl.Inliner       // nil: nothing goes inline
	shortSender   btl.ShortSender   // the inliner, if it is one
	shortReceiver btl.ShortReceiver // the first rail's endpoint, if it is one
	runReceiver   btl.RunReceiver   // the first rail's endpoint, if it is one
	inlineBytes   int               // longest fragment to go inline; 0 without inliner
	// sendSeq counts the numbered fragments posted, recvSeq those handed up.
	sendSeq, recvSeq uint64
	// early holds numbered fragments beyond recvSeq, by number.
	early map[uint64]earlyFragment
	// via is the module that brought the peer's first fragment; nil before.
	via        btl.Module
	eagerBytes int // longest message to go with its header
	// eagerCopyBytes is the same where the message cannot be read in place.
	eagerCopyBytes int
	rdmaBytes      int // shortest message for remote access; 0: no rail has it
	// posted counts the numbered fragments that did not go inline.
	posted uint64

	// cause of no path, failing or lost.
	cause error

	puller
	// chosen is the rail that carries short messages because it is the fastest; nil: none.
	chosen *Rail

	rails   []Rail
	hasLong bool // a long message was sent to the peer, and may use several tiers
	// inlineRail is the last rail that may have taken fragments inline; 0 if there was none.
	inlineRail uint8
	modules    int // of this rank with remote access to the peer, at most maxModules
	// getters and putters are the rails with remote reads and writes. up are the rails that take
	// traffic; unless it is empty, first is one of them.
	getters, putters, up RailSet

	// heard is the module that last brought a fragment while the peer was failing, or that made it
	// fail.
	heard btl.Module
	// isIgnored: the peer has broken the protocol, and its fragments are dropped.
	isIgnored bool

	// waiting holds operations that wait for a rail to come up.
	waiting btl.Queue
	// replay holds operations that a rail called back with an error, until draining is empty.
	replay btl.Queue
	// emptied are queues that are being handed on, the innermost last.
	emptied []*btl.Queue
	// draining are the ways to the peer whose endpoints have failed and are not drained.
	draining []way
	// afterDrain is called when draining is empty, or the peer is lost.
	afterDrain     []func()
	isSettling     bool // workSettle is deferred
	isFailDeferred bool // workFailPeer is deferred

	grace    graceClock
	graceEnd uint32 // when, by grace, a peer without path fails
}

// Peer returns the channel to a rank, and makes it if need be.
func (b *BML) Peer(rank int) *Peer {
	if pr := b.peers[rank]; pr != nil {
		return pr
	}
	pr := b.upper.NewPeer(rank)
	pr.b, pr.rank = b, rank
	b.peers[rank] = pr
	return pr
}

// Rank of the peer in the job.
func (pr *Peer) Rank() int { return pr.rank }

// State of the peer.
func (pr *Peer) State() PeerState { return pr.state }

// Err is why the peer is lost, nil if it is not.
func (pr *Peer) Err() error {
	if pr.state == PeerLost {
		return pr.cause
	}
	return nil
}

// IsLost reports whether the peer is lost.
func (pr *Peer) IsLost() bool { return pr.state == PeerLost }

// IsFailing reports whether the peer is failing, and not lost yet.
func (pr *Peer) IsFailing() bool { return pr.state == PeerFailing }

// IsAlive reports whether the peer is neither failing nor lost.
func (pr *Peer) IsAlive() bool { return pr.state < PeerFailing }

// IsResolved reports whether rails to the peer were found.
func (pr *Peer) IsResolved() bool { return pr.first != nil }

// HasPath reports whether a rail to the peer is up.
func (pr *Peer) HasPath() bool { return hasPath.has(pr.state) }

// AwaitsPath reports whether operations wait for a rail to come up, for a bounded time.
func (pr *Peer) AwaitsPath() bool { return awaitsPath.has(pr.state) }

// IsUnknown reports whether no rail to or from the peer is known.
func (pr *Peer) IsUnknown() bool { return len(pr.rails) == 0 && pr.via == nil }

// IsInTouch reports whether a numbered fragment was posted to the peer, or anything came from it.
func (pr *Peer) IsInTouch() bool { return pr.sendSeq > 0 || pr.via != nil }

// EagerBytes is the longest message that is best sent with its header.
func (pr *Peer) EagerBytes() int { return pr.eagerBytes }

// EagerCopyBytes is the longest message that is best sent with its header if the receiver cannot
// read it in place.
func (pr *Peer) EagerCopyBytes() int { return pr.eagerCopyBytes }

// InlineBytes is the longest fragment that SendInline may take now, header and payload; 0 if none
// may go inline.
func (pr *Peer) InlineBytes() int { return pr.inlineBytes }

// HasInline reports whether fragments can go inline.
func (pr *Peer) HasInline() bool { return pr.inliner != nil }

// IsIdle reports whether a fragment would be posted at once: a rail is up, and nothing waits.
func (pr *Peer) IsIdle() bool { return hasPath.has(pr.state) && pr.first.queue.Empty() }

// IsRemote reports whether a message of this length is worth remote access.
func (pr *Peer) IsRemote(bytes int64) bool { return pr.rdmaBytes > 0 && bytes >= int64(pr.rdmaBytes) }

// Getters are the rails that are up and have remote reads.
func (pr *Peer) Getters() RailSet { return pr.getters & pr.up }

// Putters are the rails that are up and have remote writes.
func (pr *Peer) Putters() RailSet { return pr.putters & pr.up }

// move changes the state of a peer.
func (b *BML) move(pr *Peer, to PeerState) {
	if pr.state == to {
		return
	}
	if !peerLegal[pr.state].has(to) {
		b.illegal("peer: " + pr.state.String() + " → " + to.String())
	}
	pr.state = to
}

// refresh sets the state of a peer that has a path, by its rails: up or degraded.
func (b *BML) refresh(pr *Peer) {
	if pr.up == 0 || !pr.IsAlive() {
		return
	}
	to := PeerUp
	for i := range pr.rails {
		if rl := &pr.rails[i]; rl.state != railUp && rl.recovery.wasUp && !pr.isSpare(rl) {
			to = PeerDegraded
		}
	}
	b.move(pr, to)
}

// stopInline stops inline fragments: the first rail is down, or fragments wait for it.
func (pr *Peer) stopInline() {
	pr.inliner, pr.shortSender, pr.shortReceiver, pr.runReceiver, pr.inlineBytes = nil, nil, nil, nil, 0
}
