package pml

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/request"
)

// makeProposed has all ranks make a communicator in a collective, with the proposal of rank 0.
func makeProposed(t require.TestingT, w *wire, g *Group) []*Context {
	makings := make([]*Making, len(w.pmls))
	for rank, p := range w.pmls {
		makings[rank] = p.Propose(g)
	}
	made := make([]*Context, len(w.pmls))
	for rank, p := range w.pmls {
		require.NoError(t, makings[rank].Take(makings[0].Proposal, 0))
		made[rank] = p.AddContext(makings[0].ID, g, rank, testCaller{})
		makings[rank].End()
	}
	return made
}

// TestManyContextsLeaveNoState adds and removes 100,000 contexts of either kind.
func TestManyContextsLeaveNoState(t *testing.T) {
	w, c := newWire(t, 1)
	p := w.pmls[0]
	seen := map[ContextID]bool{}
	add := func(id ContextID) {
		require.False(t, seen[id])
		seen[id] = true
		require.True(t, p.isToCome(id))
		ctx := p.AddContext(id, c[0].group, 0, testCaller{})
		require.False(t, p.IsFreed(id))
		p.RemoveContext(ctx)
		require.True(t, p.IsFreed(id))
	}
	for range 100_000 {
		add(p.NewContextID())
		m := p.Propose(c[0].group)
		require.NoError(t, m.Take(m.Proposal, 0))
		add(m.ID)
		m.End()
	}
	require.Len(t, p.contexts, 1)
	require.LessOrEqual(t, len(p.ids.due), 1)
	require.Empty(t, p.ids.makings)
	require.Len(t, p.ids.learned[0].spans, 1)
	for id := range seen {
		require.True(t, p.IsFreed(id))
	}
}

// TestContextIDsAreNeverReused: the counters use all bits that the rank leaves free. Then there are
// no more ids.
func TestContextIDsAreNeverReused(t *testing.T) {
	for _, f := range []struct {
		size, rank                int
		first, last               ContextID
		firstProposed, lastPropos ContextID
	}{
		{1, 0, 4, 1<<47 - 2, 1<<47 | 2, 1<<48 - 2},
		{2, 0, 4, 1<<46 - 2, 1<<46 | 2, 1<<47 - 2},
		{2, 1, 1<<47 | 4, 1<<47 | 1<<46 - 2, 1<<47 | 1<<46 | 2, 1<<48 - 2},
		{3, 2, 2<<46 | 4, 2<<46 | 1<<45 - 2, 2<<46 | 1<<45 | 2, 3<<46 - 2},
		{1024, 1023, 1023<<38 | 4, 1023<<38 | 1<<37 - 2, 1023<<38 | 1<<37 | 2, 1<<48 - 2},
		{1025, 1024, 1024<<37 | 4, 1024<<37 | 1<<36 - 2, 1024<<37 | 1<<36 | 2, 1025<<37 - 2},
	} {
		p := New(Config{Rank: f.rank, Size: f.size})
		all := make([]int, f.size)
		for r := range all {
			all[r] = r
		}
		g := NewGroup(all)
		require.Equal(t, f.first, p.NewContextID(), "rank %d of %d", f.rank, f.size)
		require.Equal(t, f.firstProposed, p.Propose(g).ID, "rank %d of %d", f.rank, f.size)
		p.ids.announced, p.ids.proposed = p.ids.maxCounter()-1, p.ids.maxCounter()-1
		require.Equal(t, f.last, p.NewContextID(), "rank %d of %d", f.rank, f.size)
		require.NoError(t, p.CheckNewContext(f.last, f.rank))
		m := p.Propose(g)
		require.Equal(t, f.lastPropos, m.ID, "rank %d of %d", f.rank, f.size)
		require.Equal(t, f.firstProposed, m.Floor, "rank %d of %d", f.rank, f.size)
		require.NoError(t, m.Take(m.Proposal, f.rank))
		for range 2 {
			require.Equal(t, NoContext, p.NewContextID(), "rank %d of %d", f.rank, f.size)
			require.Equal(t, NoContext, p.Propose(g).ID, "rank %d of %d", f.rank, f.size)
		}
	}
	require.EqualError(t, New(Config{Size: 2}).CheckNewContext(NoContext, 1), "context ids exhausted: rank 1 has none left")
}

// TestForeignAndUsedContextIDsAreRefused: the maker of a communicator's id must have made the id,
// and no communicator of this rank may have used it.
func TestForeignAndUsedContextIDsAreRefused(t *testing.T) {
	w, c := newWire(t, 3)
	p, other, g := w.pmls[0], w.pmls[1], c[0].group
	id := other.NewContextID()
	used := other.NewContextID()
	p.AddContext(used, g, 0, testCaller{})
	twin := other.NewContextID()
	p.AddContext(twin.Collective(), g, 0, testCaller{})
	freed := other.NewContextID()
	p.RemoveContext(p.AddContext(freed, g, 0, testCaller{}))
	next := other.NewContextID()
	proposed := makeProposed(t, w, g)[0]
	p.RemoveContext(proposed)
	for _, bad := range []struct {
		id    ContextID
		maker int
		why   string
	}{
		{next, 2, "0x40000000000c: not of rank 2"},
		{next | 1<<48, 1, "0x140000000000c: not of rank 1"},
		{next.Collective(), 1, "0x40000000000d of rank 1: for collectives"},
		{WorldContext, 0, "0x0 of rank 0: in use"},
		{used, 1, "0x400000000006 of rank 1: in use"},
		{twin, 1, "0x400000000008 of rank 1: in use"},
		{freed, 1, "0x40000000000a of rank 1: used before"},
		{id, 1, "0x400000000004 of rank 1: used before"}, // a higher one was announced
		{proposed.id, 0, "0x200000000002 of rank 0: used before"},
	} {
		require.EqualError(t, p.Announced(bad.id, bad.maker), "invalid context id "+bad.why)
	}
	require.NoError(t, p.Announced(next, 1))
	require.Error(t, p.Announced(next, 1))

	m := p.Propose(g)
	theirs := other.Propose(g).Proposal
	for _, bad := range []struct {
		of    Proposal
		maker int
		why   string
	}{
		{theirs, 2, "0x600000000004: not of rank 2"},
		{Proposal{theirs.ID.Collective(), theirs.Floor}, 1, "0x600000000005 of rank 1: for collectives"},
		{Proposal{other.NewContextID(), theirs.Floor}, 1, "0x40000000000e of rank 1: used before"},
		{Proposal{proposed.id, proposed.id}, 0, "0x200000000002 of rank 0: used before"},
		{Proposal{theirs.ID, theirs.ID + 2}, 1, "0x600000000004 of rank 1: with floor 0x600000000006"},
		{Proposal{theirs.ID, theirs.ID.Collective()}, 1, "0x600000000004 of rank 1: with floor 0x600000000005"},
		{Proposal{theirs.ID, next}, 1, "0x600000000004 of rank 1: with floor 0x40000000000c"},
		{Proposal{theirs.ID, m.ID}, 1, "0x600000000004 of rank 1: with floor 0x200000000004"},
	} {
		require.EqualError(t, m.Take(bad.of, bad.maker), "invalid context id "+bad.why)
	}
	require.NoError(t, m.Take(theirs, 1))
}

// TestMessageToContextFreedLongAgoIsRejected: the rank has had thousands of communicators since
// then, and is in a collective that makes another one, which the sender has not called.
func TestMessageToContextFreedLongAgoIsRejected(t *testing.T) {
	for _, others := range []int{0, 1, 3000} {
		for _, inCollective := range []string{"no", "before", "after"} {
			w, c := newWire(t, 2)
			a, b := w.pmls[0], w.pmls[1]
			id := a.NewContextID()
			announced := a.AddContext(id, c[0].group, 0, testCaller{})
			require.NoError(t, b.Announced(id, 0))
			b.RemoveContext(b.AddContext(id, c[1].group, 1, testCaller{}))
			if inCollective == "before" {
				b.Propose(c[1].group)
			}
			made := makeProposed(t, w, c[0].group)
			b.RemoveContext(made[1])
			for range others {
				for rank, d := range makeProposed(t, w, c[0].group) {
					w.pmls[rank].RemoveContext(d)
				}
				next := a.NewContextID()
				a.RemoveContext(a.AddContext(next, c[0].group, 0, testCaller{}))
				require.NoError(t, b.Announced(next, 0))
				b.RemoveContext(b.AddContext(next, c[1].group, 1, testCaller{}))
			}
			if inCollective == "after" {
				b.Propose(c[1].group)
			}
			for _, ctx := range []*Context{announced, made[0]} {
				s := a.Isend(ctx, pattern(10, 1), 1, 1, Synchronous, "ssend")
				a.SendControl(1, ctx.id.Collective(), ControlMismatchProbe, 0, nil)
				w.settle()
				requireFailure(t, request.ErrComm, s)
				require.Empty(t, b.earlyContext)
			}
		}
	}
}

// TestMessageToContextThatIsToComeIsKept: its id is announced, or proposed in a collective under
// way at the receiver, even if a later collective is already over.
func TestMessageToContextThatIsToComeIsKept(t *testing.T) {
	w, c := newWire(t, 2)
	a, b, g := w.pmls[0], w.pmls[1], c[0].group
	early := func(id ContextID) (make func()) {
		ctx := a.AddContext(id, g, 0, testCaller{})
		a.Isend(ctx, pattern(10, 1), 1, 1, Standard, "send").Abandon()
		w.settle()
		return func() { requireArrival(t, w, b.AddContext(id, g, 1, testCaller{}), 1, pattern(10, 1)) }
	}
	// The rank has not heard of it.
	early(a.NewContextID())()
	// It has heard of it, and of a later one.
	first, second := a.NewContextID(), a.NewContextID()
	require.NoError(t, b.Announced(first, 0))
	require.NoError(t, b.Announced(second, 0))
	makeSecond, makeFirst := early(second), early(first)
	makeSecond()
	makeFirst()
	// Two collectives are under way, and the later one ends first.
	m, n := a.Propose(g), a.Propose(g)
	x, y := b.Propose(g), b.Propose(g)
	require.NoError(t, y.Take(n.Proposal, 0))
	early(n.ID)()
	y.End()
	n.End()
	makeM := early(m.ID)
	require.NoError(t, x.Take(m.Proposal, 0))
	makeM()
	x.End()
	m.End()
	require.Len(t, b.ids.learned[0].spans, 1)
	// The rank calls the first of two collectives when the second one is over.
	m, n, y = a.Propose(g), a.Propose(g), b.Propose(g)
	require.NoError(t, y.Take(n.Proposal, 0))
	early(n.ID)()
	y.End()
	n.End()
	x = b.Propose(g)
	makeM = early(m.ID)
	require.NoError(t, x.Take(m.Proposal, 0))
	makeM()
	x.End()
	m.End()
	require.Empty(t, b.earlyContext)
	require.Zero(t, b.Stats().UnexpectedBytes)
}

// TestMessageToContextOfEndedCollectiveIsRejected: the rank has kept the message, and then gives up
// the collective. It keeps a message for a communicator of another collective.
func TestMessageToContextOfEndedCollectiveIsRejected(t *testing.T) {
	w, c := newWire(t, 3)
	a, b, g := w.pmls[0], w.pmls[1], c[0].group
	m, x, other := a.Propose(g), b.Propose(g), b.Propose(NewGroup([]int{1, 2}))
	ctx := a.AddContext(m.ID, g, 0, testCaller{})
	s := a.Isend(ctx, pattern(10, 1), 1, 1, Synchronous, "ssend")
	w.settle()
	require.Equal(t, request.Active, s.State())
	x.End()
	w.settle()
	requireFailure(t, request.ErrComm, s)
	require.Empty(t, b.earlyContext)

	third := w.pmls[2].Propose(NewGroup([]int{1, 2}))
	ctx = w.pmls[2].AddContext(third.ID, third.group, 1, testCaller{})
	w.pmls[2].Isend(ctx, pattern(10, 1), 0, 1, Standard, "send").Abandon()
	w.settle()
	require.NotEmpty(t, b.earlyContext)
	b.Propose(g).End()
	require.NotEmpty(t, b.earlyContext, "a collective that is over took the message of another")
	require.NoError(t, other.Take(third.Proposal, 2))
	b.AddContext(third.ID, third.group, 0, testCaller{})
	other.End()
	require.Empty(t, b.earlyContext)
}

// TestLearnedIDsAreAsSet compares learnedIDs with a map.
func TestLearnedIDsAreAsSet(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var l learnedIDs
		learnt := map[uint64]bool{}
		var floor, low uint64
		for range 200 {
			n := rnd.Uint64N(60)
			switch rnd.IntN(10) {
			case 0:
				floor = max(floor, n/2)
				l.raise(n / 2)
			case 1:
				low = min(max(low, n), floor)
				l.trim(low)
			default:
				learnt[n] = true
				l.add(n)
			}
			for learnt[floor] {
				floor++
			}
			require.Equal(t, floor, l.floor)
			for i := low; i < 60; i++ {
				require.Equal(t, learnt[i], l.has(i))
			}
			for i, s := range l.spans {
				require.LessOrEqual(t, s.first, s.last)
				require.True(t, i == 0 || l.spans[i-1].last+1 < s.first)
			}
		}
	}
	var l learnedIDs
	for n := range uint64(3 * maxSpans) {
		l.add(2*n + 2)
	}
	require.Len(t, l.spans, maxSpans)
	require.True(t, l.has(6*maxSpans))
}

// TestIdleVisitsControlledContextsInOrder: after the removal of thousands, there is at most one gap
// for each context that is left.
func TestIdleVisitsControlledContextsInOrder(t *testing.T) {
	w, c := newWire(t, 1)
	p := w.pmls[0]
	var all []*Context
	var handlers []*testHandler
	for range 1000 {
		ctx, h := addControlled(p, p.NewContextID().Collective(), c[0].group, 0)
		all, handlers = append(all, ctx), append(handlers, h)
	}
	for i, ctx := range all {
		if i%10 != 0 {
			p.RemoveContext(ctx)
		}
	}
	last, h := addControlled(p, p.NewContextID().Collective(), c[0].group, 0)
	require.Len(t, p.controlled.list, 101)
	require.Equal(t, last, p.controlled.list[100])
	for i, ctx := range p.controlled.list[:100] {
		require.Equal(t, all[10*i], ctx)
	}
	p.RemoveContext(all[500])
	p.idle()
	require.Equal(t, 1, h.idle)
	for i, h := range handlers {
		require.Equal(t, i%10 == 0 && i != 500, h.idle == 1)
	}
}
