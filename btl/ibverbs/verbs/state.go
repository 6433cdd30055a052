package verbs

import (
	"fmt"
	"strings"
)

// Services is a set of transport services. Verbs have no Reliable Datagram service.
type Services uint8

const (
	// ServiceRC is Reliable Connection: acknowledged, in order, all operations.
	ServiceRC Services = 1 << iota
	// ServiceUC is Unreliable Connection: send and write; lost packets are not repeated.
	ServiceUC
	// ServiceUD is Unreliable Datagram: sends of a single packet to any queue pair.
	ServiceUD

	AllServices = ServiceRC | ServiceUC | ServiceUD
)

func (s Services) String() string {
	var names []string
	for i, name := range [...]string{"RC", "UC", "UD"} {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// QPState is a state of a queue pair: ibv_qp_state.
type QPState uint32

const (
	StateReset QPState = 0
	StateInit  QPState = 1
	StateRTR   QPState = 2 // ready to receive
	StateRTS   QPState = 3 // ready to send
	StateSQD   QPState = 4 // send queue drained or draining
	StateSQE   QPState = 5 // send queue error; UC and UD only
	StateErr   QPState = 6
)

// StateCount is the number of states; they are 0 to StateCount-1.
const StateCount = 7

var stateNames = [StateCount]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

func (s QPState) String() string { return enumName("state", stateNames[:], s) }

// AttrMask selects members of a QPAttr: ibv_qp_attr_mask.
type AttrMask uint32

const (
	AttrState            AttrMask = 1 << 0
	AttrCurState         AttrMask = 1 << 1
	AttrEnSQDAsyncNotify AttrMask = 1 << 2
	AttrAccessFlags      AttrMask = 1 << 3
	AttrPKeyIndex        AttrMask = 1 << 4
	AttrPort             AttrMask = 1 << 5
	AttrQKey             AttrMask = 1 << 6
	AttrAV               AttrMask = 1 << 7
	AttrPathMTU          AttrMask = 1 << 8
	AttrTimeout          AttrMask = 1 << 9
	AttrRetryCnt         AttrMask = 1 << 10
	AttrRNRRetry         AttrMask = 1 << 11
	AttrRQPSN            AttrMask = 1 << 12
	AttrMaxQPRdAtomic    AttrMask = 1 << 13
	AttrAltPath          AttrMask = 1 << 14
	AttrMinRNRTimer      AttrMask = 1 << 15
	AttrSQPSN            AttrMask = 1 << 16
	AttrMaxDestRdAtomic  AttrMask = 1 << 17
	AttrPathMigState     AttrMask = 1 << 18
	AttrCap              AttrMask = 1 << 19
	AttrDestQPN          AttrMask = 1 << 20

	allAttrs AttrMask = 1<<21 - 1
)

var attrNames = [...]string{
	"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV", "PATH_MTU",
	"TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER", "SQ_PSN",
	"MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN",
}

// String returns the C constants without IBV_QP_: "PKEY_INDEX|PORT".
func (m AttrMask) String() string {
	var names []string
	for i, name := range attrNames {
		if m&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if rest := m &^ allAttrs; rest != 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(rest)))
	}
	return strings.Join(names, "|")
}

// Transition is a row of the table of transitions: the attributes that a state change by Modify
// requires and the attributes that it allows. Both masks omit AttrState, which is always required.
type Transition struct {
	From, To QPState
	Service  Services // a single service
	Required AttrMask
	Optional AttrMask
}

// perService holds the attributes of each service.
type perService struct{ rc, uc, ud AttrMask }

// transitionRules lists the transitions between particular states; any state may change to RESET or
// ERR without attributes (Queue pair states, table 1). The table follows the Linux kernel where the
// kernel differs from the specification. Table 1 has the rows "RTR to SQD" and "RTR to SQE"; the
// text beside the table (2.5, 2.6), the specification and the kernel have RTS instead, and so does
// this table.
var transitionRules = []struct {
	from, to QPState
	services Services
	required perService
	optional perService
}{
	{StateReset, StateInit, AllServices, initial, perService{}},
	{StateInit, StateInit, AllServices, perService{}, initial},
	{StateInit, StateRTR, AllServices,
		perService{
			rc: AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN | AttrMaxDestRdAtomic | AttrMinRNRTimer,
			uc: AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN,
		},
		perService{
			rc: AttrAltPath | AttrAccessFlags | AttrPKeyIndex,
			uc: AttrAltPath | AttrAccessFlags | AttrPKeyIndex,
			ud: AttrPKeyIndex | AttrQKey,
		}},
	{StateRTR, StateRTS, AllServices,
		perService{
			rc: AttrSQPSN | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxQPRdAtomic,
			uc: AttrSQPSN, ud: AttrSQPSN,
		}, running},
	{StateRTS, StateRTS, AllServices, perService{}, running},
	{StateRTS, StateSQD, AllServices, perService{},
		perService{rc: AttrEnSQDAsyncNotify, uc: AttrEnSQDAsyncNotify, ud: AttrEnSQDAsyncNotify}},
	{StateSQD, StateRTS, AllServices, perService{}, running},
	{StateSQD, StateSQD, AllServices, perService{},
		perService{
			rc: AttrPKeyIndex | AttrAV | AttrAltPath | AttrAccessFlags | AttrPathMigState | AttrPort | AttrTimeout |
				AttrRetryCnt | AttrRNRRetry | AttrMaxQPRdAtomic | AttrMaxDestRdAtomic | AttrMinRNRTimer,
			uc: AttrPKeyIndex | AttrAV | AttrAltPath | AttrAccessFlags | AttrPathMigState,
			ud: AttrPKeyIndex | AttrQKey,
		}},
	{StateSQE, StateRTS, ServiceUC | ServiceUD, perService{},
		perService{uc: AttrCurState | AttrAccessFlags, ud: AttrCurState | AttrQKey}},
}

var (
	// initial holds the attributes that are set in INIT.
	initial = perService{
		rc: AttrPKeyIndex | AttrPort | AttrAccessFlags,
		uc: AttrPKeyIndex | AttrPort | AttrAccessFlags,
		ud: AttrPKeyIndex | AttrPort | AttrQKey,
	}
	// running holds the attributes that may change while a queue pair is in use.
	running = perService{
		rc: AttrCurState | AttrAccessFlags | AttrAltPath | AttrPathMigState | AttrMinRNRTimer,
		uc: AttrCurState | AttrAccessFlags | AttrAltPath | AttrPathMigState,
		ud: AttrCurState | AttrQKey,
	}
)

func (p perService) of(service Services) AttrMask {
	switch service {
	case ServiceRC:
		return p.rc
	case ServiceUC:
		return p.uc
	default:
		return p.ud
	}
}

// FindTransition returns the row of a single service and a pair of states. ok is false if Modify
// refuses the change.
func FindTransition(service Services, from, to QPState) (row Transition, ok bool) {
	t := Transition{From: from, To: to, Service: service}
	if from >= StateCount || (service == ServiceRC && from == StateSQE) {
		return t, false
	}
	if service != ServiceRC && service != ServiceUC && service != ServiceUD {
		return t, false // no service, or several
	}
	if to == StateReset || to == StateErr {
		return t, true
	}
	for _, r := range transitionRules {
		if r.from == from && r.to == to && r.services&service != 0 {
			t.Required, t.Optional = r.required.of(service), r.optional.of(service)
			return t, true
		}
	}
	return t, false
}

// CheckModify checks whether Modify may apply attr with mask to a queue pair in state cur, and
// returns the new state. AttrState is always required, even if the state does not change (Queue
// pair states, 3). With AttrCurState, attr.CurState must equal cur.
//
// The error is a *TransitionError; the state is then cur.
func CheckModify(service Services, cur QPState, attr *QPAttr, mask AttrMask) (QPState, error) {
	if mask&AttrState == 0 {
		return cur, &TransitionError{Service: service, From: cur, To: cur, Missing: AttrState}
	}
	to := attr.State
	t, ok := FindTransition(service, cur, to)
	e := &TransitionError{Service: service, From: cur, To: to}
	if mask&AttrCurState != 0 && attr.CurState != cur {
		e.Claimed, e.WrongState = attr.CurState, true
		return cur, e
	}
	if !ok {
		e.NoSuch = true
		return cur, e
	}
	given := mask &^ AttrState
	e.Missing = t.Required &^ given
	e.Excess = given &^ (t.Required | t.Optional)
	if e.Missing != 0 || e.Excess != 0 {
		return cur, e
	}
	return to, nil
}

// TransitionError says why Modify refuses a change.
type TransitionError struct {
	Service    Services
	From, To   QPState
	NoSuch     bool     // the transition does not exist
	WrongState bool     // AttrCurState was given, and Claimed is not From
	Claimed    QPState  // the state given with AttrCurState
	Missing    AttrMask // required attributes that are not given
	Excess     AttrMask // given attributes that the transition does not allow
}

func (e *TransitionError) Error() string {
	s := fmt.Sprintf("%v queue pair from %v to %v: ", e.Service, e.From, e.To)
	switch {
	case e.WrongState:
		return s + "it is not in " + e.Claimed.String()
	case e.NoSuch:
		return s + "there is no such transition"
	}
	if e.Missing != 0 {
		s += "needs " + e.Missing.String()
	}
	if e.Excess != 0 {
		if e.Missing != 0 {
			s += ", and "
		}
		s += "does not take " + e.Excess.String()
	}
	return s
}

// Is reports that the error matches ErrInvalid.
func (e *TransitionError) Is(target error) bool { return target == ErrInvalid }
