// Package pml is the point-to-point layer: it matches messages with receives, picks the
// protocol that moves the bytes, and keeps order whatever the transports do.
//
// It is a machine: no goroutine, clock, input or output, or randomness of its own. It moves only when
// it is called: by the user's operations, and by the BTLs' events. The same calls and
// events in the same order give the same actions. Everything in it is guarded by
// the lock of the rank's progress engine, which every caller holds.
//
// # Protocols
//
//	eager        sender ── MATCH ──▶ receiver
//	rendezvous   sender ── RNDV ───▶  ◀── ACK ──  ── FRAG… ──▶
//	remote read  sender ── RGET ───▶  ◀══ get ══  ◀── FIN ──
//	remote write sender ── RNDV ───▶  ◀── PUT ──  ══ put ══▶ ── FIN ──▶
//
// A message that fits the rail's eager limit goes with its MATCH. A longer one, and every
// synchronous one, announces itself by RNDV; the receiver answers with ACK when it
// has matched, and says from which byte to which the data is still wanted. Where rails can read
// from memory of the sender's, or write into that of the receiver's, they do so for messages that
// are long enough; what cannot be reached that way goes in fragments.
//
// What is matched, and every answer, goes by the rail of the lowest latency to the peer. The
// pieces of long messages are spread over all rails.
//
// # Files
//
//	hdr.go       what goes over the wire
//	context.go   matching spaces, one for each communicator and kind of traffic
//	match.go     posted receives and unexpected messages
//	peer.go      what is known of each peer
//	rail.go      the rails to it, and what waits to be posted
//	credit.go    how much may go to it before it is received
//	held.go      sends that wait until it may
//	protocol.go  which protocol a message takes
//	stripes.go   the pieces of a long message, and who carries them
//	memory.go    registered memory
//	control.go   contexts that a layer above controls, for collectives
//	revoke.go    communicators that a member never got, because it gave up the call that made them
//	failover.go  rails that fail, what was under way on them, and what is sent anew
//	withdraw.go  operations that every rail calls wrong, and who hears of it
//	repel.go     peers that were lost, and do not know it
//	health.go    how well rails are, and how they come back
//	grace.go     how long requests wait for a rail that delivers
//	lost.go      peers that are gone, and who hears of it
//	left.go      ranks that are in Finalize, and who hears of it
//	waiting.go   peers that this rank waits for, and that do not know it
//	unmatched.go sends that are not received by the time that all ranks are in Finalize
//	arrive.go    fragments coming in
//	sendreq.go   the life of a send
//	sendstate.go the states of a send, and the table of its transitions
//	copied.go    short sends that do not wait for delivery
//	detach.go    sends that give their buffer back before they are complete
//	recvreq.go   the life of a receive
//	probe.go     probes and matched probes
//	pool.go      objects that are kept for the next use
//	handle.go    slot-and-generation names for requests, that travel in headers
//	observe.go   what has arrived and was never received, for reports
//	sights.go    what a simulation sees
package pml

import (
	"fmt"
	"strconv"
	"time"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// Config of a PML.
type Config struct {
	// Rank in the job of Size ranks.
	Rank, Size int
	Engine     *progress.Engine
	// EagerBytes is the longest message, without header, that is sent eagerly;
	// 0 leaves it to each rail.
	EagerBytes int
	// Protocol for longer ones, and the length from which on it may be remote access; 0 leaves
	// that to each rail.
	Protocol  Protocol
	RDMABytes int
	// WindowBytes bounds what one rank keeps of what another has sent before it is received, and
	// again what it needs to remember messages that are only announced; 0 means 4 MiB. All ranks
	// have the same.
	WindowBytes int64
	// Resolve makes the endpoints to a peer, the best rail first, when it is first needed.
	Resolve func(peer int) ([]bml.Route, error)
	// GraceNanos is how long requests wait for a rail to come back when none is left; 0: not at all.
	GraceNanos int64
	// OnRail, if set, hears of each rail to a peer that fails or comes back.
	OnRail func(bml.RailEvent)
	// OnIllegal, if set, hears of a transition that the tables of states do not allow,
	// which is a bug. For tests.
	OnIllegal func(what string)
}

// Stats counts what a PML did.
type Stats struct {
	// Messages sent, by how they began, and those of the announced that were then written.
	SentInline, SentEager, SentRendezvous, SentGet, SentPut uint64
	Received                                                uint64
	// Held counts messages that were announced though small, because the window was used up.
	Held uint64
	// Deferred counts sends that were not even announced at once, because too many were, no rail to the peer was
	// up, or it was failing.
	Deferred uint64
	// Of the received, those that were read from where the sender had them, those that it was
	// invited to write, and those that could not be read after all, and came in fragments.
	ReceivedGet, ReceivedPut, Unread uint64
	// Unwritten counts those of SentPut that could not be written after all, and went in fragments.
	Unwritten uint64
	// Unregistered counts buffers that a rail could not register.
	Unregistered uint64
	// Unexpected counts messages that arrived before their receive. UnexpectedBytes is what
	// they hold now, with what came before its turn or before its communicator was made;
	// UnexpectedPeakBytes is the most that they ever held.
	Unexpected          uint64
	UnexpectedBytes     int64
	UnexpectedPeakBytes int64
	// Early counts fragments that came before one of a lower sequence number.
	Early uint64
	// Duplicates counts fragments that had come before, and were dropped.
	Duplicates uint64
	// Retries counts operations that had to wait because a rail had no room.
	Retries uint64
	// RailsFailed and RailsReturned count the ways to peers that failed and came back; Resent the fragments that
	// were sent again because of that, Restarts the messages that were sent or read anew from their beginning, and
	// StaleFragments the pieces of earlier attempts that were dropped.
	RailsFailed, RailsReturned, Resent, Restarts, StaleFragments uint64
	// Withdrawn counts operations that were given up because each rail says that they are wrong,
	// and with them a message.
	Withdrawn uint64
	// SwitchNanos is the longest time from a rail's failure until all that was under way on it was posted again, or may begin
	// anew.
	SwitchNanos int64
	// Malformed counts fragments that made no sense, or came for what is over, and were dropped.
	Malformed uint64
	// Illegal counts transitions that should be impossible.
	Illegal uint64
}

// PML is the point-to-point layer of one rank. It implements btl.Events,
// progress.Poller and progress.Idler. Use New.
type PML struct {
	cfg   Config
	eng   *progress.Engine
	bml   *bml.BML
	peers []*peer // by world rank, nil until first needed

	contexts map[ContextID]*Context
	recent   [16]*Context // by the low bits of the id
	strays   map[ContextID][]stray
	lastID   uint64 // the counter of the last id from NewContextID

	recentlyFreed recentlyFreed
	controlled    []*Context    // those with a handler, by id
	orphans       OrphanHandler // set by OnOrphan

	sends handleTable[SendRequest]
	recvs handleTable[RecvRequest]

	freeSends pool[SendRequest]
	freeRecvs pool[RecvRequest]
	freeProbe pool[ProbeRequest]
	// copied counts sends under way from copies of ours, turnless those since one made a turn; freeCopies are copies that are not used, no more than
	// ever were under way; undelivered is what Undelivered tells.
	copied      int
	turnless    int
	freeCopies  [][]byte
	undelivered error
	messages    messagePool
	direct      direct

	lostPeers []*peer
	full      int // peers, not lost, whose announcements are used up
	patience  int // turns until idle

	// Callbacks of operations, made once.
	headDone, sendPieceDone, finDone, recvPieceDone, inviteDone, answerDone func(op *bml.Op, err error)

	busy         int // sends not finished, and acknowledgements not posted
	closed       error
	leaving      error // set by Leave
	hasFinalized bool  // set by TellFinalized
	finalizedAs  int
	// met and silent are peers to which a way was found, lately and longer ago (waiting.go).
	met, silent []*peer
	// rejecting is set by RejectUnmatched; rejected counts sends of ours that peers have rejected.
	// taken is what probes have taken out of matching, and nobody has received.
	rejecting bool
	rejected  int
	taken     unexpected
	stats     Stats

	// scratch is where headers are encoded that are copied before the call they are
	// for returns.
	scratch [btl.MaxHeaderBytes]byte

	detached []*Detachment // that are not complete

	// onMove, if set, hears of every transition of a request. For tests.
	onMove func(r request.Operation, from, to fmt.Stringer)
}

// New makes the point-to-point layer of one rank.
func New(cfg Config) *PML {
	p := &PML{
		cfg:      cfg,
		eng:      cfg.Engine,
		peers:    make([]*peer, cfg.Size),
		contexts: make(map[ContextID]*Context),
		strays:   make(map[ContextID][]stray),
		patience: patienceTurns,
	}
	p.headDone, p.sendPieceDone, p.finDone = p.onHeadDone, p.onSendPieceDone, p.onFinDone
	p.taken.init()
	p.recvPieceDone, p.inviteDone, p.answerDone = p.onRecvPieceDone, p.onInviteDone, p.onAnswerDone
	p.bml = p.newBML()
	return p
}

// newBML makes the layer below.
func (p *PML) newBML() *bml.BML {
	cfg := &p.cfg
	return bml.New(bml.Config{
		Rank: cfg.Rank, Size: cfg.Size, Engine: cfg.Engine, Upper: (*upper)(p), Kinds: p.kinds(), Version: Version,
		MatchBytes: matchBytes, AnnounceBytes: rndvBytes, AnswerBytes: ackBytes,
		EagerBytes: cfg.EagerBytes, RemoteAccess: cfg.Protocol.caps(), RDMABytes: cfg.RDMABytes,
		Resolve: func(peer int) ([]bml.Route, error) { return p.cfg.Resolve(peer) }, Grace: time.Duration(cfg.GraceNanos), OnRail: cfg.OnRail, OnIllegal: cfg.OnIllegal,
	})
}

// Progress implements progress.Poller: it does what was deferred, and returns the number of operations that rails have taken.
func (p *PML) Progress() int {
	if p.patience--; p.patience < 0 {
		p.idle()
	}
	return p.bml.Progress()
}

// Arm implements progress.Idler. A rail that has refused something rings when it has room.
func (p *PML) Arm() bool {
	p.patience = 0
	return true
}

// Disarm implements progress.Idler.
func (p *PML) Disarm() {}

// Busy is the number of sends that are not finished, those of freed requests included, and of
// answers that are still to be posted.
func (p *PML) Busy() int { return p.busy }

// Stats returns what was counted so far.
func (p *PML) Stats() Stats {
	st, of := p.stats, p.bml.Stats()
	st.Early, st.Duplicates, st.Retries, st.Unregistered = of.Early, of.Duplicates, of.Retries, of.Unregistered
	st.RailsFailed, st.RailsReturned, st.Resent, st.SwitchNanos = of.RailsFailed, of.RailsReturned, of.Resent, of.SwitchNanos
	st.Malformed += of.Malformed
	st.Illegal += of.Illegal
	return st
}

// Pending says what an active operation is, for reports.
type Pending struct {
	// Op is the name of the call.
	Op string
	// Sends says that it is a send.
	Sends bool
	// Context that it belongs to, and whom that was made for.
	Context ContextID
	Caller  Caller
	// Peer in the communicator, or AnySource; Tag, or AnyTag.
	Peer, Tag int
	Bytes     int64
	// Phase of its protocol.
	Phase string
	// GoesOn says that it completes, or fails, without a further call of the peer.
	GoesOn bool
	// Request that it is.
	Request *request.Object
}

func (d Pending) String() string {
	return fmt.Sprintf("%s peer %s tag %s of %d bytes: %s", d.Op, orAny(d.Peer), orAny(d.Tag), d.Bytes, d.Phase)
}

func orAny(n int) string {
	if n == request.AnySource { // or AnyTag, which is the same number
		return "any"
	}
	return strconv.Itoa(n)
}

// Pending lists the operations that are active: sends, receives whose message is arriving,
// and then, oldest first within each context, receives and probes that wait for one.
func (p *PML) Pending() []Pending {
	var out []Pending
	p.sends.each(func(s *SendRequest) { out = append(out, s.pending()) })
	p.recvs.each(func(r *RecvRequest) { out = append(out, r.pending()) })
	for _, c := range p.sortedContexts() {
		for _, r := range c.posted.inOrder() {
			out = append(out, r.pending())
		}
		for _, r := range c.probes {
			out = append(out, Pending{
				Op: r.op, Context: c.id, Caller: c.caller, Peer: r.source, Tag: r.tag, Phase: "probing",
				GoesOn: c.mayFail(c.world(r.source)), Request: &r.Object,
			})
		}
	}
	return out
}

// Close ends every active operation, and every later one, with cause, or with an error that
// Is btl.ErrClosed if that is nil. Endpoints and modules are closed by who made them, before.
func (p *PML) Close(cause error) error {
	if p.closed != nil {
		return nil
	}
	if cause == nil {
		cause = fmt.Errorf("rank %d: point-to-point layer: %w", p.cfg.Rank, btl.ErrClosed)
	}
	p.closed = cause
	p.bml.Close(cause)
	for _, c := range p.sortedContexts() {
		for _, r := range c.posted.inOrder() {
			c.posted.remove(r)
			r.finish(p.closed)
		}
		c.failProbes(p.closed)
	}
	return nil
}

func (p *PML) illegal(what string) {
	p.stats.Illegal++
	if p.cfg.OnIllegal != nil {
		p.cfg.OnIllegal(what)
	}
}
