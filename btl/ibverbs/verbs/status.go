package verbs

import "strconv"

// Status is how a work request ended: ibv_wc_status.
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

// Class says what kind of thing a status is evidence of.
type Class uint8

const (
	// ClassSuccess: nothing is wrong.
	ClassSuccess Class = iota
	// ClassUsage: an error of the program: bad key, length, or operation; at either end.
	ClassUsage
	// ClassFlushed: a symptom of something that went wrong before.
	ClassFlushed
	// ClassPath: no answer, or none that helps, from the other end.
	ClassPath
	// ClassReceiver: the other end never posted a receive.
	ClassReceiver
	// ClassPeer: the other end, or its device, failed.
	ClassPeer
	// ClassDevice: the own queue or device is broken.
	ClassDevice
	// ClassAborted: a message was given up, which its service permits; go on.
	ClassAborted
	// ClassUnused: of the Reliable Datagram service, which verbs do not have.
	ClassUnused
)

var classNames = [...]string{"success", "usage", "flushed", "path", "receiver not ready", "peer", "device", "aborted", "unused"}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "class " + strconv.Itoa(int(c))
}

// Side is an end of an operation, or both.
type Side uint8

const (
	// Requester is who posted the send request.
	Requester Side = 1 << iota
	// Responder is who received it.
	Responder
	NoSide    Side = 0
	BothSides      = Requester | Responder
)

// After says what a failed completion does to its queue pair.
type After uint8

const (
	// AfterNone: the state stays.
	AfterNone After = iota
	// AfterError: to Error.
	AfterError
	// AfterErrorOrSQE: a receive's to Error, with each service; a send request's of RC to Error, of UC and UD to SQE.
	AfterErrorOrSQE
)

// StatusInfo is a row of the table of statuses.
type StatusInfo struct {
	Status   Status
	Name     string // the constant's, without IBV_WC_
	Text     string // for people
	Class    Class
	Sides    Side     // who can get it
	Services Services // with which service
	After    After
}

// statusTable is indexed by status (InfiniBand error model, chapter 2; ibv_poll_cq).
var statusTable = [StatusCount]StatusInfo{
	{StatusSuccess, "SUCCESS", "done", ClassSuccess, BothSides, AllServices, AfterNone},
	{StatusLocLenErr, "LOC_LEN_ERR", "message longer than the receive buffer, or than the port allows", ClassUsage, BothSides, ServiceRC | ServiceUC, AfterErrorOrSQE},
	{StatusLocQPOpErr, "LOC_QP_OP_ERR", "work request malformed, or the queue pair cannot do it", ClassUsage, BothSides, AllServices, AfterErrorOrSQE},
	{StatusLocEECOpErr, "LOC_EEC_OP_ERR", "end-to-end context cannot do it", ClassUnused, NoSide, 0, AfterNone},
	{StatusLocProtErr, "LOC_PROT_ERR", "local buffer is not in a memory region with that key and access", ClassUsage, BothSides, AllServices, AfterErrorOrSQE},
	{StatusWRFlushErr, "WR_FLUSH_ERR", "flushed, because the queue pair had failed", ClassFlushed, BothSides, AllServices, AfterNone},
	{StatusMWBindErr, "MW_BIND_ERR", "memory window could not be bound", ClassUsage, Requester, ServiceRC | ServiceUC, AfterErrorOrSQE},
	{StatusBadRespErr, "BAD_RESP_ERR", "the peer's device answered nonsense", ClassPeer, Requester, ServiceRC, AfterError},
	{StatusLocAccessErr, "LOC_ACCESS_ERR", "a peer's write with immediate data had a bad remote key", ClassUsage, Responder, ServiceRC | ServiceUC, AfterError},
	{StatusRemInvReqErr, "REM_INV_REQ_ERR", "the peer refused the request: length, operation, or too many at once", ClassUsage, Requester, ServiceRC, AfterError},
	{StatusRemAccessErr, "REM_ACCESS_ERR", "remote memory is not in a region with that key and access", ClassUsage, Requester, ServiceRC, AfterError},
	{StatusRemOpErr, "REM_OP_ERR", "the peer could not complete the operation", ClassPeer, Requester, ServiceRC, AfterError},
	{StatusRetryExcErr, "RETRY_EXC_ERR", "no answer from the peer's device", ClassPath, Requester, ServiceRC, AfterError},
	{StatusRNRRetryExcErr, "RNR_RETRY_EXC_ERR", "the peer had no receive posted", ClassReceiver, Requester, ServiceRC, AfterError},
	{StatusLocRDDViolErr, "LOC_RDD_VIOL_ERR", "reliable datagram domains differ", ClassUnused, NoSide, 0, AfterNone},
	{StatusRemInvRDReqErr, "REM_INV_RD_REQ_ERR", "invalid reliable datagram request", ClassUnused, NoSide, 0, AfterNone},
	{StatusRemAbortErr, "REM_ABORT_ERR", "message given up after a packet was lost", ClassAborted, Responder, ServiceUC | ServiceUD, AfterNone},
	{StatusInvEECNErr, "INV_EECN_ERR", "invalid end-to-end context number", ClassUnused, NoSide, 0, AfterNone},
	{StatusInvEECStateErr, "INV_EEC_STATE_ERR", "invalid end-to-end context state", ClassUnused, NoSide, 0, AfterNone},
	{StatusFatalErr, "FATAL_ERR", "the device failed at this request", ClassDevice, BothSides, AllServices, AfterError},
	{StatusRespTimeoutErr, "RESP_TIMEOUT_ERR", "the driver gave the request up", ClassDevice, BothSides, AllServices, AfterError},
	{StatusGeneralErr, "GENERAL_ERR", "the device failed in some other way", ClassDevice, BothSides, AllServices, AfterError},
}

// Statuses is the table of statuses, in order of number.
func Statuses() []StatusInfo { return append([]StatusInfo(nil), statusTable[:]...) }

// Info is the status's row; of a number that no status has, an Unused one.
func (s Status) Info() StatusInfo {
	if s < StatusCount {
		return statusTable[s]
	}
	return StatusInfo{Status: s, Name: strconv.Itoa(int(s)), Text: "unknown status", Class: ClassUnused}
}

// Class is what the status is evidence of.
func (s Status) Class() Class { return s.Info().Class }

// String is the constant's name without its prefix: RETRY_EXC_ERR.
func (s Status) String() string { return s.Info().Name }

// Native is the constant's whole name: IBV_WC_RETRY_EXC_ERR.
func (s Status) Native() string { return "IBV_WC_" + s.Info().Name }
