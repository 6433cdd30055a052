package pml

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/request"
)

// made is a communicator that a collective made, at the ranks that have it.
type made struct {
	p2p, coll []*Context
	handlers  []*testHandler
	making    []*Making
	proposal  Proposal
}

// The data of control fragments in these tests.
const (
	gaveUp    = 1 // the sender gave up the collective with the tag
	neverMade = 2 // the receiver gave up the collective that made the context
)

// newRevoking is newControlled with handlers that act like those of comm/internal/coll when a rank
// gives up a collective.
func newRevoking(t wireT, n int, changes ...func(w *wire)) (*wire, []*Context, []*testHandler) {
	w, c, handlers := newControlled(t, n, changes...)
	for rank, p := range w.pmls {
		p.OnOrphan(func(f Control, freed bool) (keep bool, err error) {
			if f.Data[0] == neverMade {
				return false, p.Disown(f.Context)
			}
			return !p.tookGiveUp(f), nil
		})
		handlers[rank].onControl = func(f Control) error {
			if f.Data[0] == gaveUp {
				p.tookGiveUp(f)
			}
			return nil
		}
	}
	return w, c, handlers
}

// tookGiveUp revokes the communicator that the collective of a control fragment has made.
func (p *PML) tookGiveUp(f Control) (found bool) {
	made, n := p.RevokeMade(f.Context, func(tag int) bool { return tag == f.Tag }, f.From)
	for _, id := range made {
		p.SendControl(f.From, id, ControlRevoke, 0, []byte{neverMade})
	}
	return n > 0
}

// giveUp has a rank give up the collective of c that makes a communicator.
func giveUp(w *wire, c []*Context, rank int) {
	defer endMakings(w.pmls[rank])
	for to := range w.pmls {
		if to != rank {
			w.pmls[rank].SendControl(to, c[rank].id, ControlRevoke, madeByTag, []byte{gaveUp})
		}
	}
}

// endMakings ends the collectives of a rank that make communicators.
func endMakings(p *PML) {
	for len(p.ids.makings) > 0 {
		p.ids.makings[0].End()
	}
}

// madeByTag is the tag of the collective that makes a communicator in these tests.
const madeByTag = 0

// makeOf makes a communicator of the given ranks, in that order, at all of them except those in
// without.
func makeOf(w *wire, c []*Context, ranks []int, without ...int) *made {
	g := NewGroup(ranks)
	m := &made{p2p: make([]*Context, len(w.pmls)), coll: make([]*Context, len(w.pmls)), handlers: make([]*testHandler, len(w.pmls))}
	for _, p := range w.pmls {
		m.making = append(m.making, p.Propose(c[0].group))
	}
	m.proposal = m.making[ranks[0]].Proposal
	id := m.proposal.ID
	for place, rank := range ranks {
		if slices.Contains(without, rank) {
			continue
		}
		p := w.pmls[rank]
		require.NoError(w.t, m.making[rank].Take(m.proposal, ranks[0]))
		m.p2p[rank] = p.AddContext(id, g, place, testCaller{})
		m.coll[rank], m.handlers[rank] = addControlled(p, id.Collective(), g, place)
		m.p2p[rank].SetOrigin(c[rank], madeByTag)
		m.coll[rank].SetOrigin(c[rank], madeByTag)
		m.making[rank].End()
	}
	return m
}

// requireRevoked checks that a request has ended because a rank gave up a collective.
func requireRevoked(t *testing.T, name string, r ended, rank int) {
	t.Helper()
	require.Equal(t, request.Complete, r.State(), name)
	_, err := r.Take()
	requireRevokedError(t, name, err, rank)
}

func requireRevokedError(t *testing.T, name string, err error, rank int) {
	t.Helper()
	var revoked *RevokedError
	require.ErrorAs(t, err, &revoked, name)
	require.Equal(t, rank, revoked.Rank, name)
	require.ErrorIs(t, err, request.ErrComm, name)
}

// TestRevokeEndsWhatNeedsRankThatGaveUp: rank 2 gives up the collective that made a communicator at
// ranks 0 and 1. At these everything that needs rank 2 ends, and all else goes on. Rank 2 drops
// their messages.
func TestRevokeEndsWhatNeedsRankThatGaveUp(t *testing.T) {
	for _, protocol := range []Protocol{Copy, Get, Put} {
		w, c, _ := newRevoking(t, 3, withRemote(getPut), withProtocol(protocol))
		m := makeOf(w, c, []int{2, 0, 1}, 2)
		p := w.pmls[0]
		begin := func() map[string]ended {
			persistent := p.RecvInit(m.p2p[0], make([]byte, 9), 1, 0, 1, "recv init")
			start(persistent)
			put := p.SendInit(m.p2p[0], pattern(1000, 1), 0, 1, Standard, "send init")
			start(put)
			return map[string]ended{
				"receive":            p.Irecv(m.p2p[0], make([]byte, 9), 1, 0, 1, "recv"),
				"receive any tag":    p.Irecv(m.p2p[0], make([]byte, 9), 1, 0, request.AnyTag, "recv"),
				"receive any":        p.Irecv(m.p2p[0], make([]byte, 9), 1, request.AnySource, 1, "recv"),
				"persistent receive": persistent,
				"probe":              p.Probe(m.p2p[0], 0, 3, false, "probe"),
				"probe any":          p.Probe(m.p2p[0], request.AnySource, 3, true, "mprobe"),
				"send":               p.Isend(m.p2p[0], pattern(1000, 1), 0, 1, Standard, "send"),
				"ssend":              p.Isend(m.p2p[0], pattern(10, 1), 0, 1, Synchronous, "ssend"),
				"persistent send":    put,
				"of another":         p.Irecv(m.p2p[0], make([]byte, 9), 1, 2, 4, "recv"),
				"of itself":          p.Irecv(m.p2p[0], make([]byte, 9), 1, 1, 5, "recv"),
				"to another":         p.Isend(m.p2p[0], pattern(1000, 1), 2, 6, Synchronous, "ssend"),
				"in the parent":      p.Irecv(c[0], make([]byte, 9), 1, 2, 1, "recv"),
			}
		}
		before := begin()
		short := p.Isend(m.p2p[0], pattern(10, 1), 0, 1, Standard, "send")
		collective := map[string]ended{
			"collective receive": p.Irecv(m.coll[0], make([]byte, 9), 1, 2, 0, "recv"),
			"collective later":   p.Irecv(m.coll[0], make([]byte, 9), 1, 2, 1, "recv"),
			"collective ssend":   p.Isend(m.coll[0], pattern(10, 1), 0, 0, Synchronous, "ssend"),
		}
		w.pmls[1].Isend(m.coll[1], pattern(10, 1), 1, 2, Standard, "later collective").Abandon()
		w.settle()
		require.NotZero(t, w.pmls[2].Stats().UnexpectedBytes, "messages for the unknown context")
		require.Len(t, w.pmls[2].earlyContext, 2)

		giveUp(w, c, 2)
		w.settle()
		check := func(all map[string]ended) {
			for name, r := range all {
				switch name {
				case "of another", "of itself", "to another", "in the parent":
					require.Equal(t, request.Active, r.State(), name)
				default:
					requireRevoked(t, name, r, 0)
				}
			}
		}
		check(before)
		check(collective)
		after := begin()
		check(after)
		_, err := short.Take()
		require.NoError(t, err, "an eager send ended in an error")
		requireRevokedError(t, "send", func() error {
			s := p.Send(m.p2p[0], pattern(1, 1), 0, 1, Standard, "send")
			require.NotNil(t, s, "a short send to the rank went")
			_, err := s.Take()
			return err
		}(), 0)
		for rank := range 2 {
			require.Len(t, m.handlers[rank].revoked, 1)
			requireRevokedError(t, "handler", m.handlers[rank].revoked[0], 0)
			require.Zero(t, m.handlers[rank].posted, "receives are still posted when the handler is called")
			require.Zero(t, m.coll[rank].unexpected.count)
			requireRevokedError(t, "Lost of the rank that gave up", w.pmls[rank].Lost(m.p2p[rank], 0), 0)
			require.NoError(t, w.pmls[rank].Lost(m.p2p[rank], rank+1))
		}

		// The other ranks go on among themselves.
		for _, all := range []map[string]ended{before, after} {
			w.pmls[1].Isend(m.p2p[1], pattern(9, 4), 1, 4, Standard, "send").Abandon()
			p.Isend(m.p2p[0], pattern(9, 5), 1, 5, Standard, "send").Abandon()
			w.pmls[1].Irecv(m.p2p[1], make([]byte, 1000), 1, 1, 6, "recv").Abandon()
			w.settle()
			for _, name := range []string{"of another", "of itself", "to another"} {
				_, err := all[name].Take()
				require.NoError(t, err, name)
			}
			all["in the parent"].(*RecvRequest).Cancel()
		}

		// Nothing is left, and dropped messages do not count in the windows.
		require.Empty(t, w.pmls[2].earlyContext)
		for rank, q := range w.pmls {
			require.Zero(t, q.Stats().UnexpectedBytes, "rank %d", rank)
			require.Zero(t, q.Stats().Malformed, "rank %d", rank)
			require.Zero(t, q.Busy(), "rank %d", rank)
			for _, pr := range w.pmls[2].peers {
				if pr != nil {
					require.Zero(t, pr.credit.kept)
					require.Zero(t, pr.credit.notices)
					require.Equal(t, pr.credit.rtsReceived, pr.credit.rtsTaken)
				}
			}
			require.Equal(t, q.peer(2).credit.sent, w.pmls[2].peer(rank).credit.received)
		}
	}
}

// TestRevokeOfFreedCommunicatorEndsRequests: the parent, the communicator or both are freed before
// a rank learns that the other has given up. Requests that need that rank end, and nothing is left
// there.
func TestRevokeOfFreedCommunicatorEndsRequests(t *testing.T) {
	for _, parent := range []bool{false, true} {
		for _, child := range []bool{false, true} {
			t.Run(fmt.Sprintf("parent=%v child=%v", parent, child), func(t *testing.T) {
				w, c, _ := newRevoking(t, 2)
				m := makeOf(w, c, []int{0, 1}, 1)
				p := w.pmls[0]
				s := p.Isend(m.p2p[0], pattern(10, 1), 1, 1, Synchronous, "ssend")
				p.Isend(m.coll[0], pattern(10, 1), 1, 0, Standard, "send").Abandon()
				var r *RecvRequest
				if !child {
					r = p.Irecv(m.coll[0], make([]byte, 9), 1, 1, 0, "recv")
				}
				if child {
					p.RemoveContext(m.p2p[0])
					p.RemoveContext(m.coll[0])
				}
				if parent {
					p.RemoveContext(c[0])
				}
				w.settle()
				giveUp(w, c, 1)
				w.settle()
				requireRevoked(t, "ssend", s, 1)
				if r != nil {
					requireRevoked(t, "receive", r, 1)
				}
				require.Empty(t, p.earlyContext)
				require.Empty(t, w.pmls[1].earlyContext)
				requireClean(t, w)
			})
		}
	}
}

// TestRevokeOfIdleFreedCommunicatorDropsMessages: the communicator was freed with nothing under
// way. The other rank may still keep messages for it.
func TestRevokeOfIdleFreedCommunicatorDropsMessages(t *testing.T) {
	w, c, _ := newRevoking(t, 2)
	m := makeOf(w, c, []int{0, 1}, 1)
	p := w.pmls[0]
	p.Isend(m.p2p[0], pattern(10, 1), 1, 1, Standard, "send").Abandon()
	p.RemoveContext(m.p2p[0])
	p.RemoveContext(m.coll[0])
	w.settle()
	require.NotEmpty(t, w.pmls[1].earlyContext)
	giveUp(w, c, 1)
	w.settle()
	require.Empty(t, w.pmls[1].earlyContext)
	requireClean(t, w)
}

// TestRevokeByTwoRanksSparesTheOthers: two ranks give up, the second because the first did. The
// other two can still exchange messages.
func TestRevokeByTwoRanksSparesTheOthers(t *testing.T) {
	w, c, _ := newRevoking(t, 4)
	m := makeOf(w, c, []int{3, 2, 1, 0}, 1, 2)
	giveUp(w, c, 2)
	w.flying = nil // its fragments are late
	giveUp(w, c, 1)
	w.settle()
	r := w.pmls[3].Irecv(m.p2p[3], make([]byte, 9), 1, 2, 1, "recv")
	requireRevoked(t, "from the second rank", r, 2)
	first := w.pmls[3].Irecv(m.p2p[3], make([]byte, 9), 1, 1, 1, "recv")
	require.Equal(t, request.Active, first.State(), "the fragment of the first rank has not arrived")

	// Now the fragment of the first rank arrives.
	late := append(matchOf(matchHdr{context: controlledContext, tag: madeByTag, seq: 0}), gaveUp)
	w.pmls[3].Arrived(w.modules[3], 2, tagRevoke, late)
	requireRevoked(t, "from the first rank", first, 1)
	r = w.pmls[3].Irecv(m.p2p[3], make([]byte, 9), 1, 3, 1, "recv")
	w.pmls[0].Isend(m.p2p[0], pattern(9, 1), 0, 1, Standard, "send").Abandon()
	w.settle()
	requireSuccess(t, r)
}

// TestRevokeByNonMemberHasNoEffect: a rank that is not in the communicator gives up the collective
// that made it.
func TestRevokeByNonMemberHasNoEffect(t *testing.T) {
	w, c, _ := newRevoking(t, 3)
	m := makeOf(w, c, []int{0, 1})
	giveUp(w, c, 2)
	w.settle()
	require.Empty(t, m.handlers[0].revoked)
	require.Empty(t, m.p2p[0].revoked)
	r := w.pmls[0].Irecv(m.p2p[0], make([]byte, 9), 1, 1, 1, "recv")
	w.pmls[1].Isend(m.p2p[1], pattern(9, 1), 0, 1, Standard, "send").Abandon()
	w.settle()
	requireSuccess(t, r)
	requireClean(t, w)
}

// TestRevokeEndsPendingSends: sends that are pending, because the window of the rank that gave up
// is closed, end too. Those behind them go.
func TestRevokeEndsPendingSends(t *testing.T) {
	w, c, _ := newRevoking(t, 2, withWindow(6500))
	m := makeOf(w, c, []int{0, 1}, 1)
	p := w.pmls[0]
	var sends []*SendRequest
	for range 2 * (floodEager + floodAnnounced) {
		sends = append(sends, p.Isend(m.p2p[0], pattern(1, 1), 1, 1, Standard, "send"))
	}
	behind := p.Isend(c[0], pattern(1, 7), 1, 1, Standard, "send")
	require.Equal(t, sendPending, behind.state)
	w.settle()
	giveUp(w, c, 1)
	w.settle()
	failed := 0
	for i, s := range sends {
		require.Equal(t, request.Complete, s.State(), "%d", i)
		if _, err := s.Take(); err != nil {
			requireRevokedError(t, "send", err, 1)
			failed++
		}
	}
	require.Equal(t, len(sends)-floodEager, failed)
	requireArrival(t, w, c[1], 1, pattern(1, 7))
	require.Nil(t, p.Send(c[0], nil, 1, 1, Standard, "send"), "a send waits although the window is open")
	w.settle()
	require.Zero(t, w.pmls[1].blockedPeers)
}

// TestCheckNewContextRefusesDisownedID: an id that this rank disowned counts as used.
func TestCheckNewContextRefusesDisownedID(t *testing.T) {
	w, c, _ := newRevoking(t, 2)
	m := makeOf(w, c, []int{0, 1}, 1)
	giveUp(w, c, 1)
	w.settle()
	require.ErrorIs(t, m.making[1].Take(m.proposal, 0), errContextID)
	require.Equal(t, []span{{1, 1}}, w.pmls[1].ids.learned[0].spans)
	w.pmls[0].SendControl(1, m.coll[0].id, ControlRevoke, 0, []byte{neverMade})
	w.settle()
	require.Equal(t, []span{{1, 1}}, w.pmls[1].ids.learned[0].spans)
	requireClean(t, w)
}

// TestDisownOfKnownContextHasNoEffect: a rank keeps a communicator that it has made.
func TestDisownOfKnownContextHasNoEffect(t *testing.T) {
	for name, f := range map[string]struct {
		id   ContextID
		want error
	}{
		"known":          {controlledContext, nil},
		"known twin":     {9, nil},
		"point-to-point": {6, errMalformed},
		"unknown":        {11, nil},
	} {
		w, c, _ := newRevoking(t, 2)
		p := w.pmls[0]
		p.AddContext(8, c[0].group, 0, testCaller{})
		require.ErrorIs(t, p.Disown(f.id), f.want, name)
		require.Len(t, p.contexts, 3, name)
		require.False(t, p.IsFreed(8), name)
	}
}

// TestDisownHandsControlFragmentsToOrphanHandler: Disown hands over those that were kept for the
// context.
func TestDisownHandsControlFragmentsToOrphanHandler(t *testing.T) {
	w, c, _ := newRevoking(t, 2)
	m := makeOf(w, c, []int{0, 1}, 1)
	w.pmls[1].OnOrphan(func(f Control, freed bool) (keep bool, err error) { return true, nil })
	w.pmls[0].SendControl(1, m.coll[0].id, ControlMismatchProbe, 0, []byte{gaveUp})
	w.settle()
	var got []Control
	w.pmls[1].OnOrphan(func(f Control, freed bool) (keep bool, err error) {
		require.True(t, freed)
		got = append(got, f)
		return false, nil
	})
	require.NoError(t, w.pmls[1].Disown(m.coll[0].id))
	require.Len(t, got, 1)
	require.Equal(t, ControlMismatchProbe, got[0].Kind)
	require.Empty(t, w.pmls[1].earlyContext)
	requireClean(t, w)
}

// TestExpireOriginsSparesCommunicatorsOfReusedTag: a later collective with the same tag does not
// revoke a communicator that was made long ago.
func TestExpireOriginsSparesCommunicatorsOfReusedTag(t *testing.T) {
	w, c, _ := newRevoking(t, 2)
	m := makeOf(w, c, []int{0, 1})
	p := w.pmls[0]
	p.ExpireOrigins(c[0], func(tag int) bool { return tag != madeByTag })
	require.NotZero(t, m.p2p[0].origin)
	p.ExpireOrigins(m.coll[0], func(tag int) bool { return true })
	require.NotZero(t, m.p2p[0].origin, "the origin is in another parent")
	p.ExpireOrigins(c[0], func(tag int) bool { return tag == madeByTag })
	require.Zero(t, m.p2p[0].origin)
	require.Zero(t, m.coll[0].origin)
	giveUp(w, c, 1)
	w.settle()
	require.Empty(t, m.handlers[0].revoked)
}
