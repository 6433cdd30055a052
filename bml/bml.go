package bml

import (
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/pinned"
	"github.com/mpigo/mpigo/progress"
)

// Config of a BML. A field is required unless its comment says otherwise.
type Config struct {
	// Rank in the job of Size ranks.
	Rank, Size int
	Engine     *progress.Engine
	Upper      Upper
	// Kinds says how fragments are handed up, by tag. New adds the kinds of this package.
	Kinds [NumKinds]Kind
	// Version of the wire format, the same at all ranks.
	Version uint8
	// MatchBytes, AnnounceBytes and AnswerBytes are the header lengths of an eager message, of an
	// RTS, and of an answer that carries remote key descriptors.
	MatchBytes, AnnounceBytes, AnswerBytes int

	// EagerBytes is the longest eager message, without header; 0: each rail's own limit.
	EagerBytes int
	// RemoteAccess is the part of CapGet and CapPut that may be used. RDMABytes is the shortest
	// message for it; 0: each rail's own limit.
	RemoteAccess btl.Caps
	RDMABytes    int
	// NoShortcuts: no fragment bypasses the layer above (ShortSender, ShortReceiver, RunReceiver),
	// because that layer observes each of them.
	NoShortcuts bool
	// Beside: rails with Route.Beside carry long messages beside rails of a lower tier.
	Beside bool
	// Resolve makes the endpoints to a peer when it is first needed.
	Resolve func(peer int) ([]Route, error)
	// Grace is how long operations wait for a rail when none is up; 0: not at all.
	Grace time.Duration
	// OnRail, if set, is called for each rail to a peer that fails or comes back.
	OnRail func(RailEvent)
	// OnIllegal, if set, is called for each transition that the tables forbid: a bug.
	OnIllegal func(what string)
}

// Upper is the layer above. The BML calls it with the engine's lock held, also from inside Send,
// PostPiece, Resolve and Progress. Upper may post operations then.
type Upper interface {
	// NewPeer makes the record of a rank, and returns the Peer in it.
	NewPeer(rank int) *Peer
	// Admit is called once for each numbered fragment, before its Handle. early: it came out of
	// order, and is kept until its turn. An error says that the fragment breaks the protocol.
	Admit(pr *Peer, tag btl.Tag, frag []byte, early bool) error
	// Forget says that a fragment that was admitted early is no longer kept: its Handle is called
	// next, or the peer is lost.
	Forget(pr *Peer, tag btl.Tag, frag []byte)
	// Resume says that a transfer may be able to go on: a rail has room, or is drained.
	Resume(t *Transfer)
	// Lost says that a peer is lost: Peer.Err is why. Its operations have been called back.
	Lost(pr *Peer)
	// Recheck says that a module of this rank is gone. So an unknown peer that a request waits for
	// may be unreachable; Resolve finds out.
	Recheck()
}

// Stats counts what a BML did.
type Stats struct {
	// Early counts fragments that came out of order, Duplicates those that came again and were
	// dropped, and Malformed those that broke the protocol or came from no rank.
	Early, Duplicates, Malformed uint64
	// Retries counts operations that had to wait because a rail had no room.
	Retries uint64
	// RailsFailed and RailsReturned count the rails to peers that failed and came back. Resent
	// counts the fragments and pieces that go again because a rail ended them with an error, even
	// if the rail has not failed (btl.ClassUsage). ResentBytes counts their bytes. Operations that
	// a rail refused when they were posted, or had no room for, do not count.
	RailsFailed, RailsReturned, Resent uint64
	ResentBytes                        int64
	// TwiceBytes counts the bytes that were also sent by a second rail, because the first was late.
	TwiceBytes int64
	// LocalErrors, PathErrors and RemoteErrors count the errors of rails that are evidence against
	// this rank's module, the path, and the peer. A lost link counts against the module, whichever
	// end of the cable lost it. Each failed attempt to reopen a rail counts, too: while a port is
	// down, about two a second for each of its rails.
	LocalErrors, PathErrors, RemoteErrors uint64
	// SwitchNanos is the longest time from a rail's failure until all its operations were posted
	// again.
	SwitchNanos int64
	// Unregistered counts buffers that a rail could not register.
	Unregistered uint64
	// Illegal counts transitions that the tables forbid.
	Illegal uint64
}

// BML is the management layer of one rank. It implements btl.Events and progress.Poller. Use New.
type BML struct {
	cfg   Config
	eng   *progress.Engine
	upper Upper
	peers []*Peer // by rank, nil until first needed
	kinds [NumKinds]Kind

	opDone  func(op *btl.Op, err error) // made once
	freeOps []*Op

	deferred []work // runs at the next turn
	blocked  []work // retries that failed in this turn; swapped with deferred

	ownModules []*ownModule
	fallen     []fallenRail
	pinned     pinned.Memory
	padding    []byte // of probes

	freeTransfers []*Transfer

	leaving error // set by Leave
	closed  error // set by Close
	stats   Stats
}

var (
	_ btl.Events      = (*BML)(nil)
	_ progress.Poller = (*BML)(nil)
)

// New makes the management layer of one rank.
func New(cfg Config) *BML {
	b := &BML{cfg: cfg, eng: cfg.Engine, upper: cfg.Upper, peers: make([]*Peer, cfg.Size), kinds: cfg.Kinds}
	b.opDone = b.onOpDone
	b.addKinds()
	return b
}

// Stats returns the counts so far.
func (b *BML) Stats() Stats { return b.stats }

// Leave says that all ranks are about to close: operations that a closing rail ends get cause.
func (b *BML) Leave(cause error) { b.leaving = cause }

// Close loses every peer, with cause. The owner of the endpoints and modules has closed them.
func (b *BML) Close(cause error) {
	if b.closed != nil {
		return
	}
	b.closed = cause
	for _, pr := range b.peers {
		if pr != nil {
			b.lose(pr, cause)
		}
	}
}

func (b *BML) illegal(what string) {
	b.stats.Illegal++
	if b.cfg.OnIllegal != nil {
		b.cfg.OnIllegal(what)
	}
}
