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
	Name     string   // the C constant without IBV_WC_
	Text     string   // human-readable description
	Sides    Side     // ends that can get the status
	Services Services // services that have the status; 0: only Reliable Datagram, which verbs lack
	After    After
}

// statusTable is indexed by status (InfiniBand error model, chapter 2; ibv_poll_cq).
var statusTable = [StatusCount]StatusInfo{
	{StatusSuccess, "SUCCESS", "success", BothSides, AllServices, AfterNone},
	{StatusLocLenErr, "LOC_LEN_ERR", "the message exceeds the receive buffer or the port's limit", BothSides, ServiceRC | ServiceUC, AfterErrorOrSQE},
	{StatusLocQPOpErr, "LOC_QP_OP_ERR", "the work request is malformed, or the queue pair cannot execute it", BothSides, AllServices, AfterErrorOrSQE},
	{StatusLocEECOpErr, "LOC_EEC_OP_ERR", "the end-to-end context cannot execute the work request", NoSide, 0, AfterNone},
	{StatusLocProtErr, "LOC_PROT_ERR", "no memory region with the L_Key and access contains the local buffer", BothSides, AllServices, AfterErrorOrSQE},
	{StatusWRFlushErr, "WR_FLUSH_ERR", "flushed because the queue pair had failed", BothSides, AllServices, AfterNone},
	{StatusMWBindErr, "MW_BIND_ERR", "the memory window cannot be bound", Requester, ServiceRC | ServiceUC, AfterErrorOrSQE},
	{StatusBadRespErr, "BAD_RESP_ERR", "the peer's device sent an invalid response", Requester, ServiceRC, AfterError},
	{StatusLocAccessErr, "LOC_ACCESS_ERR", "a write with immediate data from the peer had a wrong R_Key", Responder, ServiceRC | ServiceUC, AfterError},
	{StatusRemInvReqErr, "REM_INV_REQ_ERR", "the peer refused the request: wrong length or operation, or too many outstanding", Requester, ServiceRC, AfterError},
	{StatusRemAccessErr, "REM_ACCESS_ERR", "no memory region with the R_Key and access contains the remote memory", Requester, ServiceRC, AfterError},
	{StatusRemOpErr, "REM_OP_ERR", "the peer could not complete the operation", Requester, ServiceRC, AfterError},
	{StatusRetryExcErr, "RETRY_EXC_ERR", "the peer's device does not acknowledge", Requester, ServiceRC, AfterError},
	{StatusRNRRetryExcErr, "RNR_RETRY_EXC_ERR", "the peer had no receive posted", Requester, ServiceRC, AfterError},
	{StatusLocRDDViolErr, "LOC_RDD_VIOL_ERR", "reliable datagram domains differ", NoSide, 0, AfterNone},
	{StatusRemInvRDReqErr, "REM_INV_RD_REQ_ERR", "invalid reliable datagram request", NoSide, 0, AfterNone},
	{StatusRemAbortErr, "REM_ABORT_ERR", "the message was dropped after a packet was lost", Responder, ServiceUC | ServiceUD, AfterNone},
	{StatusInvEECNErr, "INV_EECN_ERR", "invalid end-to-end context number", NoSide, 0, AfterNone},
	{StatusInvEECStateErr, "INV_EEC_STATE_ERR", "invalid end-to-end context state", NoSide, 0, AfterNone},
	{StatusFatalErr, "FATAL_ERR", "the device failed while executing the request", BothSides, AllServices, AfterError},
	{StatusRespTimeoutErr, "RESP_TIMEOUT_ERR", "the driver gave up on the request", BothSides, AllServices, AfterError},
	{StatusGeneralErr, "GENERAL_ERR", "the device failed in another way", BothSides, AllServices, AfterError},
}

// Statuses returns the table of statuses in numerical order.
func Statuses() []StatusInfo { return append([]StatusInfo(nil), statusTable[:]...) }

// Info returns the row of the status. No service has an unknown status.
func (s Status) Info() StatusInfo {
	if s < StatusCount {
		return statusTable[s]
	}
	return StatusInfo{Status: s, Name: strconv.Itoa(int(s)), Text: "unknown status"}
}

// String returns the C constant without its prefix: RETRY_EXC_ERR.
func (s Status) String() string { return s.Info().Name }

// Native returns the C constant: IBV_WC_RETRY_EXC_ERR.
func (s Status) Native() string { return "IBV_WC_" + s.Info().Name }
