package pml

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// testCollective is a rank's caller of collectives.
type testCollective struct {
	sign    Signature
	in      bool
	givenUp int
}

func (c *testCollective) Signature() (Signature, bool) { return c.sign, c.in }
func (c *testCollective) Uses([]byte) bool             { return false }
func (c *testCollective) GivenUp()                     { c.givenUp++ }

const roundsContext ContextID = 1

// newRounds is newWire with a context for collectives. All ranks are in the first round.
func newRounds(t wireT, n int, change func(w *wire)) (*wire, []*Context, []*testCollective) {
	w, world := newWire(t, n, change)
	var ctxs []*Context
	var calls []*testCollective
	for rank, p := range w.pmls {
		call := &testCollective{in: true}
		calls = append(calls, call)
		ctxs = append(ctxs, p.AddCollectiveContext(roundsContext, world[0].group, rank, testCaller{}, call))
	}
	return w, ctxs, calls
}

// requireSpoiled takes a request that has ended because of a rank.
func requireSpoiled(t *testing.T, r ended, rank int, why Why) {
	t.Helper()
	require.Equal(t, request.Complete, r.State())
	_, err := r.Take()
	requireSpoiledError(t, err, rank, why)
}

func requireSpoiledError(t *testing.T, err error, rank int, why Why) {
	t.Helper()
	var spoiled *SpoiledError
	require.ErrorAs(t, err, &spoiled)
	require.Equal(t, why, spoiled.Why, "%v", err)
	require.Equal(t, rank, spoiled.Rank, "%v", err)
}

// requireClean: nothing is left of what was sent.
func requireClean(t *testing.T, w *wire) {
	t.Helper()
	for _, p := range w.pmls {
		require.Empty(t, p.Pending())
		require.Empty(t, p.Unreceived())
		require.Zero(t, p.Stats().UnexpectedBytes)
		require.Zero(t, p.Stats().Malformed)
		require.Zero(t, p.Busy())
	}
}

// TestSpoil: rank 0 gives up a round, in which rank 1 waits for a message and for its own, long
// and short ones to be received, and to which rank 2 comes later.
func TestSpoil(t *testing.T) {
	for _, protocol := range []Protocol{Copy, Get, Put} {
		w, c, calls := newRounds(t, 3, func(w *wire) {
			withRemote(btl.CapGet | btl.CapPut)(w)
			w.config.Protocol = protocol
		})
		calls[2].in = false
		receives := []*RecvRequest{
			w.pmls[1].Irecv(c[1], make([]byte, 10), 1, 0, 0, "from the one that gives up"),
			w.pmls[1].Irecv(c[1], make([]byte, 10), 1, 2, 0, "from another one"),
		}
		var sends []*SendRequest
		for _, dest := range []int{0, 2} {
			sends = append(sends, w.pmls[1].Isend(c[1], pattern(1000, 1), dest, 0, Standard, "long"),
				w.pmls[1].Isend(c[1], pattern(10, 1), dest, 0, Standard, "short"))
		}
		next := w.pmls[1].Irecv(c[1], make([]byte, 10), 1, 0, 1, "of the next round")
		w.settle()

		own := w.pmls[0].Irecv(c[0], make([]byte, 10), 1, 2, 0, "own")
		w.pmls[0].Spoil(c[0], Refused)
		require.Equal(t, 1, calls[0].givenUp)
		requireSpoiled(t, own, 0, Refused)
		w.settle()
		for _, r := range receives {
			requireSpoiled(t, r, 0, Refused)
		}
		for _, s := range sends {
			require.Equal(t, request.Complete, s.State(), "who sends is answered")
			_, err := s.Take()
			require.NoError(t, err)
		}
		require.Equal(t, []int{1, 1, 0}, []int{calls[0].givenUp, calls[1].givenUp, calls[2].givenUp - 1})
		requireSpoiledError(t, w.pmls[1].Spoiled(c[1]), 0, Refused)
		requireSpoiledError(t, w.pmls[2].Enter(c[2]), 0, Refused)
		// What is begun later.
		requireSpoiled(t, w.pmls[2].Irecv(c[2], make([]byte, 10), 1, 1, 0, "later"), 0, Refused)
		late := w.pmls[2].Isend(c[2], pattern(1000, 1), 0, 0, Standard, "later")
		w.settle()
		require.Equal(t, request.Complete, late.State())
		late.Abandon()

		// The next round is another one, also if it had begun.
		require.Equal(t, request.Active, next.State())
		for rank, p := range w.pmls {
			p.Pass(c[rank], 1)
			require.NoError(t, p.Enter(c[rank]))
		}
		w.pmls[0].Isend(c[0], pattern(10, 3), 1, 1, Standard, "send").Abandon()
		w.settle()
		_, err := next.Take()
		require.NoError(t, err)
		requireClean(t, w)
	}
}

// TestSpoilIsPassedOn: who gives up because another rank did tells of that one, and tells each
// rank once.
func TestSpoilIsPassedOn(t *testing.T) {
	w, c, _ := newRounds(t, 4, nil)
	w.pmls[2].Spoil(c[2], Failed)
	w.pmls[2].Spoil(c[2], Failed)
	require.Len(t, w.flying, 3)
	w.flying = w.flying[1:2] // it dies before the others hear of it
	w.settle()
	w.pmls[1].Spoil(c[1], Lengths)
	w.pmls[1].Spoil(c[1], Lengths)
	require.Len(t, w.flying, 3)
	w.settle()
	for _, rank := range []int{0, 1, 3} {
		requireSpoiledError(t, w.pmls[rank].Spoiled(c[rank]), 2, Failed)
	}
}

// TestSpoilKeepsItsPlace: it does not overtake what was sent before, is kept for a communicator that is still
// being made, and for a round that is still to come.
func TestSpoilKeepsItsPlace(t *testing.T) {
	w, c, _ := newRounds(t, 2, nil)
	w.refuse = 2 // the message waits for room
	w.pmls[0].Isend(c[0], pattern(50, 1), 1, 0, Standard, "send").Abandon()
	w.pmls[0].Spoil(c[0], Failed)
	other := w.pmls[0].AddCollectiveContext(3, c[0].group, 0, testCaller{}, &testCollective{})
	for tag := range 3 {
		w.pmls[0].Pass(other, tag)
	}
	w.pmls[0].Spoil(other, Refused)
	r := w.pmls[1].Irecv(c[1], make([]byte, 50), 1, 0, 0, "recv")
	for len(w.flying) > 0 || anyBlocked(w) {
		w.pmls[0].Progress()
		if last := len(w.flying) - 1; last >= 0 {
			w.step(last) // the other way round
		}
	}
	_, err := r.Take()
	require.NoError(t, err)
	requireSpoiledError(t, w.pmls[1].Spoiled(c[1]), 0, Failed)

	mine := w.pmls[1].AddCollectiveContext(3, c[1].group, 1, testCaller{}, &testCollective{})
	for tag := range 2 {
		w.pmls[1].Pass(mine, tag)
		require.NoError(t, w.pmls[1].Enter(mine))
	}
	w.pmls[1].Pass(mine, 2)
	requireSpoiledError(t, w.pmls[1].Enter(mine), 0, Refused)
	requireClean(t, w)
}

// TestStreamingOutlivesSpoil: a receive whose message is arriving ends with that.
func TestStreamingOutlivesSpoil(t *testing.T) {
	for _, protocol := range []Protocol{Copy, Get, Put} {
		w, c, _ := newRounds(t, 3, func(w *wire) {
			withRemote(btl.CapGet | btl.CapPut)(w)
			w.config.Protocol = protocol
			w.async = true
		})
		out := make([]byte, 1000)
		r := w.pmls[1].Irecv(c[1], out, 1, 0, 0, "recv")
		w.pmls[0].Isend(c[0], pattern(1000, 5), 1, 0, Standard, "send").Abandon()
		w.step(0)
		require.NotEqual(t, recvPosted, r.state)
		w.pmls[1].Spoil(c[1], Failed)
		require.Equal(t, request.Active, r.State(), "%v", protocol)
		w.settle()
		_, err := r.Take()
		require.NoError(t, err)
		require.Equal(t, pattern(1000, 5), out)
		requireClean(t, w)
	}
}

// TestSpoilOfWhatIsOver: a rank that has finished a round does not mind that it is given up.
func TestSpoilOfWhatIsOver(t *testing.T) {
	w, c, calls := newRounds(t, 2, nil)
	w.pmls[1].Pass(c[1], 1)
	w.pmls[0].Spoil(c[0], Failed)
	w.settle()
	require.NoError(t, w.pmls[1].Enter(c[1]))
	require.Zero(t, calls[1].givenUp)
	require.Empty(t, c[1].rounds.dead)
}

// TestUnwanted: messages for a round that is over are discarded, those that have come and those that
// come, and who sends them hears of it before it is answered.
func TestUnwanted(t *testing.T) {
	for _, before := range []bool{true, false} {
		for _, size := range []int{10, 1000} {
			w, c, calls := newRounds(t, 2, nil)
			s := w.pmls[0].Isend(c[0], pattern(size, 1), 1, 0, Standard, "send")
			if before {
				w.step(0)
			}
			w.pmls[1].Pass(c[1], 1)
			if !before {
				w.step(0)
			}
			w.step(0)
			requireSpoiledError(t, w.pmls[0].Spoiled(c[0]), 1, Unwanted)
			require.Equal(t, 1, calls[0].givenUp)
			require.Equal(t, size > 100, s.State() == request.Active)
			w.settle()
			_, err := s.Take()
			require.NoError(t, err)
			requireClean(t, w)

			w.pmls[0].Spoil(c[0], Failed)
			require.Len(t, w.flying, 1, "it is told on")
			w.pmls[0].Pass(c[0], 1)
			w.settle()
			require.NoError(t, w.pmls[1].Enter(c[1]))
		}
	}
}

// sleepy is what the engine does with a rank that has nothing to do.
func sleepy(p *PML) {
	p.Arm()
	p.Progress()
}

// TestAsk: ranks that wait for each other in calls that do not belong together.
func TestAsk(t *testing.T) {
	broadcast := Signature{Call: 1, Root: 0, Bytes: 10}
	for name, f := range map[string]struct {
		other Signature
		why   Why
	}{
		"another root": {Signature{Call: 1, Root: 1, Bytes: 10}, Differs},
		"other length": {Signature{Call: 1, Root: 0, Bytes: 20}, Lengths},
		"another call": {Signature{Call: 2, Root: 0, Bytes: 10}, Differs},
		"another kind": {Signature{Call: 1, Root: 0, Bytes: 10, Kind: 3}, Lengths},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", name, late), func(t *testing.T) {
				w, c, calls := newRounds(t, 3, nil)
				calls[0].sign, calls[1].sign, calls[2].sign = f.other, broadcast, broadcast
				calls[0].in = !late
				r := w.pmls[1].Irecv(c[1], make([]byte, 10), 1, 0, 0, "recv")
				w.pmls[1].Isend(c[1], pattern(1000, 1), 0, 0, Standard, "send")
				third := w.pmls[2].Irecv(c[2], make([]byte, 10), 1, 1, 0, "recv")
				w.settle()
				sleepy(w.pmls[1])
				sleepy(w.pmls[2])
				require.Empty(t, w.flying, "it may just be late")
				sleepy(w.pmls[1])
				sleepy(w.pmls[2])
				require.Len(t, w.flying, 2, "each that is waited for is asked")
				w.settle()
				sleepy(w.pmls[1])
				sleepy(w.pmls[2])
				require.Empty(t, w.flying, "once")
				if late {
					require.Equal(t, request.Active, r.State())
					calls[0].in = true
				}
				requireSpoiledError(t, w.pmls[0].Enter(c[0]), 1, f.why)
				w.settle()
				requireSpoiled(t, r, 0, f.why)
				requireSpoiled(t, third, 0, f.why)
				requireClean(t, w)
			})
		}
	}
}

// TestAskOfTheSame: who is merely late is waited for, and nobody is told of anything.
func TestAskOfTheSame(t *testing.T) {
	w, c, calls := newRounds(t, 2, nil)
	calls[0].in = false
	r := w.pmls[1].Irecv(c[1], make([]byte, 10), 1, 0, 0, "recv")
	for range 3 {
		sleepy(w.pmls[1])
	}
	w.settle()
	require.Len(t, c[0].rounds.asks, 1)
	calls[0].in = true
	require.NoError(t, w.pmls[0].Enter(c[0]))
	require.Empty(t, c[0].rounds.asks)
	w.pmls[0].Isend(c[0], pattern(10, 1), 1, 0, Standard, "send").Abandon()
	w.settle()
	_, err := r.Take()
	require.NoError(t, err)
	w.pmls[1].Pass(c[1], 1)
	require.Empty(t, c[1].rounds.asked)
	requireClean(t, w)
}

// TestAskOfWhatIsOver: a rank that has finished the round says so. That matters to who still
// waits for a message of it, and not to who has got it meanwhile.
func TestAskOfWhatIsOver(t *testing.T) {
	for _, sends := range []bool{false, true} {
		for _, removed := range []bool{false, true} {
			w, c, _ := newRounds(t, 2, nil)
			r := w.pmls[1].Irecv(c[1], make([]byte, 10), 1, 0, 0, "recv")
			sleepy(w.pmls[1])
			sleepy(w.pmls[1])
			if sends {
				w.pmls[0].Isend(c[0], pattern(10, 1), 1, 0, Standard, "send").Abandon()
			}
			w.pmls[0].Pass(c[0], 1)
			if removed {
				w.pmls[0].RemoveContext(c[0])
			}
			w.settle()
			if sends {
				_, err := r.Take()
				require.NoError(t, err)
				require.NoError(t, w.pmls[1].Spoiled(c[1]))
				require.Empty(t, c[1].rounds.asked, "it may be asked for more")
			} else {
				why := Over
				if removed {
					why = Freed
				}
				requireSpoiled(t, r, 0, why)
			}
			requireClean(t, w)
		}
	}
}

// TestAskIsAnsweredAtTheEnd: a rank that has kept the question of another one answers when it frees
// the communicator or begins to finalize, and so does one that is asked after that.
func TestAskIsAnsweredAtTheEnd(t *testing.T) {
	for name, end := range map[string]struct {
		why  Why
		told Why // by the rank that asked, to the others
		end  func(p *PML, c *Context)
	}{
		"freed":     {Freed, Unfit, func(p *PML, c *Context) { p.RemoveContext(c) }},
		"finalized": {Finalized, Lost, func(p *PML, c *Context) { p.Leave(request.ErrProcFailed) }},
	} {
		for _, sends := range []bool{false, true} {
			for _, before := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s sends=%v before=%v", name, sends, before), func(t *testing.T) {
					w, c, calls := newRounds(t, 3, nil)
					calls[2].in = false
					var waits ended
					if sends && end.why == Finalized {
						waits = w.pmls[1].Isend(c[1], pattern(1000, 1), 2, 0, Standard, "send")
					} else {
						waits = w.pmls[1].Irecv(c[1], make([]byte, 10), 1, 2, 0, "recv")
					}
					w.settle()
					if !before {
						end.end(w.pmls[2], c[2])
					}
					sleepy(w.pmls[1])
					sleepy(w.pmls[1])
					w.settle()
					if before {
						require.Len(t, c[2].rounds.asks, 1)
						require.Equal(t, request.Active, waits.State())
						end.end(w.pmls[2], c[2])
						require.Empty(t, c[2].rounds.asks)
						w.settle()
					}
					requireSpoiledError(t, w.pmls[1].Spoiled(c[1]), 2, end.why)
					require.Equal(t, 1, calls[1].givenUp)
					w.pmls[1].Spoil(c[1], Failed)
					w.settle()
					rank := 2
					if end.told == Lost {
						rank = 1
					}
					requireSpoiledError(t, w.pmls[0].Spoiled(c[0]), rank, end.told)
					if r, ok := waits.(*RecvRequest); ok {
						requireSpoiled(t, r, 2, end.why)
					}
				})
			}
		}
	}
}

// TestAskOfRemovedContext: a context may be removed and still be there because receives are posted
// in it. No round begins there any more.
func TestAskOfRemovedContext(t *testing.T) {
	w, c, calls := newRounds(t, 2, nil)
	calls[0].in = false
	kept := w.pmls[0].Irecv(c[0], make([]byte, 10), 1, 1, 7, "recv")
	w.pmls[0].RemoveContext(c[0])
	require.NotNil(t, w.pmls[0].contexts[roundsContext])
	r := w.pmls[1].Irecv(c[1], make([]byte, 10), 1, 0, 0, "recv")
	sleepy(w.pmls[1])
	sleepy(w.pmls[1])
	w.settle()
	requireSpoiled(t, r, 0, Freed)
	kept.Cancel()
	require.Nil(t, w.pmls[0].contexts[roundsContext])
	requireClean(t, w)
}

// TestSpoilAfterTheContext: one for a communicator that is gone changes nothing.
func TestSpoilAfterTheContext(t *testing.T) {
	w, c, _ := newRounds(t, 2, nil)
	w.pmls[1].RemoveContext(c[1])
	w.pmls[0].Spoil(c[0], Failed)
	w.settle()
	requireClean(t, w)
}

// TestSpoilWithoutAPeer: a rank that is gone need not be told.
func TestSpoilWithoutAPeer(t *testing.T) {
	w, c, _ := newRounds(t, 3, nil)
	w.modules[0].lose(1, gone)
	w.pmls[0].Spoil(c[0], Lost)
	w.settle()
	require.Zero(t, w.pmls[0].Busy())
	requireSpoiledError(t, w.pmls[2].Spoiled(c[2]), 0, Lost)
}

// TestManyDeadRounds: a rank that is far behind remembers a bounded number of dead rounds, and
// forgets none.
func TestManyDeadRounds(t *testing.T) {
	w, c, _ := newRounds(t, 2, nil)
	const rounds = 3 * maxDead
	for tag := range rounds {
		if tag%2 == 1 {
			w.pmls[0].Spoil(c[0], Refused)
		}
		w.pmls[0].Pass(c[0], tag+1)
	}
	w.settle()
	require.LessOrEqual(t, len(c[1].rounds.dead), maxDead)
	for tag := range rounds {
		if tag%2 == 1 {
			requireSpoiledError(t, w.pmls[1].Enter(c[1]), 0, Refused)
		}
		if w.pmls[1].Spoiled(c[1]) != nil {
			w.pmls[1].Spoil(c[1], Failed)
		}
		w.pmls[1].Pass(c[1], tag+1)
	}
	require.NoError(t, w.pmls[1].Enter(c[1]))
	require.Empty(t, c[1].rounds.dead)
	w.settle()
	requireClean(t, w)
}

// TestTagsWrapAround: the tag after the last one is 0, and what is behind and ahead stays so.
func TestTagsWrapAround(t *testing.T) {
	w, c, _ := newRounds(t, 2, nil)
	for rank, p := range w.pmls {
		p.Pass(c[rank], CollectiveTags-2)
	}
	for i := range 6 {
		tag := (CollectiveTags - 2 + i) % CollectiveTags
		p := w.pmls[0]
		require.Zero(t, c[0].rounds.ahead(tag))
		p.Isend(c[0], pattern(10, i), 1, tag, Standard, "send").Abandon()
		if i == 3 {
			p.Spoil(c[0], Failed)
		}
		p.Pass(c[0], (tag+1)%CollectiveTags)
	}
	w.settle()
	require.Len(t, w.pmls[1].Unreceived(), 5, "but that of the one given up")
	for i := range 6 {
		tag := (CollectiveTags - 2 + i) % CollectiveTags
		p := w.pmls[1]
		if i == 3 {
			requireSpoiledError(t, p.Enter(c[1]), 0, Failed)
		} else {
			require.NoError(t, p.Enter(c[1]))
			_, err := p.Irecv(c[1], make([]byte, 10), 1, 0, tag, "recv").Take()
			require.NoError(t, err)
		}
		p.Pass(c[1], (tag+1)%CollectiveTags)
	}
	requireClean(t, w)
}

// TestIdleWithoutSleep: a rank that never sleeps asks too.
func TestIdleWithoutSleep(t *testing.T) {
	w, c, _ := newRounds(t, 2, nil)
	w.pmls[1].Irecv(c[1], make([]byte, 10), 1, 0, 0, "recv")
	for range 3 * patienceTurns {
		w.pmls[1].Progress()
	}
	require.Len(t, w.flying, 1)
}

func spoilOf(h matchHdr, s spoilHdr) []byte {
	b := append(matchOf(h), make([]byte, spoilBytes-matchBytes)...)
	s.encode(b[matchBytes:])
	return b
}

func askOf(h matchHdr, s Signature) []byte {
	b := append(matchOf(h), make([]byte, askBytes-matchBytes)...)
	(&signHdr{s}).encode(b[matchBytes:])
	return b
}

// TestForgedSpoil: what cannot be right ends the peer, and not a round.
func TestForgedSpoil(t *testing.T) {
	in := matchHdr{context: roundsContext}
	good := spoilOf(in, spoilHdr{why: Failed})
	padded := append([]byte(nil), good...)
	padded[len(padded)-1] = 1
	for name, f := range map[string]struct {
		from int
		tag  btl.Tag
		frag []byte
		want error
	}{
		"a stranger's":          {2, tagSpoil, good, errNotMember},
		"a stranger's ask":      {2, tagAsk, askOf(in, Signature{}), errNotMember},
		"no collectives":        {1, tagSpoil, spoilOf(matchHdr{}, spoilHdr{why: Failed}), errNoCollectives},
		"no collectives, ask":   {1, tagAsk, askOf(matchHdr{}, Signature{}), errNoCollectives},
		"short":                 {1, tagSpoil, good[:spoilBytes-1], errMalformed},
		"long":                  {1, tagSpoil, append(good[:spoilBytes:spoilBytes], 0), errMalformed},
		"no header":             {1, tagSpoil, good[:3], errMalformed},
		"padding":               {1, tagSpoil, padded, errMalformed},
		"no reason":             {1, tagSpoil, spoilOf(in, spoilHdr{}), errMalformed},
		"unknown reason":        {1, tagSpoil, spoilOf(in, spoilHdr{why: Revoked + 1}), errMalformed},
		"given up by nobody":    {1, tagSpoil, spoilOf(in, spoilHdr{rank: 2, why: Failed}), errMalformed},
		"negative rank":         {1, tagSpoil, spoilOf(in, spoilHdr{rank: -1, why: Failed}), errMalformed},
		"tag too high":          {1, tagSpoil, spoilOf(matchHdr{context: roundsContext, tag: CollectiveTags}, spoilHdr{why: Failed}), errMalformed},
		"negative tag":          {1, tagSpoil, spoilOf(matchHdr{context: roundsContext, tag: -1}, spoilHdr{why: Failed}), errMalformed},
		"tag of ask":            {1, tagAsk, askOf(matchHdr{context: roundsContext, tag: CollectiveTags}, Signature{}), errMalformed},
		"short ask":             {1, tagAsk, askOf(in, Signature{})[:askBytes-1], errMalformed},
		"message, tag too high": {1, tagMatch, matchOf(matchHdr{context: roundsContext, tag: CollectiveTags}), errMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newWire(t, 3, nil)
			p := w.pmls[0]
			call := &testCollective{in: true}
			pair := p.AddCollectiveContext(roundsContext, NewGroup([]int{0, 1}), 0, testCaller{}, call)
			p.Arrived(w.modules[0], f.from, f.tag, f.frag)
			require.ErrorIs(t, p.Lost(c[0], f.from), f.want)
			require.NoError(t, p.Spoiled(pair))
			require.Zero(t, call.givenUp)
			require.Empty(t, pair.rounds.asks)
			require.Zero(t, p.Stats().UnexpectedBytes)
		})
	}
}

// FuzzRounds feeds whatever a peer could send about collectives to a rank that is in one, and has receives
// posted for it and for the next one, one of which is streaming. It must not panic or write outside of the
// buffers, and what it remembers is bounded.
func FuzzRounds(f *testing.F) {
	w, c, _ := newRounds(f, 2, nil)
	w.pmls[0].Irecv(c[0], make([]byte, 10), 1, 1, 0, "recv")
	sleepy(w.pmls[0])
	sleepy(w.pmls[0])
	w.pmls[0].Spoil(c[0], Refused)
	w.pmls[0].Pass(c[0], 1)
	w.pmls[0].Spoil(c[0], Lengths)
	w.pmls[0].Isend(c[0], pattern(10, 1), 1, 0, Standard, "send")
	w.pmls[0].Isend(c[0], pattern(1000, 1), 1, 1, Standard, "send")
	for _, fl := range w.flying {
		f.Add(uint8(fl.tag), fl.frag, uint8(tagAsk), fl.frag)
	}
	f.Add(uint8(tagFinalized), matchOf(matchHdr{tag: saysNotReceiving}), uint8(tagMatch), matchOf(matchHdr{context: roundsContext, seq: 1}))
	for why := range Revoked + 1 {
		f.Add(uint8(tagSpoil), spoilOf(matchHdr{context: roundsContext}, spoilHdr{rank: 1, why: why}), uint8(tagMatch), matchOf(matchHdr{context: roundsContext}))
	}
	f.Fuzz(func(t *testing.T, tag1 uint8, frag1 []byte, tag2 uint8, frag2 []byte) {
		w, c, _ := newRounds(t, 2, nil)
		p := w.pmls[0]
		guarded := make([]byte, 3000)
		p.Irecv(c[0], guarded[1000:2000:2000], 1, 1, 0, "recv")
		w.pmls[1].Isend(c[1], pattern(1000, 0), 0, 0, Standard, "send")
		w.step(0)
		p.Irecv(c[0], make([]byte, 8), 1, 1, 0, "recv")
		p.Irecv(c[0], make([]byte, 8), 1, 1, 1, "recv")
		p.Isend(c[0], pattern(1000, 0), 1, 0, Standard, "send")
		for range 2 {
			p.Arrived(nil, 1, btl.Tag(tag1), frag1)
			p.Arrived(nil, 1, btl.Tag(tag2), frag2)
			sleepy(p)
			_ = p.Enter(c[0])
		}
		require.LessOrEqual(t, len(c[0].rounds.asks), 1)
		p.Pass(c[0], 1)
		require.LessOrEqual(t, len(c[0].rounds.dead), 2)
		for i, b := range guarded {
			if (i < 1000 || i >= 2000) && b != 0 {
				t.Fatalf("byte %d outside the buffer was written", i)
			}
		}
	})
}
