package verbs

import "strconv"

// EventType is the kind of an asynchronous event: ibv_event_type.
type EventType uint32

const (
	EventCQErr            EventType = 0
	EventQPFatal          EventType = 1
	EventQPReqErr         EventType = 2
	EventQPAccessErr      EventType = 3
	EventCommEst          EventType = 4
	EventSQDrained        EventType = 5
	EventPathMig          EventType = 6
	EventPathMigErr       EventType = 7
	EventDeviceFatal      EventType = 8
	EventPortActive       EventType = 9
	EventPortErr          EventType = 10
	EventLIDChange        EventType = 11
	EventPKeyChange       EventType = 12
	EventSMChange         EventType = 13
	EventSRQErr           EventType = 14
	EventSRQLimitReached  EventType = 15
	EventQPLastWQEReached EventType = 16
	EventClientReregister EventType = 17
	EventGIDChange        EventType = 18
)

// EventCount is the number of kinds; they are 0 to EventCount-1.
const EventCount = 19

// Affiliation says what an event concerns, and so who is told: one of a queue pair, a CQ or
// an SRQ only the context that made it; one of a port or the device every open context.
type Affiliation uint8

const (
	OfQP Affiliation = iota
	OfCQ
	OfSRQ
	OfPort
	OfDevice
)

var affiliationNames = [...]string{"QP", "CQ", "SRQ", "port", "device"}

func (a Affiliation) String() string {
	if int(a) < len(affiliationNames) {
		return affiliationNames[a]
	}
	return "affiliation " + strconv.Itoa(int(a))
}

// Severity of an event.
type Severity uint8

const (
	// Notice: nothing is wrong.
	Notice Severity = iota
	// Fault: something failed, and the object's state tells how it goes on.
	Fault
	// Catastrophe: the object is of no more use; destroy it. No completion is promised.
	Catastrophe
)

var severityNames = [...]string{"notice", "fault", "catastrophe"}

func (s Severity) String() string {
	if int(s) < len(severityNames) {
		return severityNames[s]
	}
	return "severity " + strconv.Itoa(int(s))
}

// EventInfo is a row of the table of events.
type EventInfo struct {
	Type     EventType
	Name     string // the constant's, without IBV_EVENT_
	Text     string // for people
	Of       Affiliation
	Severity Severity
	Services Services // whose queue pairs can raise it; all for what is no queue pair's
}

// eventTable is indexed by kind (InfiniBand error model, chapter 3).
var eventTable = [EventCount]EventInfo{
	{EventCQErr, "CQ_ERR", "completion queue overran or broke", OfCQ, Catastrophe, AllServices},
	{EventQPFatal, "QP_FATAL", "queue pair broke", OfQP, Catastrophe, AllServices},
	{EventQPReqErr, "QP_REQ_ERR", "a peer's request made no sense", OfQP, Fault, ServiceRC},
	{EventQPAccessErr, "QP_ACCESS_ERR", "a peer's request named memory that it may not reach", OfQP, Fault, ServiceRC},
	{EventCommEst, "COMM_EST", "first packet from the peer", OfQP, Notice, ServiceRC | ServiceUC},
	{EventSQDrained, "SQ_DRAINED", "send queue drained", OfQP, Notice, AllServices},
	{EventPathMig, "PATH_MIG", "moved to the alternate path", OfQP, Notice, ServiceRC | ServiceUC},
	{EventPathMigErr, "PATH_MIG_ERR", "could not move to the alternate path", OfQP, Fault, ServiceRC | ServiceUC},
	{EventDeviceFatal, "DEVICE_FATAL", "device broke", OfDevice, Catastrophe, AllServices},
	{EventPortActive, "PORT_ACTIVE", "port is active", OfPort, Notice, AllServices},
	{EventPortErr, "PORT_ERR", "port is down", OfPort, Fault, AllServices},
	{EventLIDChange, "LID_CHANGE", "port's LID changed", OfPort, Notice, AllServices},
	{EventPKeyChange, "PKEY_CHANGE", "port's table of partition keys changed", OfPort, Notice, AllServices},
	{EventSMChange, "SM_CHANGE", "port's subnet manager changed", OfPort, Notice, AllServices},
	{EventSRQErr, "SRQ_ERR", "shared receive queue broke", OfSRQ, Catastrophe, AllServices},
	{EventSRQLimitReached, "SRQ_LIMIT_REACHED", "shared receive queue is below its limit", OfSRQ, Notice, AllServices},
	{EventQPLastWQEReached, "QP_LAST_WQE_REACHED", "failed queue pair takes no more from its shared receive queue", OfQP, Notice, AllServices},
	{EventClientReregister, "CLIENT_REREGISTER", "subnet manager asks to subscribe again", OfPort, Notice, AllServices},
	{EventGIDChange, "GID_CHANGE", "port's table of GIDs changed", OfPort, Notice, AllServices},
}

// EventTypes is the table of events, in order of number.
func EventTypes() []EventInfo { return append([]EventInfo(nil), eventTable[:]...) }

// Info is the kind's row; of a number that no kind has, a notice of the device.
func (t EventType) Info() EventInfo {
	if t < EventCount {
		return eventTable[t]
	}
	return EventInfo{Type: t, Name: strconv.Itoa(int(t)), Text: "unknown event", Of: OfDevice, Severity: Notice}
}

// String is the constant's name without its prefix: PORT_ERR.
func (t EventType) String() string { return t.Info().Name }

// Native is the constant's whole name: IBV_EVENT_PORT_ERR.
func (t EventType) Native() string { return "IBV_EVENT_" + t.Info().Name }

// AsyncEvent is something that happened to an object without a completion to tell of it.
type AsyncEvent struct {
	Type EventType
	QP   QP  // if it is a queue pair's
	CQ   CQ  // if it is a completion queue's
	SRQ  SRQ // if it is a shared receive queue's
	Port int // if it is a port's, counted from 1
}
