package verbs

// Operation is what a request asks of the responder.
type Operation uint8

const (
	OpSend Operation = iota
	OpWrite
	OpWriteImm
	OpRead
	OpAtomic
)

var operationNames = [...]string{"SEND", "WRITE", "WRITE_WITH_IMM", "READ", "ATOMIC"}

func (o Operation) String() string { return enumName("operation", operationNames[:], o) }

// Mistake says why the responder refuses a request.
type Mistake uint8

const (
	// BadKey: the key names no region, a range outside the region, or lacks the access. For a SEND
	// this is the L_Key of the responder's receive buffer, otherwise the R_Key of the request.
	BadKey Mistake = iota
	// TooLong: the message exceeds the receive buffer (SEND) or max_msg_sz.
	TooLong
	// TooMany: more reads and atomics are outstanding than max_dest_rd_atomic allows.
	TooMany
	// Misaligned: the address of an atomic is not a multiple of 8.
	Misaligned
	// OtherMistake: the responder's queue pair cannot execute the request.
	OtherMistake
)

var mistakeNames = [...]string{"bad key", "too long", "too many", "misaligned", "other"}

func (m Mistake) String() string { return enumName("mistake", mistakeNames[:], m) }

// Refusal is a row of the table of refused requests: the errors that the responder and the
// requester of an RC connection get when the responder refuses a request (InfiniBand error model,
// 4.4). Both queue pairs enter ERR.
type Refusal struct {
	Op      Operation
	Mistake Mistake
	// Completion is the status of the responder's receive, or StatusSuccess if none completes.
	Completion Status
	// Event is the responder's event, if HasEvent. A write with immediate data has a completion and
	// an event, and a device may raise either: only the last packet shows that the write has
	// immediate data (5.2).
	Event    EventType
	HasEvent bool
	// Requester is the status of the requester's work request.
	Requester Status
}

var refusals = []Refusal{
	{OpSend, BadKey, StatusLocProtErr, 0, false, StatusRemOpErr},
	{OpSend, TooLong, StatusLocLenErr, 0, false, StatusRemInvReqErr},
	{OpSend, OtherMistake, StatusLocQPOpErr, 0, false, StatusRemOpErr},
	{OpWrite, BadKey, StatusSuccess, EventQPAccessErr, true, StatusRemAccessErr},
	{OpWrite, TooLong, StatusSuccess, EventQPReqErr, true, StatusRemInvReqErr},
	{OpWrite, OtherMistake, StatusSuccess, EventQPReqErr, true, StatusRemOpErr},
	{OpWriteImm, BadKey, StatusLocAccessErr, EventQPAccessErr, true, StatusRemAccessErr},
	{OpWriteImm, TooLong, StatusLocLenErr, EventQPReqErr, true, StatusRemInvReqErr},
	{OpWriteImm, OtherMistake, StatusLocQPOpErr, EventQPReqErr, true, StatusRemOpErr},
	{OpRead, BadKey, StatusSuccess, EventQPAccessErr, true, StatusRemAccessErr},
	{OpRead, TooLong, StatusSuccess, EventQPReqErr, true, StatusRemInvReqErr},
	{OpRead, TooMany, StatusSuccess, EventQPAccessErr, true, StatusRemInvReqErr},
	{OpRead, OtherMistake, StatusSuccess, EventQPReqErr, true, StatusRemOpErr},
	{OpAtomic, BadKey, StatusSuccess, EventQPAccessErr, true, StatusRemAccessErr},
	{OpAtomic, TooLong, StatusSuccess, EventQPReqErr, true, StatusRemInvReqErr},
	{OpAtomic, TooMany, StatusSuccess, EventQPAccessErr, true, StatusRemInvReqErr},
	{OpAtomic, Misaligned, StatusSuccess, EventQPAccessErr, true, StatusRemInvReqErr},
	{OpAtomic, OtherMistake, StatusSuccess, EventQPReqErr, true, StatusRemOpErr},
}

// Refusals returns the table of refused requests.
func Refusals() []Refusal { return append([]Refusal(nil), refusals...) }

// FindRefusal returns the row of an operation and a mistake. ok is false if the operation cannot
// have that mistake.
func FindRefusal(op Operation, mistake Mistake) (row Refusal, ok bool) {
	for _, row := range refusals {
		if row.Op == op && row.Mistake == mistake {
			return row, true
		}
	}
	return Refusal{}, false
}
