package verbs

import "strconv"

// Status is the status of a work completion: ibv_wc_status.
type Status uint32

const (
	StatusSuccess        Status = 0
	StatusLocLenErr      Status = 1
	StatusLocQPOpErr     Status = 2
	StatusLocEECOpErr    Status = 3
	StatusLocProtErr     Status = 4
	StatusWRFlushErr     Status = 5
	StatusMWBindErr      Status = 6
	StatusBadRespErr     Status = 7
	StatusLocAccessErr   Status = 8
	StatusRemInvReqErr   Status = 9
	StatusRemAccessErr   Status = 10
	StatusRemOpErr       Status = 11
	StatusRetryExcErr    Status = 12
	StatusRNRRetryExcErr Status = 13
	StatusLocRDDViolErr  Status = 14
	StatusRemInvRDReqErr Status = 15
	StatusRemAbortErr    Status = 16
	StatusInvEECNErr     Status = 17
	StatusInvEECStateErr Status = 18
	StatusFatalErr       Status = 19
	StatusRespTimeoutErr Status = 20
	StatusGeneralErr     Status = 21
)

// StatusCount is the number of statuses; they are 0 to StatusCount-1.
const StatusCount = 22

// Class says what kind of failure a status shows.
type Class uint8

const (
	// ClassSuccess: the request succeeded.
	ClassSuccess Class = iota
	// ClassUsage: the program at either end used a wrong key, length or operation.
	ClassUsage
	// ClassFlushed: the queue pair had failed before.
	ClassFlushed
	// ClassPath: the peer's device does not acknowledge.
	ClassPath
	// ClassReceiver: the peer posted no receive.
	ClassReceiver
	// ClassPeer: the peer or its device failed.
	ClassPeer
	// ClassDevice: the local queue or device failed.
	ClassDevice
	// ClassAborted: a message was dropped, as its service permits; the queue pair is usable.
	ClassAborted
	// ClassUnused: only Reliable Datagram has the status, and verbs lack that service.
	ClassUnused
)

var classNames = [...]string{"success", "usage", "flushed", "path", "receiver not ready", "peer", "device", "aborted", "unused"}

func (c Class) String() string { return enumName("class", classNames[:], c) }

// Side is one end of an operation, or both ends.
type Side uint8

const (
	// Requester is the end that posts the send request.
	Requester Side = 1 << iota
	// Responder is the end that receives the request.
	Responder
	NoSide    Side = 0
	BothSides      = Requester | Responder
)

// After says which state a queue pair enters after a failed completion.
type After uint8

const (
	// AfterNone: the state does not change.
	AfterNone After = iota
	// AfterError: the queue pair enters ERR.
	AfterError
	// AfterErrorOrSQE: the queue pair enters SQE after a send request of UC or UD, otherwise ERR.
	AfterErrorOrSQE
)

// StatusInfo is a row of the table of statuses.
type StatusInfo struct {
	Status   Status
	Name     string // the C constant without IBV_WC_
	Text     string // human-readable description
	Class    Class
	Sides    Side     // ends that can get the status
	Services Services // services that have the status
	After    After
}

// statusTable is indexed by status (InfiniBand error model, chapter 2; ibv_poll_cq).
var statusTable = [StatusCount]StatusInfo{
	{StatusSuccess, "SUCCESS", "success", ClassSuccess, BothSides, AllServices, AfterNone},
	{StatusLocLenErr, "LOC_LEN_ERR", "the message exceeds the receive buffer or the port's limit", ClassUsage, BothSides, ServiceRC | ServiceUC, AfterErrorOrSQE},
	{StatusLocQPOpErr, "LOC_QP_OP_ERR", "the work request is malformed, or the queue pair cannot execute it", ClassUsage, BothSides, AllServices, AfterErrorOrSQE},
	{StatusLocEECOpErr, "LOC_EEC_OP_ERR", "the end-to-end context cannot execute the work request", ClassUnused, NoSide, 0, AfterNone},
	{StatusLocProtErr, "LOC_PROT_ERR", "no memory region with the L_Key and access contains the local buffer", ClassUsage, BothSides, AllServices, AfterErrorOrSQE},
	{StatusWRFlushErr, "WR_FLUSH_ERR", "flushed because the queue pair had failed", ClassFlushed, BothSides, AllServices, AfterNone},
	{StatusMWBindErr, "MW_BIND_ERR", "the memory window cannot be bound", ClassUsage, Requester, ServiceRC | ServiceUC, AfterErrorOrSQE},
	{StatusBadRespErr, "BAD_RESP_ERR", "the peer's device sent an invalid response", ClassPeer, Requester, ServiceRC, AfterError},
	{StatusLocAccessErr, "LOC_ACCESS_ERR", "a write with immediate data from the peer had a wrong R_Key", ClassUsage, Responder, ServiceRC | ServiceUC, AfterError},
	{StatusRemInvReqErr, "REM_INV_REQ_ERR", "the peer refused the request: wrong length or operation, or too many outstanding", ClassUsage, Requester, ServiceRC, AfterError},
	{StatusRemAccessErr, "REM_ACCESS_ERR", "no memory region with the R_Key and access contains the remote memory", ClassUsage, Requester, ServiceRC, AfterError},
	{StatusRemOpErr, "REM_OP_ERR", "the peer could not complete the operation", ClassPeer, Requester, ServiceRC, AfterError},
	{StatusRetryExcErr, "RETRY_EXC_ERR", "the peer's device does not acknowledge", ClassPath, Requester, ServiceRC, AfterError},
	{StatusRNRRetryExcErr, "RNR_RETRY_EXC_ERR", "the peer had no receive posted", ClassReceiver, Requester, ServiceRC, AfterError},
	{StatusLocRDDViolErr, "LOC_RDD_VIOL_ERR", "reliable datagram domains differ", ClassUnused, NoSide, 0, AfterNone},
	{StatusRemInvRDReqErr, "REM_INV_RD_REQ_ERR", "invalid reliable datagram request", ClassUnused, NoSide, 0, AfterNone},
	{StatusRemAbortErr, "REM_ABORT_ERR", "the message was dropped after a packet was lost", ClassAborted, Responder, ServiceUC | ServiceUD, AfterNone},
	{StatusInvEECNErr, "INV_EECN_ERR", "invalid end-to-end context number", ClassUnused, NoSide, 0, AfterNone},
	{StatusInvEECStateErr, "INV_EEC_STATE_ERR", "invalid end-to-end context state", ClassUnused, NoSide, 0, AfterNone},
	{StatusFatalErr, "FATAL_ERR", "the device failed while executing the request", ClassDevice, BothSides, AllServices, AfterError},
	{StatusRespTimeoutErr, "RESP_TIMEOUT_ERR", "the driver gave up on the request", ClassDevice, BothSides, AllServices, AfterError},
	{StatusGeneralErr, "GENERAL_ERR", "the device failed in another way", ClassDevice, BothSides, AllServices, AfterError},
}

// Statuses returns the table of statuses in numerical order.
func Statuses() []StatusInfo { return append([]StatusInfo(nil), statusTable[:]...) }

// Info returns the row of the status. An unknown status has ClassUnused.
func (s Status) Info() StatusInfo {
	if s < StatusCount {
		return statusTable[s]
	}
	return StatusInfo{Status: s, Name: strconv.Itoa(int(s)), Text: "unknown status", Class: ClassUnused}
}

// Class returns the kind of failure that the status shows.
func (s Status) Class() Class { return s.Info().Class }

// String returns the C constant without its prefix: RETRY_EXC_ERR.
func (s Status) String() string { return s.Info().Name }

// Native returns the C constant: IBV_WC_RETRY_EXC_ERR.
func (s Status) Native() string { return "IBV_WC_" + s.Info().Name }
