package verbs

import "strconv"

// Operation is what a request does at the other end.
type Operation uint8

const (
	OpSend Operation = iota
	OpWrite
	OpWriteImm
	OpRead
	OpAtomic
)

var operationNames = [...]string{"SEND", "WRITE", "WRITE_WITH_IMM", "READ", "ATOMIC"}

func (o Operation) String() string {
	if int(o) < len(operationNames) {
		return operationNames[o]
	}
	return "operation " + strconv.Itoa(int(o))
}

// Mistake is what is wrong with a request when it reaches the responder.
type Mistake uint8

const (
	// BadKey: of a SEND the receive buffer's L_Key, else the request's R_Key: no such region, out of its range, or without
	// that access.
	BadKey Mistake = iota
	// TooLong: over the receive buffer (SEND), or over max_msg_sz.
	TooLong
	// TooMany: more reads and atomics at once than max_dest_rd_atomic.
	TooMany
	// Misaligned: an atomic whose address is no multiple of 8.
	Misaligned
	// OtherMistake: the responder's queue pair cannot do it.
	OtherMistake
)

var mistakeNames = [...]string{"bad key", "too long", "too many", "misaligned", "other"}

func (m Mistake) String() string {
	if int(m) < len(mistakeNames) {
		return mistakeNames[m]
	}
	return "mistake " + strconv.Itoa(int(m))
}

// Sight is who sees what of a mistake, with RC (InfiniBand error model, 4.4). Both queue pairs go to Error.
type Sight struct {
	Op      Operation
	Mistake Mistake
	// Completion is the status of the responder's receive, StatusSuccess if it gets none.
	Completion Status
	// Event is what the responder is told where there is no completion. A write with immediate data has both: devices
	// may tell of it in either way, for it is known to be one only from its last packet (5.2).
	Event    EventType
	HasEvent bool
	// Requester is the status of the request.
	Requester Status
}

var sights = []Sight{
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

// Sights is the table of who sees what.
func Sights() []Sight { return append([]Sight(nil), sights...) }

// FindSight is the row for an operation and a mistake; ok is false if the operation cannot be wrong in that way.
func FindSight(op Operation, mistake Mistake) (s Sight, ok bool) {
	for _, s := range sights {
		if s.Op == op && s.Mistake == mistake {
			return s, true
		}
	}
	return Sight{}, false
}
