package pml

import (
	"fmt"
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
	// EagerBytes is the longest eager message, without header; 0: each rail's own limit.
	EagerBytes int
	// Protocol moves longer messages. RDMABytes is the shortest message for remote access; 0: each
	// rail's own limit.
	Protocol  Protocol
	RDMABytes int
	// WindowBytes is the flow control window from one rank to another; 0: 4 MiB. A rank buffers at
	// most that many bytes of another rank's messages, and as many again to remember its RTS
	// messages. It is the same at all ranks. Package comm divides the tunable pml.unexpected.bytes
	// by the number of ranks, and takes at least 64 KiB.
	WindowBytes int64
	// Beside: rails of another transport carry long messages beside those of the first one
	// (bml.Config).
	Beside bool
	// Resolve makes the endpoints to a peer when it is first needed, in any order.
	Resolve func(peer int) ([]bml.Route, error)
	// GraceNanos is how long operations wait for a rail when none is up; 0: not at all.
	GraceNanos int64
	// OnRail, if set, is called for each rail to a peer that fails or comes back.
	OnRail func(bml.RailEvent)
	// OnLost, if set, is called for each peer that is lost, with the reason.
	OnLost func(peer int, why error)
	// OnTransfer, if set, is called with true when the transfer of a long message begins, and with
	// false when it ends.
	OnTransfer func(begins bool)
	// Tracer, if set, is called for each message. Messages then do not take the short paths.
	Tracer Tracer
	// OnIllegal, if set, is called for each transition that the tables of states do not allow,
	// which is a bug. It is for tests.
	OnIllegal func(what string)
}

// Stats are the counters of a PML.
type Stats struct {
	// SentInline, SentEager, SentRendezvous and SentGet count the messages sent, by how they began.
	// SentPut counts the messages of SentRendezvous that were then sent by remote writes.
	SentInline, SentEager, SentRendezvous, SentGet, SentPut uint64
	// Received counts the messages received, and ReceivedBytes the bytes that reached a buffer.
	Received      uint64
	ReceivedBytes int64
	// Throttled counts messages that were short enough to be eager, but found the window full.
	Throttled uint64
	// Deferred counts sends that could not post even an RTS when they started.
	Deferred uint64
	// ReceivedGet counts the receives that read their message, and ReceivedPut the receives whose
	// message was written. Unread counts the receives that asked for fragments after a read failed.
	ReceivedGet, ReceivedPut, Unread uint64
	// Unwritten counts the sends of SentPut that went on in fragments after a write failed.
	Unwritten uint64
	// Unregistered counts buffers that a rail could not register.
	Unregistered uint64
	// Unexpected counts messages that arrived before their receive. UnexpectedBytes is the payload
	// that is buffered now: of unexpected messages, and of fragments that arrived before their turn
	// or before their context was made. UnexpectedPeakBytes is its maximum.
	Unexpected          uint64
	UnexpectedBytes     int64
	UnexpectedPeakBytes int64
	// Early counts fragments that arrived before one with a lower sequence number. Duplicates
	// counts dropped fragments that had arrived before.
	Early, Duplicates uint64
	// Retries counts operations that had to wait because a rail had no room.
	Retries uint64
	// RailsFailed and RailsReturned count rails to peers that failed and came back. Resent and
	// ResentBytes count what went again after a rail had taken it (bml.Stats). TwiceBytes counts
	// the bytes at the end of messages that a second rail sent too, because the first was late.
	// StaleFragments counts the fragments that were dropped because they had come before.
	RailsFailed, RailsReturned, Resent, StaleFragments uint64
	ResentBytes, TwiceBytes                            int64
	// Restarts counts the transfers that went on in fragments, because remote access was refused or
	// no rail offered it any more.
	Restarts uint64
	// LocalErrors, PathErrors and RemoteErrors count the errors of rails that are evidence against
	// this rank's module, the path, and the peer. A lost link counts against the module, whichever
	// end of the cable has lost it. Each failed attempt to reopen a rail also counts: while a port
	// is down, about two a second for each of its rails.
	LocalErrors, PathErrors, RemoteErrors uint64
	// Refused counts operations that every rail refused as wrong in itself, each of which ended a
	// message.
	Refused uint64
	// SwitchNanos is the longest time from a rail's failure until all operations in flight on it
	// were posted again.
	SwitchNanos int64
	// Malformed counts fragments that broke the protocol or were for a request that is over, and
	// were dropped.
	Malformed uint64
	// Illegal counts transitions that should be impossible.
	Illegal uint64
}

// PML is the point-to-point messaging layer of one rank. It implements btl.Events, progress.Poller
// and progress.Idler. Use New to make one.
type PML struct {
	cfg   Config
	eng   *progress.Engine
	bml   *bml.BML
	peers []*peer // by rank in the job; nil until first needed

	contexts map[ContextID]*Context
	recent   [16]*Context // cache of contexts, by the low bits of the id
	// earlyContext has the fragments for contexts that this rank has not made yet.
	earlyContext map[ContextID][]earlyContextFragment
	ids          contextIDs
	controlled   controlled    // contexts with a handler
	orphans      OrphanHandler // set by OnOrphan

	sends     handleTable[SendRequest]
	recvs     handleTable[RecvRequest]
	freeSends pool[SendRequest]
	freeRecvs pool[RecvRequest]
	freeProbe pool[ProbeRequest]
	freePairs pool[PairRequest]
	freeSent  request.Pool
	messages  messagePool
	blocking  blockingRecv
	run       run // TakeRun
	// shortReceives counts messages that took the short path since the last turn of progress, and
	// their KiB.
	shortReceives int

	// bcopies counts the bcopy sends under way, bcopiesSinceTurn the bcopy sends since the last one
	// that made a turn of progress. freeBcopies has the free buffers, never more than were under
	// way at once.
	bcopies          int
	bcopiesSinceTurn int
	freeBcopies      [][]byte
	undelivered      error // result of Undelivered

	lostPeers    []*peer
	blockedPeers int // peers, not lost, that have used up their window of RTS messages
	// turnsUntilIdle is the number of turns of progress until the next check whether the rank is
	// idle. idleAt is the time at which the handlers were last told so.
	turnsUntilIdle int
	idleAt         int64

	// Callbacks of operations, made once so that posting does not allocate.
	headDone, sendPieceDone, finDone, recvPieceDone, putDone, answerDone func(op *bml.Op, err error)

	busy         int   // sends that are not finished, and answers that are not delivered
	closed       error // set by Close
	leaving      error // set by Leave
	hasFinalized bool  // set by TellFinalized
	finalizedTag int   // tag of this rank's FINALIZED
	// newContacts and silentContacts are the peers whose rails were resolved in this waiting period
	// and in the previous one (waiting.go).
	newContacts, silentContacts []*peer
	// isRejecting is set by RejectUnmatched. rejected counts sends of this rank that peers have
	// rejected. taken has the messages that matched probes took and that were not received yet.
	isRejecting bool
	rejected    int
	taken       unexpected
	detached    []*Detachment // that are not complete
	stats       Stats

	// scratch has room for a header that the callee copies before it returns.
	scratch [btl.MaxHeaderBytes]byte

	// onMove, if set, is called for each transition of a request. It is for tests.
	onMove func(r request.Operation, from, to fmt.Stringer)
}

// New makes the point-to-point messaging layer of one rank.
func New(cfg Config) *PML {
	p := &PML{
		cfg:            cfg,
		eng:            cfg.Engine,
		peers:          make([]*peer, cfg.Size),
		contexts:       make(map[ContextID]*Context),
		earlyContext:   make(map[ContextID][]earlyContextFragment),
		turnsUntilIdle: idleTurns,
	}
	p.ids.init(cfg.Rank, cfg.Size)
	p.headDone, p.sendPieceDone, p.finDone = p.onHeadDone, p.onSendPieceDone, p.onFinDone
	p.recvPieceDone, p.putDone, p.answerDone = p.onRecvPieceDone, p.onPutDone, p.onAnswerDone
	p.taken.init()
	p.bml = p.newBML()
	return p
}

func (p *PML) newBML() *bml.BML {
	cfg := &p.cfg
	return bml.New(bml.Config{
		Rank: cfg.Rank, Size: cfg.Size, Engine: cfg.Engine, Upper: (*upper)(p), Kinds: p.kinds(), Version: Version,
		MatchBytes: matchBytes, AnnounceBytes: rndvBytes, AnswerBytes: ackBytes,
		NoShortcuts: cfg.Tracer != nil, EagerBytes: cfg.EagerBytes, RemoteAccess: cfg.Protocol.caps(), RDMABytes: cfg.RDMABytes,
		Beside:  cfg.Beside,
		Resolve: func(peer int) ([]bml.Route, error) { return p.cfg.Resolve(peer) },
		Grace:   time.Duration(cfg.GraceNanos), OnRail: cfg.OnRail, OnIllegal: cfg.OnIllegal,
	})
}

// Progress implements progress.Poller. It returns the number of operations that rails have
// accepted.
func (p *PML) Progress() int {
	p.shortReceives = 0
	if p.turnsUntilIdle--; p.turnsUntilIdle < 0 {
		p.maybeIdle()
	}
	return p.bml.Progress()
}

// Arm implements progress.Idler. A rail that had no room for an operation wakes the engine when it
// has room.
func (p *PML) Arm() bool {
	p.turnsUntilIdle, p.idleAt = 0, longAgo
	return true
}

// Disarm implements progress.Idler.
func (p *PML) Disarm() {}

// Engine is the engine of the rank, whose lock guards the PML.
func (p *PML) Engine() *progress.Engine { return p.eng }

// Busy is the number of sends that are not finished, including those of freed requests, and of
// answers that are not delivered.
func (p *PML) Busy() int { return p.busy }

// Stats returns what was counted so far.
func (p *PML) Stats() Stats {
	st, of := p.stats, p.bml.Stats()
	st.Early, st.Duplicates, st.Retries, st.Unregistered = of.Early, of.Duplicates, of.Retries, of.Unregistered
	st.ResentBytes, st.TwiceBytes = of.ResentBytes, of.TwiceBytes
	st.RailsFailed, st.RailsReturned, st.Resent, st.SwitchNanos = of.RailsFailed, of.RailsReturned, of.Resent, of.SwitchNanos
	st.LocalErrors, st.PathErrors, st.RemoteErrors = of.LocalErrors, of.PathErrors, of.RemoteErrors
	st.Malformed += of.Malformed
	st.Illegal += of.Illegal
	return st
}

// Leave says that all ranks are about to close. Operations that end because a peer closes first
// then end with cause, like the ones that Close ends. It tells the handlers of contexts.
func (p *PML) Leave(cause error) {
	p.leaving = cause
	p.bml.Leave(cause)
	for _, c := range p.sortedContexts() {
		if c.handler != nil {
			c.handler.Finalizing()
		}
	}
}

// Close ends every active operation, and every later one, with cause. If cause is nil the error
// wraps btl.ErrClosed. The caller has closed the endpoints and modules that it made.
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
		c.failPosted(func(*RecvRequest) bool { return true }, cause)
		c.failProbes(cause)
	}
	return nil
}

// illegal reports a transition that the tables of states do not allow.
func (p *PML) illegal(what string) {
	p.stats.Illegal++
	if p.cfg.OnIllegal != nil {
		p.cfg.OnIllegal(what)
	}
}
