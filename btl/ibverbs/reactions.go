package ibverbs

import (
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// result is the meaning of an error completion: the class of error, and the end at fault.
type result struct {
	class btl.Class
	side  btl.Side
	// staysUp: the completion is of a receive, and the endpoint stays Up.
	staysUp bool
}

// results is indexed by status. Each status except SUCCESS, WR_FLUSH_ERR and REM_ABORT_ERR fails
// the endpoint.
var results = [verbs.StatusCount]result{
	verbs.StatusSuccess:   {staysUp: true},
	verbs.StatusLocLenErr: {class: btl.ClassUsage},
	// Some devices also report LOC_QP_OP_ERR when the local port is down: see resultOf.
	verbs.StatusLocQPOpErr: {class: btl.ClassUsage},
	verbs.StatusLocProtErr: {class: btl.ClassUsage},
	// A symptom. The endpoint fails nevertheless, because its queue pair is in Error, after a delay
	// in which the cause may arrive.
	verbs.StatusWRFlushErr:     {class: btl.ClassFlushed},
	verbs.StatusMWBindErr:      {class: btl.ClassUsage},
	verbs.StatusBadRespErr:     {class: btl.ClassProtocol, side: btl.SideRemote},
	verbs.StatusLocAccessErr:   {class: btl.ClassUsage},
	verbs.StatusRemInvReqErr:   {class: btl.ClassUsage},
	verbs.StatusRemAccessErr:   {class: btl.ClassUsage},
	verbs.StatusRemOpErr:       {class: btl.ClassDevice, side: btl.SideRemote},
	verbs.StatusRetryExcErr:    {class: btl.ClassPath, side: btl.SideBoth},
	verbs.StatusRNRRetryExcErr: {class: btl.ClassPath, side: btl.SideRemote},
	// For UC and UD: a message was dropped, which is no error.
	verbs.StatusRemAbortErr:    {staysUp: true},
	verbs.StatusFatalErr:       {class: btl.ClassDevice, side: btl.SideLocal},
	verbs.StatusRespTimeoutErr: {class: btl.ClassDevice, side: btl.SideLocal},
	verbs.StatusGeneralErr:     {class: btl.ClassDevice, side: btl.SideLocal},
	// For Reliable Datagram, which is not implemented, so the device is broken.
	verbs.StatusLocEECOpErr:    {class: btl.ClassDevice, side: btl.SideLocal},
	verbs.StatusLocRDDViolErr:  {class: btl.ClassDevice, side: btl.SideLocal},
	verbs.StatusRemInvRDReqErr: {class: btl.ClassDevice, side: btl.SideLocal},
	verbs.StatusInvEECNErr:     {class: btl.ClassDevice, side: btl.SideLocal},
	verbs.StatusInvEECStateErr: {class: btl.ClassDevice, side: btl.SideLocal},
}

// impossible is the result for a status that a working device does not report.
var impossible = result{class: btl.ClassDevice, side: btl.SideLocal}

// resultOf returns the result for a status while the port is up or down.
func resultOf(s verbs.Status, portUp bool) result {
	if s >= verbs.StatusCount {
		return impossible
	}
	v := results[s]
	if s == verbs.StatusLocQPOpErr && !portUp {
		v.class, v.side = btl.ClassPath, btl.SideLocal
	}
	return v
}

// reaction is what the module does when an asynchronous event arrives.
type reaction uint8

const (
	// ignore: the event has no consequence here.
	ignore reaction = iota
	// lastReceive: the queue pair, which is in Error, takes no shared receives any more.
	lastReceive
	// refill: the shared receive queue is almost empty.
	refill
	// established: the peer's first packet has arrived, so the passive end may send.
	established
	// failEndpoint: the queue pair is in Error, or cannot be used any more.
	failEndpoint
	// failRail: queues that endpoints share are broken; the next Connect makes new ones.
	failRail
	// failDevice: like failRail, and the device must be reopened.
	failDevice
	// portDown: nothing is posted until the port is up; after a grace period the rail fails.
	portDown
	// portUp: the port is up again.
	portUp
	// requery: addresses or the port's state may have changed. If the module's address has changed,
	// connections cannot be used any more.
	requery
)

// response is the reaction to an event, and the class and side of the error if there is one.
type response struct {
	reaction reaction
	class    btl.Class
	side     btl.Side
}

// responses is indexed by the kind of event. It ignores SQ_DRAINED, because only Error drains the
// send queue, and events of alternate paths, which are not used.
var responses = [verbs.EventCount]response{
	verbs.EventCQErr:   {failRail, btl.ClassDevice, btl.SideLocal},
	verbs.EventQPFatal: {failEndpoint, btl.ClassDevice, btl.SideLocal},
	// The peer's request was at fault; the peer gets a REM_ status.
	verbs.EventQPReqErr:        {failEndpoint, btl.ClassUsage, btl.SideNone},
	verbs.EventQPAccessErr:     {failEndpoint, btl.ClassUsage, btl.SideNone},
	verbs.EventCommEst:         {reaction: established},
	verbs.EventDeviceFatal:     {failDevice, btl.ClassDevice, btl.SideLocal},
	verbs.EventPortActive:      {reaction: portUp},
	verbs.EventPortErr:         {portDown, btl.ClassPath, btl.SideLocal},
	verbs.EventLIDChange:       {requery, btl.ClassPath, btl.SideNone},
	verbs.EventPKeyChange:      {requery, btl.ClassPath, btl.SideNone},
	verbs.EventSMChange:        {requery, btl.ClassPath, btl.SideNone},
	verbs.EventSRQErr:          {failRail, btl.ClassDevice, btl.SideLocal},
	verbs.EventSRQLimitReached: {reaction: refill},
	// A symptom, as a flush is: receives of a shared queue are not flushed.
	verbs.EventQPLastWQEReached: {reaction: lastReceive, class: btl.ClassFlushed},
	verbs.EventClientReregister: {requery, btl.ClassPath, btl.SideNone},
	verbs.EventGIDChange:        {requery, btl.ClassPath, btl.SideNone},
}

// respond returns the response to an event. Unknown events are ignored.
func respond(t verbs.EventType) response {
	if t >= verbs.EventCount {
		return response{reaction: ignore}
	}
	return responses[t]
}
