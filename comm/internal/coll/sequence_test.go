package coll

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
)

// TestManyFailedCollectives: a rank that is far behind keeps a bounded number of ranges, which
// cover all failures.
func TestManyFailedCollectives(t *testing.T) {
	w, teams := newTeams(2, nil)
	const collectives = 3 * maxFailed
	for seq := range collectives {
		s := teams[0].Begin(Blocking, calls.Scan, NoRoot)
		if seq%2 == 1 {
			s.Revoke(Refused)
		}
		s.Leave()
	}
	w.settle()
	require.LessOrEqual(t, len(teams[1].failed), maxFailed)
	for seq := range collectives {
		s := teams[1].Begin(Blocking, calls.Scan, NoRoot)
		if seq%2 == 1 {
			requireRevokedError(t, s.failed(), 0, Refused)
		}
		if s.failed() != nil {
			s.Revoke(Failed)
		}
		s.Leave()
	}
	require.NoError(t, teams[1].enter())
	require.Empty(t, teams[1].failed)
	w.settle()
	requireClean(t, w)
}

// TestSequenceNumbersWrapAround: 0 follows the last number, and is later in the order.
func TestSequenceNumbersWrapAround(t *testing.T) {
	const first = SequenceNumbers - 2
	w, teams := newTeams(2, nil)
	for _, team := range teams {
		team.next = first
	}
	for i := range 6 {
		seq := (first + i) % SequenceNumbers
		require.Zero(t, teams[0].ahead(seq))
		s := teams[0].Begin(Blocking, calls.Scan, NoRoot)
		require.Equal(t, seq, s.Number())
		teams[0].isend(pattern(10, i), 1, seq).Abandon()
		if i == 3 {
			s.Revoke(Failed)
		}
		s.Leave()
	}
	w.settle()
	require.Len(t, w.pmls[1].Unreceived(), 5, "the message of the revoked collective is dropped")
	for i := range 6 {
		seq := (first + i) % SequenceNumbers
		s := teams[1].Begin(Blocking, calls.Scan, NoRoot)
		if i == 3 {
			requireRevokedError(t, s.failed(), 0, Failed)
		} else {
			require.NoError(t, s.failed())
			requireReceived(t, teams[1].irecv(make([]byte, 10), 0, seq))
		}
		s.Leave()
	}
	requireClean(t, w)
}

// TestOriginExpires: when sequence numbers of the parent are used again, a communicator that one of
// those collectives made long ago is not revoked.
func TestOriginExpires(t *testing.T) {
	for _, expires := range []bool{false, true} {
		w, teams, s := inCollective(2, nil)
		_, made := makeOf(w, s, []int{0, 1}, -1)
		if expires {
			for seq := originSpan; seq != 0; seq = (seq + originSpan) % SequenceNumbers {
				teams[0].next = seq
				teams[0].expireOrigins()
			}
		}
		sendRevoke(w.pmls[1], 0, teamContext, 0, &RevokedError{Rank: 1, Reason: Failed})
		w.settle()
		var revoked *pml.RevokedError
		if expires {
			require.NoError(t, made[0].enter())
		} else {
			require.ErrorAs(t, made[0].enter(), &revoked)
		}
	}
}
