package pml

// recvState is the state of a receive. A receive from ProcNull is complete without leaving idle.
type recvState uint8

const (
	recvIdle      recvState = iota // not started, or complete
	recvPosted                     // waits for a message
	recvMatched                    // has a message and decides what to do with it
	recvStreaming                  // waits for FRAGs, or for FIN after remote writes
	recvGetting                    // reads the message from the sender's memory
)

var recvNames = [...]string{"idle", "waiting for a message", "matched", "receiving", "reading"}

func (s recvState) String() string { return recvNames[s] }

// recvLegal is the table of transitions. "Ended" means that all operations that were posted have
// been called back.
//
//	from       to         when
//	idle       posted     Start: no message matches
//	           matched    Start: a message matches; or Imrecv
//	           idle       Start: no message can come from the source any more
//	posted     matched    a message arrived
//	           idle       it was cancelled, its source is lost or finalized, or the communicator is
//	                      revoked
//	matched    streaming  ACK or PUT is posted, and more of the message is to come
//	           getting    RGET came, and there is something to read
//	           idle       all of the message that fits is here
//	getting    streaming  ended, the message cannot be read, and no failed rail reads any more: ACK
//	                      asks for fragments
//	           idle       ended, and all was read, or the peer is lost
//	streaming  idle       ended, and one of: the last piece or FIN came; the peer is lost; every
//	                      rail refuses this rank's answer, or the sender's fragments
var recvLegal = [5][5]bool{
	recvIdle:      {recvPosted: true, recvMatched: true, recvIdle: true},
	recvPosted:    {recvMatched: true, recvIdle: true},
	recvMatched:   {recvStreaming: true, recvGetting: true, recvIdle: true},
	recvStreaming: {recvIdle: true},
	recvGetting:   {recvStreaming: true, recvIdle: true},
}

// move makes a transition. It is short enough to be inlined.
func (r *RecvRequest) move(to recvState) {
	if !recvLegal[r.state][to] || r.p.onMove != nil {
		r.reportMove(to)
	}
	r.state = to
}

func (r *RecvRequest) reportMove(to recvState) {
	if !recvLegal[r.state][to] {
		r.p.illegal("receive: " + r.state.String() + " → " + to.String())
	}
	if r.p.onMove != nil {
		r.p.onMove(r, r.state, to)
	}
}
