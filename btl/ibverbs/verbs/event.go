package verbs

import "strconv"

// EventType is the type of an asynchronous event: ibv_event_type.
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

// EventCount is the number of event types; they are 0 to EventCount-1.
const EventCount = 19

// Affiliation is the kind of object that an event concerns. The context that made a queue pair, CQ
// or SRQ gets the object's events. Every open context of a device gets the events of the device and
// its ports.
type Affiliation uint8

const (
	AffiliationQP Affiliation = iota
	AffiliationCQ
	AffiliationSRQ
	AffiliationPort
	AffiliationDevice
)

var affiliationNames = [...]string{"QP", "CQ", "SRQ", "port", "device"}

func (a Affiliation) String() string { return enumName("affiliation", affiliationNames[:], a) }

// Severity says how serious an event is.
type Severity uint8

const (
	// Notice: nothing is wrong.
	Notice Severity = iota
	// Fault: something failed; the object's state says whether the object is still usable.
	Fault
	// Catastrophe: the object is unusable and must be destroyed. Completions may never come.
	Catastrophe
)

var severityNames = [...]string{"notice", "fault", "catastrophe"}

func (s Severity) String() string { return enumName("severity", severityNames[:], s) }

// EventInfo is a row of the table of events.
type EventInfo struct {
	Type        EventType
	Name        string // the C constant without IBV_EVENT_
	Text        string // human-readable description
	Affiliation Affiliation
	Severity    Severity
	// Services whose queue pairs raise it; AllServices if it is not an event of a queue pair.
	Services Services
}

// eventTable is indexed by type (InfiniBand error model, chapter 3).
var eventTable = [EventCount]EventInfo{
	{EventCQErr, "CQ_ERR", "completion queue overran or failed", AffiliationCQ, Catastrophe, AllServices},
	{EventQPFatal, "QP_FATAL", "queue pair failed", AffiliationQP, Catastrophe, AllServices},
	{EventQPReqErr, "QP_REQ_ERR", "the peer sent an invalid request", AffiliationQP, Fault, ServiceRC},
	{EventQPAccessErr, "QP_ACCESS_ERR", "the peer requested memory that it may not access", AffiliationQP, Fault, ServiceRC},
	{EventCommEst, "COMM_EST", "the first packet from the peer arrived", AffiliationQP, Notice, ServiceRC | ServiceUC},
	{EventSQDrained, "SQ_DRAINED", "send queue drained", AffiliationQP, Notice, AllServices},
	{EventPathMig, "PATH_MIG", "traffic moved to the alternate path", AffiliationQP, Notice, ServiceRC | ServiceUC},
	{EventPathMigErr, "PATH_MIG_ERR", "traffic cannot move to the alternate path", AffiliationQP, Fault, ServiceRC | ServiceUC},
	{EventDeviceFatal, "DEVICE_FATAL", "device failed", AffiliationDevice, Catastrophe, AllServices},
	{EventPortActive, "PORT_ACTIVE", "port is active", AffiliationPort, Notice, AllServices},
	{EventPortErr, "PORT_ERR", "port is down", AffiliationPort, Fault, AllServices},
	{EventLIDChange, "LID_CHANGE", "the port's LID changed", AffiliationPort, Notice, AllServices},
	{EventPKeyChange, "PKEY_CHANGE", "the port's partition keys changed", AffiliationPort, Notice, AllServices},
	{EventSMChange, "SM_CHANGE", "the port's subnet manager changed", AffiliationPort, Notice, AllServices},
	{EventSRQErr, "SRQ_ERR", "shared receive queue failed", AffiliationSRQ, Catastrophe, AllServices},
	{EventSRQLimitReached, "SRQ_LIMIT_REACHED", "shared receive queue is below its limit", AffiliationSRQ, Notice, AllServices},
	{EventQPLastWQEReached, "QP_LAST_WQE_REACHED", "failed queue pair takes no more receives from its shared receive queue", AffiliationQP, Notice, AllServices},
	{EventClientReregister, "CLIENT_REREGISTER", "subnet manager requests a new subscription", AffiliationPort, Notice, AllServices},
	{EventGIDChange, "GID_CHANGE", "the port's GIDs changed", AffiliationPort, Notice, AllServices},
}

// EventTypes returns the table of events in numerical order.
func EventTypes() []EventInfo { return append([]EventInfo(nil), eventTable[:]...) }

// Info returns the row of the type. An unknown type is a notice of the device.
func (t EventType) Info() EventInfo {
	if t < EventCount {
		return eventTable[t]
	}
	return EventInfo{Type: t, Name: strconv.Itoa(int(t)), Text: "unknown event", Affiliation: AffiliationDevice, Severity: Notice}
}

// String returns the C constant without its prefix: PORT_ERR.
func (t EventType) String() string { return t.Info().Name }

// Native returns the C constant: IBV_EVENT_PORT_ERR.
func (t EventType) Native() string { return "IBV_EVENT_" + t.Info().Name }

// AsyncEvent is an asynchronous event.
type AsyncEvent struct {
	Type EventType
	QP   QP  // if the event concerns a queue pair
	CQ   CQ  // if the event concerns a completion queue
	SRQ  SRQ // if the event concerns a shared receive queue
	Port int // if the event concerns a port; ports count from 1
}
