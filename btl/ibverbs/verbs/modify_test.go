package verbs_test

import (
	"errors"
	"fmt"
	"os"
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
	text, err := os.ReadFile("testdata/transitions.txt")
	require.NoError(t, err)
	state := map[string]QPState{}
	for s := range QPState(StateCount) {
		state[s.String()] = s
	}
	all := map[change]attrs{}
	var current []change
	for _, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if kind, list, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			for _, item := range strings.Split(list, ", ") {
				name, only, limited := strings.Cut(strings.TrimSuffix(item, ")"), " (")
				for _, c := range current {
					if limited && services(t, only)&c.service == 0 {
						continue
					}
					switch kind {
					case "required":
						all[c].required[name] = true
					case "optional":
						all[c].optional[name] = true
					default:
						t.Fatal(line)
					}
				}
			}
			continue
		}
		pair, only, limited := strings.Cut(strings.TrimSuffix(strings.TrimSpace(line), ")"), " (")
		from, to, ok := strings.Cut(pair, " to ")
		require.True(t, ok, line)
		require.Contains(t, state, to)
		current = nil
		for _, service := range eachService {
			if limited && services(t, only)&service == 0 {
				continue
			}
			for s := range QPState(StateCount) {
				if from != "ANY" && s.String() != from || service == ServiceRC && s.String() == "SQE" {
					continue
				}
				c := change{service, s, state[to]}
				require.NotContains(t, all, c)
				all[c] = attrs{map[string]bool{}, map[string]bool{}}
				current = append(current, c)
			}
		}
	}
	return all
}

// bit returns the attribute with this name.
func bit(t *testing.T, name string) AttrMask {
	for m := AttrState; m <= AttrDestQPN; m <<= 1 {
		if m.String() == name {
			return m
		}
	}
	t.Fatalf("attribute %q", name)
	return 0
}

func bits(t *testing.T, names map[string]bool) (m AttrMask) {
	for name := range names {
		m |= bit(t, name)
	}
	return m
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

// requireRefused checks that err refuses change c and has its From, To and Service.
func requireRefused(t require.TestingT, err error, c change) *TransitionError {
	var e *TransitionError
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, ErrInvalid)
	require.Equal(t, c, change{e.Service, e.From, e.To})
	require.Contains(t, err.Error(), fmt.Sprintf("%v queue pair from %v to %v: ", c.service, c.from, c.to))
	return e
}

// TestCheckModifyMatchesTable tries each change with the required attributes, with the required and
// all optional ones, without each required one, and with each additional one.
func TestCheckModifyMatchesTable(t *testing.T) {
	table := readTransitions(t)
	eachChange(func(c change) {
		t.Run(c.String(), func(t *testing.T) {
			row, legal := table[c]
			required, optional := bits(t, row.required), bits(t, row.optional)
			attr := &QPAttr{State: c.to, CurState: c.from}
			next, err := CheckModify(c.service, c.from, attr, AttrState|required)
			if !legal {
				e := requireRefused(t, err, c)
				require.True(t, e.NoSuch)
				require.Contains(t, err.Error(), "no such transition")
				require.Equal(t, c.from, next, "state after a refusal")
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.to, next)
			next, err = CheckModify(c.service, c.from, attr, AttrState|required|optional)
			require.NoError(t, err)
			require.Equal(t, c.to, next)
			for m := AttrState; m <= 1<<25; m <<= 1 {
				switch {
				case m == AttrState:
					// Modify always requires STATE.
					next, err = CheckModify(c.service, c.from, &QPAttr{State: c.to}, required)
					var e *TransitionError
					require.ErrorAs(t, err, &e)
					require.Equal(t, AttrState, e.Missing)
					require.Contains(t, err.Error(), "needs STATE")
				case required&m != 0:
					next, err = CheckModify(c.service, c.from, attr, AttrState|required&^m)
					e := requireRefused(t, err, c)
					require.Equal(t, m, e.Missing)
					require.Zero(t, e.Excess)
					require.Contains(t, err.Error(), "needs "+m.String())
				case optional&m != 0:
					next, err = CheckModify(c.service, c.from, attr, AttrState|required|m)
					require.NoError(t, err)
					require.Equal(t, c.to, next)
					continue
				default:
					next, err = CheckModify(c.service, c.from, attr, AttrState|required|m)
					e := requireRefused(t, err, c)
					require.Equal(t, m, e.Excess)
					require.Zero(t, e.Missing)
					require.Contains(t, err.Error(), "does not take "+m.String())
				}
				require.Equal(t, c.from, next, "state after a refusal")
			}
			if optional&AttrCurState != 0 {
				for claimed := range QPState(StateCount) {
					next, err = CheckModify(c.service, c.from, &QPAttr{State: c.to, CurState: claimed}, AttrState|required|AttrCurState)
					if claimed == c.from {
						require.NoError(t, err)
						continue
					}
					e := requireRefused(t, err, c)
					require.True(t, e.WrongState)
					require.Equal(t, claimed, e.Claimed)
					require.Contains(t, err.Error(), "it is not in "+claimed.String())
					require.Equal(t, c.from, next)
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
