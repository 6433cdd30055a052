package coll

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/race"
)

// TestPhasesOfSchedule: the table has these transitions and no other ones.
func TestPhasesOfSchedule(t *testing.T) {
	legal := map[phase][]phase{
		phaseIdle:    {phaseOpen},
		phaseOpen:    {phaseIdle, phaseRunning},
		phaseRunning: {phaseApart, phaseWaiting, phaseFailing, phaseOver},
		phaseApart:   {phaseRunning},
		phaseWaiting: {phaseRunning},
		phaseFailing: {phaseOver},
		phaseOver:    {phaseIdle, phaseRunning, phaseReady},
		phaseReady:   {phaseIdle, phaseRunning},
	}
	for from := phaseIdle; from <= phaseReady; from++ {
		for to := phaseIdle; to <= phaseReady; to++ {
			s := &Schedule{phase: from}
			isLegal := false
			for _, p := range legal[from] {
				isLegal = isLegal || p == to
			}
			if isLegal {
				require.NotPanics(t, func() { s.move(to) }, "%v → %v", from, to)
				require.Equal(t, to, s.phase)
			} else {
				require.Panics(t, func() { s.move(to) }, "%v → %v", from, to)
				require.Equal(t, from, s.phase)
			}
		}
	}
}

// TestCollectivesEndInAnyOrder: a naive set knows the same collectives as under way, also while the
// numbers wrap around.
func TestCollectivesEndInAnyOrder(t *testing.T) {
	for seed := range race.Some(uint64(20)) {
		random := rand.New(rand.NewPCG(seed, 1))
		_, teams := newTeams(1, nil)
		team := teams[0]
		team.next = SequenceNumbers - 30
		model := map[int]*Schedule{}
		var open []*Schedule
		for range 300 {
			if random.IntN(2) == 0 && len(open) < 40 {
				s := team.Begin(Nonblocking, calls.Scan, NoRoot)
				model[s.seq] = s
				open = append(open, s)
			} else if len(open) > 0 {
				i := random.IntN(len(open))
				delete(model, open[i].seq)
				open[i].Leave()
				open = append(open[:i], open[i+1:]...)
			}
			require.Len(t, team.calls, len(model))
			for back := -5; back < 100; back++ {
				seq := (team.next + SequenceNumbers - back) % SequenceNumbers
				for _, form := range []int{blockingForm, nonblockingForm, initForm} {
					require.Same(t, model[seq], team.underWay(seq+form))
					require.Equal(t, back > 0 && model[seq] == nil, team.isOver(seq+form))
				}
			}
		}
	}
}

// keepOf makes a persistent collective, as Keep does when the ranks have compared their calls.
func keepOf(t *Team) *Schedule {
	s := t.Begin(Persistent, calls.Scan, NoRoot)
	s.move(phaseRunning)
	s.move(phaseOver)
	if t.kept == nil {
		t.kept = map[int]*Schedule{}
	}
	t.kept[s.seq] = s
	t.pass(s)
	s.tag = s.seq + startForm
	s.move(phaseReady)
	s.Leave()
	return s
}

// TestCallsAreRefusedWhileOldCollectiveHoldsNumber: a call is refused before its number could be
// taken for that of a collective that is under way, and an Init call if a persistent one has it.
func TestCallsAreRefusedWhileOldCollectiveHoldsNumber(t *testing.T) {
	_, teams := newTeams(1, nil)
	team := teams[0]
	team.next = 5
	old := team.Begin(Nonblocking, calls.Scan, NoRoot)
	team.next = 5 + SequenceNumbers/2 - 3
	last := team.Begin(Nonblocking, calls.Scan, NoRoot)
	require.Same(t, old, team.underWay(5))
	require.Same(t, last, team.underWay(last.seq))
	require.Nil(t, team.Begin(Nonblocking, calls.Scan, NoRoot))
	require.Nil(t, team.Begin(Blocking, calls.Scan, NoRoot))
	old.Leave()
	kept := keepOf(team)
	last.Leave()
	team.next = kept.seq
	require.Nil(t, team.Begin(Persistent, calls.Scan, NoRoot))
	require.ErrorContains(t, team.WhyNot(), "has to be freed first")
	kept.free()
	s := team.Begin(Persistent, calls.Scan, NoRoot)
	require.NotNil(t, s)
	s.Leave()
}

// TestPersistentCollectiveOutlivesItsNumber: another call gets the number of one that is not freed.
// Both go on, and neither gets a message, or a failure, of the other one.
func TestPersistentCollectiveOutlivesItsNumber(t *testing.T) {
	for _, how := range []How{Blocking, Nonblocking} {
		w, teams := newTeams(2, nil)
		kept := keepOf(teams[0])
		teams[0].next, teams[1].next = kept.seq, kept.seq
		s := teams[0].Begin(how, calls.Scan, NoRoot)
		require.NotNil(t, s)
		teams[1].isend(pattern(10, 1), 0, kept.tag).Abandon()
		teams[1].isend(pattern(10, 2), 0, s.tag).Abandon()
		w.settle()
		buf := make([]byte, 10)
		requireReceived(t, teams[0].irecv(buf, 1, s.tag))
		require.Equal(t, pattern(10, 2), buf)
		sendRevoke(w.pmls[1], 0, teamContext, s.tag, &RevokedError{Rank: 1, Reason: Failed})
		w.settle()
		requireRevokedError(t, s.failed(), 1, Failed)
		s.Leave()
		require.NoError(t, kept.failed())
		requireReceived(t, teams[0].irecv(buf, 1, kept.tag))
		require.Equal(t, pattern(10, 1), buf)
		kept.free()
		requireClean(t, w)
	}
}

// TestRevokeOfPersistentCollective: a REVOKE of a start, and one of the Init call that comes when
// the call is over, fail all starts, until the collective is freed. Other collectives go on.
func TestRevokeOfPersistentCollective(t *testing.T) {
	for _, form := range []int{startForm, initForm} {
		w, teams := newTeams(2, nil)
		kept, other := keepOf(teams[0]), keepOf(teams[0])
		r := teams[0].irecv(make([]byte, 10), 1, kept.tag)
		teams[1].isend(pattern(10, 1), 0, other.tag).Abandon()
		w.settle()
		sendRevoke(w.pmls[1], 0, teamContext, kept.seq+form, &RevokedError{Rank: 1, Reason: Failed})
		w.settle()
		requireRevoked(t, r, 1, Failed)
		requireRevokedError(t, kept.failed(), 1, Failed)
		require.NoError(t, other.failed())
		teams[1].isend(pattern(10, 1), 0, kept.tag).Abandon()
		w.settle()
		requireReceived(t, teams[0].irecv(make([]byte, 10), 1, other.tag))
		require.Equal(t, 1, teams[0].failures)
		kept.free()
		other.free()
		require.Zero(t, teams[0].failures)
		requireClean(t, w)
	}
}

// TestRevokeOfStartFailsInitCall: another rank, whose Init call is over, revokes a start while this
// rank still waits in the Init call for a third one.
func TestRevokeOfStartFailsInitCall(t *testing.T) {
	w, teams := newTeams(3, nil)
	s := teams[0].Begin(Persistent, calls.Scan, NoRoot)
	r := teams[0].irecv(make([]byte, 10), 2, s.tag)
	started := s.seq + startForm
	teams[1].isend(pattern(10, 1), 0, started).Abandon()
	w.settle()
	sendRevoke(w.pmls[1], 0, teamContext, started, &RevokedError{Rank: 1, Reason: Lengths})
	w.settle()
	requireRevoked(t, r, 1, Lengths)
	requireRevokedError(t, s.failed(), 1, Lengths)
	require.Empty(t, w.pmls[0].Unreceived())
	teams[2].isend(pattern(10, 1), 0, s.tag).Abandon()
	w.settle()
	require.Empty(t, w.pmls[0].Unreceived())
	s.Leave()
	requireClean(t, w)
}

// TestForgedMessagesOfEveryForm: a message with any tag, for a collective that is over, under way
// in another form, or yet to come, does no harm, and nothing of it is left when all is over.
func TestForgedMessagesOfEveryForm(t *testing.T) {
	for _, how := range []How{Blocking, Nonblocking, Persistent} {
		for form := 0; form <= 7*SequenceNumbers; form += SequenceNumbers {
			w, teams := newTeams(2, nil)
			teams[0].Begin(Blocking, calls.Scan, NoRoot).Leave() // 0 is over
			s := teams[0].Begin(how, calls.Scan, NoRoot)         // 1 is under way
			for seq := range 4 {
				w.pmls[0].Arrived(w.modules[0], 1, tagMatch, append(header(teamContext, seq+form, uint32(seq)), 1, 2, 3))
			}
			w.settle()
			otherForm := form != startForm && form != how.form()
			require.Equal(t, otherForm, s.failed() != nil, "%v, form %d", how, form/SequenceNumbers)
			s.Leave()
			for range 2 { // 2 and 3
				teams[0].Begin(how, calls.Scan, NoRoot).Leave()
			}
			w.settle()
			require.Empty(t, w.pmls[0].Unreceived(), "%v, form %d", how, form/SequenceNumbers)
			require.Zero(t, w.pmls[0].Stats().UnexpectedBytes)
		}
	}
}

// FuzzForms feeds messages, REVOKEs and probes with tags of every form to a rank that has a
// persistent, a nonblocking and a blocking collective. The rank must not panic, and nothing is left
// at the end.
func FuzzForms(f *testing.F) {
	for form := range uint8(8) {
		f.Add([]byte{form, 0, 0, form, 1, 1, form, 2, 2, form, 3, 8, form, 0, 15, form, 1, 15})
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		w, teams := newTeams(2, nil)
		team, p := teams[0], w.pmls[0]
		kept := keepOf(team)
		team.irecv(make([]byte, 3), 1, kept.tag)
		all := []*Schedule{team.Begin(Nonblocking, calls.Scan, NoRoot), team.Begin(Blocking, calls.Scan, NoRoot)}
		for _, s := range all {
			team.irecv(make([]byte, 3), 1, s.tag)
		}
		for messages := uint32(0); len(script) >= 3; script = script[3:] {
			tag := int(script[0]%8)*SequenceNumbers + int(script[1]%8)
			if reason := Reason(script[2] % 16); reason == 0 {
				p.Arrived(w.modules[0], 1, tagMatch, append(header(teamContext, tag, messages), 1, 2, 3))
				messages++
			} else if reason == 15 {
				frag := header(teamContext, tag, messages)
				p.Arrived(w.modules[0], 1, tagMismatchProbe, frag)
			} else {
				p.Arrived(w.modules[0], 1, tagRevoke, revokeOf(teamContext, tag, revokeBody{rank: 1, reason: reason}))
			}
		}
		require.LessOrEqual(t, len(team.failed), 8)
		require.LessOrEqual(t, len(kept.awaitedBy), 1)
		for _, s := range all {
			s.Revoke(Failed)
			s.Leave()
		}
		kept.Revoke(Failed)
		kept.free()
		for range 8 {
			s := team.Begin(Blocking, calls.Scan, NoRoot)
			s.Revoke(Failed)
			s.Leave()
		}
		require.Zero(t, team.failures)
		require.Empty(t, p.Unreceived())
		require.Zero(t, p.Stats().UnexpectedBytes)
	})
}
