package coll

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// refuse has a rank refuse its next collective.
func (t *Team) refuse(how How, reason Reason) {
	s := t.Begin(how, calls.Scan, NoRoot)
	s.Revoke(reason)
	s.Leave()
}

// requireRefused has a rank make its next collective, which another rank has refused.
func requireRefused(t *testing.T, team *Team, rank int, reason Reason) {
	t.Helper()
	s := team.Begin(Blocking, calls.Scan, NoRoot)
	requireRevokedError(t, s.failed(), rank, reason)
	s.Leave()
}

// TestRefusalsToRankThatTakesNothing: the memory for REVOKEs is bounded while rank 1 takes none. It
// learns of each refused collective, and of no other.
func TestRefusalsToRankThatTakesNothing(t *testing.T) {
	const calls = 3000
	w, teams := newTeams(3, func(w *wire) { w.async = true })
	for range calls {
		teams[0].refuse(Blocking, Refused)
		require.LessOrEqual(t, len(w.flying), 2*maxOnTheWay)
		require.LessOrEqual(t, len(teams[0].tellings[1].spans), 1)
	}
	require.True(t, teams[0].hub.IsActive(), "somebody makes progress for it")
	w.settle()
	require.False(t, teams[0].hub.IsActive())
	require.Empty(t, teams[0].tellings)
	for _, team := range teams[1:] {
		require.LessOrEqual(t, len(team.failed), maxOnTheWay+1)
		for range calls {
			requireRefused(t, team, 0, Refused)
			w.settle()
		}
		require.NoError(t, team.enter())
		require.Empty(t, team.failed)
	}
	require.Equal(t, teams[0].next, teams[1].next)
	requireClean(t, w)
}

// TestRefusalsBeyondSpansFailMore: with more than maxSpans separate refusals, the calls in between
// fail, too, and no call after them.
func TestRefusalsBeyondSpansFailMore(t *testing.T) {
	for _, gap := range []int{0, 1} { // without gaps the reasons differ
		w, teams := newTeams(2, func(w *wire) { w.async = true })
		const refusals = 4 * (maxOnTheWay + maxSpans)
		for i := range refusals {
			for range gap {
				teams[0].Begin(Blocking, calls.Scan, NoRoot).Leave()
			}
			teams[0].refuse(How(i%2), []Reason{Refused, Ended}[i%2])
			require.LessOrEqual(t, len(w.flying), maxOnTheWay)
			require.LessOrEqual(t, len(teams[0].tellings[1].spans), maxSpans)
		}
		w.settle()
		for i := range refusals {
			for range gap {
				s := teams[1].Begin(Blocking, calls.Scan, NoRoot)
				if i < maxOnTheWay+maxSpans-1 {
					require.NoError(t, s.failed(), "%d", i)
				}
				s.Leave()
			}
			s := teams[1].Begin(Blocking, calls.Scan, NoRoot)
			require.Error(t, s.failed(), "%d", i)
			if i < maxOnTheWay+maxSpans-1 {
				requireRevokedError(t, s.failed(), 0, []Reason{Refused, Ended}[i%2])
			}
			s.Leave()
			w.settle()
		}
		require.NoError(t, teams[1].enter())
		requireClean(t, w)
	}
}

// TestCommunicatorOfCoveredCollectiveIsRevokedAtBothRanks: a span covers the collective that made
// it, so the rank that is told revokes it. The other rank must not go on with it.
func TestCommunicatorOfCoveredCollectiveIsRevokedAtBothRanks(t *testing.T) {
	w, teams := newTeams(2, func(w *wire) { w.async = true })
	refuse := func(refusals int) {
		for range refusals {
			teams[0].refuse(Blocking, Refused)
			teams[0].Begin(Blocking, calls.Scan, NoRoot).Leave()
		}
	}
	refuse(maxOnTheWay + maxSpans)
	var made []*pml.Context
	for rank, team := range teams {
		c := w.pmls[rank].AddContext(20, team.group, rank, nil)
		c.SetOrigin(team.ctx, teams[0].next-1)
		made = append(made, c)
	}
	require.False(t, made[0].IsRevokedFor(1))
	refuse(1)
	w.settle()
	require.True(t, made[1].IsRevokedFor(0))
	require.True(t, made[0].IsRevokedFor(1))
}

// TestSpansOfManyRanksAreRememberedOnce: many ranks refuse the same collectives, and one of them
// refuses a later one. None in between fails.
func TestSpansOfManyRanksAreRememberedOnce(t *testing.T) {
	_, teams := newTeams(2, nil)
	late := teams[0]
	refused := func(first, last, rank int) {
		s := span{tag: first, further: last - first, rank: rank, reason: Refused}
		late.failSpan(s, &RevokedError{Rank: rank, Reason: Refused})
	}
	for rank := range 2 * maxFailed {
		refused(0, 9, rank)
		refused(5+rank%3, 14, rank)
	}
	refused(20, 20, 0)
	require.LessOrEqual(t, len(late.failed), 3)
	for seq := range 22 {
		switch err := late.errorOf(seq); {
		case seq < 15, seq == 20:
			requireRevokedError(t, err, 0, Refused)
		default:
			require.NoError(t, err, "%d", seq)
		}
	}
}

// TestSpanFailsCallsUnderWay: rank 1 is in some of the collectives that rank 0 gives up, has a
// persistent one, and has messages of rank 2 for later ones.
func TestSpanFailsCallsUnderWay(t *testing.T) {
	w, teams := newTeams(3, func(w *wire) { w.async = true })
	for range maxOnTheWay {
		teams[0].refuse(Blocking, Refused)
		teams[1].Begin(Blocking, calls.Scan, NoRoot).Leave()
	}
	first := teams[0].next
	kept := keepOf(teams[1])
	under := teams[1].Begin(Nonblocking, calls.Scan, NoRoot)
	r := teams[1].irecv(make([]byte, 10), 2, under.tag)
	later := teams[2].isend(pattern(1000, 1), 1, first+3)
	after := teams[2].isend(pattern(1000, 1), 1, first+9)
	for range 6 {
		teams[0].refuse(Persistent, Failed)
	}
	require.Len(t, teams[0].tellings[1].spans, 1)
	w.settle()
	requireRevokedError(t, kept.failed(), 0, Failed)
	requireRevoked(t, r, 0, Failed)
	require.Equal(t, request.Complete, later.State(), "it is answered")
	later.Abandon()
	require.Equal(t, request.Active, after.State(), "it is not refused")
	under.Leave()
	for range 4 {
		requireRefused(t, teams[1], 0, Failed)
	}
	require.NoError(t, teams[1].enter())
}

// TestRankIsToldBeforeItsMessageIsAnswered: also with maxOnTheWay REVOKEs on the way to it.
func TestRankIsToldBeforeItsMessageIsAnswered(t *testing.T) {
	for _, early := range []bool{false, true} {
		w, teams := newTeams(2, func(w *wire) { w.async = true })
		for range maxOnTheWay + 2 {
			teams[1].Begin(Nonblocking, calls.Scan, NoRoot)
		}
		send := teams[1].isend(pattern(1000, 1), 0, maxOnTheWay+1+nonblockingForm)
		fromOne := func() {
			for i, f := range w.flying {
				if f.from == 1 {
					w.step(i)
					return
				}
			}
			t.Fatal("nothing of rank 1 is under way")
		}
		if early {
			fromOne()
		}
		for range maxOnTheWay + 2 {
			teams[0].refuse(Nonblocking, Refused)
		}
		if !early {
			fromOne()
		}
		for send.State() == request.Active {
			w.step(0)
		}
		last := teams[1].underWay(maxOnTheWay + 1)
		requireRevokedError(t, last.failed(), 0, Refused)
		send.Abandon()
	}
}

// TestRankIsToldBeforeFinalize, and before its communicator is freed.
func TestRankIsToldBeforeFinalize(t *testing.T) {
	for name, end := range map[string]func(team *Team){
		"finalize": func(team *Team) { handler{team}.Finalizing() },
		"free":     (*Team).Remove,
		"answer":   func(team *Team) { team.answer(1, 0, Finished) },
	} {
		w, teams := newTeams(2, func(w *wire) { w.async = true })
		for range 100 {
			teams[0].refuse(Blocking, Refused)
		}
		end(teams[0])
		require.False(t, teams[0].hub.IsActive(), name)
		for range maxOnTheWay + 1 {
			w.step(0)
		}
		for range 100 {
			requireRefused(t, teams[1], 0, Refused)
		}
	}
}

// TestRefusalsToLostRankAreForgotten: nothing is kept for it.
func TestRefusalsToLostRankAreForgotten(t *testing.T) {
	w, teams := newTeams(2, func(w *wire) { w.async = true })
	for range 100 {
		teams[0].refuse(Blocking, Refused)
	}
	flying := w.flying
	w.flying = nil
	w.lose(0, 1)
	for _, f := range flying {
		f.op.Done(f.op, request.ErrProcFailed)
	}
	w.pmls[0].Progress()
	require.Zero(t, w.pmls[0].Busy())
	require.Empty(t, teams[0].tellings)
	require.False(t, teams[0].hub.IsActive())
	for range 100 {
		teams[0].refuse(Blocking, Refused)
	}
	require.Empty(t, teams[0].tellings)
}

// TestSpanAcrossTheLastNumber: sequence numbers begin again at 0.
func TestSpanAcrossTheLastNumber(t *testing.T) {
	w, teams := newTeams(2, func(w *wire) { w.async = true })
	for _, team := range teams {
		team.next = SequenceNumbers - maxOnTheWay - 3
	}
	for range maxOnTheWay + 10 {
		teams[0].refuse(Blocking, Refused)
	}
	w.settle()
	for range maxOnTheWay + 10 {
		requireRefused(t, teams[1], 0, Refused)
		w.settle()
	}
	require.NoError(t, teams[1].enter())
	requireClean(t, w)
}

func TestSpanCovers(t *testing.T) {
	s := span{tag: 10 + nonblockingForm, further: 2, rank: 3, reason: Refused}
	require.False(t, s.extend(14, 3, Refused))
	require.False(t, s.extend(13, 2, Refused))
	require.True(t, s.extend(13, 3, Refused))
	s.cover(20, 1)
	require.Equal(t, span{tag: 10 + nonblockingForm, further: 10, rank: 1, reason: Failed}, s)
	s.cover(5, 1)
	require.Equal(t, span{tag: 5 + nonblockingForm, further: 15, rank: 1, reason: Failed}, s)
	s.cover(7, 1)
	require.Equal(t, 15, s.further)
}

// TestOldPersistentCollectiveIsNoLaterCall: a persistent collective whose number is about to come
// again has nothing to do with the call that gets the number.
func TestOldPersistentCollectiveIsNoLaterCall(t *testing.T) {
	oldOnes := func(n int) (*wire, []*Team, []*Schedule) {
		w, teams := newTeams(n, func(w *wire) { w.async = true })
		var kept []*Schedule
		for _, team := range teams {
			kept = append(kept, keepOf(team))
			team.StartAt(SequenceNumbers - maxOnTheWay - 3)
		}
		return w, teams, kept
	}
	t.Run("a start fails", func(t *testing.T) {
		for _, underWay := range []bool{false, true} {
			w, teams, kept := oldOnes(2)
			kept[1].free()
			if underWay {
				for range maxOnTheWay + 4 {
					teams[1].Begin(Nonblocking, calls.Scan, NoRoot)
				}
			}
			teams[0].revoke(kept[0].tag, &RevokedError{Reason: Lost})
			w.settle()
			require.False(t, teams[1].hasFailures())
		}
	})
	t.Run("a start sends", func(t *testing.T) {
		w, teams, kept := oldOnes(2)
		kept[1].free()
		send := teams[0].isend(pattern(1000, 1), 1, kept[0].tag)
		w.settle()
		require.Equal(t, request.Complete, send.State(), "it is answered")
		send.Abandon()
		requireRevokedError(t, kept[0].failed(), 1, FreedRequest)
	})
	t.Run("a span of calls", func(t *testing.T) {
		w, teams, kept := oldOnes(3)
		send := teams[2].isend(pattern(1000, 1), 1, kept[2].tag)
		w.settle()
		for range maxOnTheWay + 10 {
			teams[0].refuse(Blocking, Refused)
		}
		require.Len(t, teams[0].tellings[1].spans, 1)
		w.settle()
		require.NoError(t, kept[1].failed())
		require.Equal(t, request.Active, send.State())
	})
	t.Run("a communicator", func(t *testing.T) {
		w, teams, kept := oldOnes(2)
		made := w.pmls[1].AddContext(20, teams[1].group, 1, nil)
		made.SetOrigin(teams[1].ctx, kept[1].seq)
		teams[0].revoke(kept[0].tag, &RevokedError{Reason: Lost})
		w.settle()
		require.False(t, made.IsRevokedFor(0))
	})
}
