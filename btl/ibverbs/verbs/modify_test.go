package verbs_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	. "github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

var eachService = [...]Services{ServiceRC, ServiceUC, ServiceUD}

// change is a service and a pair of states.
type change struct {
	service  Services
	from, to QPState
}

func (c change) String() string { return fmt.Sprintf("%v/%v-to-%v", c.service, c.from, c.to) }

func eachChange(do func(c change)) {
	for _, service := range eachService {
		for from := range QPState(StateCount) {
			for to := range QPState(StateCount) {
				do(change{service, from, to})
			}
		}
	}
}

// attrs holds the names of the attributes that a change requires and allows.
type attrs struct{ required, optional map[string]bool }

// readTransitions reads testdata/transitions.txt.
func readTransitions(t *testing.T) map[change]attrs {
	all := map[change]attrs{}
	for _, r := range rows(t, "transitions.txt", 5) {
		eachChange(func(c change) {
			from := r[0] == c.from.String() || r[0] == "ANY" && (c.service != ServiceRC || c.from != StateSQE)
			if from && r[1] == c.to.String() && services(t, r[2])&c.service != 0 {
				require.NotContains(t, all, c)
				all[c] = attrs{attrsOf(t, c.service, r[3]), attrsOf(t, c.service, r[4])}
			}
		})
	}
	return all
}

// attrsOf reads a list like "PORT, QKEY (UD)", and returns the attributes that are for the service.
func attrsOf(t *testing.T, service Services, list string) map[string]bool {
	names := map[string]bool{}
	for _, item := range strings.FieldsFunc(list, func(c rune) bool { return c == ',' }) {
		name, only, limited := strings.Cut(strings.Trim(item, " )"), " (")
		if !limited || services(t, only)&service != 0 {
			names[name] = true
		}
	}
	return names
}

func bits(t *testing.T, names map[string]bool) (mask AttrMask) {
	known := 0
	for m := AttrState; m <= AttrDestQPN; m <<= 1 {
		if names[m.String()] {
			mask |= m
			known++
		}
	}
	require.Equal(t, len(names), known, "%v", names)
	return mask
}

func TestFindTransitionMatchesTable(t *testing.T) {
	want := readTransitions(t)
	require.Len(t, want, 3*7*2-2+8+9+9, "transitions of the table")
	eachChange(func(c change) {
		row, ok := FindTransition(c.service, c.from, c.to)
		_, listed := want[c]
		require.Equal(t, listed, ok, "%v", c)
		require.Equal(t, c, change{row.Service, row.From, row.To})
		require.Equal(t, bits(t, want[c].required), row.Required, "required by %v", c)
		require.Equal(t, bits(t, want[c].optional), row.Optional, "optional for %v", c)
	})
	for _, c := range []change{{ServiceRC, StateCount, StateErr}, {ServiceRC, StateInit, StateCount}, {0, StateReset, StateInit},
		{AllServices, StateReset, StateInit}, {1 << 3, StateReset, StateReset}} {
		_, ok := FindTransition(c.service, c.from, c.to)
		require.False(t, ok, "%v", c)
	}
}

// TestCheckModifyMatchesTable tries each change with the required attributes, with the required and
// all optional ones, without each required one, and with each additional one.
func TestCheckModifyMatchesTable(t *testing.T) {
	table := readTransitions(t)
	eachChange(func(c change) {
		t.Run(c.String(), func(t *testing.T) {
			row, legal := table[c]
			required, optional := bits(t, row.required), bits(t, row.optional)
			accepts := func(claimed QPState, mask AttrMask) {
				t.Helper()
				next, err := CheckModify(c.service, c.from, &QPAttr{State: c.to, CurState: claimed}, mask)
				require.NoError(t, err)
				require.Equal(t, c.to, next)
			}
			refuses := func(claimed QPState, mask AttrMask, want TransitionError, why string) {
				t.Helper()
				want.Service, want.From, want.To = c.service, c.from, c.to
				if mask&AttrState == 0 {
					want.To = c.from
				}
				text := fmt.Sprintf("%v queue pair from %v to %v: %s", c.service, c.from, want.To, why)
				next, err := CheckModify(c.service, c.from, &QPAttr{State: c.to, CurState: claimed}, mask)
				require.Equal(t, &want, err)
				require.ErrorIs(t, err, ErrInvalid)
				require.EqualError(t, err, text)
				require.Equal(t, c.from, next, "state after a refusal")
			}
			if !legal {
				refuses(c.from, AttrState|required, TransitionError{NoSuch: true}, "there is no such transition")
				return
			}
			accepts(c.from, AttrState|required)
			accepts(c.from, AttrState|required|optional)
			refuses(c.from, required, TransitionError{Missing: AttrState}, "needs STATE")
			for m := AttrState << 1; m <= 1<<25; m <<= 1 {
				switch {
				case required&m != 0:
					refuses(c.from, AttrState|required&^m, TransitionError{Missing: m}, "needs "+m.String())
				case optional&m != 0:
					accepts(c.from, AttrState|required|m)
				default:
					refuses(c.from, AttrState|required|m, TransitionError{Excess: m}, "does not take "+m.String())
				}
			}
			if optional&AttrCurState != 0 {
				for claimed := range QPState(StateCount) {
					if claimed != c.from {
						wrong := TransitionError{WrongState: true, Claimed: claimed}
						refuses(claimed, AttrState|required|AttrCurState, wrong, "it is not in "+claimed.String())
					}
				}
			}
		})
	})
}

// TestCheckModifyMatchesNaiveChecker compares CheckModify with a checker that uses no masks, for
// random masks.
func TestCheckModifyMatchesNaiveChecker(t *testing.T) {
	table := readTransitions(t)
	rapid.Check(t, func(rt *rapid.T) {
		c := change{rapid.SampledFrom(eachService[:]).Draw(rt, "service"),
			QPState(rapid.IntRange(0, StateCount-1).Draw(rt, "from")), QPState(rapid.IntRange(0, StateCount-1).Draw(rt, "to"))}
		row, legal := table[c]
		var mask AttrMask
		given := map[string]bool{}
		for m := AttrState; m <= AttrDestQPN; m <<= 1 {
			name := m.String()
			// Most masks are nearly right, so that CheckModify accepts some.
			often := name == "STATE" || row.required[name]
			if n := rapid.IntRange(0, 19).Draw(rt, name); n == 0 || n < 19 && often || n < 10 && row.optional[name] {
				mask |= m
				given[name] = true
			}
		}
		claimed := c.from
		if rapid.IntRange(0, 9).Draw(rt, "claims another state") == 0 {
			claimed = QPState(rapid.IntRange(0, StateCount-1).Draw(rt, "claimed"))
		}

		naive := legal && given["STATE"] && (!given["CUR_STATE"] || claimed == c.from)
		for name := range row.required {
			naive = naive && given[name]
		}
		for name := range given {
			naive = naive && (name == "STATE" || row.required[name] || row.optional[name])
		}

		next, err := CheckModify(c.service, c.from, &QPAttr{State: c.to, CurState: claimed}, mask)
		require.Equal(rt, naive, err == nil, "%v", err)
		if naive {
			require.Equal(rt, c.to, next)
		} else {
			require.Equal(rt, c.from, next)
			require.ErrorIs(rt, err, ErrInvalid)
		}
	})
}

func TestTransitionErrorNamesAttributes(t *testing.T) {
	for want, e := range map[string]TransitionError{
		"RC queue pair from RESET to RTS: there is no such transition": {Service: ServiceRC, To: StateRTS, NoSuch: true},
		"UD queue pair from RTR to RTS: it is not in INIT": {Service: ServiceUD, From: StateRTR, To: StateRTS,
			WrongState: true, Claimed: StateInit},
		"UC queue pair from RESET to INIT: needs ACCESS_FLAGS|PORT, and does not take QKEY": {Service: ServiceUC, To: StateInit,
			Missing: AttrPort | AttrAccessFlags, Excess: AttrQKey},
		"RC queue pair from RTS to SQD: does not take TIMEOUT": {Service: ServiceRC, From: StateRTS, To: StateSQD, Excess: AttrTimeout},
	} {
		require.Equal(t, want, e.Error())
		require.False(t, errors.Is(&e, ErrBusy))
	}
}

func TestCallErrorWrapsSentinel(t *testing.T) {
	for _, c := range []struct {
		call  string
		errno syscall.Errno
		is    error
	}{
		{"ibv_modify_qp", syscall.EINVAL, ErrInvalid}, {"ibv_create_srq", syscall.EOPNOTSUPP, ErrInvalid},
		{"ibv_query_gid_type", syscall.ENOSYS, ErrInvalid},
		{"ibv_reg_mr", syscall.ENOMEM, ErrNoMemory}, {"ibv_dealloc_pd", syscall.EBUSY, ErrBusy},
		{"ibv_open_device", syscall.ENODEV, ErrNoDevice}, {"ibv_open_device", syscall.ENXIO, ErrNoDevice},
		{"ibv_modify_qp", syscall.EIO, ErrGone},
		{"ibv_post_send", syscall.ENOMEM, ErrQueueFull}, {"ibv_post_recv", syscall.ENOMEM, ErrQueueFull},
		{"ibv_post_srq_recv", syscall.ENOMEM, ErrQueueFull}, {"ibv_post_send", syscall.EINVAL, ErrInvalid},
		{"ibv_reg_mr", syscall.EPERM, nil},
	} {
		err := NewCallError(c.call, c.errno, "")
		require.ErrorIs(t, err, c.errno)
		require.True(t, strings.HasPrefix(err.Error(), c.call+": "), err)
		for _, sentinel := range []error{ErrInvalid, ErrNoMemory, ErrBusy, ErrNoDevice, ErrGone, ErrQueueFull} {
			require.Equal(t, sentinel == c.is, errors.Is(err, sentinel), "%v: %v", err, sentinel)
		}
		noted := NewCallError(c.call, c.errno, "because")
		require.Contains(t, noted.Error(), "because")
		require.Contains(t, noted.Error(), c.errno.Error(), "a note does not replace the error number")
	}
}
