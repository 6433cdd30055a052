package verbstest

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// transitionCases: every pair of states of every service. What the table has works, and nothing else.
func transitionCases() (all []kase) {
	for _, service := range eachService {
		for from := range verbs.QPState(verbs.StateCount) {
			if service == verbs.ServiceRC && from == verbs.StateSQE {
				continue // RC is never there
			}
			for to := range verbs.QPState(verbs.StateCount) {
				name := fmt.Sprintf("%v/%v-to-%v", service, from, to)
				row, legal := verbs.FindTransition(service, from, to)
				if !legal {
					all = append(all, kase{name, func(c *c) { refuseTransition(c, service, from, to) }})
					continue
				}
				all = append(all, kase{name, func(c *c) { makeTransition(c, row, 0) }})
				// Alternate paths are not part of package verbs.
				if optional := row.Optional &^ (verbs.AttrAltPath | verbs.AttrPathMigState); optional != 0 {
					all = append(all, kase{name + "-with-options", func(c *c) { makeTransition(c, row, optional) }})
				}
				all = append(all, kase{name + "-with-wrong-attributes", func(c *c) { spoilTransition(c, row) }})
			}
		}
	}
	return all
}

// at makes a pair of queue pairs, of which A is in a state and B is RTS.
func (c *c) at(service verbs.Services, s verbs.QPState) *wire {
	w := c.pair(opts{service: service})
	w.a.bring(s)
	w.b.bring(verbs.StateRTS)
	return w
}

func makeTransition(c *c, row verbs.Transition, optional verbs.AttrMask) {
	w := c.at(row.Service, row.From)
	attr := w.a.attr(row.To)
	attr.CurState = row.From
	require.NoError(c, w.a.Modify(attr, verbs.AttrState|row.Required|optional))
	have, err := w.a.Query()
	require.NoError(c, err)
	require.Equal(c, row.To.String(), have.State.String())
	// Set is what is told.
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
			require.Equal(c, pair[0], pair[1], "%v as Query tells it", m)
		}
	}
	if row.To == verbs.StateRTS && row.From != verbs.StateReset {
		w.a.carry()
		w.b.carry()
	}
}

func refuseTransition(c *c, service verbs.Services, from, to verbs.QPState) {
	w := c.at(service, from)
	err := w.a.Modify(w.a.attr(to), verbs.AttrState)
	require.ErrorIs(c, err, verbs.ErrInvalid)
	require.Equal(c, from.String(), w.a.state().String(), "state after a refusal")
	// Nor with what the state otherwise requires.
	for before := range verbs.QPState(verbs.StateCount) {
		if row, ok := verbs.FindTransition(service, before, to); ok && row.Required != 0 {
			err := w.a.Modify(w.a.attr(to), verbs.AttrState|row.Required)
			require.ErrorIs(c, err, verbs.ErrInvalid)
			require.Equal(c, from.String(), w.a.state().String(), "state after a refusal")
		}
	}
}

// spoilTransition leaves out each required attribute, and adds each that the transition does not take.
func spoilTransition(c *c, row verbs.Transition) {
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
