package coll

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

const (
	tagRevoke        = btl.Tag(pml.ControlRevoke)
	tagMismatchProbe = btl.Tag(pml.ControlMismatchProbe)
	tagMatch         = btl.Tag(1)
)

// taker is a request for a send or a receive.
type taker interface {
	State() request.State
	Take() (request.Status, error)
}

// requireRevoked takes a request that has ended because a rank revoked the collective.
func requireRevoked(t *testing.T, r taker, rank int, reason Reason) {
	t.Helper()
	require.Equal(t, request.Complete, r.State())
	_, err := r.Take()
	requireRevokedError(t, err, rank, reason)
}

// requireReceived takes a request that has ended without an error.
func requireReceived(t *testing.T, r taker) {
	t.Helper()
	require.Equal(t, request.Complete, r.State())
	_, err := r.Take()
	require.NoError(t, err)
}

func requireRevokedError(t *testing.T, err error, rank int, reason Reason) {
	t.Helper()
	var revoked *RevokedError
	require.ErrorAs(t, err, &revoked)
	require.Equal(t, reason, revoked.Reason, "%v", err)
	require.Equal(t, rank, revoked.Rank, "%v", err)
}

// enter does the first part of Run for the call under way, or the next call, and returns why it has
// failed.
func (t *Team) enter() error {
	if len(t.calls) == 0 {
		return t.errorOf(t.next)
	}
	t.answerProbes(t.calls[0])
	return t.calls[0].failed()
}

// TestRevokeEndsCollectiveEverywhere: rank 0 revokes a collective in which rank 1 waits for
// messages, and for its own messages, long and short ones, to be received. Rank 2 begins it later.
func TestRevokeEndsCollectiveEverywhere(t *testing.T) {
	for _, protocol := range []pml.Protocol{pml.Copy, pml.Get, pml.Put} {
		w, teams := newTeams(3, withRemote(protocol))
		s0, s1 := teams[0].Begin(Blocking, calls.Scan, NoRoot), teams[1].Begin(Blocking, calls.Scan, NoRoot)
		s0.steps, s1.steps = make([]step, 1), make([]step, 1)
		receives := []*pml.RecvRequest{teams[1].irecv(make([]byte, 10), 0, 0), teams[1].irecv(make([]byte, 10), 2, 0)}
		var sends []*pml.SendRequest
		for _, dest := range []int{0, 2} {
			sends = append(sends, teams[1].isend(pattern(1000, 1), dest, 0), teams[1].isend(pattern(10, 1), dest, 0))
		}
		next := teams[1].irecv(make([]byte, 10), 0, 1)
		w.settle()

		own := teams[0].irecv(make([]byte, 10), 2, 0)
		s0.Revoke(Refused)
		require.Equal(t, len(s0.steps), s0.next, "no further step is done")
		requireRevoked(t, own, 0, Refused)
		w.settle()
		for _, r := range receives {
			requireRevoked(t, r, 0, Refused)
		}
		for _, s := range sends {
			requireReceived(t, s) // senders are answered
		}
		require.Equal(t, len(s1.steps), s1.next)
		requireRevokedError(t, s1.failed(), 0, Refused)
		s2 := teams[2].Begin(Blocking, calls.Scan, NoRoot)
		requireRevokedError(t, s2.failed(), 0, Refused)
		// Operations that begin later.
		requireRevoked(t, teams[2].irecv(make([]byte, 10), 1, 0), 0, Refused)
		late := teams[2].isend(pattern(1000, 1), 0, 0)
		w.settle()
		require.Equal(t, request.Complete, late.State())
		late.Abandon()
		// The next collective is not revoked, even if it had begun.
		require.Equal(t, request.Active, next.State())
		for _, s := range []*Schedule{s0, s1, s2} {
			s.Leave()
			require.NoError(t, s.team.enter())
		}
		teams[0].isend(pattern(10, 3), 1, 1).Abandon()
		w.settle()
		requireReceived(t, next)
		requireClean(t, w)
	}
}

// TestRevokeNamesTheFirstRank: a rank that gives up because another rank did names that rank, and
// sends each rank one REVOKE.
func TestRevokeNamesTheFirstRank(t *testing.T) {
	w, teams, s := inCollective(4, nil)
	s[2].Revoke(Failed)
	s[2].Revoke(Failed)
	require.Len(t, w.flying, 3)
	w.flying = w.flying[1:2] // the sender dies before the others get it
	w.settle()
	s[1].Revoke(Lengths)
	s[1].Revoke(Lengths)
	require.Len(t, w.flying, 3)
	w.settle()
	for _, rank := range []int{0, 1, 3} {
		requireRevokedError(t, teams[rank].errorOf(0), 2, Failed)
	}
}

// TestRevokeKeepsItsPlace: a REVOKE does not overtake earlier messages. It is kept for a
// communicator that is not made yet, and for a later collective.
func TestRevokeKeepsItsPlace(t *testing.T) {
	w, teams, s := inCollective(2, nil)
	w.refuse = 2 // the message waits for room
	teams[0].isend(pattern(50, 1), 1, 0).Abandon()
	s[0].Revoke(Failed)
	other := NewTeam(w.pmls[0], 3, teams[0].group, 0, testOwner{})
	for range 2 {
		other.Begin(Blocking, calls.Scan, NoRoot).Leave()
	}
	other.Begin(Blocking, calls.Scan, NoRoot).Revoke(Refused)
	r := teams[1].irecv(make([]byte, 50), 0, 0)
	for len(w.flying) > 0 || w.refuse > 0 || w.pmls[0].Busy() > 0 {
		w.pmls[0].Progress()
		if last := len(w.flying) - 1; last >= 0 {
			w.step(last) // in reverse order
		}
	}
	requireReceived(t, r)
	requireRevokedError(t, teams[1].errorOf(0), 0, Failed)

	mine := NewTeam(w.pmls[1], 3, teams[1].group, 1, testOwner{})
	for range 2 {
		require.NoError(t, mine.enter())
		mine.Begin(Blocking, calls.Scan, NoRoot).Leave()
	}
	requireRevokedError(t, mine.enter(), 0, Refused)
	requireClean(t, w)
}

// TestRevokeLetsArrivingMessageArrive: a receive whose message is arriving completes.
func TestRevokeLetsArrivingMessageArrive(t *testing.T) {
	for _, protocol := range []pml.Protocol{pml.Copy, pml.Get, pml.Put} {
		w, teams, s := inCollective(3, func(w *wire) {
			withRemote(protocol)(w)
			w.async = true
		})
		out := make([]byte, 1000)
		r := teams[1].irecv(out, 0, 0)
		teams[0].isend(pattern(1000, 5), 1, 0).Abandon()
		w.step(0)
		s[1].Revoke(Failed)
		require.Equal(t, request.Active, r.State(), "%v", protocol)
		w.settle()
		requireReceived(t, r)
		require.Equal(t, pattern(1000, 5), out)
		requireClean(t, w)
	}
}

// TestRevokeOfFinishedCollectiveIsIgnored: the rank has finished, and needs nothing more.
func TestRevokeOfFinishedCollectiveIsIgnored(t *testing.T) {
	w, teams, s := inCollective(2, nil)
	s[1].Leave()
	s[0].Revoke(Failed)
	w.settle()
	require.NoError(t, teams[1].enter())
	require.Empty(t, teams[1].failed)
}

// TestMessageOfFinishedCollectiveIsDiscarded: whether the message arrives before the end or after
// it, the sender gets the reason Unwanted before the send completes.
func TestMessageOfFinishedCollectiveIsDiscarded(t *testing.T) {
	for _, before := range []bool{true, false} {
		for _, size := range []int{10, 1000} {
			w, teams, s := inCollective(2, nil)
			send := teams[0].isend(pattern(size, 1), 1, 0)
			if before {
				w.step(0)
			}
			s[1].Leave()
			if !before {
				w.step(0)
			}
			w.step(0)
			requireRevokedError(t, s[0].failed(), 1, Unwanted)
			require.Equal(t, size > 100, send.State() == request.Active)
			w.settle()
			requireReceived(t, send)
			requireClean(t, w)

			s[0].Revoke(Failed)
			require.Len(t, w.flying, 1, "the other rank gets a REVOKE")
			s[0].Leave()
			w.settle()
			require.NoError(t, teams[1].enter())
		}
	}
}

// TestRevokeOfFreedCommunicatorIsIgnored: the rank keeps no fragment.
func TestRevokeOfFreedCommunicatorIsIgnored(t *testing.T) {
	w, teams := newTeams(2, nil)
	teams[1].Remove()
	teams[0].Begin(Blocking, calls.Scan, NoRoot).Revoke(Failed)
	w.settle()
	requireClean(t, w)
}

// TestRevokeWithoutAPeer: a rank that is gone gets no REVOKE, and the others learn which one it is.
func TestRevokeWithoutAPeer(t *testing.T) {
	w, teams, s := inCollective(3, nil)
	w.lose(0, 1)
	s[0].revoke(&RevokedError{Rank: 1, Reason: Lost})
	w.settle()
	require.Zero(t, w.pmls[0].Busy())
	requireRevokedError(t, teams[2].errorOf(0), 1, Lost)
}

// makeOf has the first collective of teams make a communicator of the given ranks, in that order,
// at all of them except without. All ranks that have the communicator have finished the collective.
func makeOf(w *wire, s []*Schedule, ranks []int, without int) (p2p []*pml.Context, made []*Team) {
	id := w.pmls[ranks[0]].NewContextID()
	g := pml.NewGroup(ranks)
	p2p, made = make([]*pml.Context, len(w.pmls)), make([]*Team, len(w.pmls))
	for place, rank := range ranks {
		if rank == without {
			continue
		}
		p2p[rank] = w.pmls[rank].AddContext(id, g, place, testCaller{})
		made[rank] = NewTeam(w.pmls[rank], id.Collective(), g, place, testOwner{})
		s[rank].Made(p2p[rank], made[rank])
		s[rank].Leave()
	}
	return p2p, made
}

// TestRevokeRevokesWhatTheCollectiveMade: rank 2 revokes the collective that made a communicator at
// ranks 0 and 1. Collectives there fail, and rank 2 keeps no fragment of them.
func TestRevokeRevokesWhatTheCollectiveMade(t *testing.T) {
	for _, freeParent := range []bool{false, true} {
		w, teams, s := inCollective(3, nil)
		p2p, made := makeOf(w, s, []int{2, 0, 1}, 2)
		running := made[0].Begin(Blocking, calls.Barrier, NoRoot)
		running.steps = make([]step, 1)
		r := made[0].irecv(make([]byte, 10), 2, 0)
		later := made[0].irecv(make([]byte, 10), 2, 1)
		other := w.pmls[0].Irecv(p2p[0], make([]byte, 10), 1, 2, 5, "of another member")
		made[0].isend(pattern(10, 1), 0, 0).Abandon()
		made[1].isend(pattern(10, 1), 1, 2).Abandon() // of a later collective
		w.pmls[0].Isend(p2p[0], pattern(10, 1), 0, 1, pml.Standard, "send").Abandon()
		if freeParent {
			teams[0].Remove()
		}
		w.settle()
		require.NotEmpty(t, w.pmls[2].Leftovers(), "rank 2 keeps fragments of the communicator")

		s[2].Revoke(Failed)
		w.settle()
		require.Equal(t, 1, running.next)
		for _, req := range []taker{r, later, made[0].irecv(nil, 2, 3)} {
			_, err := req.Take()
			var revoked *pml.RevokedError
			require.ErrorAs(t, err, &revoked)
			require.Equal(t, 0, revoked.Rank)
		}
		for rank := range 2 {
			require.ErrorIs(t, made[rank].enter(), request.ErrComm)
		}
		require.True(t, running.HasFailed())
		running.Revoke(Unfit)
		running.Leave()
		require.ErrorIs(t, made[0].enter(), request.ErrComm, "the next collective too")
		require.Equal(t, request.Active, other.State())
		other.Cancel()
		_, _ = other.Take()
		w.settle()
		requireClean(t, w)
	}
}

// TestAnswersDoNotRevokeWhatTheCollectiveMade: only a rank that gives up lacks the communicator.
func TestAnswersDoNotRevokeWhatTheCollectiveMade(t *testing.T) {
	w, teams, s := inCollective(3, nil)
	_, made := makeOf(w, s, []int{0, 1}, -1)
	s[2].Revoke(Failed) // rank 2 is no member
	w.settle()
	for _, reason := range []Reason{Finished, Unwanted, Freed, Finalized} {
		teams[1].answer(0, 0, reason)
	}
	w.settle()
	require.NoError(t, made[0].enter())
	requireClean(t, w)
}

// TestMismatchProbeInRevokedCommunicator: a rank that knows that the communicator is revoked
// answers a probe with that.
func TestMismatchProbeInRevokedCommunicator(t *testing.T) {
	for _, before := range []bool{false, true} {
		w, _, s := inCollective(3, nil)
		_, made := makeOf(w, s, []int{0, 1, 2}, 2)
		made[0].Begin(Blocking, calls.Barrier, NoRoot)
		r := made[0].irecv(make([]byte, 9), 1, 0)
		probe := func() {
			w.sleep(0)
			w.settle()
		}
		if before {
			probe()
			require.Len(t, made[1].probes, 1)
		}
		s[2].Revoke(Failed)
		w.flying = slices.DeleteFunc(w.flying, func(f flight) bool { return f.to == 0 }) // it dies
		w.settle()
		if !before {
			require.Equal(t, request.Active, r.State())
			probe()
		}
		requireRevoked(t, r, 1, Unfit)
	}
}

func revokeOf(id pml.ContextID, seq int, b revokeBody) []byte {
	return append(header(id, seq, 0), b.encode()...)
}

func probeOf(id pml.ContextID, seq int, s Signature) []byte {
	return append(header(id, seq, 0), s.append(nil)...)
}

// TestForgedFragment: a malformed fragment fails the peer that has sent it, and no collective.
func TestForgedFragment(t *testing.T) {
	good := revokeOf(teamContext, 0, revokeBody{reason: Failed})
	for name, f := range map[string]struct {
		tag  btl.Tag
		frag []byte
	}{
		"short":                 {tagRevoke, good[:len(good)-1]},
		"long":                  {tagRevoke, append(good[:len(good):len(good)], 0)},
		"starts and further":    {tagRevoke, revokeOf(teamContext, startForm, revokeBody{reason: Failed, further: 1})},
		"answer and further":    {tagRevoke, revokeOf(teamContext, 0, revokeBody{reason: Finished, further: 1})},
		"too many further":      {tagRevoke, revokeOf(teamContext, 0, revokeBody{reason: Failed, further: SequenceNumbers / 2})},
		"no reason":             {tagRevoke, revokeOf(teamContext, 0, revokeBody{})},
		"unknown reason":        {tagRevoke, revokeOf(teamContext, 0, revokeBody{reason: NeverMade + 1})},
		"rank out of range":     {tagRevoke, revokeOf(teamContext, 0, revokeBody{rank: 2, reason: Failed})},
		"negative rank":         {tagRevoke, revokeOf(teamContext, 0, revokeBody{rank: -1, reason: Failed})},
		"tag too high":          {tagRevoke, revokeOf(teamContext, tags, revokeBody{reason: Failed})},
		"short, no context":     {tagRevoke, revokeOf(77, 0, revokeBody{reason: Failed})[:20]},
		"high tag, no context":  {tagRevoke, revokeOf(77, tags, revokeBody{reason: Failed})},
		"tag of a probe":        {tagMismatchProbe, probeOf(teamContext, SequenceNumbers, Signature{})},
		"probe of a start":      {tagMismatchProbe, probeOf(teamContext, startForm, Signature{})},
		"no data in a probe":    {tagMismatchProbe, header(teamContext, 0, 0)},
		"short probe":           {tagMismatchProbe, probeOf(teamContext, 0, Signature{})[:40]},
		"message, tag too high": {tagMatch, header(teamContext, tags, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			w, group, worlds := newWire(2, nil)
			p := w.pmls[0]
			team := NewTeam(p, teamContext, group, 0, testOwner{})
			s := team.Begin(Blocking, calls.Scan, NoRoot)
			p.Arrived(w.modules[0], 1, f.tag, f.frag)
			p.Drained(w.modules[0], btl.Path{Peer: 1})
			p.Progress()
			require.ErrorIs(t, p.Lost(worlds[0], 1), errMalformed)
			require.NoError(t, s.failed())
			require.Empty(t, team.probes)
			require.Zero(t, p.Stats().UnexpectedBytes)
		})
	}
}

// TestForgedNeverMadeIsIgnored: a rank keeps a communicator that it has.
func TestForgedNeverMadeIsIgnored(t *testing.T) {
	w, teams, s := inCollective(2, nil)
	p := w.pmls[0]
	p.Arrived(w.modules[0], 1, tagRevoke, revokeOf(teamContext, 0, revokeBody{reason: NeverMade}))
	require.NoError(t, p.Lost(teams[0].ctx, 1))
	require.NoError(t, s[0].failed())
}

// FuzzControl feeds fragments that a peer could send to a rank that is in a collective. The rank
// has receives posted for this collective and for the next one, and the message of one is arriving.
// The rank must not panic nor write outside of the buffers, and its memory use is bounded.
func FuzzControl(f *testing.F) {
	w, teams, s := inCollective(2, nil)
	teams[0].irecv(make([]byte, 10), 1, 0)
	w.sleep(0)
	s[0].Revoke(Refused)
	s[0].Leave()
	teams[0].Begin(Blocking, calls.Scan, NoRoot).Revoke(Lengths)
	teams[0].isend(pattern(10, 1), 1, 0)
	teams[0].isend(pattern(1000, 1), 1, 1)
	for _, fl := range w.flying {
		f.Add(uint8(fl.tag), fl.frag, uint8(tagMismatchProbe), fl.frag)
	}
	for reason := range NeverMade + 1 {
		f.Add(uint8(tagRevoke), revokeOf(teamContext, 0, revokeBody{rank: 1, reason: reason}), uint8(tagMatch), header(teamContext, 0, 1))
		f.Add(uint8(tagRevoke), revokeOf(teamContext, 0, revokeBody{rank: 1, reason: reason, further: 7}), uint8(tagMatch), header(teamContext, 3, 1))
	}
	f.Fuzz(func(t *testing.T, tag1 uint8, frag1 []byte, tag2 uint8, frag2 []byte) {
		w, teams, s := inCollective(2, nil)
		p := w.pmls[0]
		guarded := make([]byte, 3000)
		teams[0].irecv(guarded[1000:2000:2000], 1, 0)
		teams[1].isend(pattern(1000, 0), 0, 0)
		w.step(0)
		teams[0].irecv(make([]byte, 8), 1, 0)
		teams[0].irecv(make([]byte, 8), 1, 1)
		teams[0].isend(pattern(1000, 0), 1, 0)
		for range 2 {
			p.Arrived(w.modules[0], 1, btl.Tag(tag1), frag1)
			p.Arrived(w.modules[0], 1, btl.Tag(tag2), frag2)
			w.sleep(0)
			_ = teams[0].enter()
		}
		require.LessOrEqual(t, len(teams[0].probes), 1)
		s[0].Leave()
		require.LessOrEqual(t, len(teams[0].failed), 2)
		for i, b := range guarded {
			if (i < 1000 || i >= 2000) && b != 0 {
				t.Fatalf("byte %d outside the buffer was written", i)
			}
		}
	})
}
