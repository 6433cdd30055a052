package btltest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

func trafficTests() []namedTest {
	return []namedTest{
		{"sizes", directed(testSizes)},
		{"inline-sizes", directed(testInlineSizes)},
		{"too-long", directed(testTooLong)},
		{"order", driven(testOrder)},
		{"back-pressure", directed(testBackPressure)},
		{"both-directions", driven(testBothDirections)},
		{"random", seeded(testRandomTraffic)},
		{"post-from-arrived", driven(testPostFromArrived)},
		{"post-from-done", directed(testPostFromDone)},
		{"allocations", testAllocations},
	}
}

// sizesAround lists sizes up to limit around which a transport may behave differently.
func sizesAround(limit int, marks ...int) []int {
	sizes := []int{0, 1, 2, 7, 8, 9, 63, 64, 65}
	for _, m := range marks {
		sizes = append(sizes, m-1, m, m+1)
	}
	for n := 128; n < limit; n *= 4 {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	return slices.DeleteFunc(slices.Compact(sizes), func(n int) bool { return n < 0 || n > limit })
}

// headers lists ways to split a fragment.
func headers(size int) []int {
	return slices.DeleteFunc([]int{0, 1, 16, 24, btl.MaxHeaderBytes}, func(n int) bool { return n > size })
}

// testSizes: every fragment arrives completely, header and payload in one piece.
func testSizes(h *harness, from, to *side) {
	h.connect()
	at := from.m.Attrs()
	for _, size := range sizesAround(at.MaxSendBytes, at.InlineBytes, at.EagerBytes, at.MaxSendBytes) {
		for _, hdr := range headers(size) {
			h.mustSend(from, hdr, size)
		}
		h.settle()
	}
}

// testInlineSizes: SendInline takes fragments of up to Attrs.InlineBytes, at the latest after some
// progress calls.
func testInlineSizes(h *harness, from, to *side) {
	if h.lacks(from, btl.CapInline) {
		return
	}
	h.connect()
	limit := from.m.Attrs().InlineBytes
	for _, size := range sizesAround(limit, limit) {
		for _, hdr := range headers(size) {
			h.until("SendInline", func() bool { return from.inline(hdr, size) })
		}
		h.settle()
	}
}

// testTooLong: a fragment longer than MaxSendBytes is refused, and nothing of it is sent.
func testTooLong(h *harness, from, to *side) {
	h.connect()
	limit := from.m.Attrs().MaxSendBytes
	for _, size := range []int{limit + 1, limit + 1000, 2*limit + 1} {
		for _, hdr := range headers(size) {
			require.Equal(h.t, btl.ErrTooLong, from.send(from.newSendExactly(hdr, size)))
		}
	}
	h.turns(50)
	require.Equal(h.t, btl.Up, from.state())
	h.mustSend(from, 0, limit)
	h.settle()
	require.Equal(h.t, 1, h.arrived(from))
}

// sendSomehow sends a fragment, inline if rng says so, and reports whether the endpoint took it.
func (h *harness) sendSomehow(s *side, rng *rand.Rand, size int) bool {
	h.t.Helper()
	at := s.m.Attrs()
	size = min(size, at.MaxSendBytes)
	hdr := rng.IntN(min(size, btl.MaxHeaderBytes) + 1)
	if at.Caps&btl.CapInline != 0 && size <= at.InlineBytes && rng.IntN(2) == 0 {
		return s.inline(hdr, size)
	}
	err := s.send(s.newSend(hdr, size))
	if err != nil && s.state() == btl.Up {
		require.Equal(h.t, btl.ErrResource, err)
	}
	return err == nil
}

// randomSize returns a size that is mostly small.
func randomSize(rng *rand.Rand, limit int) int {
	if rng.IntN(8) == 0 {
		return rng.IntN(limit + 1)
	}
	return rng.IntN(min(limit, 256) + 1)
}

// testOrder: fragments of an endpoint arrive in the order of acceptance.
func testOrder(h *harness) {
	h.connect()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		size := randomSize(rng, h.a.m.Attrs().MaxSendBytes)
		h.until("room", func() bool { return h.sendSomehow(h.a, rng, size) })
	}
	h.settle()
	require.Equal(h.t, 1000, h.arrived(h.a))
}

// flood sends until the endpoint takes no more, while no goroutine polls at the other end.
func (h *harness) flood(from *side, size int) int {
	h.t.Helper()
	const most = 64 << 20
	for n := 0; n*max(size, 512) < most; n++ {
		err := from.send(from.newSend(min(size, 16), size))
		if err != nil {
			require.Equal(h.t, btl.ErrResource, err)
			return n
		}
	}
	h.t.Fatalf("%s takes more than %d bytes although the other end does not poll", from.name, most)
	return 0
}

// testBackPressure: a sender that is faster than its receiver gets ErrResource (C6); no fragment is
// lost, and none is sent twice.
func testBackPressure(h *harness, from, to *side) {
	h.connect()
	for _, size := range []int{8, 100, from.m.Attrs().EagerBytes, from.m.Attrs().MaxSendBytes} {
		n := 0
		// A fragment may arrive before this side knows that there is room again.
		h.until("room", func() bool {
			n = h.flood(from, size)
			return n > 0
		})
		// A progress call of the sender does not make unlimited room at the other end.
		from.progress()
		n += h.flood(from, size)
		for range n {
			h.mustSend(from, min(size, 16), size)
		}
		h.settle()
	}
	require.Equal(h.t, len(from.sent.entries), h.arrived(from))
}

// testBothDirections: both sides flood each other.
func testBothDirections(h *harness) {
	h.connect()
	rng := rand.New(rand.NewPCG(5, 6))
	todo := map[*side]int{h.a: 600, h.b: 600}
	h.until("two floods", func() bool {
		for _, s := range []*side{h.a, h.b} {
			for todo[s] > 0 && h.sendSomehow(s, rng, randomSize(rng, s.m.Attrs().MaxSendBytes)) {
				todo[s]--
			}
		}
		return todo[h.a]+todo[h.b] == 0
	})
	h.settle()
	require.Equal(h.t, 600, h.arrived(h.a))
	require.Equal(h.t, 600, h.arrived(h.b))
}

// randomTraffic sends up to most−1 fragments from a random side, polls a few times, and returns the
// side.
func (h *harness) randomTraffic(rng *rand.Rand, most, limit int) *side {
	h.t.Helper()
	s := []*side{h.a, h.b}[rng.IntN(2)]
	for range rng.IntN(most) {
		h.sendSomehow(s, rng, randomSize(rng, limit))
	}
	h.turns(rng.IntN(3))
	return s
}

// testRandomTraffic: fragments of all sizes, both ways.
func testRandomTraffic(h *harness, rng *rand.Rand) {
	h.connect()
	limit := max(h.a.m.Attrs().MaxSendBytes, h.b.m.Attrs().MaxSendBytes)
	for range 500 {
		h.randomTraffic(rng, 8, limit)
	}
	h.settle()
}

// testPostFromArrived: B answers each fragment from inside Arrived.
func testPostFromArrived(h *harness) {
	h.connect()
	const rounds = 300
	// Guarded by B's lock, which is held in Arrived.
	owed := 0
	answer := func() {
		for owed > 0 && h.b.sendLocked(h.b.newSend(8, 40)) == nil {
			owed--
		}
	}
	h.b.mu.Lock()
	h.b.onArrival = func(btl.Tag, []byte) {
		owed++
		answer()
	}
	h.b.mu.Unlock()
	for range rounds {
		h.mustSend(h.a, 8, 24)
	}
	h.until("all answers", func() bool {
		h.b.mu.Lock()
		answer()
		h.b.mu.Unlock()
		return h.arrived(h.b) == rounds
	})
}

// testPostFromDone: the next fragment is posted from inside the Done of the last one, even if that
// Done is called inside Send.
func testPostFromDone(h *harness, from, to *side) {
	h.connect()
	left := 100
	next := func() {
		if left > 0 && from.sendLocked(from.newSend(8, 40)) == nil {
			left--
		}
	}
	from.onDone = func(tr *tracked) {
		if tr.err == nil {
			next()
		}
	}
	h.until("the chain", func() bool {
		from.mu.Lock()
		defer from.mu.Unlock()
		if len(from.outstanding) == 0 {
			next()
		}
		return left <= 0
	})
	h.settle()
}

// quiet counts arrivals and does nothing else.
type quiet struct{ arrived int }

func (q *quiet) Arrived(btl.Module, int, btl.Tag, []byte) { q.arrived++ }
func (q *quiet) Failed(btl.Module, btl.Path, *btl.Error)  {}
func (q *quiet) Drained(btl.Module, btl.Path)             {}

// testAllocations: small sends allocate nothing after the first ones.
func testAllocations(t *testing.T, mk Maker) {
	var evA, evB quiet
	p := mk(t, &evA, &evB)
	t.Cleanup(func() {
		require.NoError(t, p.A.Close())
		require.NoError(t, p.B.Close())
		if p.Close != nil {
			p.Close()
		}
	})
	if p.Allocates {
		t.Log("the pair says that it allocates")
		return
	}
	ep, err := p.A.Connect(btl.Path{Peer: p.RankB}, p.B.Address())
	require.NoError(t, err)
	completed, taken := 0, 0
	op := &btl.Op{HdrLen: 16, Payload: make([]byte, 8), Done: func(*btl.Op, error) { completed++ }}
	hdr, payload := make([]byte, 16), make([]byte, 8)
	send := func() bool { return ep.Send(op) == nil }
	inline := func() bool {
		if !ep.(btl.Inliner).SendInline(1, hdr, payload) {
			return false
		}
		completed++
		return true
	}
	drain := func() {
		for i := 0; evB.arrived < taken || completed < taken; i++ {
			if i == 1<<24 {
				t.Fatalf("of %d fragments %d arrived, %d completed", taken, evB.arrived, completed)
			}
			p.A.Progress()
			p.B.Progress()
		}
	}
	posts := map[string]func() bool{"Send": send}
	if p.A.Attrs().Caps&btl.CapInline != 0 {
		posts["SendInline"] = inline
	}
	for name, post := range posts {
		once := func() {
			for !post() {
				p.A.Progress()
				p.B.Progress()
			}
			taken++
		}
		for range 300 {
			once()
			drain()
		}
		var allocs float64
		if p.Remote { // the proxy allocates, not the module
			var ops [3]btl.Op // one for each run, because operations in flight belong to the BTL
			runs := 0
			allocs = testing.AllocsPerRun(len(ops)-1, func() {
				ops[runs] = btl.Op{HdrLen: op.HdrLen, Payload: op.Payload, Done: op.Done}
				op = &ops[runs]
				runs++
				assert.True(t, post(), "refused with nothing under way")
				taken++
				p.A.Progress()
			})
			drain()
		} else {
			allocs = testing.AllocsPerRun(200, func() { once(); drain() })
		}
		assert.Zero(t, allocs, "%s allocates", name)
	}
}
