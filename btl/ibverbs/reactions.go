package ibverbs

import (
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// verdict is what a failed completion says: what went wrong, and where the evidence points.
type verdict struct {
	class btl.Class
	side  btl.Side
	// goesOn: of a receive, the endpoint stays Up.
	goesOn bool
}

// verdicts is indexed by status. Each but SUCCESS, WR_FLUSH_ERR and REM_ABORT_ERR fails the endpoint.
var verdicts = [verbs.StatusCount]verdict{
	verbs.StatusSuccess:   {goesOn: true},
	verbs.StatusLocLenErr: {class: btl.ClassUsage},
	// LOC_QP_OP_ERR is also what some devices say when the own port is down: see judge.
	verbs.StatusLocQPOpErr: {class: btl.ClassUsage},
	verbs.StatusLocProtErr: {class: btl.ClassUsage},
	// A symptom. The endpoint fails all the same, for its queue pair is in Error, once what tells why had time to come.
	verbs.StatusWRFlushErr:     {class: btl.ClassFlushed},
	verbs.StatusMWBindErr:      {class: btl.ClassUsage},
	verbs.StatusBadRespErr:     {class: btl.ClassProtocol, side: btl.SideRemote},
	verbs.StatusLocAccessErr:   {class: btl.ClassUsage},
	verbs.StatusRemInvReqErr:   {class: btl.ClassUsage},
	verbs.StatusRemAccessErr:   {class: btl.ClassUsage},
	verbs.StatusRemOpErr:       {class: btl.ClassDevice, side: btl.SideRemote},
	verbs.StatusRetryExcErr:    {class: btl.ClassPath, side: btl.SideBoth},
	verbs.StatusRNRRetryExcErr: {class: btl.ClassPath, side: btl.SideRemote},
	// Of UC and UD: a message was given up, nothing is wrong.
	verbs.StatusRemAbortErr:    {goesOn: true},
	verbs.StatusFatalErr:       {class: btl.ClassDevice, side: btl.SideLocal},
	verbs.StatusRespTimeoutErr: {class: btl.ClassDevice, side: btl.SideLocal},
	verbs.StatusGeneralErr:     {class: btl.ClassDevice, side: btl.SideLocal},
	// Of Reliable Datagram, which there is none of: the device talks nonsense.
	verbs.StatusLocEECOpErr:    {class: btl.ClassDevice, side: btl.SideLocal},
	verbs.StatusLocRDDViolErr:  {class: btl.ClassDevice, side: btl.SideLocal},
	verbs.StatusRemInvRDReqErr: {class: btl.ClassDevice, side: btl.SideLocal},
	verbs.StatusInvEECNErr:     {class: btl.ClassDevice, side: btl.SideLocal},
	verbs.StatusInvEECStateErr: {class: btl.ClassDevice, side: btl.SideLocal},
}

// nonsense is what a status says that cannot be.
var nonsense = verdict{class: btl.ClassDevice, side: btl.SideLocal}

// judge is what a status says while the port is up or down.
func judge(s verbs.Status, portUp bool) verdict {
	if s >= verbs.StatusCount {
		return nonsense
	}
	v := verdicts[s]
	if s == verbs.StatusLocQPOpErr && !portUp {
		v.class, v.side = btl.ClassPath, btl.SideLocal
	}
	return v
}

// reaction is what an asynchronous event makes the module do.
type reaction uint8

const (
	// ignore: nothing follows from it here.
	ignore reaction = iota
	// established: the peer's first packet is here, so the passive end may send.
	established
	// failEndpoint: the queue pair is in Error, or of no more use.
	failEndpoint
	// failRail: queues that endpoints share are gone; they are made anew at the next Connect.
	failRail
	// failDevice: as failRail, and the device has to be opened anew.
	failDevice
	// portDown: nothing is posted until the port is back; after a grace the rail fails.
	portDown
	// portUp: the port is back.
	portUp
	// lookAgain: addresses or the port's state may have changed; if ours has, connections are of no more use.
	lookAgain
)

var reactionNames = [...]string{"ignore", "established", "fail endpoint", "fail rail", "fail device", "port down", "port up", "look again"}

func (r reaction) String() string { return reactionNames[r] }

// response is the reaction to an event, and what the error says if there is one.
type response struct {
	reaction reaction
	class    btl.Class
	side     btl.Side
}

// responses is indexed by kind of event.
var responses = [verbs.EventCount]response{
	verbs.EventCQErr:   {failRail, btl.ClassDevice, btl.SideLocal},
	verbs.EventQPFatal: {failEndpoint, btl.ClassDevice, btl.SideLocal},
	// The peer's request was at fault, which it is told by a REM_ status.
	verbs.EventQPReqErr:    {failEndpoint, btl.ClassUsage, btl.SideNone},
	verbs.EventQPAccessErr: {failEndpoint, btl.ClassUsage, btl.SideNone},
	verbs.EventCommEst:     {reaction: established},
	// Nobody asks for it here: the send queue is never drained but by Error.
	verbs.EventSQDrained: {reaction: ignore},
	// There are no alternate paths.
	verbs.EventPathMig:     {reaction: ignore},
	verbs.EventPathMigErr:  {reaction: ignore},
	verbs.EventDeviceFatal: {failDevice, btl.ClassDevice, btl.SideLocal},
	verbs.EventPortActive:  {reaction: portUp},
	verbs.EventPortErr:     {portDown, btl.ClassPath, btl.SideLocal},
	verbs.EventLIDChange:   {lookAgain, btl.ClassPath, btl.SideNone},
	verbs.EventPKeyChange:  {lookAgain, btl.ClassPath, btl.SideNone},
	verbs.EventSMChange:    {lookAgain, btl.ClassPath, btl.SideNone},
	verbs.EventSRQErr:      {failRail, btl.ClassDevice, btl.SideLocal},
	// There is no shared receive queue: credits bound what comes.
	verbs.EventSRQLimitReached:  {reaction: ignore},
	verbs.EventQPLastWQEReached: {reaction: ignore},
	verbs.EventClientReregister: {lookAgain, btl.ClassPath, btl.SideNone},
	verbs.EventGIDChange:        {lookAgain, btl.ClassPath, btl.SideNone},
}

// respond is the response to an event; one that is not known is ignored.
func respond(t verbs.EventType) response {
	if t >= verbs.EventCount {
		return response{}
	}
	return responses[t]
}
