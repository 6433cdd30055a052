package pml

// sendState is the state of a send. A send that goes inline or to ProcNull, a buffered send, and
// one that fails before anything was posted are complete without leaving idle.
type sendState uint8

const (
	sendIdle       sendState = iota // not started, or complete
	sendPending                     // the peer's windows have no room
	sendEager                       // MATCH is under way
	sendRTS                         // RNDV or RGET is under way or delivered; waits for an answer
	sendStreaming                   // FRAGs are under way
	sendPutting                     // remote writes are under way, then FIN
	sendRestarting                  // RNDVRESTARTNOTIFY likewise
)

var sendNames = [...]string{"idle", "pending", "eager", "waiting for the receiver", "sending", "writing", "restarting"}

func (s sendState) String() string { return sendNames[s] }

// sendLegal is the table of transitions. "Ended" means that all operations that were posted have
// been called back.
//
//	from        to          when
//	idle        eager       Start: MATCH is posted, or queued, with the whole message
//	            RTS         Start: RNDV or RGET is posted, or queued
//	            pending     Start: the windows have no room, even for an RTS, or earlier sends are
//	                        pending
//	pending     eager       the windows have room for the message
//	            RTS         the windows have room for the RTS
//	            idle        the peer is lost or finalized, or the communicator is revoked
//	eager       idle        ended, delivered or refused by every rail
//	RTS         streaming   ACK came, or FIN of a remote read; it may want nothing
//	            putting     PUT came
//	            idle        ended, and one of: the peer is lost, is finalized or has rejected the
//	                        message; the communicator is revoked; every rail refuses the RTS or its
//	                        answer
//	streaming   idle        ended, no failed rail reads the buffer any more, and all was sent; or
//	                        the peer is lost, or every rail refuses the pieces
//	putting     restarting  ended, and the rest of the message cannot be written
//	            idle        as for streaming, with FIN
//	restarting  streaming   RNDVRESTARTACK came, or RNDVRESTARTNACK, which wants nothing
//	            idle        ended, and the peer is lost, or every rail refuses RNDVRESTARTNOTIFY or
//	                        its answer
var sendLegal = [7][7]bool{
	sendIdle:       {sendPending: true, sendEager: true, sendRTS: true},
	sendPending:    {sendIdle: true, sendEager: true, sendRTS: true},
	sendEager:      {sendIdle: true},
	sendRTS:        {sendStreaming: true, sendPutting: true, sendIdle: true},
	sendStreaming:  {sendIdle: true},
	sendPutting:    {sendIdle: true, sendRestarting: true},
	sendRestarting: {sendStreaming: true, sendIdle: true},
}

// AwaitsMatch reports whether the send waits for the receiver to match its message.
func (s *SendRequest) AwaitsMatch() bool { return s.state == sendRTS || s.state == sendPending }

// move makes a transition. It is short enough to be inlined.
func (s *SendRequest) move(to sendState) {
	if !sendLegal[s.state][to] || s.p.onMove != nil {
		s.reportMove(to)
	}
	s.state = to
}

func (s *SendRequest) reportMove(to sendState) {
	if !sendLegal[s.state][to] {
		s.p.illegal("send: " + s.state.String() + " → " + to.String())
	}
	if s.p.onMove != nil {
		s.p.onMove(s, s.state, to)
	}
}
