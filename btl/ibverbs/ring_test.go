package ibverbs

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/progress"
)

// withRings is a configuration in which a peer gets its ring at its first fragment.
func withRings(cfg Config) Config {
	cfg.EagerPeers, cfg.EagerAfter = 1, 1
	return cfg
}

// begin connects both ranks and shows that it works; with rings, that both have got the other's.
func (w *world) begin() {
	w.t.Helper()
	w.connect()
	w.works()
	if w.ranks[0].m.cfg.EagerPeers > 0 {
		w.until("rings", func() bool {
			return w.ranks[0].end().out != (outRing{}) && w.ranks[1].end().out != (outRing{})
		})
		w.turns(20)
		w.works()
	}
}

// eachWay runs a test with fragments that are sent, and with such that are written.
func eachWay(t *testing.T, test func(t *testing.T, way func(Config) Config)) {
	t.Run("sends", func(t *testing.T) { test(t, func(cfg Config) Config { return cfg }) })
	t.Run("rings", func(t *testing.T) { test(t, withRings) })
}

// TestRingOfTheActive: a peer gets a ring after so many small fragments, not before, and for long
// ones none.
func TestRingOfTheActive(t *testing.T) {
	w := newWorld(t, Config{EagerPeers: 1, EagerAfter: 5})
	w.connect()
	a, b := w.ranks[0], w.ranks[1]
	send := func(text string) {
		require.NoError(t, a.send(text))
		w.until("the completion", func() bool { return a.under == 0 })
		w.turns(20)
	}
	for range 10 {
		send(strings.Repeat("x", slotBytes-tailBytes+1))
	}
	for range 4 {
		send(strings.Repeat("x", slotBytes-tailBytes))
	}
	require.Nil(t, b.end().in)
	send("the fifth")
	require.NotNil(t, b.end().in)
	require.Nil(t, a.end().in, "it has sent, not received")
	for _, n := range []int{0, 1, slotBytes - tailBytes} {
		before := b.m.ahead
		send(strings.Repeat("y", n))
		require.Equal(t, before+1, b.m.ahead, "%d bytes", n)
	}
	before := b.m.ahead
	send(strings.Repeat("y", slotBytes-tailBytes+1))
	require.Equal(t, before, b.m.ahead, "too long for a slot")
	require.Len(t, b.arrived, 19)
}

// TestNoRings: nobody gets one who may not.
func TestNoRings(t *testing.T) {
	w := newWorld(t, Config{EagerAfter: 1})
	w.begin()
	w.works()
	w.works()
	for _, r := range w.ranks {
		require.Nil(t, r.end().in)
		require.Equal(t, outRing{}, r.end().out)
	}
}

// TestRingsAreBounded: no more peers have rings than may, and when one has gone another one gets
// its own.
func TestRingsAreBounded(t *testing.T) {
	w := newWorld(t, withRings(Config{}))
	w.begin()
	m := w.ranks[0].m
	require.Len(t, m.rings, 1)
	another := &endpoint{m: m, small: 100}
	require.False(t, another.wantsRing())
	w.ranks[0].ep.Fail(nil)
	require.True(t, another.wantsRing())
	w.mend()
}

// TestRingWithoutMemory: where no memory can be registered fragments are sent as before.
func TestRingWithoutMemory(t *testing.T) {
	w := newWorld(t, withRings(Config{}))
	w.connect()
	for _, r := range w.ranks {
		r.m.h.pd = noMoreMemory{r.m.h.pd}
	}
	for range 5 {
		w.works()
	}
	for _, r := range w.ranks {
		require.Nil(t, r.end().in)
		require.Empty(t, r.failed)
		r.m.h.pd = r.m.h.pd.(noMoreMemory).PD
	}
}

// noMoreMemory is a domain that registers nothing more.
type noMoreMemory struct{ verbs.PD }

func (noMoreMemory) RegMR([]byte, verbs.Access) (verbs.MR, error) {
	return nil, verbs.ErrNoMemory
}

// TestRingKeepsOrder: what is in memory already waits for what was sent before it.
func TestRingKeepsOrder(t *testing.T) {
	w := newWorld(t, withRings(Config{}))
	w.begin()
	a, b := w.ranks[0], w.ranks[1]
	arrived := len(b.arrived)
	long := strings.Repeat("x", slotBytes)
	for _, text := range []string{"1", long, "2", "3"} {
		require.NoError(t, a.send(text))
	}
	w.deliver()
	require.Equal(t, 1, b.m.lookIntoRings())
	require.Equal(t, 0, b.m.lookIntoRings(), "the long one is before these, and its completion has not been looked at")
	w.until("all", func() bool { return a.under == 0 })
	w.turns(10)
	require.Equal(t, []string{"1", long, "2", "3"}, b.arrived[arrived:])
	require.Zero(t, b.end().ahead)
}

// TestRingWakesASleeper: a write makes the event that a sleeper waits for.
func TestRingWakesASleeper(t *testing.T) {
	bell := &countingBell{}
	w := newWorld(t, withRings(Config{Wakeup: bell}))
	w.begin()
	a, b := w.ranks[0], w.ranks[1]
	require.True(t, b.m.Arm())
	for b.m.Progress() > 0 {
	}
	bell.rung = 0
	require.NoError(t, a.send("wake up"))
	w.deliver()
	require.Positive(t, bell.rung)
	b.m.Disarm()
	before := b.m.ahead
	require.Positive(t, b.m.Progress())
	require.Equal(t, before+1, b.m.ahead, "it was a write")
	w.until("the completion", func() bool { return a.under == 0 })
}

// countingBell counts.
type countingBell struct{ rung int }

func (b *countingBell) Wake()            { b.rung++ }
func (b *countingBell) Sleep(int64) bool { return false }
func (b *countingBell) Close() error     { return nil }

var _ progress.Wakeup = (*countingBell)(nil)

// TestDeliveredOutlivesFailure: what the peer was told is delivered is handed up, once, though this
// end fails before it has looked.
func TestDeliveredOutlivesFailure(t *testing.T) { eachWay(t, testDeliveredOutlivesFailure) }

func testDeliveredOutlivesFailure(t *testing.T, way func(Config) Config) {
	const n = 3*pollBatch + 1 // more than a turn takes
	fails := map[string]func(b *rankOf){
		"asked for": func(b *rankOf) { b.ep.Fail(nil) },
		"QP_FATAL":  func(b *rankOf) { b.hca.RaiseQP(b.end().qpn, verbs.EventQPFatal) },
	}
	if way(Config{}).EagerPeers > 0 { // the completions of sends are lost
		fails["CQ_ERR"] = func(b *rankOf) { b.hca.BreakCQ(b.end().qpn) }
	}
	for how, fail := range fails {
		for _, looked := range []int{0, 1, n - 1, n} {
			t.Run(fmt.Sprint(how, looked), func(t *testing.T) {
				w := newWorld(t, way(Config{}))
				w.begin()
				a, b := w.ranks[0], w.ranks[1]
				a.ended = nil
				var want []string
				arrived := len(b.arrived)
				for i := range n {
					want = append(want, fmt.Sprint(i))
					require.NoError(t, a.send(want[i]))
					w.deliver()
					if i < looked {
						b.m.lookIntoRings() // and not at the completion
					}
				}
				for len(a.ended) < n {
					a.m.Progress()
				}
				require.Equal(t, make([]error, n), a.ended)
				fail(b)
				w.until("Drained", func() bool { return len(b.drained) > 0 })
				require.Empty(t, b.m.rings)
				require.Equal(t, want, b.arrived[arrived:])
				w.mend()
			})
		}
	}
}

// TestRingIsGoneBeforeDrained: nothing reaches a ring whose endpoint is drained; the memory is
// given back.
func TestRingIsGoneBeforeDrained(t *testing.T) {
	w := newWorld(t, withRings(Config{}))
	w.begin()
	a, b := w.ranks[0], w.ranks[1]
	mr := b.end().in.mr
	end := b.end()
	b.ep.Fail(nil)
	w.until("Drained", func() bool { return b.ep.State() == btl.Drained })
	require.Error(t, mr.Dereg(), "it is registered no more")
	require.Nil(t, end.in)
	w.until("the other end", func() bool { return a.ep.State() == btl.Drained })
	w.mend()
}

// put puts a fragment into the slot in which the rank's next message would show, as a peer could.
func (r *rankOf) put(t tail, frag string, damage func(slot []byte)) {
	e := r.end()
	slot := e.slot
	b := append([]byte(frag), make([]byte, tailBytes)...)
	writeTail(b, t, e.next)
	copy(slot[len(slot)-len(b):], b)
	if damage != nil {
		damage(slot)
	}
}

// TestHalfAFragment: a fragment that is not all there is not taken; nor is a number that is not
// next.
func TestHalfAFragment(t *testing.T) {
	w := newWorld(t, withRings(Config{}))
	w.begin()
	b := w.ranks[1]
	arrived := len(b.arrived)
	good := tail{length: 4}
	at := func(back int) func([]byte) { return func(slot []byte) { slot[len(slot)-back] ^= 1 } }
	for name, try := range map[string]struct {
		t      tail
		damage func([]byte)
	}{
		"first byte of four":   {good, at(tailBytes + 4)},
		"last byte":            {good, at(tailBytes + 1)},
		"length":               {good, at(16)},
		"credits":              {good, at(14)},
		"tag":                  {good, at(12)},
		"notes":                {good, at(11)},
		"zeros":                {good, at(9)},
		"number":               {good, at(8)},
		"check":                {good, at(1)},
		"longer than the slot": {tail{length: slotBytes - tailBytes + 1}, nil},
	} {
		b.put(try.t, "text", try.damage)
		require.Zero(t, b.m.lookIntoRings(), name)
	}
	require.Len(t, b.arrived, arrived)
	require.Empty(t, b.failed)
	b.put(good, "text", nil)
	require.Equal(t, 1, b.m.lookIntoRings())
	require.Equal(t, "text", b.arrived[arrived])
}

// TestRingNonsense: what no peer of ours would do fails the endpoint.
func TestRingNonsense(t *testing.T) {
	for name, do := range map[string]func(a, b *rankOf){
		"credits":         func(a, b *rankOf) { b.put(tail{credits: 1000}, "", nil); b.m.lookIntoRings() },
		"notes":           func(a, b *rankOf) { b.put(tail{controlCredits: controlDepth + 1}, "", nil); b.m.lookIntoRings() },
		"another ring":    func(a, b *rankOf) { a.end().sendControl(wireRing) },
		"another number":  func(a, b *rankOf) { a.end().said++; _ = a.send("x") },
		"not in its slot": func(a, b *rankOf) { a.end().out.addr += 8 * slotBytes; _ = a.send("x") },
		"another number than what is there": func(a, b *rankOf) {
			b.put(tail{}, "", nil)
			b.m.lookIntoRings()
			a.end().said++
			_ = a.send("x")
		},
		"sent after what is there": func(a, b *rankOf) {
			b.put(tail{}, "", nil)
			b.m.lookIntoRings()
			_ = a.send(strings.Repeat("x", slotBytes))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, withRings(Config{}))
			w.begin()
			a, b := w.ranks[0], w.ranks[1]
			arrived := len(b.arrived)
			do(a, b)
			w.until("the failure", func() bool { return len(b.failed) > 0 })
			require.Equal(t, btl.ClassProtocol, b.failed[0].Class)
			if !strings.Contains(name, "what is there") {
				require.Len(t, b.arrived, arrived)
			}
			w.mend()
		})
	}
}

// TestWriteWithoutARing: who was given no ring cannot write.
func TestWriteWithoutARing(t *testing.T) {
	w := newWorld(t, Config{})
	w.begin()
	a, b := w.ranks[0], w.ranks[1]
	mem := make([]byte, (b.m.receives()+1)*slotBytes)
	region, err := b.m.Register(mem, btl.AccessRemoteWrite)
	require.NoError(t, err)
	k, ok := parseKey(new(region.Key()))
	require.True(t, ok)
	a.end().out = outRing{k.addr, k.rkey, slotBytes}
	require.NoError(t, a.send("x"))
	w.until("the failure", func() bool { return len(b.failed) > 0 })
	require.Equal(t, btl.ClassProtocol, b.failed[0].Class)
	w.mend()
	require.NoError(t, region.Release())
}

// TestFloodOfWrites: a peer that writes, and has no receives taken, comes no farther than it has
// receives.
func TestFloodOfWrites(t *testing.T) {
	w := newWorld(t, withRings(Config{RecvDepth: 8}))
	w.begin()
	b := w.ranks[1]
	n := 0
	for range 1000 {
		b.put(tail{}, "", nil)
		n += b.m.lookIntoRings()
	}
	require.Equal(t, b.end().in.count, n)
}

// TestNumbersComeAgain: the wire has the low half of them.
func TestNumbersComeAgain(t *testing.T) {
	w := newWorld(t, withRings(Config{RecvDepth: 8}))
	w.begin()
	w.turns(200)
	for i, r := range w.ranks {
		e, peer := r.end(), w.ranks[1-i].end()
		const jump = 1<<32 - 30
		e.said += jump
		peer.next += jump
		peer.locateNext()
	}
	before := w.ranks[1].m.ahead
	for range 60 {
		w.works()
	}
	require.Equal(t, before+60, w.ranks[1].m.ahead)
	// What was taken before is not found again, by a number of which the same half is on the wire.
	b := w.ranks[1].end()
	const around = (8 + controlDepth) << 32 // a multiple of the slots
	require.Zero(t, around%b.in.count)
	b.next += around - 1
	b.locateNext()
	require.Zero(t, b.m.lookIntoRings())
	w.ranks[0].end().said += around - 1
	w.works()
	require.Greater(t, w.ranks[1].end().next, uint64(1)<<32)
}

// TestRingOfAnAbortedReceive: a receive that was given up counts as the message that it was for.
func TestRingOfAnAbortedReceive(t *testing.T) {
	for _, looked := range []bool{false, true} {
		w := newWorld(t, withRings(Config{}))
		w.begin()
		a, b := w.ranks[0], w.ranks[1]
		b.hca.Inject(simhca.Fault{Kind: simhca.FaultRecvStatus, QPN: b.end().qpn, Status: verbs.StatusRemAbortErr})
		require.NoError(t, a.send("x"))
		w.deliver()
		if looked {
			b.m.lookIntoRings()
		}
		w.until("the completion", func() bool { return a.under == 0 })
		w.turns(100)
		require.Empty(t, b.failed)
		for range 100 {
			w.works()
		}
	}
}

// TestRingsAtRandom: fragments of all lengths, with ranks that look when they like, arrive once and
// in order; also what was on its way when an end failed arrives at most once, and all of it that
// was said to be delivered.
func TestRingsAtRandom(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			cfg := withRings(Config{RecvDepth: 8, SendDepth: 8})
			if seed%2 == 0 {
				cfg.RecvDepth, cfg.SendDepth = 64, 128
			}
			w := newWorld(t, cfg)
			for range 5 {
				w.begin()
				var sent, first [2]int
				for i, r := range w.ranks {
					first[i], r.ended = len(r.arrived), nil
				}
				text := func(from, i int) string {
					return fmt.Sprint(from, " ", i, " ") + strings.Repeat("z", i*37%slotBytes*(1+i%3))
				}
				for range 400 {
					i := rnd.IntN(2)
					r := w.ranks[i]
					switch rnd.IntN(6) {
					case 0, 1:
						if r.send(text(i, sent[i])) == nil {
							sent[i]++
						}
					case 2:
						r.m.Progress()
					case 3:
						r.m.lookIntoRings()
					default:
						w.f.Advance()
					}
				}
				if rnd.IntN(2) == 0 {
					w.until("all", func() bool { return w.ranks[0].under+w.ranks[1].under == 0 })
					w.turns(20)
				} else {
					w.ranks[rnd.IntN(2)].ep.Fail(nil)
					w.until("the end", func() bool {
						return w.ranks[0].ep.State() == btl.Drained && w.ranks[1].ep.State() == btl.Drained
					})
				}
				for i, r := range w.ranks {
					delivered := 0
					for _, err := range r.ended {
						if err == nil {
							delivered++
						}
					}
					got := w.ranks[1-i].arrived[first[1-i]:]
					require.GreaterOrEqual(t, len(got), delivered)
					require.LessOrEqual(t, len(got), sent[i])
					for k := range got {
						require.Equal(t, text(i, k), got[k])
					}
				}
				for _, r := range w.ranks {
					r.failed, r.drained = nil, nil
				}
			}
			require.Positive(t, w.ranks[0].m.ahead+w.ranks[1].m.ahead)
		})
	}
}

// FuzzRing: what is no ring is not taken for one; a ring has one encoding.
func FuzzRing(f *testing.F) {
	f.Add(outRing{addr: 1 << 40, rkey: 77, slotBytes: slotBytes}.appendTo(nil), 68)
	f.Add(outRing{addr: ^uint64(7), rkey: 77, slotBytes: slotBytes}.appendTo(nil), 68)
	f.Add([]byte{}, 1)
	f.Fuzz(func(t *testing.T, b []byte, slots int) {
		slots = 1 + (slots & maxDepth)
		r, ok := parseRing(b, slots)
		if !ok {
			return
		}
		require.Equal(t, b, r.appendTo(nil))
		require.Greater(t, r.slotBytes, uint32(tailBytes))
		require.Greater(t, r.addr+uint64(slots)*uint64(r.slotBytes), r.addr)
	})
}

// FuzzSlot: whatever is in a slot, a fragment of it lies within.
func FuzzSlot(f *testing.F) {
	b := append([]byte("some fragment"), make([]byte, tailBytes)...)
	writeTail(b, tail{length: 13, credits: 3, tag: 4, controlCredits: 1}, 99)
	f.Add(b, uint64(99))
	f.Add(make([]byte, 64), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, number uint64) {
		slot := make([]byte, 256)
		copy(slot[max(0, len(slot)-len(b)):], b)
		word := binary.LittleEndian.Uint64(slot[len(slot)-8:])
		frag, tl, ok := readSlot(slot, word, number)
		if !ok {
			return
		}
		require.Len(t, frag, tl.length)
		again := append(append([]byte(nil), frag...), make([]byte, tailBytes)...)
		writeTail(again, tl, number)
		require.Equal(t, slot[len(slot)-len(again):], again, "a fragment has one encoding")
	})
}

// TestTailIsReadOnce: what is taken for a fragment's tail is what its check was made of, though a
// device stores the tail meanwhile.
func TestTailIsReadOnce(t *testing.T) {
	const number, length = 7, slotBytes - tailBytes
	slot := make([]byte, slotBytes)
	at := (*uint64)(unsafe.Pointer(&slot[length]))
	good := tail{length: length, credits: 1}
	writeTail(slot, tail{length: length, credits: 2}, number)
	other := atomic.LoadUint64(at)
	writeTail(slot, good, number)
	right, word := atomic.LoadUint64(at), binary.LittleEndian.Uint64(slot[slotBytes-8:])
	var over atomic.Bool
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for !over.Load() {
			atomic.StoreUint64(at, other)
			atomic.StoreUint64(at, right)
		}
	}()
	for range 200000 {
		if _, got, ok := readSlot(slot, word, number); ok && got != good {
			t.Errorf("%+v", got)
			break
		}
	}
	over.Store(true)
	<-stopped
}
