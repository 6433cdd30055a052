package verbs

import (
	"fmt"
	"strconv"
	"strings"
)

// Services is a set of transport services. Verbs do not have Reliable Datagram.
type Services uint8

const (
	// ServiceRC, Reliable Connection: acknowledged, in order, all operations.
	ServiceRC Services = 1 << iota
	// ServiceUC, Unreliable Connection: send and write; what is lost is lost.
	ServiceUC
	// ServiceUD, Unreliable Datagram: sends of one packet to anybody.
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
	StateSQD   QPState = 4 // send queue drained, or draining
	StateSQE   QPState = 5 // send queue in error; never of RC
	StateErr   QPState = 6
)

// StateCount is the number of states; they are 0 to StateCount-1.
const StateCount = 7

var stateNames = [StateCount]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

func (s QPState) String() string {
	if s < StateCount {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// AttrMask says which members of a QPAttr are meant: ibv_qp_attr_mask.
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

// String names the attributes as verbs do, without IBV_QP_: "PKEY_INDEX|PORT".
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

// Transition is a row of the table of transitions: which attributes a change of state by
// Modify must have and which others it may have, beside AttrState.
type Transition struct {
	From, To QPState
	Service  Services // one
	Required AttrMask
	Optional AttrMask
}

// perService is attributes by service.
type perService struct{ rc, uc, ud AttrMask }

// transitionRules are the transitions that have attributes, or that only some states have. Any
// state may go to RESET and to ERR beside (queue pair states, table 1; the table follows the
// Linux kernel where that parts from the specification). Two rows of table 1 say "RTR to SQD" and "RTR to
// SQE" where the text beside it (2.5, 2.6), the specification and the kernel have RTS: so has this.
var transitionRules = []struct {
	from, to QPState
	services Services
	required perService
	optional perService
}{
	{StateReset, StateInit, AllServices,
		perService{
			rc: AttrPKeyIndex | AttrPort | AttrAccessFlags,
			uc: AttrPKeyIndex | AttrPort | AttrAccessFlags,
			ud: AttrPKeyIndex | AttrPort | AttrQKey,
		}, perService{}},
	{StateInit, StateInit, AllServices, perService{},
		perService{
			rc: AttrPKeyIndex | AttrPort | AttrAccessFlags,
			uc: AttrPKeyIndex | AttrPort | AttrAccessFlags,
			ud: AttrPKeyIndex | AttrPort | AttrQKey,
		}},
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
			uc: AttrSQPSN,
			ud: AttrSQPSN,
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

// running is what may change while a queue pair runs.
var running = perService{
	rc: AttrCurState | AttrAccessFlags | AttrAltPath | AttrPathMigState | AttrMinRNRTimer,
	uc: AttrCurState | AttrAccessFlags | AttrAltPath | AttrPathMigState,
	ud: AttrCurState | AttrQKey,
}

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

// Transitions is the whole table, a row for each service and each pair of states that Modify
// can make. Whatever pair is not in it is refused.
func Transitions() []Transition {
	var all []Transition
	for _, service := range [...]Services{ServiceRC, ServiceUC, ServiceUD} {
		for from := range QPState(StateCount) {
			for to := range QPState(StateCount) {
				if t, ok := FindTransition(service, from, to); ok {
					all = append(all, t)
				}
			}
		}
	}
	return all
}

// FindTransition is the row for one service and pair of states.
func FindTransition(service Services, from, to QPState) (Transition, bool) {
	t := Transition{From: from, To: to, Service: service}
	if from >= StateCount || (service == ServiceRC && from == StateSQE) {
		return t, false
	}
	if service != ServiceRC && service != ServiceUC && service != ServiceUD {
		return t, false // none, or more than one
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

// CheckModify says whether Modify may change a queue pair in state cur by an attr with that
// mask, and gives the state that it will have. With AttrCurState the caller says in which state it believes the
// queue pair to be; that has to be so. AttrState is always required, also where the state stays (queue pair states, 3).
//
// The error, a *TransitionError, names what is missing or too much.
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

// TransitionError is why Modify refuses a change.
type TransitionError struct {
	Service    Services
	From, To   QPState
	NoSuch     bool     // there is no such transition
	WrongState bool     // AttrCurState claims another state than From
	Claimed    QPState  // that one
	Missing    AttrMask // required attributes that were not given
	Excess     AttrMask // given ones that the transition does not have
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

// Is says that errors.Is finds ErrInvalid in it.
func (e *TransitionError) Is(target error) bool { return target == ErrInvalid }
