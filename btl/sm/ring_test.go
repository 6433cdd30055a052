package sm

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

// heapRing is a ring in ordinary memory, where the race detector watches it, with guard words
// around each part.
type heapRing struct {
	geometry
	mem      []uint64
	counters [3]uint64
	p        producer
	c        consumer
}

const guard = 0x5ca1ab1e_0ddba11

// firstWord is the number part of the word of the first fragment.
const firstWord = 1<<31 | 1

// guardWords is a guard's length: an odd number of cache lines.
const guardWords = 24

func newHeapRing(slots, data, longest int) *heapRing {
	h := &heapRing{geometry: geometry{slots: uint64(slots), dataBytes: uint64(data)}}
	h.mem = make([]uint64, 3*guardWords+(h.slotArea()+h.dataBytes)/8)
	for i := range h.mem {
		h.mem[i] = guard
	}
	clear(h.slotMem())
	clear(h.dataMem())
	r := h.ring(unsafe.Pointer(&h.slotMem()[0]), unsafe.Pointer(&h.dataMem()[0]), &h.counters[0], &h.counters[1], &h.counters[2])
	h.p.ring, h.c.ring = r, r
	h.c.longest = uint64(longest)
	h.start(1)
	return h
}

// start begins a session.
func (h *heapRing) start(epoch uint32) {
	h.c.reset()
	h.p.reset(epoch, true)
	h.c.setEpoch(epoch)
}

// startAt begins a session as if the ring had already carried fragments, and its data part had been
// filled laps times.
func (h *heapRing) startAt(epoch uint32, fragments, laps uint64) {
	h.start(epoch)
	data := laps * h.dataBytes
	h.p.head, h.p.freed, h.p.dataHead, h.p.dataFreed = fragments, fragments, data, data
	h.c.tail, h.c.told, h.c.dataTail, h.c.dataDone = fragments, fragments, data, data
	h.c.look()
	h.counters[0], h.counters[1] = fragments, data
}

func (h *heapRing) slotMem() []uint64 { return h.mem[guardWords:][:h.slotArea()/8] }
func (h *heapRing) dataMem() []uint64 {
	return h.mem[2*guardWords+int(h.slotArea()/8):][:h.dataBytes/8]
}

func bytesOf(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
}

// intact checks the guards.
func (h *heapRing) intact(t require.TestingT) {
	for _, at := range []int{0, guardWords + len(h.slotMem()), len(h.mem) - guardWords} {
		for _, w := range h.mem[at:][:guardWords] {
			require.Equal(t, uint64(guard), w, "written outside of the ring")
		}
	}
}

// inside checks that a fragment lies in the ring.
func (h *heapRing) inside(t require.TestingT, frag []byte) {
	inSlots, inData := base.Contains(bytesOf(h.slotMem()), frag), base.Contains(bytesOf(h.dataMem()), frag)
	require.True(t, inSlots || inData, "a fragment outside of the ring")
}

// next takes the next fragment and copies it.
func (h *heapRing) next() (tag btl.Tag, frag []byte, v result, ok bool) {
	w, ok := h.c.ready()
	if !ok {
		return 0, nil, good, false
	}
	tag, frag, v = h.c.get(w)
	frag = slices.Clone(frag)
	if h.c.due() {
		h.c.release()
	}
	return tag, frag, v, true
}

// content makes fragment i, of n bytes.
func content(i, n int) []byte {
	b := make([]byte, n+8)
	for at := 0; at < n; at += 8 {
		binary.LittleEndian.PutUint64(b[at:], uint64(i*1_000_003+at))
	}
	return b[:n]
}

// edgeSizes returns sizes around those at which the ring behaves differently.
func edgeSizes(longest int) []int {
	return []int{
		0, 1, 7, 8, 9, 15, 16, 17, 24, 55, 56, 57, slotData - 1, slotData, slotData + 1, slotBytes, 1000,
		longest - 1, longest,
	}
}

func TestRingCarries(t *testing.T) {
	const longest = 2048
	h := newHeapRing(8, 4*longest, longest)
	i := 0
	for range 50 {
		for _, size := range edgeSizes(longest) {
			for _, hdr := range []int{0, 1, 16, 64} {
				hdr = min(hdr, size)
				want := content(i, size)
				require.Equal(t, good, h.p.put(btl.Tag(i), want[:hdr], want[hdr:]))
				tag, frag, v, ok := h.next()
				require.True(t, ok)
				require.Equal(t, good, v)
				require.Equal(t, btl.Tag(i), tag)
				require.True(t, bytes.Equal(want, frag), "fragment %d of %d bytes", i, size)
				i++
			}
		}
	}
	h.intact(t)
}

// puts puts fragments of equal size, and expects this result for each.
func (h *heapRing) puts(t require.TestingT, want result, fragments, bytes int) {
	for range fragments {
		require.Equal(t, want, h.p.put(1, nil, make([]byte, bytes)))
	}
}

func TestRingFull(t *testing.T) {
	h := newHeapRing(16, 4096, 1024)
	h.puts(t, good, 16, 1)
	h.puts(t, full, 3, 1)
	for range 3 {
		h.next()
	}
	h.puts(t, full, 1, 1) // less than a quarter was read
	h.next()
	h.puts(t, good, 4, 1)
	h.puts(t, full, 1, 1)
}

// TestRingFullOfData: the data part is full long before the slots are.
func TestRingFullOfData(t *testing.T) {
	h := newHeapRing(256, 4096, 1024)
	h.puts(t, good, 4, 1024)
	h.puts(t, full, 1, 1024)
	h.puts(t, good, 1, slotData) // needs no data
	h.next()                     // a quarter
	h.puts(t, good, 1, 1024)
	h.puts(t, full, 1, 1024)
	h.next()
	h.next()
	h.puts(t, good, 2, 1024)
	h.puts(t, full, 1, 1024)
}

// fewBefore are numbers shortly before a counter, or its low half, wraps to 0 or changes its sign.
// Never written.
var fewBefore = []uint64{0, 1<<31 - 3, 1<<32 - 1, 1<<32 - 3, 1<<63 - 3, 1<<64 - 3}

// TestClaimAndRetractWhenNumbersWrap: a number whose low half is 0 is not taken for a slot without
// a fragment.
func TestClaimAndRetractWhenNumbersWrap(t *testing.T) {
	for _, before := range fewBefore {
		h := newHeapRing(2, 8192, 1024)
		h.startAt(1, before, 0)
		for range 8 {
			_, _, _, ok := h.c.claim()
			require.False(t, ok, "nothing was put, or it was claimed a lap ago")
			require.Equal(t, good, h.p.put(1, nil, []byte{1}))
			_, _, _, ok = h.c.claim()
			require.True(t, ok)
			require.False(t, h.p.retract(), "the consumer has it")
			h.c.release()
		}
	}
}

// TestRingAgainstQueue compares a ring with a queue that has no limit.
func TestRingAgainstQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		longest := rapid.SampledFrom([]int{slotData, 400, 1000, 1024}).Draw(t, "longest")
		h := newHeapRing(
			1<<rapid.IntRange(1, 5).Draw(t, "slots"),
			int(roundUp(4*align(uint64(longest)))), longest)
		type fragment struct {
			tag  btl.Tag
			data []byte
		}
		var queue []fragment
		sent, epoch := 0, uint32(1)
		put := func(t *rapid.T, size int) result {
			data := content(sent, size)
			hdr := rapid.IntRange(0, min(size, btl.MaxHeaderBytes)).Draw(t, "header")
			v := h.p.put(btl.Tag(sent), data[:hdr], data[hdr:])
			if v == good {
				queue = append(queue, fragment{btl.Tag(sent), data})
				sent++
			}
			return v
		}
		take := func(t *rapid.T, tag btl.Tag, frag []byte, v result, ok bool) {
			require.True(t, ok)
			require.Equal(t, good, v)
			require.NotEmpty(t, queue)
			require.Equal(t, queue[0].tag, tag)
			require.True(t, bytes.Equal(queue[0].data, frag))
			queue = queue[1:]
		}
		claimAll := func(t *rapid.T) {
			for len(queue) > 0 {
				tag, frag, v, ok := h.c.claim()
				take(t, tag, frag, v, ok)
			}
		}
		// Counters wrap soon, or only after the end of the test.
		nextSession := func() {
			epoch++
			h.startAt(epoch, rapid.SampledFrom(fewBefore).Draw(t, "before"), rapid.SampledFrom(fewBefore).Draw(t, "laps"))
		}
		nextSession()
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				v := put(t, rapid.IntRange(0, longest).Draw(t, "size"))
				require.True(t, v == good || v == full)
				if len(queue) == 0 {
					require.Equal(t, good, v, "an empty ring refuses")
				}
			},
			"put edge": func(t *rapid.T) {
				put(t, min(longest, rapid.SampledFrom(edgeSizes(longest)).Draw(t, "size")))
			},
			"get": func(t *rapid.T) {
				if tag, frag, v, ok := h.next(); ok || len(queue) > 0 {
					take(t, tag, frag, v, ok)
				}
			},
			"tell": func(t *rapid.T) { h.p.freeData(h.c.dataTail) },
			"report an impossible position": func(t *rapid.T) {
				h.p.freeData(h.p.dataHead + rapid.Uint64Range(1, 1<<63).Draw(t, "too much"))
			},
			"empty": func(t *rapid.T) {
				for len(queue) > 0 {
					tag, frag, v, ok := h.next()
					take(t, tag, frag, v, ok)
				}
				require.Equal(t, good, put(t, longest), "an empty ring has room for the longest")
			},
			"retract": func(t *rapid.T) {
				if len(queue) == 0 {
					return
				}
				require.True(t, h.p.retract())
				require.False(t, h.p.retract(), "twice")
				queue = queue[:len(queue)-1]
				claimAll(t)
				_, _, _, ok := h.c.claim()
				require.False(t, ok)
				nextSession()
			},
			"claim all": func(t *rapid.T) {
				wasEmpty := len(queue) == 0
				claimAll(t)
				require.False(t, !wasEmpty && h.p.retract(), "the consumer has the fragment")
				nextSession()
			},
			"": func(t *rapid.T) { h.intact(t) },
		})
	})
}

// TestRingReusesBeginning: when the producer knows that all data has been read, a short fragment
// goes to the beginning of the data.
func TestRingReusesBeginning(t *testing.T) {
	h := newHeapRing(64, 64<<10, 8<<10)
	place := func(n int) int {
		require.Equal(t, good, h.p.put(1, nil, make([]byte, n)))
		w, ok := h.c.ready()
		require.True(t, ok)
		_, frag, v := h.c.get(w)
		require.Equal(t, good, v)
		if h.c.due() {
			h.c.release()
		}
		return int(uintptr(unsafe.Pointer(&frag[0])) - uintptr(h.c.data))
	}
	tell := func() { h.p.freeData(h.c.dataTail) }
	require.Zero(t, place(1000))
	require.Equal(t, 1024, place(1000), "the producer does not know")
	tell()
	require.Zero(t, place(3000), "longer than what was before it")
	tell()
	require.Equal(t, 3008, place(8000), "too long")
	tell()
	for range 1000 { // no room is lost
		require.Zero(t, place(reuseBytes))
		tell()
	}
	require.Equal(t, reuseBytes, place(8000))
}

// TestRingConcurrent lets the race detector watch the hand-over.
func TestRingConcurrent(t *testing.T) {
	const count, longest = 40_000, 2000
	for _, fenced := range []bool{false, true} {
		h := newHeapRing(16, 8192, longest)
		h.p.fenced = fenced
		size := func(i int) int {
			if i%16 == 0 {
				return i % longest
			}
			return i % 200
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range count {
				data := content(i, size(i))
				for h.p.put(btl.Tag(i), nil, data) == full {
					runtime.Gosched()
				}
			}
		})
		for i := range count {
			w, ok := h.c.ready()
			for !ok {
				runtime.Gosched()
				w, ok = h.c.ready()
			}
			tag, frag, v := h.c.get(w)
			if v != good || tag != btl.Tag(i) || !bytes.Equal(frag, content(i, size(i))) {
				require.Fail(t, "another fragment", "%d: result %d tag %d, %d bytes", i, v, tag, len(frag))
			}
			if h.c.due() {
				h.c.release()
			}
		}
		wg.Wait()
		h.intact(t)
	}
}

// TestRetractRacesWithClaim: while the producer retracts and the consumer claims, each fragment is
// either retracted or claimed.
func TestRetractRacesWithClaim(t *testing.T) {
	h := newHeapRing(2, 2048, 512)
	taken := 0
	for epoch := uint32(1); epoch <= 3000; epoch++ {
		h.start(epoch)
		require.Equal(t, good, h.p.put(1, nil, []byte("x")))
		claimed := make(chan bool)
		go func() {
			_, _, _, ok := h.c.claim()
			claimed <- ok
		}()
		if epoch%2 == 0 {
			runtime.Gosched()
		}
		retracted := h.p.retract()
		ok := <-claimed
		require.NotEqual(t, retracted, ok)
		if ok {
			taken++
		}
	}
	t.Logf("%d of 3000 claimed", taken)
}

// TestConsumerChecks: the consumer checks the place and length of a fragment in the data part.
func TestConsumerChecks(t *testing.T) {
	for _, c := range []struct {
		what         string
		read         uint64 // bytes before it
		at, length   uint64
		lengthInWord uint64
		want         result
	}{
		{"the longest", 0, 0, 1000, inData, good},
		{"longer", 0, 0, 1001, inData, corrupt},
		{"in its slot, and too long", 0, 0, 1000, slotData + 1, corrupt},
		{"to the end", 1024, 4096 - 64, 64, inData, good},
		{"over the end", 1024, 4096 - 64, 65, inData, corrupt},
		{"all that is free", 1024, 4096, 1000, inData, good},
		{"more than is free", 1024 - 64, 4096 + 64, 1000, inData, corrupt},
		{"from the beginning, with everything before it read", 64, 4096, 1000, inData, good},
		{"where the last one was", 1024, 1024 - 64, 100, inData, corrupt},
		{"a lap ahead", 1024, 1024 + 4096, 0, inData, corrupt},
	} {
		h := newHeapRing(8, 4096, 1000)
		h.c.dataTail = c.read
		copy(bytesOf(h.slotMem()), slotImage(firstWord|c.lengthInWord<<40|1<<epochShift, c.at, c.length))
		w, ok := h.c.ready()
		require.True(t, ok)
		_, frag, v := h.c.get(w)
		require.Equal(t, c.want, v, c.what)
		if v == good {
			require.Len(t, frag, int(c.length))
			h.inside(t, frag)
		}
	}
}

// TestProducerChecks: the producer checks the counters that the consumer writes.
func TestProducerChecks(t *testing.T) {
	for _, c := range []struct {
		what        string
		slots, data uint64
		want        result
	}{
		{"no change", 1, 512, good},
		{"all fragments", 3, 3 * 512, good},
		{"fewer slots than before", 0, 512, corrupt},
		{"less data than the producer knows to be read", 1, 448, good},
		{"more slots than were put", 4, 3 * 512, corrupt},
		{"more data than was put", 3, 3*512 + 64, corrupt},
	} {
		h := newHeapRing(8, 4096, 1000)
		h.puts(t, good, 3, 500)
		h.counters = [3]uint64{1, 512}
		require.Equal(t, good, h.p.refresh())
		h.counters = [3]uint64{c.slots, c.data}
		require.Equal(t, c.want, h.p.refresh(), c.what)
	}
}

func TestRingDropsStale(t *testing.T) {
	h := newHeapRing(8, 4096, 1000)
	put := func(epoch uint32, data []byte) {
		h.p.epoch = uint64(epoch) << epochShift
		require.Equal(t, good, h.p.put(7, nil, data))
	}
	h.start(5)
	put(4, []byte("old"))
	put(5, []byte("new"))
	put(4, content(1, 900))
	put(5, content(2, 900))
	for _, want := range [][]byte{nil, []byte("new"), nil, content(2, 900)} {
		_, frag, v, ok := h.next()
		require.True(t, ok)
		require.Equal(t, want, frag)
		require.Equal(t, want == nil, v == stale)
	}
	_, _, _, ok := h.next()
	require.False(t, ok)
}

// TestNewSessionSeesNoOldFragments: a session does not see the fragments of an earlier session
// whose epoch has the same low bits as a slot's word.
func TestNewSessionSeesNoOldFragments(t *testing.T) {
	h := newHeapRing(8, 4096, 1000)
	h.puts(t, good, 5, 6)
	h.start(1 + 1<<12) // the same epoch in a word
	_, _, _, ok := h.next()
	require.False(t, ok)
	require.Equal(t, good, h.p.put(1, nil, []byte("after")))
	_, frag, _, ok := h.next()
	require.True(t, ok)
	require.Equal(t, "after", string(frag))
	_, _, _, ok = h.next()
	require.False(t, ok)
}

func TestRingAllocatesNothing(t *testing.T) {
	h := newHeapRing(16, 8192, 2000)
	hdr, short, long := make([]byte, 16), make([]byte, 8), make([]byte, 1900)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		h.p.put(1, hdr, short)
		h.p.put(1, hdr, long)
		for {
			w, ok := h.c.ready()
			if !ok {
				break
			}
			h.c.get(w)
			if h.c.due() {
				h.c.release()
			}
		}
	}))
}

// FuzzConsumer: with any content of the memory, the consumer hands up no fragment that is outside
// of the ring or too long, and stops eventually.
func FuzzConsumer(f *testing.F) {
	f.Add(uint32(1), []byte{})
	f.Add(uint32(1), slotImage(firstWord|5<<40|1<<epochShift, 0, 0))
	f.Add(uint32(1), slotImage(firstWord|inData<<40|1<<epochShift, 0, 400))
	f.Add(uint32(1), slotImage(firstWord|inData<<40|1<<epochShift, 1<<63, 400))
	f.Add(uint32(1), slotImage(firstWord|inData<<40|1<<epochShift, 4096-64, 65))
	f.Add(uint32(1), slotImage(firstWord|inData<<40|1<<epochShift, 0, 1<<63))
	f.Add(uint32(2), slotImage(firstWord|(slotData+1)<<40|2<<epochShift, 0, 0))
	f.Add(uint32(2), append(slotImage(firstWord|3<<40|1<<epochShift, 0, 0), slotImage(firstWord+1|inData<<40|2<<epochShift, 4032, 64)...))
	f.Fuzz(func(t *testing.T, epoch uint32, image []byte) {
		for _, claims := range []bool{false, true} {
			h := newHeapRing(4, 4096, 1000)
			h.c.setEpoch(epoch)
			n := copy(bytesOf(h.slotMem()), image)
			copy(bytesOf(h.dataMem()), image[n:])
			for turns := 0; ; turns++ {
				// The slots do not change, so the consumer stops after a lap.
				require.LessOrEqual(t, turns, 4)
				w, ok := h.c.ready()
				if !ok {
					break
				}
				var frag []byte
				var v result
				if claims {
					_, frag, v, _ = h.c.claim()
				} else {
					_, frag, v = h.c.get(w)
				}
				require.LessOrEqual(t, len(frag), 1000)
				h.inside(t, frag)
				if v == corrupt {
					break
				}
				if h.c.due() {
					h.c.release()
				}
			}
			h.intact(t)
		}
	})
}

// slotImage makes the bytes of a slot.
func slotImage(word, at, length uint64) []byte {
	b := make([]byte, slotBytes)
	binary.LittleEndian.PutUint64(b, word)
	binary.LittleEndian.PutUint64(b[8:], at)
	binary.LittleEndian.PutUint64(b[16:], length)
	return b
}

// FuzzProducer: whatever counters the consumer writes, the producer stays inside of the ring.
func FuzzProducer(f *testing.F) {
	f.Add(uint64(1), []byte{4, 0, 1})
	f.Add(uint64(7), []byte{255, 255, 0, 3, 9})
	f.Fuzz(func(t *testing.T, seed uint64, counts []byte) {
		h := newHeapRing(4, 4096, 1000)
		rng := rand.New(rand.NewPCG(seed, 0))
		for _, b := range counts {
			if h.p.put(1, nil, make([]byte, rng.IntN(1001))) == corrupt {
				break
			}
			switch b % 4 {
			case 0:
				h.counters = [3]uint64{uint64(b), uint64(b) << 6}
			case 1:
				h.counters = [3]uint64{rng.Uint64(), rng.Uint64()}
			case 2:
				h.counters = [3]uint64{h.p.head, h.p.dataHead}
			case 3:
				h.counters[b>>2&1] += uint64(b >> 3)
				h.p.freeData(uint64(b) << 5)
			}
		}
		h.intact(t)
		require.LessOrEqual(t, h.p.head-h.p.freed, uint64(4))
		require.LessOrEqual(t, h.p.dataHead-h.p.dataFreed, uint64(4096))
	})
}
