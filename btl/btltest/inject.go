package btltest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/faults"
)

func injectTests() []namedTest {
	return []namedTest{
		{"refuse", injected(testRefuse)},
		{"error-delivered", injected(testErrorDelivered)},
		{"error-lost", injected(testErrorLost)},
		{"silence", injected(testSilence)},
		{"late", injected(testLate)},
		{"late-then-failure", injected(testLateThenFailure)},
		{"stale", injected(testStale)},
		{"wrong", injected(testWrong)},
		{"inline", injected(testInjectInline)},
		{"remote", injected(testInjectRemote)},
		{"peer", injected(testInjectPeer)},
		{"random", func(t *testing.T, mk Maker) { seeded(testRandomFaults)(t, faulty(mk)) }},
	}
}

// injected does what directed does, for modules that package faults decorates.
func injected(run func(h *harness, from, to *side, in btl.Injector)) func(*testing.T, Maker) {
	test := directed(func(h *harness, from, to *side) {
		h.connect()
		h.warmUp()
		run(h, from, to, from.m.(btl.Injector))
	})
	return func(t *testing.T, mk Maker) { test(t, faulty(mk)) }
}

// faulty makes pairs of modules that package faults decorates.
func faulty(mk Maker) Maker {
	return func(t testing.TB, evA, evB btl.Events) *Pair {
		a, b := faults.NewDecorator(faults.Config{Events: evA}), faults.NewDecorator(faults.Config{Events: evB})
		p := mk(t, a, b)
		p.A, p.B = a.Wrap(p.A), b.Wrap(p.B)
		return p
	}
}

// testRefuse: After and Count say which posts are refused; the others pass.
func testRefuse(h *harness, from, to *side, in btl.Injector) {
	in.Inject(btl.Fault{Kind: btl.FaultRefuse, Peer: from.peer, After: 2, Count: 3})
	for i, want := range []error{nil, nil, btl.ErrResource, btl.ErrResource, btl.ErrResource, nil, nil} {
		require.Equal(h.t, want, from.send(from.newSend(8, 50)), "post %d", i)
		h.settle() // so that there is room
	}
	require.Equal(h.t, 3, in.Fired())
	h.settle()
	require.Equal(h.t, 4, h.arrived(from))
}

// injectedError checks the error of an operation that a fault struck.
func (h *harness) injectedError(tr *tracked) {
	h.t.Helper()
	err := h.result(tr)
	require.ErrorIs(h.t, err, btl.ErrInjected)
	require.NotEqual(h.t, btl.ClassFlushed, AsError(h.t, err).Class, "the operation that was struck is the evidence")
}

func testErrorDelivered(h *harness, from, to *side, in btl.Injector) {
	h.failsAtSecond(btl.FaultErrorDelivered, from, in)
	require.Equal(h.t, 1, from.failures)
	h.until("the fragment, which the peer gets all the same", func() bool { return h.arrived(from) == 2 })
	h.recover(to)
	h.mustSend(from, 8, 50)
}

func testErrorLost(h *harness, from, to *side, in btl.Injector) {
	h.failsAtSecond(btl.FaultErrorLost, from, in)
	h.recover(to)
	h.mustSend(from, 8, 50)
	h.settle()
	require.Equal(h.t, 2, h.arrived(from), "the fragment that was lost has arrived")
}

// failsAtSecond sends two fragments, and expects that a fault strikes the second.
func (h *harness) failsAtSecond(kind btl.FaultKind, from *side, in btl.Injector) {
	h.t.Helper()
	in.Inject(btl.Fault{Kind: kind, Peer: from.peer, After: 1})
	require.NoError(h.t, h.result(h.mustSend(from, 8, 50)))
	h.injectedError(h.mustSend(from, 8, 50))
	require.Equal(h.t, 1, in.Fired())
	h.untilDrained(from)
}

// testSilence: nothing happens to the operation, until the endpoint fails.
func testSilence(h *harness, from, to *side, in btl.Injector) {
	in.Inject(btl.Fault{Kind: btl.FaultSilence, Peer: from.peer})
	tr := h.mustSend(from, 8, 50)
	require.Equal(h.t, 1, in.Fired())
	h.turns(300)
	require.False(h.t, h.ended(tr), "it has ended")
	require.Zero(h.t, h.arrived(from), "it has arrived")
	require.Equal(h.t, btl.Up, from.state())
	from.fail(errTest)
	require.Error(h.t, h.result(tr))
	h.untilDrained(from)
	h.recover(to)
	h.mustSend(from, 8, 50)
	h.settle()
	require.Equal(h.t, 1, h.arrived(from))
}

// testLate: the operation is delivered, and completes only after Count progress calls.
func testLate(h *harness, from, to *side, in btl.Injector) {
	const turns = 40
	in.Inject(btl.Fault{Kind: btl.FaultLate, Peer: from.peer, Count: turns})
	tr := h.mustSend(from, 8, 50)
	require.Equal(h.t, 1, in.Fired())
	for i := range turns {
		require.False(h.t, h.ended(tr), "it has ended after %d turns", i)
		h.turn()
	}
	require.NoError(h.t, h.result(tr))
	h.until("the fragment", func() bool { return h.arrived(from) == 1 })
	// The fault does not delay later operations.
	h.mustSend(from, 8, 50)
}

// testLateThenFailure: the endpoint fails before the late completion. The operation is called back
// once.
func testLateThenFailure(h *harness, from, to *side, in btl.Injector) {
	const turns = 2000
	in.Inject(btl.Fault{Kind: btl.FaultLate, Peer: from.peer, Count: turns})
	tr := h.mustSend(from, 8, 50)
	h.until("the fragment", func() bool { return h.arrived(from) == 1 })
	from.fail(errTest)
	require.Error(h.t, h.result(tr))
	for range turns + 10 { // the late completion would come now
		from.progress()
	}
	h.check()
	h.recover(to)
	h.mustSend(from, 8, 50)
}

// testStale: a fragment of an old epoch that arrives is dropped (C5).
func testStale(h *harness, from, to *side, in btl.Injector) {
	in.Inject(btl.Fault{Kind: btl.FaultStale, Peer: from.peer})
	h.mustSend(from, 8, 50)
	h.settle()
	from.fail(errTest)
	h.recover(to)
	h.mustSend(from, 8, 50)
	h.until("the fault", func() bool { return in.Fired() == 1 })
	for range 20 {
		h.mustSend(from, 8, 50)
		h.settle() // a stale fragment would appear as one that arrives twice
	}
	require.Equal(h.t, btl.Up, from.state())
	require.Equal(h.t, btl.Up, to.state())
}

// testWrong: the operation is refused as too long, or ends alone with a usage error, and the
// endpoint stays Up.
func testWrong(h *harness, from, to *side, in btl.Injector) {
	in.Inject(btl.Fault{Kind: btl.FaultWrong, Peer: from.peer, After: 1, Count: 2})
	for i, want := range []error{nil, btl.ErrTooLong, btl.ErrTooLong, nil} {
		require.Equal(h.t, want, from.send(from.newSend(8, 50)), "post %d", i)
		h.settle()
	}
	require.Equal(h.t, 2, in.Fired())
	for i, verb := range h.verbs(from) {
		mine, theirs := h.register(from, 64, forUs, rand.New(rand.NewPCG(1, 1))), h.register(to, 64, forPeers, nil)
		before := append([]byte(nil), mine.mem...)
		in.Inject(btl.Fault{Kind: btl.FaultWrong, Peer: from.peer})
		h.usageError(mine.access(verb, 0, 64, theirs.region.Key(), 0), verb)
		require.Equal(h.t, 3+i, in.Fired())
		require.Equal(h.t, make([]byte, 64), theirs.fetch(), "memory was written")
		require.Equal(h.t, before, mine.mem, "memory was read")
		release(mine, theirs)
	}
	require.Equal(h.t, btl.Up, from.state())
	require.Equal(h.t, 2, h.arrived(from))
}

// testInjectInline: a fault also strikes fragments that are first tried with SendInline.
func testInjectInline(h *harness, from, to *side, in btl.Injector) {
	if h.lacks(from, btl.CapInline) {
		return
	}
	in.Inject(btl.Fault{Kind: btl.FaultErrorLost, Peer: from.peer, After: 1})
	h.until("SendInline", func() bool { return from.inline(0, 8) })
	require.Zero(h.t, in.Fired())
	require.False(h.t, from.inline(0, 8), "a fragment that is to be struck was taken inline")
	h.injectedError(h.mustSend(from, 0, 8))
	require.Equal(h.t, 1, in.Fired())
	h.recover(to)
}

// testInjectRemote: faults strike Put and Get as well.
func testInjectRemote(h *harness, from, to *side, in btl.Injector) {
	for _, verb := range h.verbs(from) {
		mine, theirs := h.register(from, 64, forUs, nil), h.register(to, 64, forPeers, rand.New(rand.NewPCG(1, 1)))
		for _, kind := range []btl.FaultKind{btl.FaultErrorDelivered, btl.FaultErrorLost, btl.FaultSilence, btl.FaultLate} {
			fired := in.Fired()
			theirs.fetch()
			before := append([]byte(nil), theirs.mem...)
			for i := range mine.mem {
				mine.mem[i] = byte(kind) + 1
			}
			in.Inject(btl.Fault{Kind: kind, Peer: btl.AllPeers, Count: 1})
			tr := mine.access(verb, 0, 64, theirs.region.Key(), 0)
			h.postRemote(tr)
			require.Equal(h.t, fired+1, in.Fired(), "%s, %v", verb, kind)
			switch kind {
			case btl.FaultLate:
				require.NoError(h.t, h.result(tr))
				continue
			case btl.FaultSilence:
				h.turns(100)
				require.False(h.t, h.ended(tr))
				from.fail(errTest)
				require.Error(h.t, h.result(tr))
			default:
				h.injectedError(tr)
			}
			h.recover(to)
			if verb == "Put" {
				want := before
				if kind == btl.FaultErrorDelivered {
					want = mine.mem
				}
				require.Equal(h.t, want, theirs.fetch(), "memory after %v", kind)
			}
		}
		release(mine, theirs)
	}
}

// testInjectPeer: a fault for another peer does not strike here, but one for all peers does.
func testInjectPeer(h *harness, from, to *side, in btl.Injector) {
	in.Inject(btl.Fault{Kind: btl.FaultRefuse, Peer: from.rank})
	require.NoError(h.t, from.send(from.newSend(8, 50)))
	require.Zero(h.t, in.Fired())
	h.settle()
	in.Inject(btl.Fault{Kind: btl.FaultRefuse, Peer: btl.AllPeers})
	require.Equal(h.t, btl.ErrResource, from.send(from.newSend(8, 50)))
	require.Equal(h.t, 1, in.Fired())
	require.NoError(h.t, from.send(from.newSend(8, 50)))
}

// testRandomFaults: all kinds of faults at any time, in traffic both ways.
func testRandomFaults(h *harness, rng *rand.Rand) {
	h.connect()
	kinds := []btl.FaultKind{btl.FaultRefuse, btl.FaultErrorDelivered, btl.FaultErrorLost, btl.FaultSilence,
		btl.FaultLate, btl.FaultStale}
	fired := 0
	locked := func(s *side, do func(in btl.Injector)) {
		s.mu.Lock()
		defer s.mu.Unlock()
		do(s.m.(btl.Injector))
	}
	for i := range 400 {
		s := h.randomTraffic(rng, 6, 4096)
		if i%20 == 0 {
			f := btl.Fault{Kind: kinds[i/20%len(kinds)], Peer: s.peer, After: rng.IntN(3), Count: 1 + rng.IntN(4)}
			locked(s, func(in btl.Injector) { in.Inject(f) })
		}
		if i%40 == 39 { // a layer above has a deadline for silent operations
			s.fail(errTest)
		}
		h.reviveBoth()
	}
	for _, s := range []*side{h.a, h.b} {
		s.fail(errTest) // ends silent operations
		locked(s, func(in btl.Injector) { fired += in.Fired() })
	}
	h.settle()
	require.Positive(h.t, fired, "no fault struck")
}
