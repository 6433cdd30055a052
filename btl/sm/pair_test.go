package sm

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/memcopy"
	"github.com/mpigo/mpigo/internal/race"
)

// side is one of two modules that send each other numbered fragments with all calls, in any order,
// including from inside Arrived.
type side struct {
	t          *testing.T
	p          *pair
	rng        *rand.Rand
	m          *module
	ep         *endpoint
	other      *side
	sent       []int // payload bytes of the fragments that were accepted
	got        int   // number of the next fragment
	inArrived  int
	fails, new int // endpoints
}

// pair is both sides. One goroutine drives them, so the peer can act while a fragment is being
// read.
type pair struct {
	sides   [2]*side
	longest int
	depth   int // of calls inside Arrived
	quiet   bool
	short   int // fragments taken by ReceiveShort
	inRuns  int // fragments taken from a view of the slots
}

func newPair(t *testing.T, seed uint64) *pair {
	rng := rand.New(rand.NewPCG(seed, 1))
	frags := []int64{0, 190, 256, 400, 750, 1000, 1024, 2000, 5000}
	cfg := Config{Size: 2, RingSlots: 2 << rng.IntN(6), RingBytes: 1024 << rng.IntN(4), FragBytes: frags[rng.IntN(len(frags))]}
	return newPairWith(t, rng, cfg)
}

// seeds returns how many of n random runs a test does: a third in short test runs, and under the
// race detector, which finds nothing in one goroutine.
func seeds(n uint64) uint64 {
	if race.Enabled || !race.All() {
		return n / 3
	}
	return n
}

func newPairWith(t *testing.T, rng *rand.Rand, cfg Config) *pair {
	p := &pair{}
	for rank := range p.sides {
		s := &side{t: t, p: p, rng: rng}
		cfg.Rank, cfg.Events = rank, s
		m, err := New(cfg)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		s.m = m.(*module)
		s.m.fences = false // for one goroutine
		p.sides[rank] = s
	}
	p.sides[0].other, p.sides[1].other = p.sides[1], p.sides[0]
	p.longest = int(p.sides[0].m.own.longest) - shortHeader
	for _, s := range p.sides {
		s.connect()
	}
	return p
}

// connect makes an endpoint if there is none that is not drained.
func (s *side) connect() {
	if s.ep == nil || s.ep.State() == btl.Drained {
		if ep, err := s.m.Connect(btl.Path{Peer: s.other.m.cfg.Rank}, s.other.m.Address()); err == nil {
			s.ep = ep.(*endpoint)
			s.new++
		}
	}
}

// payload makes the bytes of a fragment of this side.
func (s *side) payload(number int) []byte { return content(2*number+s.m.cfg.Rank, s.sent[number]) }

func (s *side) send(n int) bool { return s.sendBy(s.rng.IntN(3), n) }

// wordsOf returns the first two words of a fragment, like those of consecutive messages.
func wordsOf(number int) (first, second uint64) { return 7, uint64(number)<<32 | 3 }

// sendBy sends a fragment with n bytes of payload by SendShort (0), SendInline (1) or Send.
func (s *side) sendBy(call, n int) bool {
	if s.ep.State() != btl.Up {
		return false
	}
	number := len(s.sent)
	s.sent = append(s.sent, n)
	first, second := wordsOf(number)
	data := s.payload(number)
	hdr := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, first), second)
	ok := false
	switch call {
	case 0:
		ok = s.ep.SendShort(1, first, second, data)
	case 1:
		ok = s.ep.SendInline(1, hdr, data)
	default:
		op := &btl.Op{Tag: 1, HdrLen: shortHeader, Payload: data, Done: func(*btl.Op, error) {}}
		copy(op.Hdr[:], hdr)
		ok = s.ep.Send(op) == nil
	}
	if !ok {
		s.sent = s.sent[:number]
	}
	return ok
}

func (s *side) Arrived(_ btl.Module, _ int, _ btl.Tag, frag []byte) {
	check := func() {
		require.EqualValues(s.t, s.got, binary.LittleEndian.Uint64(frag[8:])>>32)
		require.True(s.t, string(s.other.payload(s.got)) == string(frag[shortHeader:]), "fragment %d changed", s.got)
	}
	check()
	s.inArrived++
	s.p.depth++
	for range s.rng.IntN(4) {
		if s.p.quiet {
			break
		}
		if s.rng.IntN(2) == 0 {
			s.send(s.bytes())
		} else {
			s.other.act()
		}
		check()
	}
	s.p.depth--
	s.inArrived--
	check()
	s.got++
}

func (s *side) Failed(btl.Module, btl.Path, *btl.Error) { s.fails++ }
func (s *side) Drained(btl.Module, btl.Path)            {}

func (s *side) receiveShort() bool {
	buf := make([]byte, s.p.longest)
	first, second := wordsOf(s.got)
	n := s.ep.ReceiveShort(1, 1, first, second, buf)
	if n < 0 {
		return false
	}
	s.p.short++
	require.True(s.t, string(s.other.payload(s.got)) == string(buf[:n]), "fragment %d changed", s.got)
	s.got++
	return true
}

// sideRun is a btl.Run of a side.
type sideRun struct {
	s    *side
	most int
	buf  [slotData]byte
}

func (r *sideRun) Taken(n int) ([]byte, bool) {
	s := r.s
	require.True(s.t, string(s.other.payload(s.got)) == string(r.buf[:n]), "fragment %d changed", s.got)
	s.got++
	s.p.inRuns++
	r.most--
	return r.buf[:], r.most > 0
}

// receiveRun takes up to 8 fragments from their slots.
func (s *side) receiveRun() {
	run := &sideRun{s: s, most: 1 + s.rng.IntN(8)}
	before := s.got
	first, second := wordsOf(before)
	if n := s.ep.ReceiveRun(1, 100, 1, first, second, run.buf[:], run); n >= 0 {
		require.Equal(s.t, s.got-before, n)
	}
}

// bytes chooses a length of a payload.
func (s *side) bytes() int {
	switch s.rng.IntN(4) {
	case 0:
		return s.rng.IntN(slotData)
	case 1:
		return s.p.longest - s.rng.IntN(min(70, s.p.longest))
	case 2:
		return min(s.p.longest, slotData-shortHeader+s.rng.IntN(3)-1)
	}
	return s.rng.IntN(s.p.longest + 1)
}

// act makes a call.
func (s *side) act() {
	if s.p.depth > 4 {
		return
	}
	switch k := s.rng.IntN(7); {
	case k < 2 && s.inArrived == 0:
		s.m.Progress()
	case k == 2 && s.inArrived == 0:
		if s.rng.IntN(2) == 0 {
			s.receiveRun()
		} else {
			s.receiveShort()
		}
	default:
		for range 1 + k/6*s.rng.IntN(4) {
			s.send(s.bytes())
		}
	}
}

// settle receives all sent fragments.
func (p *pair) settle(t *testing.T) {
	a, b := p.sides[0], p.sides[1]
	for range 4000 {
		for _, s := range p.sides {
			if s.rng.IntN(2) == 0 {
				for s.receiveShort() {
				}
			}
			p.quiet = true
			s.m.Progress()
			p.quiet = false
			s.connect()
		}
		if a.got == len(b.sent) && b.got == len(a.sent) {
			return
		}
	}
	require.Fail(t, "stuck", "%d of %d and %d of %d fragments", a.got, len(b.sent), b.got, len(a.sent))
}

// TestPairInAnyOrder: whatever two sides do, no unread bytes are overwritten, and rings that were
// read have room for the longest fragment. Positions may be near their wrap.
func TestPairInAnyOrder(t *testing.T) {
	short, inRuns := 0, 0
	for seed := range seeds(40) {
		p := newPair(t, seed)
		a := p.sides[0]
		for _, s := range p.sides {
			s.send(1)
		}
		p.settle(t)
		if seed%2 == 0 {
			for _, s := range p.sides {
				in := s.other.m.peers[s.m.cfg.Rank].in
				at := -(s.ep.out.dataMask + 1) * uint64(20+a.rng.IntN(60))
				s.ep.out.dataHead, s.ep.out.dataFreed, *s.ep.out.readData = at, at, at
				in.dataTail, in.dataDone = at, at
			}
		}
		for range 2000 {
			p.sides[a.rng.IntN(2)].act()
			if a.rng.IntN(40) == 0 {
				p.settle(t)
				s := p.sides[a.rng.IntN(2)]
				require.True(t, s.sendBy(2, p.longest), "an empty ring refuses: %+v", s.ep.out)
			}
		}
		p.settle(t)
		require.Zero(t, a.fails+p.sides[1].fails, "seed %d", seed)
		short, inRuns = short+p.short, inRuns+p.inRuns
	}
	require.Greater(t, short, 1000)
	require.Greater(t, inRuns, 1000)
}

// TestPairWhoseEndpointsFail: accepted fragments arrive once and in order, even if endpoints fail
// and are opened again.
func TestPairWhoseEndpointsFail(t *testing.T) {
	opened := 0
	for seed := range seeds(30) {
		p := newPair(t, seed)
		rng := p.sides[0].rng
		for range 3000 {
			s := p.sides[rng.IntN(2)]
			s.connect()
			s.act()
			if rng.IntN(150) == 0 {
				s.ep.Fail(errEnough)
			}
			if rng.IntN(1000) == 0 {
				s.m.Fail(errEnough)
			}
		}
		p.settle(t)
		opened += p.sides[0].new + p.sides[1].new
	}
	require.Greater(t, opened, 30*int(seeds(30)))
}

// TestPingPongStaysAtTheBeginning: short fragments that are answered one by one use no more of the
// data than one fragment needs.
func TestPingPongStaysAtTheBeginning(t *testing.T) {
	const bytes = 1000
	for _, short := range []bool{false, true} {
		var p *pair
		for seed := uint64(0); p == nil || p.longest < 3*bytes; seed++ {
			p = newPair(t, seed)
		}
		for _, s := range p.sides {
			s.sendBy(2, 1)
		}
		p.settle(t)
		p.quiet = true
		for range 100 {
			for _, s := range p.sides {
				got := s.other.got
				// SendShort does not always check how far the peer has read.
				if !short || !s.sendBy(0, bytes) {
					require.True(t, s.sendBy(2, bytes))
				}
				if !short || !s.other.receiveShort() {
					s.other.m.Progress()
				}
				require.Equal(t, got+1, s.other.got)
				require.LessOrEqual(t, s.ep.out.dataHead&s.ep.out.dataMask, align(padding(shortHeader)+shortHeader+bytes))
			}
		}
		require.Equal(t, short, p.short > 100, "%d taken by ReceiveShort", p.short)
	}
}

// TestLongFragmentsBeginAtALineAndAreTimed: the payload of a long fragment begins at a cache line,
// and the receiver reports how long it took to read one that the sender measures. Both hold for
// both ways to receive.
func TestLongFragmentsBeginAtALineAndAreTimed(t *testing.T) {
	const bytes = 16 << 10
	for _, short := range []bool{false, true} {
		p := newPairWith(t, rand.New(rand.NewPCG(1, 1)), Config{Size: 2})
		for _, s := range p.sides {
			s.sendBy(2, 1)
		}
		p.settle(t)
		p.quiet = true
		s, timed := p.sides[0], 0
		for i := range 100 {
			require.True(t, s.sendBy(i%2*2, bytes))
			at := s.ep.out.dataHead - bytes
			require.Zero(t, at%lineBytes)
			require.Equal(t, content(2*(len(s.sent)-1), bytes), unsafe.Slice((*byte)(s.ep.out.place(at)), bytes))
			answer := *s.ep.out.answer
			if !short || !s.other.receiveShort() {
				s.other.m.Progress()
			}
			if serial := s.ep.out.timed; serial != 0 {
				timed++
				require.EqualValues(t, serial, *s.ep.out.answer>>48)
			} else {
				require.Equal(t, answer, *s.ep.out.answer)
			}
		}
		require.Equal(t, memcopy.Measures, timed > 10)
	}
}
