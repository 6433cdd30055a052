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
)

// x is a fragment of n bytes.
func x(n int) string { return strings.Repeat("x", n) }

// TestRingAfterManySmallFragments: a peer gets a ring after EagerAfter small fragments, and uses it
// for small ones only.
func TestRingAfterManySmallFragments(t *testing.T) { onEachFabric(t, testRingAfterManySmallFragments) }

func testRingAfterManySmallFragments(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{EagerPeers: 1, EagerAfter: 5})
	w.connect()
	const most = slotBytes - tailBytes
	send := func(n int) {
		require.NoError(t, a.send(x(n)))
		w.until("the completion", a.isIdle)
		w.turns(20)
	}
	for range 10 {
		send(most + 1)
	}
	for range 4 {
		send(most)
	}
	require.Nil(t, b.end().in)
	send(9)
	require.NotNil(t, b.end().in)
	require.Nil(t, a.end().in, "the rank that only sends has none")
	for i, n := range []int{0, 1, most, most + 1} {
		send(n)
		require.Equal(t, min(i+1, 3), b.m.ahead, "%d bytes", n)
	}
	require.Len(t, b.arrived, 19)
}

// TestNoRingWithoutEagerPeers: by default no peer gets a ring.
func TestNoRingWithoutEagerPeers(t *testing.T) { onEachFabric(t, testNoRingWithoutEagerPeers) }

func testNoRingWithoutEagerPeers(t *testing.T, link verbs.LinkLayer) {
	w, _, _ := connectedWorld(t, link, Config{EagerAfter: 1})
	w.works()
	w.works()
	for _, r := range w.ranks {
		require.Nil(t, r.end().in)
		require.Equal(t, outRing{}, r.end().out)
	}
}

// TestRingsAreBounded: at most EagerPeers peers have rings. When the endpoint of one fails, another
// peer may get one.
func TestRingsAreBounded(t *testing.T) { onEachFabric(t, testRingsAreBounded) }

func testRingsAreBounded(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, withRings(Config{}))
	require.Len(t, a.m.rings, 1)
	another := &endpoint{m: a.m, small: 100}
	require.False(t, another.wantsRing())
	a.ep.Fail(nil)
	require.True(t, another.wantsRing())
	w.recovers()
}

// TestRingWithoutMemory: if no memory can be registered for a ring, fragments are sent.
func TestRingWithoutMemory(t *testing.T) { onEachFabric(t, testRingWithoutMemory) }

func testRingWithoutMemory(t *testing.T, link verbs.LinkLayer) {
	w, _, _ := newWorld(t, link, withRings(Config{}))
	w.connect()
	for _, r := range w.ranks {
		pd, restore := r.faultPD()
		pd.regMR = func([]byte, verbs.Access) (verbs.MR, error) { return nil, verbs.ErrNoMemory }
		defer restore()
	}
	for range 5 {
		w.works()
	}
	for _, r := range w.ranks {
		require.Nil(t, r.end().in)
		require.Empty(t, r.failed)
	}
}

// TestRingKeepsOrder: a fragment in a ring is not delivered before a fragment that was sent before
// it.
func TestRingKeepsOrder(t *testing.T) { onEachFabric(t, testRingKeepsOrder) }

func testRingKeepsOrder(t *testing.T, link verbs.LinkLayer) {
	w, a, b := connectedWorld(t, link, withRings(Config{}))
	arrived := len(b.arrived)
	want := []string{"1", x(slotBytes), "2", "3"}
	for _, text := range want {
		require.NoError(t, a.send(text))
	}
	w.deliver()
	require.Equal(t, 1, b.m.pollRings())
	require.Equal(t, 0, b.m.pollRings(), "the completion of the long fragment was not polled yet")
	w.until("all", a.isIdle)
	w.turns(10)
	require.Equal(t, want, b.arrived[arrived:])
	require.Zero(t, b.end().ahead)
}

// TestRingWakesSleeper: a write to a ring raises the event that a sleeping rank waits for.
func TestRingWakesSleeper(t *testing.T) { onEachFabric(t, testRingWakesSleeper) }

func testRingWakesSleeper(t *testing.T, link verbs.LinkLayer) {
	wakeup := new(countingWakeup)
	w, a, b := connectedWorld(t, link, withRings(Config{Wakeup: wakeup}))
	require.True(t, b.m.Arm())
	for b.m.Progress() > 0 {
	}
	wakeup.wakes = 0
	require.NoError(t, a.send("wake up"))
	w.deliver()
	require.Positive(t, wakeup.wakes)
	b.m.Disarm()
	before := b.m.ahead
	require.Positive(t, b.m.Progress())
	require.Equal(t, before+1, b.m.ahead, "the fragment was found in the ring")
	w.until("the completion", a.isIdle)
}

type countingWakeup struct{ wakes int }

func (b *countingWakeup) Wake()            { b.wakes++ }
func (b *countingWakeup) Sleep(int64) bool { return false }
func (b *countingWakeup) Close() error     { return nil }

// TestFailureDeliversAcknowledgedFragments: fragments that the peer's device has acknowledged are
// delivered once, although the endpoint fails before this rank polls.
func TestFailureDeliversAcknowledgedFragments(t *testing.T) {
	const n = 3*pollBatch + 1 // more than a progress call polls
	for how, fail := range map[string]func(b *testRank){
		"Fail":     func(b *testRank) { b.ep.Fail(nil) },
		"QP_FATAL": func(b *testRank) { b.hca.RaiseQP(b.end().qpn, verbs.EventQPFatal) },
		"CQ_ERR":   func(b *testRank) { b.hca.BreakCQ(b.end().qpn) },
	} {
		for _, looked := range []int{0, 1, n - 1, n} {
			t.Run(fmt.Sprint(how, looked), func(t *testing.T) {
				bothWays(t, Config{}, func(t *testing.T, w *world, a, b *testRank) {
					if how == "CQ_ERR" && b.end().in == nil {
						return // the completions of sends are lost
					}
					a.ended = nil
					var want []string
					arrived := len(b.arrived)
					for i := range n {
						want = append(want, fmt.Sprint(i))
						require.NoError(t, a.send(want[i]))
						w.deliver()
						if i < looked {
							b.m.pollRings() // but b does not poll completions
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
					w.recovers()
				})
			})
		}
	}
}

// TestRingIsReleasedBeforeDrained: once the endpoint is Drained, the memory of its ring is neither
// registered nor used.
func TestRingIsReleasedBeforeDrained(t *testing.T) { onEachFabric(t, testRingIsReleasedBeforeDrained) }

func testRingIsReleasedBeforeDrained(t *testing.T, link verbs.LinkLayer) {
	w, a, b := connectedWorld(t, link, withRings(Config{}))
	end := b.end()
	mr := end.in.mr
	b.ep.Fail(nil)
	w.until("Drained", b.isDrained)
	require.Error(t, mr.Dereg(), "it is not registered any more")
	require.Nil(t, end.in)
	w.until("the other end", a.isDrained)
	w.recovers()
}

// putInRing writes a fragment into the slot of the rank's ring for the peer's next message, as the
// peer could, possibly damaged.
func (r *testRank) putInRing(t tail, frag string, damage func(slot []byte)) {
	e := r.end()
	slot := e.slot
	b := append([]byte(frag), make([]byte, tailBytes)...)
	writeTail(b, t, e.next)
	copy(slot[len(slot)-len(b):], b)
	if damage != nil {
		damage(slot)
	}
}

// TestIncompleteFragmentInRing: a fragment that is not complete is not delivered, nor is one with
// another number than the next.
func TestIncompleteFragmentInRing(t *testing.T) { onEachFabric(t, testIncompleteFragmentInRing) }

func testIncompleteFragmentInRing(t *testing.T, link verbs.LinkLayer) {
	_, _, b := connectedWorld(t, link, withRings(Config{}))
	arrived := len(b.arrived)
	good := tail{length: 4}
	for name, back := range map[string]int{
		"first byte of four": tailBytes + 4, "last byte": tailBytes + 1, "length": 16, "credits": 14,
		"tag": 12, "control credits": 11, "zeros": 9, "number": 8, "check": 1,
	} {
		b.putInRing(good, "text", func(slot []byte) { slot[len(slot)-back] ^= 1 })
		require.Zero(t, b.m.pollRings(), name)
	}
	b.putInRing(tail{length: slotBytes - tailBytes + 1}, "text", nil)
	require.Zero(t, b.m.pollRings(), "longer than the slot")
	require.Len(t, b.arrived, arrived)
	require.Empty(t, b.failed)
	b.putInRing(good, "text", nil)
	require.Equal(t, 1, b.m.pollRings())
	require.Equal(t, "text", b.arrived[arrived])
}

// TestInvalidWriteFails: if a peer uses rings in another way than this version, the endpoint fails.
func TestInvalidWriteFails(t *testing.T) { onEachFabric(t, testInvalidWriteFails) }

func testInvalidWriteFails(t *testing.T, link verbs.LinkLayer) {
	putNext := func(b *testRank, tl tail) {
		b.putInRing(tl, "", nil)
		b.m.pollRings()
	}
	for name, do := range map[string]func(a, b *testRank){
		"credits":         func(_, b *testRank) { putNext(b, tail{credits: 1000}) },
		"control credits": func(_, b *testRank) { putNext(b, tail{controlCredits: controlDepth + 1}) },
		"second ring":     func(a, _ *testRank) { a.end().sendControl(wireRing) },
		"other number":    func(a, _ *testRank) { a.end().sent++; _ = a.send("x") },
		"other slot":      func(a, _ *testRank) { a.end().out.addr += 8 * slotBytes; _ = a.send("x") },
		"other number than delivered": func(a, b *testRank) {
			putNext(b, tail{})
			a.end().sent++
			_ = a.send("x")
		},
		"sent instead of delivered": func(a, b *testRank) {
			putNext(b, tail{})
			_ = a.send(x(slotBytes))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, a, b := connectedWorld(t, link, withRings(Config{}))
			arrived := len(b.arrived)
			do(a, b)
			w.until("the failure", func() bool { return len(b.failed) > 0 })
			require.Equal(t, btl.ClassProtocol, b.failed[0].Class)
			if !strings.Contains(name, "delivered") {
				require.Len(t, b.arrived, arrived)
			}
			w.recovers()
		})
	}
}

// TestWriteWithoutRingFails: a peer that was offered no ring must not write.
func TestWriteWithoutRingFails(t *testing.T) { onEachFabric(t, testWriteWithoutRingFails) }

func testWriteWithoutRingFails(t *testing.T, link verbs.LinkLayer) {
	w, a, b := connectedWorld(t, link, Config{})
	region := b.memory((b.m.receives()+1)*slotBytes, btl.AccessRemoteWrite)
	k, ok := parseKey(new(region.Key()))
	require.True(t, ok)
	a.end().out = outRing{k.addr, k.rkey, slotBytes}
	require.NoError(t, a.send("x"))
	w.until("the failure", func() bool { return len(b.failed) > 0 })
	require.Equal(t, btl.ClassProtocol, b.failed[0].Class)
	w.recovers()
}

// TestRingDeliversNoMoreThanReceives: if a peer writes without taking receives, at most as many of
// its fragments are delivered as there are receives.
func TestRingDeliversNoMoreThanReceives(t *testing.T) {
	onEachFabric(t, testRingDeliversNoMoreThanReceives)
}

func testRingDeliversNoMoreThanReceives(t *testing.T, link verbs.LinkLayer) {
	_, _, b := connectedWorld(t, link, withRings(Config{RecvDepth: 8}))
	slots := b.end().in.count
	b.end().given = 1000 // otherwise the credits are the limit
	n := 0
	for range 1000 {
		b.putInRing(tail{}, "", nil)
		n += b.m.pollRings()
	}
	require.Equal(t, slots, n)
}

// TestNumbersInRingWrapAround: the low half of a message's number is on the wire.
func TestNumbersInRingWrapAround(t *testing.T) { onEachFabric(t, testNumbersInRingWrapAround) }

func testNumbersInRingWrapAround(t *testing.T, link verbs.LinkLayer) {
	w, a, b := connectedWorld(t, link, withRings(Config{RecvDepth: 8}))
	w.turns(200)
	for _, r := range w.ranks {
		const jump = 1<<32 - 30
		r.end().sent += jump
		r.other().end().next += jump
		r.other().end().locateNext()
	}
	before := b.m.ahead
	for range 60 {
		w.works()
	}
	require.Equal(t, before+60, b.m.ahead)
	// A delivered fragment is not found again under a number with the same low half.
	e := b.end()
	const around = (8 + controlDepth) << 32 // a multiple of the slots
	require.Zero(t, around%e.in.count)
	e.next += around - 1
	e.locateNext()
	require.Zero(t, b.m.pollRings())
	a.end().sent += around - 1
	w.works()
	require.Greater(t, e.next, uint64(1)<<32)
}

// TestWorkRequestsWrapAround: the counters of work requests and of delivered messages wrap, and so
// does the number of the endpoint in the IDs.
func TestWorkRequestsWrapAround(t *testing.T) { onEachFabric(t, testWorkRequestsWrapAround) }

func testWorkRequestsWrapAround(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{})
	a.m.made, b.m.made = 1<<16-2, 1<<32-2
	w.begin()
	for range 3 {
		for _, r := range w.ranks {
			e := r.end()
			jump := uint32(1<<32-30) / (e.sqMask + 1) * (e.sqMask + 1)
			e.sqHead, e.sqTail = e.sqHead+jump, e.sqTail+jump
			e.acked += 1<<32 - 30
			r.other().end().next += 1<<32 - 30
			e.sent += 1<<32 - 30
		}
		for range 60 {
			w.works()
		}
		a.ep.Fail(nil)
		w.recovers()
	}
}

// TestAbortedReceiveWithRing: an aborted receive counts as the message that it was for.
func TestAbortedReceiveWithRing(t *testing.T) { onEachFabric(t, testAbortedReceiveWithRing) }

func testAbortedReceiveWithRing(t *testing.T, link verbs.LinkLayer) {
	for _, looked := range []bool{false, true} {
		w, a, b := connectedWorld(t, link, withRings(Config{}))
		b.completeWith(simhca.FaultRecvStatus, verbs.StatusRemAbortErr)
		require.NoError(t, a.send("x"))
		w.deliver()
		if looked {
			b.m.pollRings()
		}
		w.until("the completion", a.isIdle)
		w.turns(100)
		require.Empty(t, b.failed)
		for range 100 {
			w.works()
		}
	}
}

// TestRandomTrafficInRings: fragments of all lengths arrive once and in order, whichever rank makes
// progress when. Fragments that are in flight when an end fails arrive at most once, and exactly
// once if their sends have succeeded.
func TestRandomTrafficInRings(t *testing.T) { onEachFabric(t, testRandomTrafficInRings) }

func testRandomTrafficInRings(t *testing.T, link verbs.LinkLayer) {
	text := func(from, i int) string { return fmt.Sprint(from, " ", i, " ") + x(i*37%slotBytes*(1+i%3)) }
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			cfg := withRings(Config{RecvDepth: 8, SendDepth: 8})
			if seed%2 == 0 {
				cfg.RecvDepth, cfg.SendDepth = 64, 128
			}
			w, a, b := newWorld(t, link, cfg)
			for range 5 {
				w.begin()
				var sent, first [2]int
				for i, r := range w.ranks {
					first[i], r.ended = len(r.arrived), nil
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
						r.m.pollRings()
					default:
						w.f.Advance()
					}
				}
				if rnd.IntN(2) == 0 {
					w.until("all", func() bool { return a.isIdle() && b.isIdle() })
					w.turns(20)
				} else {
					w.ranks[rnd.IntN(2)].ep.Fail(nil)
					w.until("the end", func() bool { return a.isDrained() && b.isDrained() })
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
			require.Positive(t, a.m.ahead+b.m.ahead)
		})
	}
}

// FuzzRing: the offer of a ring has one encoding, and an invalid one is refused.
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

// FuzzSlot: a fragment found in a slot lies within the slot.
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

// TestTailIsReadOnce: readSlot returns the tail that it has checked, although a device changes the
// tail meanwhile.
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
