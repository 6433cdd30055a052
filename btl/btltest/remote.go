package btltest

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

func remoteTests() []namedTest {
	return []namedTest{
		{"put", directed(testMoves("Put", btl.CapPut))},
		{"get", directed(testMoves("Get", btl.CapGet))},
		{"put-then-send", directed(testPutThenSend)},
		{"bounds", directed(testBounds)},
		{"access", directed(testAccess)},
		{"released-key", directed(testReleasedKey)},
		{"forged-key", directed(testForgedKey)},
		{"fence", directed(testFence)},
		{"random", driven(testRandomRemote)},
	}
}

// memory is registered memory of a side.
type memory struct {
	h      *harness
	s      *side
	mem    []byte
	region btl.Region
}

const (
	keyBytes = len(btl.Key{})
	forPeers = btl.AccessLocal | btl.AccessRemoteRead | btl.AccessRemoteWrite
	forUs    = btl.AccessLocal
)

// register makes n registered bytes, filled from rng if that is not nil.
func (h *harness) register(s *side, n int, access btl.Access, rng *rand.Rand) *memory {
	h.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	mem, err := s.lent.bytes(s.m, n, access)
	require.NoError(h.t, err)
	m := &memory{h: h, s: s, mem: mem}
	if rng != nil {
		for i := range m.mem {
			m.mem[i] = byte(rng.Uint32())
		}
	}
	m.region, err = s.m.(btl.Registrar).Register(m.mem, access)
	require.NoError(h.t, err)
	return m
}

// lent is memory that a module has allocated. It is freed after Close, which an Allocator must
// permit.
type lent struct {
	from btl.Allocator
	mems [][]byte
}

// bytes allocates n bytes that can be registered with m.
func (l *lent) bytes(m btl.Module, n int, access btl.Access) ([]byte, error) {
	a, ok := m.(btl.Allocator)
	if !ok || access == btl.AccessLocal {
		return make([]byte, n), nil
	}
	mem, err := a.Alloc(n)
	if err != nil {
		return nil, err
	}
	l.from, l.mems = a, append(l.mems, mem)
	return mem[:n], nil
}

func (l *lent) giveBack() error {
	var err error
	for _, mem := range l.mems {
		err = errors.Join(err, l.from.Free(mem))
	}
	l.mems = nil
	return err
}

// fetch updates mem if it is in another process.
func (m *memory) fetch() []byte {
	m.h.t.Helper()
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if r, ok := m.region.(interface{ Fetch() error }); ok {
		require.NoError(m.h.t, r.Fetch())
	}
	return m.mem
}

func (m *memory) release() {
	m.h.t.Helper()
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	require.NoError(m.h.t, m.region.Release())
}

// access makes a Put or a Get.
func (m *memory) access(verb string, from, n int, key btl.Key, offset uint64) *tracked {
	tr := &tracked{side: m.s, verb: verb}
	tr.op.Payload = m.mem[from : from+n]
	tr.op.Local = m.region
	tr.op.Remote = key
	tr.op.RemoteOffset = offset
	return tr
}

// postRemote posts a Put or a Get, waiting for resources as long as it takes.
func (h *harness) postRemote(tr *tracked) {
	h.t.Helper()
	s := tr.side
	h.until(s.name+" to take a "+tr.verb, func() bool {
		err := s.post(tr)
		require.Contains(h.t, []error{nil, btl.ErrResource}, err)
		return err == nil
	})
}

// succeeds posts a Put or a Get, and expects that it succeeds.
func (h *harness) succeeds(tr *tracked) {
	h.t.Helper()
	h.postRemote(tr)
	require.NoError(h.t, h.result(tr))
}

func release(mems ...*memory) {
	for _, m := range mems {
		m.release()
	}
}

// lacks reports, and logs, that a module lacks a capability.
func (h *harness) lacks(s *side, c btl.Caps) bool {
	if s.m.Attrs().Caps&c != 0 {
		return false
	}
	h.t.Log("the module cannot do that")
	return true
}

// verbs lists the module's remote accesses.
func (h *harness) verbs(s *side) []string {
	var v []string
	if s.m.Attrs().Caps&btl.CapPut != 0 {
		v = append(v, "Put")
	}
	if s.m.Attrs().Caps&btl.CapGet != 0 {
		v = append(v, "Get")
	}
	if len(v) == 0 {
		h.t.Log("the module can do neither Put nor Get")
	}
	return v
}

// testMoves tests that a Put or a Get, of any size, changes exactly the bytes that it names.
func testMoves(verb string, needs btl.Caps) func(h *harness, from, to *side) {
	return func(h *harness, from, to *side) {
		if h.lacks(from, needs) {
			return
		}
		h.connect()
		rng := rand.New(rand.NewPCG(1, 1))
		const room = 1 << 20
		mine, theirs := h.register(from, room, forUs, rng), h.register(to, room, forPeers, rng)
		target := mine
		if verb == "Put" {
			target = theirs
		}
		want := bytes.Clone(target.mem)
		for _, n := range []int{1, 7, 8, 64, 4095, 4096, 65536, 300001, room} {
			at, off := rng.IntN(room-n+1), rng.IntN(room-n+1)
			if verb == "Put" {
				copy(want[off:], mine.mem[at:at+n])
			} else {
				copy(want[at:at+n], theirs.mem[off:])
			}
			h.succeeds(mine.access(verb, at, n, theirs.region.Key(), uint64(off)))
			require.True(h.t, bytes.Equal(want, target.fetch()), "memory after a %s of %d bytes", verb, n)
		}
		release(mine, theirs)
	}
}

// testPutThenSend: when a fragment sent after a Put's Done arrives, the Put's bytes are there.
func testPutThenSend(h *harness, from, to *side) {
	if h.lacks(from, btl.CapPut) {
		return
	}
	h.connect()
	rng := rand.New(rand.NewPCG(1, 1))
	dst := h.register(to, 4096, forPeers, nil)
	for range 20 {
		src := h.register(from, 4096, forUs, rng)
		h.succeeds(src.access("Put", 0, 4096, dst.region.Key(), 0))
		h.mustSend(from, 8, 16)
		h.settle()
		require.True(h.t, bytes.Equal(src.mem, dst.fetch()))
		src.release()
	}
}

// usageError expects a Put or a Get to end with ClassUsage. If the endpoint has failed too (C4), it
// connects the next incarnation.
func (h *harness) usageError(tr *tracked, why string) {
	h.t.Helper()
	h.postRemote(tr)
	err := h.result(tr)
	require.Equal(h.t, btl.ClassUsage, AsError(h.t, err).Class, "%s: %v", why, err)
	if tr.side.state() == btl.Up {
		return
	}
	h.recover(tr.side.other)
}

func testBounds(h *harness, from, to *side) {
	h.connect()
	for _, verb := range h.verbs(from) {
		mine, theirs := h.register(from, 4096, forUs, nil), h.register(to, 1000, forPeers, rand.New(rand.NewPCG(1, 1)))
		before := bytes.Clone(theirs.mem)
		for _, c := range []struct {
			offset uint64
			n      int
		}{{0, 1001}, {1000, 1}, {999, 2}, {1001, 1}, {math.MaxUint64, 1}, {math.MaxUint64 - 500, 1000}, {1 << 63, 16}, {1 << 32, 16}} {
			h.usageError(mine.access(verb, 0, c.n, theirs.region.Key(), c.offset), verb)
			require.True(h.t, bytes.Equal(before, theirs.fetch()), "memory was written")
			require.True(h.t, bytes.Equal(make([]byte, 4096), mine.fetch()), "memory was read")
		}
		h.succeeds(mine.access(verb, 0, 1000, theirs.region.Key(), 0))
		release(mine, theirs)
	}
}

func testAccess(h *harness, from, to *side) {
	h.connect()
	for _, verb := range h.verbs(from) {
		lacking := btl.AccessLocal | btl.AccessRemoteRead
		if verb == "Get" {
			lacking = btl.AccessLocal | btl.AccessRemoteWrite
		}
		mine := h.register(from, 64, forUs, rand.New(rand.NewPCG(1, 1)))
		for _, access := range []btl.Access{lacking, btl.AccessLocal} {
			theirs := h.register(to, 64, access, nil)
			h.usageError(mine.access(verb, 0, 64, theirs.region.Key(), 0), verb+" without the right to")
			require.True(h.t, bytes.Equal(make([]byte, 64), theirs.fetch()), "memory was written")
			theirs.release()
		}
		mine.release()
	}
}

// testReleasedKey: once Release has returned, the key is invalid, even if another region has taken
// its place.
func testReleasedKey(h *harness, from, to *side) {
	h.connect()
	for _, verb := range h.verbs(from) {
		mine := h.register(from, 64, forUs, rand.New(rand.NewPCG(1, 1)))
		old := h.register(to, 64, forPeers, nil)
		h.succeeds(mine.access(verb, 0, 64, old.region.Key(), 0))
		before := bytes.Clone(old.fetch())
		mine.release()
		mine = h.register(from, 64, forUs, rand.New(rand.NewPCG(2, 2)))
		mineBefore := bytes.Clone(mine.mem)
		stale := old.region.Key()
		old.release()
		h.usageError(mine.access(verb, 0, 64, stale, 0), verb+" with a released key")
		var heirs []*memory
		for range 8 {
			heirs = append(heirs, h.register(to, 64, forPeers, nil))
			require.NotEqual(h.t, stale, heirs[len(heirs)-1].region.Key(), "a key came back")
		}
		h.usageError(mine.access(verb, 0, 64, stale, 0), verb+" with a stale key")
		require.True(h.t, bytes.Equal(before, old.mem), "released memory was written")
		require.True(h.t, bytes.Equal(mineBefore, mine.fetch()), "released memory was read")
		for _, m := range heirs {
			require.True(h.t, bytes.Equal(make([]byte, 64), m.fetch()), "another region was written")
			m.release()
		}
		mine.release()
	}
}

// testForgedKey: a key that no module has made is invalid (C8).
func testForgedKey(h *harness, from, to *side) {
	h.connect()
	for _, verb := range h.verbs(from) {
		mine, theirs := h.register(from, 64, forUs, nil), h.register(to, 64, forPeers, nil)
		rng := rand.New(rand.NewPCG(1, 1))
		var random, ones btl.Key
		for i := range random {
			random[i], ones[i] = byte(rng.Uint32()), 0xff
		}
		for name, key := range map[string]btl.Key{"zero": {}, "ones": ones, "random": random, "own": mine.region.Key()} {
			h.usageError(mine.access(verb, 0, 16, key, 0), verb+" with a key of "+name)
		}
		// The BTL decides what a flipped bit means: an error of ClassUsage, or no difference.
		for i := range keyBytes {
			key := theirs.region.Key()
			key[i] ^= 1 << (i % 8)
			tr := mine.access(verb, 0, 16, key, 0)
			h.postRemote(tr)
			err := h.result(tr)
			var be *btl.Error
			if errors.As(err, &be) {
				require.Equal(h.t, btl.ClassUsage, be.Class, "%v", err)
			} else {
				require.NoError(h.t, err)
			}
			h.reviveBoth()
		}
		release(mine, theirs)
	}
}

// testFence: once the target's end is Drained, nothing of the incarnation writes to the target's
// memory, whatever the other end does (C4).
func testFence(h *harness, from, to *side) {
	if h.lacks(from, btl.CapPut) {
		return
	}
	h.connect()
	src, dst := h.register(from, 64<<10, forUs, rand.New(rand.NewPCG(1, 1))), h.register(to, 64<<10, forPeers, nil)
	put := func() bool {
		return from.post(src.access("Put", 0, 64<<10, dst.region.Key(), 0)) == nil
	}
	for range 4 {
		put()
	}
	to.fail(errTest)
	for to.state() != btl.Drained {
		to.progress()
		put()
	}
	dst.fetch()
	clear(dst.mem)
	if r, ok := dst.region.(interface{ Store() error }); ok {
		require.NoError(h.t, r.Store())
	}
	for range 20 {
		put()
		h.turns(5)
	}
	require.True(h.t, bytes.Equal(make([]byte, 64<<10), dst.fetch()), "memory was written after Drained")
	h.recover(from)
	h.until("a Put", put)
	h.settle()
	require.True(h.t, bytes.Equal(src.mem, dst.fetch()), "memory after a Put of the next incarnation")
}

// testRandomRemote: both sides put into and get from each other, each in its own part of the
// other's memory, with messages in between.
func testRandomRemote(h *harness) {
	verbs := h.verbs(h.a)
	if len(verbs) == 0 {
		return
	}
	h.connect()
	rng := rand.New(rand.NewPCG(11, 12))
	const room, pieces = 32 << 10, 16
	type view struct {
		s *side
		// Source of its Puts and target of its Gets: one piece for each operation in flight.
		mine *memory
		open *memory // target of the other side's Puts and source of its Gets
		want []byte  // the expected content of open
	}
	sides := []*view{{s: h.a}, {s: h.b}}
	for _, v := range sides {
		v.mine, v.open = h.register(v.s, room, forUs, nil), h.register(v.s, room, forPeers, rng)
		v.want = bytes.Clone(v.open.mem)
	}
	for range 60 {
		for i, v := range sides {
			other := sides[1-i]
			verb := verbs[rng.IntN(len(verbs))]
			piece := rng.IntN(pieces) * (room / pieces)
			n := rng.IntN(room/pieces) + 1
			if verb == "Put" {
				for j := range n {
					v.mine.mem[piece+j] = byte(rng.Uint32())
				}
			}
			tr := v.mine.access(verb, piece, n, other.open.region.Key(), uint64(piece))
			h.postRemote(tr)
			h.sendSomehow(v.s, rng, rng.IntN(512))
			require.NoError(h.t, h.result(tr))
			if verb == "Put" {
				copy(other.want[piece:], v.mine.mem[piece:piece+n])
			} else {
				require.True(h.t, bytes.Equal(other.want[piece:piece+n], v.mine.mem[piece:piece+n]), "what a Get has read")
			}
		}
	}
	h.settle()
	for _, v := range sides {
		require.True(h.t, bytes.Equal(v.want, v.open.fetch()), "memory of %s", v.s.name)
	}
}
