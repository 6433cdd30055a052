package verbstest

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// transitionCases returns the cases for every pair of states of every service. The transitions of
// the table succeed, all others fail.
func transitionCases() (all []testCase) {
	for _, service := range eachService {
		for from := range verbs.QPState(verbs.StateCount) {
			if service == verbs.ServiceRC && from == verbs.StateSQE {
				continue // RC is never in SQE
			}
			for to := range verbs.QPState(verbs.StateCount) {
				name := fmt.Sprintf("%v/%v-to-%v", service, from, to)
				row, legal := verbs.FindTransition(service, from, to)
				if !legal {
					all = append(all, testCase{name, func(c *caseRun) { refuseTransition(c, service, from, to) }})
					continue
				}
				all = append(all, testCase{name, func(c *caseRun) { makeTransition(c, row, 0) }})
				// Alternate paths are not part of package verbs.
				if optional := row.Optional &^ (verbs.AttrAltPath | verbs.AttrPathMigState); optional != 0 {
					all = append(all, testCase{name + "-with-options", func(c *caseRun) { makeTransition(c, row, optional) }})
				}
				all = append(all, testCase{name + "-with-wrong-attributes", func(c *caseRun) { injectWrongAttributes(c, row) }})
			}
		}
	}
	return all
}

// at returns two queue pairs, A in state s and B in RTS.
func (c *caseRun) at(service verbs.Services, s verbs.QPState) *wire {
	w := c.pair(opts{service: service})
	w.a.moveTo(s)
	w.b.moveTo(verbs.StateRTS)
	return w
}

func makeTransition(c *caseRun, row verbs.Transition, optional verbs.AttrMask) {
	w := c.at(row.Service, row.From)
	if !c.a.attr.CurState {
		optional &^= verbs.AttrCurState
	}
	attr := w.a.attr(row.To)
	attr.CurState = row.From
	require.NoError(c, w.a.Modify(attr, verbs.AttrState|row.Required|optional))
	have, err := w.a.Query()
	require.NoError(c, err)
	require.Equal(c, row.To.String(), have.State.String())
	// Query returns the attributes that Modify set.
	for m, pair := range map[verbs.AttrMask][2]any{
		verbs.AttrPort: {attr.Port, have.Port}, verbs.AttrPKeyIndex: {attr.PKeyIndex, have.PKeyIndex},
		verbs.AttrAccessFlags: {attr.Access, have.Access}, verbs.AttrPathMTU: {attr.PathMTU, have.PathMTU},
		verbs.AttrDestQPN: {attr.DestQPN, have.DestQPN}, verbs.AttrRQPSN: {attr.RQPSN, have.RQPSN},
		verbs.AttrSQPSN: {attr.SQPSN, have.SQPSN}, verbs.AttrTimeout: {attr.Timeout, have.Timeout},
		verbs.AttrRetryCnt: {attr.RetryCnt, have.RetryCnt}, verbs.AttrRNRRetry: {attr.RNRRetry, have.RNRRetry},
		verbs.AttrMinRNRTimer: {attr.MinRNRTimer, have.MinRNRTimer}, verbs.AttrQKey: {attr.QKey, have.QKey},
		verbs.AttrMaxQPRdAtomic: {attr.MaxRdAtomic, have.MaxRdAtomic}, verbs.AttrMaxDestRdAtomic: {attr.MaxDestRdAtomic, have.MaxDestRdAtomic},
		verbs.AttrAV: {attr.AH.DGID, have.AH.DGID},
	} {
		if (row.Required|optional)&m != 0 {
			require.Equal(c, pair[0], pair[1], "%v returned by Query", m)
		}
	}
	if row.To == verbs.StateRTS && row.From != verbs.StateReset {
		w.pings()
	}
}

func refuseTransition(c *caseRun, service verbs.Services, from, to verbs.QPState) {
	w := c.at(service, from)
	err := w.a.Modify(w.a.attr(to), verbs.AttrState)
	require.ErrorIs(c, err, verbs.ErrInvalid)
	require.Equal(c, from.String(), w.a.state().String(), "state after a refusal")
	// Attributes that the state requires in other transitions do not help.
	for before := range verbs.QPState(verbs.StateCount) {
		if row, ok := verbs.FindTransition(service, before, to); ok && row.Required != 0 {
			err := w.a.Modify(w.a.attr(to), verbs.AttrState|row.Required)
			require.ErrorIs(c, err, verbs.ErrInvalid)
			require.Equal(c, from.String(), w.a.state().String(), "state after a refusal")
		}
	}
}

// injectWrongAttributes omits each required attribute and adds each attribute that the transition
// does not allow.
func injectWrongAttributes(c *caseRun, row verbs.Transition) {
	w := c.at(row.Service, row.From)
	for m := verbs.AttrState; m <= verbs.AttrDestQPN; m <<= 1 {
		mask := (verbs.AttrState | row.Required) ^ m
		if row.Optional&m != 0 {
			continue
		}
		attr := w.a.attr(row.To)
		attr.CurState = row.From
		err := w.a.Modify(attr, mask)
		require.ErrorIs(c, err, verbs.ErrInvalid, "%v", mask)
		require.True(c, strings.Contains(err.Error(), m.String()), "%q does not name %v", err, m)
		require.Equal(c, row.From.String(), w.a.state().String(), "state after a refusal")
	}
	if row.Optional&verbs.AttrCurState != 0 {
		attr := w.a.attr(row.To)
		attr.CurState = verbs.StateInit
		err := w.a.Modify(attr, verbs.AttrState|row.Required|verbs.AttrCurState)
		require.ErrorIs(c, err, verbs.ErrInvalid, "a wrong CUR_STATE")
		require.Equal(c, row.From.String(), w.a.state().String(), "state after a refusal")
	}
}
