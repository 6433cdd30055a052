package pml

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// made is a communicator that came of the first round of another one, at the ranks that have it.
type made struct {
	p2p, coll []*Context
	calls     []*testCollective
}

// makeOf makes a communicator of the given ranks, in that order, at all of them but those that
// never get it. All ranks that have it, and those of done, have finished the round.
func makeOf(w *wire, c []*Context, ranks []int, without ...int) *made {
	id := w.pmls[ranks[0]].NewContextID()
	g := NewGroup(ranks)
	m := &made{p2p: make([]*Context, len(w.pmls)), coll: make([]*Context, len(w.pmls)), calls: make([]*testCollective, len(w.pmls))}
	for place, rank := range ranks {
		if slices.Contains(without, rank) {
			continue
		}
		p := w.pmls[rank]
		m.calls[rank] = &testCollective{in: true}
		m.p2p[rank] = p.AddContext(id, g, place, testCaller{})
		m.coll[rank] = p.AddCollectiveContext(id.Collective(), g, place, testCaller{}, m.calls[rank])
		m.p2p[rank].SetOrigin(c[rank], c[rank].rounds.now)
		m.coll[rank].SetOrigin(c[rank], c[rank].rounds.now)
		p.Pass(c[rank], c[rank].rounds.now+1)
	}
	return m
}

// requireRevoked takes a request that has ended because of a rank.
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

// TestRevokeAfterUnequalEnd: rank 2 gives up the round that made a communicator at ranks 0 and 1.
// There everything ends that needs rank 2, and nothing else does; and what they have sent to it is
// gone there.
func TestRevokeAfterUnequalEnd(t *testing.T) {
	for _, protocol := range []Protocol{Copy, Get, Put} {
		w, c, _ := newRounds(t, 3, func(w *wire) {
			withRemote(btl.CapGet | btl.CapPut)(w)
			w.config.Protocol = protocol
		})
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
		w.pmls[1].Isend(m.coll[1], pattern(10, 1), 1, 2, Standard, "of a round to come").Abandon()
		w.settle()
		require.NotZero(t, w.pmls[2].Stats().UnexpectedBytes, "parked")
		require.Len(t, w.pmls[2].strays, 2)

		w.pmls[2].Spoil(c[2], Failed)
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
		require.NoError(t, err, "it waits for nobody")
		requireRevokedError(t, "send", func() error {
			s := p.Send(m.p2p[0], pattern(1, 1), 0, 1, Standard, "send")
			require.NotNil(t, s, "not even a short one goes")
			_, err := s.Take()
			return err
		}(), 0)
		require.Equal(t, 1, m.calls[0].givenUp)
		for rank := range 2 {
			requireRevokedError(t, "round", w.pmls[rank].Enter(m.coll[rank]), 0)
			requireRevokedError(t, "round", w.pmls[rank].Spoiled(m.coll[rank]), 0)
			w.pmls[rank].Spoil(m.coll[rank], Unfit)
			w.pmls[rank].Pass(m.coll[rank], 1)
			requireRevokedError(t, "next round", w.pmls[rank].Enter(m.coll[rank]), 0)
			requireRevokedError(t, "from the one that gave up", w.pmls[rank].Lost(m.p2p[rank], 0), 0)
			require.NoError(t, w.pmls[rank].Lost(m.p2p[rank], rank+1))
		}

		// The others go on among themselves.
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

		// Nothing is left, and what was sent in vain does not count in the windows.
		require.Empty(t, w.pmls[2].strays)
		for rank, q := range w.pmls {
			require.Zero(t, q.Stats().UnexpectedBytes, "rank %d", rank)
			require.Zero(t, q.Stats().Malformed, "rank %d", rank)
			require.Zero(t, q.Busy(), "rank %d", rank)
			for _, pr := range w.pmls[2].peers {
				if pr != nil {
					require.Zero(t, pr.credit.kept)
					require.Zero(t, pr.credit.notices)
					require.Equal(t, pr.credit.heard, pr.credit.answered)
				}
			}
			require.Equal(t, q.peer(2).credit.sent, w.pmls[2].peer(rank).credit.received)
		}
	}
}

// TestRevokeWhateverIsFreed: the parent, the communicator or both are freed by the time that a rank
// hears that another one has given up, also so long ago that this is forgotten. Who waits for that
// rank is told, and nothing stays there.
func TestRevokeWhateverIsFreed(t *testing.T) {
	for _, parent := range []bool{false, true} {
		for _, child := range []bool{false, true} {
			for _, forgotten := range []bool{false, true} {
				t.Run(fmt.Sprintf("parent=%v child=%v forgotten=%v", parent, child, forgotten), func(t *testing.T) {
					w, c, _ := newRounds(t, 2, nil)
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
					if forgotten {
						for range maxRecentlyFreed {
							p.RemoveContext(p.AddContext(p.NewContextID(), c[0].group, 0, testCaller{}))
						}
					}
					w.settle()
					w.pmls[1].Spoil(c[1], Failed)
					w.settle()
					requireRevoked(t, "ssend", s, 1)
					if r != nil {
						requireRevoked(t, "receive", r, 1)
					}
					require.Empty(t, p.strays)
					require.Empty(t, w.pmls[1].strays)
					requireClean(t, w)
				})
			}
		}
	}
}

// TestRevokeFreedOfNobody: a communicator that was freed with nothing under way is told of as well,
// since messages for it may be parked.
func TestRevokeFreedOfNobody(t *testing.T) {
	w, c, _ := newRounds(t, 2, nil)
	m := makeOf(w, c, []int{0, 1}, 1)
	p := w.pmls[0]
	p.Isend(m.p2p[0], pattern(10, 1), 1, 1, Standard, "send").Abandon()
	p.RemoveContext(m.p2p[0])
	p.RemoveContext(m.coll[0])
	w.settle()
	require.NotEmpty(t, w.pmls[1].strays)
	w.pmls[1].Spoil(c[1], Failed)
	w.settle()
	require.Empty(t, w.pmls[1].strays)
	requireClean(t, w)
}

// TestRevokeByTwo: two ranks give up, one of them because the other one did. The two that are left
// can still talk to each other.
func TestRevokeByTwo(t *testing.T) {
	w, c, _ := newRounds(t, 4, nil)
	m := makeOf(w, c, []int{3, 2, 1, 0}, 1, 2)
	w.pmls[2].Spoil(c[2], Failed)
	w.step(slices.IndexFunc(w.flying, func(f flight) bool { return f.to == 1 }))
	w.flying = nil // it dies before the others hear of it
	requireSpoiledError(t, w.pmls[1].Spoiled(c[1]), 2, Failed)
	w.pmls[1].Spoil(c[1], Failed)
	w.settle()
	r := w.pmls[3].Irecv(m.p2p[3], make([]byte, 9), 1, 2, 1, "recv")
	requireRevoked(t, "of the second", r, 2)
	first := w.pmls[3].Irecv(m.p2p[3], make([]byte, 9), 1, 1, 1, "recv")
	require.Equal(t, request.Active, first.State(), "of the first nothing is known yet")

	// Now the first one's arrives after all.
	spoil := spoilOf(matchHdr{context: roundsContext, seq: 0}, spoilHdr{rank: 2, why: Failed})
	w.pmls[3].Arrived(w.modules[3], 2, tagSpoil, spoil)
	requireRevoked(t, "of the first", first, 1)
	requireRevokedError(t, "round", w.pmls[3].Enter(m.coll[3]), 2)
	r = w.pmls[3].Irecv(m.p2p[3], make([]byte, 9), 1, 3, 1, "recv")
	w.pmls[0].Isend(m.p2p[0], pattern(9, 1), 0, 1, Standard, "send").Abandon()
	w.settle()
	_, err := r.Take()
	require.NoError(t, err)
}

// TestRevokeOfNoMember: a rank that is not in the communicator may give up what made it, and so may
// one that answers.
func TestRevokeOfNoMember(t *testing.T) {
	w, c, _ := newRounds(t, 3, nil)
	m := makeOf(w, c, []int{0, 1})
	w.pmls[2].Spoil(c[2], Failed)
	w.settle()
	for _, why := range []Why{Over, Unwanted, Freed, Finalized} {
		w.pmls[1].answerRound(c[1], w.pmls[1].peer(0), 0, why)
	}
	w.settle()
	require.NoError(t, w.pmls[0].Enter(m.coll[0]))
	require.Empty(t, m.p2p[0].revoked)
	r := w.pmls[0].Irecv(m.p2p[0], make([]byte, 9), 1, 1, 1, "recv")
	w.pmls[1].Isend(m.p2p[1], pattern(9, 1), 0, 1, Standard, "send").Abandon()
	w.settle()
	_, err := r.Take()
	require.NoError(t, err)
	requireClean(t, w)
}

// TestRevokeAnswersAsks: a rank that waits for another one, which knows already that the
// communicator is revoked, is told.
func TestRevokeAnswersAsks(t *testing.T) {
	for _, before := range []bool{false, true} {
		w, c, _ := newRounds(t, 3, nil)
		m := makeOf(w, c, []int{0, 1, 2}, 2)
		m.calls[1].in = false
		r := w.pmls[0].Irecv(m.coll[0], make([]byte, 9), 1, 1, 0, "recv")
		ask := func() {
			sleepy(w.pmls[0])
			sleepy(w.pmls[0])
			w.settle()
		}
		if before {
			ask()
			require.Len(t, m.coll[1].rounds.asks, 1)
		}
		w.pmls[2].Spoil(c[2], Failed)
		w.flying = slices.DeleteFunc(w.flying, func(f flight) bool { return f.to == 0 }) // it dies
		w.settle()
		if !before {
			require.Equal(t, request.Active, r.State())
			ask()
		}
		requireSpoiled(t, r, 1, Unfit)
	}
}

// TestStraysOfHeldSends: messages that are held, because the rank that gave up has no room for
// them, end too, and those behind them go.
func TestStraysOfHeldSends(t *testing.T) {
	w, c, _ := newRounds(t, 2, func(w *wire) { w.config.WindowBytes = 6500 })
	m := makeOf(w, c, []int{0, 1}, 1)
	p := w.pmls[0]
	var sends []*SendRequest
	for range 2 * (heldBytes + heldAnnounced) {
		sends = append(sends, p.Isend(m.p2p[0], pattern(1, 1), 1, 1, Standard, "send"))
	}
	behind := p.Isend(c[0], pattern(1, 7), 1, 1, Standard, "send")
	require.Equal(t, sendPending, behind.state)
	w.settle()
	w.pmls[1].Spoil(c[1], Failed)
	w.pmls[1].Pass(c[1], 1)
	w.settle()
	failed := 0
	for i, s := range sends {
		require.Equal(t, request.Complete, s.State(), "%d", i)
		if _, err := s.Take(); err != nil {
			requireRevokedError(t, "send", err, 1)
			failed++
		}
	}
	require.Equal(t, len(sends)-heldBytes, failed)
	out := make([]byte, 1)
	_, err := w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv").Take()
	require.NoError(t, err)
	require.Equal(t, pattern(1, 7), out)
	require.Nil(t, p.Send(c[0], nil, 1, 1, Standard, "send"), "the way is free again")
	w.settle()
	require.Zero(t, w.pmls[1].full)
}

// TestDisownedIDIsUsedUp: an id that this rank gave up cannot be proposed again.
func TestDisownedIDIsUsedUp(t *testing.T) {
	w, c, _ := newRounds(t, 2, nil)
	m := makeOf(w, c, []int{0, 1}, 1)
	w.pmls[1].Spoil(c[1], Failed)
	w.settle()
	require.ErrorIs(t, w.pmls[1].CheckNewContext(m.p2p[0].id, 0), errContextID)
	require.Len(t, w.pmls[1].recentlyFreed.oldest, 2)
	w.pmls[0].sendSpoil(w.pmls[0].peer(1), m.coll[0].id, 0, &SpoiledError{Why: Revoked})
	w.settle()
	require.Len(t, w.pmls[1].recentlyFreed.oldest, 2, "said twice, kept once")
	requireClean(t, w)
}

// TestForgedRevocation: a rank does not let go of a communicator that it has.
func TestForgedRevocation(t *testing.T) {
	for name, f := range map[string]struct {
		id   ContextID
		want error
	}{
		"of what is there":   {roundsContext, nil},
		"of what has a twin": {9, nil},
		"of point-to-point":  {6, errMalformed},
		"of a stranger":      {11, nil},
	} {
		w, c, calls := newRounds(t, 2, nil)
		p := w.pmls[0]
		p.AddContext(8, c[0].group, 0, testCaller{})
		p.Arrived(w.modules[0], 1, tagSpoil, spoilOf(matchHdr{context: f.id}, spoilHdr{why: Revoked}))
		require.ErrorIs(t, p.peer(1).Err(), f.want, name)
		require.Len(t, p.contexts, 3, name)
		require.False(t, p.recentlyFreed.has(8), name)
		require.NoError(t, p.Spoiled(c[0]), name)
		require.Zero(t, calls[0].givenUp, name)
	}
}

// TestOriginExpires: when the tags of the parent's collectives come again, a communicator that one
// of them made long ago is not meant.
func TestOriginExpires(t *testing.T) {
	w, c, _ := newRounds(t, 2, nil)
	m := makeOf(w, c, []int{0, 1})
	freed := makeOf(w, c, []int{1, 0})
	for rank := range 2 {
		w.pmls[rank].RemoveContext(freed.p2p[rank])
		w.pmls[rank].RemoveContext(freed.coll[rank])
	}
	p := w.pmls[0]
	for tag := 3; tag < CollectiveTags; tag += 1 << 16 { // every tag, but for the time that this takes
		p.Pass(c[0], tag-tag%(1<<16))
	}
	require.Zero(t, m.p2p[0].origin)
	require.Zero(t, m.coll[0].origin)
	require.Zero(t, p.recentlyFreed.ids[freed.p2p[0].id])
	p.Pass(c[0], 2)
	w.pmls[1].sendSpoil(w.pmls[1].peer(0), c[1].id, 0, &SpoiledError{Why: Failed, Rank: 1})
	w.settle()
	require.NoError(t, p.Enter(m.coll[0]))
}
