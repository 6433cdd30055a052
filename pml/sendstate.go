package pml

// sendState is where a send stands. One that goes inline, to nobody or from a copy, and one that
// fails before anything was posted, is done without leaving idle.
type sendState uint8

const (
	sendIdle       sendState = iota // not started, or done
	sendPending                     // waits until it may be announced
	sendEager                       // MATCH is on its way
	sendAnnounced                   // RNDV is on its way or there; waits for ACK
	sendStreaming                   // FRAGs are on their way
	sendPutting                     // remote writes are, and then FIN
	sendRestarting                  // RNDVRESTARTNOTIFY is on its way or there; waits for what the receiver says
)

var sendNames = [...]string{"idle", "pending", "eager", "waiting for the receiver", "sending", "writing", "restarting"}

func (s sendState) String() string { return sendNames[s] }

// sendLegal is the table of transitions.
//
//	idle       eager      Start: MATCH is posted, or queued, with the whole message
//	           announced  Start of any other: RNDV or RGET is posted, or queued
//	           held       Start: the peer has no room even for that, no rail to it is up, or it is failing
//	held       eager      the peer has room
//	           announced  the peer has room for the announcement
//	           idle       the peer was lost or has left, or the communicator was revoked
//	eager      idle       MATCH was called back, or no rail takes it
//	announced  streaming  ACK came, or FIN; it may want nothing
//	           putting    PUT came
//	           idle       the peer was lost, has left or has refused it, or the communicator was
//	                      revoked, or no rail takes the announcement or its answer; and what was posted
//	                      called back
//	streaming  idle       everything was sent and called back, RNDV too; or the peer was lost,
//	                      and everything outstanding called back; or no rail takes the pieces
//	putting    streaming  it cannot be written where the receiver wants it, and what was posted
//	                      is called back
//	           idle       as for streaming; FIN too
//	streaming, restarting a rail failed with a piece; everything was called back, and both halves of the rail
//	putting               are drained
//	restarting streaming  RNDVRESTARTACK came, or RNDVRESTARTNACK; then nothing is wanted
//	           idle       the peer was lost, and everything outstanding called back; or no rail takes
//	                      RNDVRESTARTNOTIFY, or its answer
var sendLegal = [7][7]bool{
	sendIdle:      {sendPending: true, sendEager: true, sendAnnounced: true},
	sendPending:   {sendIdle: true, sendEager: true, sendAnnounced: true},
	sendEager:     {sendIdle: true},
	sendAnnounced: {sendStreaming: true, sendPutting: true, sendIdle: true},
	sendStreaming: {sendIdle: true, sendRestarting: true},
	sendPutting:   {sendStreaming: true, sendIdle: true, sendRestarting: true},

	sendRestarting: {sendStreaming: true, sendIdle: true},
}

func (s *SendRequest) move(to sendState) {
	if !sendLegal[s.state][to] || s.p.onMove != nil {
		s.moving(to)
	}
	s.state = to
}

func (s *SendRequest) moving(to sendState) {
	if !sendLegal[s.state][to] {
		s.p.illegal("send: " + s.state.String() + " → " + to.String())
	}
	if s.p.onMove != nil {
		s.p.onMove(s, s.state, to)
	}
}
