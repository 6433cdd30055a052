package btltest

import (
	"bytes"
	"math/rand/v2"
	"slices"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

func rebindTests() []namedTest {
	return []namedTest{
		{"before-contact", directed(testRebindBeforeContact)},
		{"backed-up", directed(testRebindBackedUp)},
		{"while-failing", directed(testRebindWhileFailing)},
		{"faults", injected(testRebindFaults)},
		{"put", directed(testRebindPut)},
		{"put-faults", injected(testRebindPutFaults)},
	}
}

// sendFromPages tries once to send a fragment whose payload has its own pages.
func (h *harness) sendFromPages(s *side, hdr, size int) (*tracked, error) {
	h.t.Helper()
	tr := s.newSend(hdr, size)
	mem, err := unix.Mmap(-1, 0, max(len(tr.buf), 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = unix.Munmap(mem) })
	tr.pages = mem
	tr.buf = mem[:len(tr.buf):len(tr.buf)]
	tr.op.Payload = tr.buf
	return tr, s.send(tr)
}

// takeBack rebinds a Send that was accepted to a copy of its payload, unless it has ended, and
// makes the old memory inaccessible. If a BTL still reads it, the process crashes, or a system call
// returns EFAULT.
func (h *harness) takeBack(tr *tracked) {
	h.t.Helper()
	tr.side.mu.Lock()
	defer tr.side.mu.Unlock()
	h.takeBackLocked(tr)
}

func (h *harness) takeBackLocked(tr *tracked) {
	h.t.Helper()
	if h.ended(tr) {
		return
	}
	if !tr.rebind() {
		if !h.pair.ReadsInPlace {
			h.violation("%s: Rebind of a Send of %d bytes fails", tr.side.name, tr.op.Len())
		}
		return
	}
	if err := unix.Mprotect(tr.pages, unix.PROT_NONE); err != nil {
		h.violation("protect memory: %v", err)
	}
}

// rebind calls Rebind with a copy, and checks the result. The side's lock is held.
func (tr *tracked) rebind() bool {
	s, old := tr.side, tr.op.Payload
	fresh := bytes.Clone(old)
	leave := s.enter("Rebind")
	ok := tr.ep.Rebind(&tr.op, fresh)
	leave()
	want := old
	if ok {
		want, tr.buf = fresh, fresh
	}
	if len(old) > 0 && (len(tr.op.Payload) != len(want) || &tr.op.Payload[0] != &want[0]) {
		s.h.violation("%s: Rebind says %v, and leaves another payload", s.name, ok)
	}
	return ok
}

// crowd lists sizes of fragments that a transport sends in different ways.
func crowd(at *btl.Attrs) []int {
	return []int{100, 8, at.EagerBytes, at.MaxSendBytes, 16, at.MaxSendBytes, 3000, 0}
}

// fill sends from pages until the endpoint takes nothing more, or for a while. No goroutine drives
// the other side. It returns the accepted operations.
func (h *harness) fill(s *side) []*tracked {
	h.t.Helper()
	var sent []*tracked
	sizes := crowd(s.m.Attrs())
	for refused := 0; refused < 20 && len(sent) < 80; {
		size := min(sizes[len(sent)%len(sizes)], s.m.Attrs().MaxSendBytes)
		switch tr, err := h.sendFromPages(s, min(size, 16), size); {
		case err == nil:
			sent = append(sent, tr)
		case err == btl.ErrResource:
			refused++
			s.progress()
		default:
			require.NoError(h.t, err)
		}
	}
	return sent
}

// testRebindBeforeContact: Rebind while the peer makes no progress yet.
func testRebindBeforeContact(h *harness, from, to *side) {
	h.connectSide(from, h.newGeneration())
	for _, tr := range h.fill(from) {
		h.takeBack(tr)
	}
	from.progress()
	h.connectSide(to, h.lastGen)
	h.settle()
	h.exchange()
}

// testRebindBackedUp: there is a connection, and the peer takes nothing from it. Some payloads are
// taken back at once, others after more operations were accepted.
func testRebindBackedUp(h *harness, from, to *side) {
	h.connect()
	for range 3 {
		h.exchange()
		first := h.fill(from)
		for _, tr := range first[len(first)/2:] {
			h.takeBack(tr)
		}
		from.progress()
		for _, tr := range slices.Concat(first, h.fill(from)) {
			h.takeBack(tr)
		}
		h.settle()
	}
}

// testRebindWhileFailing: an operation that is about to be called back can be rebound from inside
// the Done of another one.
func testRebindWhileFailing(h *harness, from, to *side) {
	if h.pair.Remote && from == h.b {
		h.t.Log("operations called back in the other process are reported here only afterwards")
		return
	}
	h.connect()
	h.exchange()
	sent := h.fill(from)
	from.onDone = func(*tracked) {
		for _, tr := range sent {
			h.takeBackLocked(tr)
		}
	}
	from.fail(errTest)
	h.untilDrained(from)
	from.onDone = nil
	h.recover(to)
	h.mustSend(from, 8, 100)
}

// testRebindFaults: the memory of an operation that an injected fault withholds can be taken back
// too.
func testRebindFaults(h *harness, from, to *side, in btl.Injector) {
	for _, kind := range []btl.FaultKind{btl.FaultErrorDelivered, btl.FaultErrorLost, btl.FaultSilence, btl.FaultLate, btl.FaultStale} {
		for _, size := range []int{64, from.m.Attrs().MaxSendBytes} {
			in.Inject(btl.Fault{Kind: kind, Peer: from.peer, Count: 1})
			var tr *tracked
			h.until("a fragment to be accepted", func() bool {
				got, err := h.sendFromPages(from, 8, size)
				tr = got
				return err == nil
			})
			h.takeBack(tr)
			h.turns(10)
			switch kind {
			case btl.FaultErrorDelivered, btl.FaultErrorLost:
				h.injectedError(tr)
			case btl.FaultLate:
				require.NoError(h.t, h.result(tr))
			default:
				from.fail(errTest)
				_ = h.result(tr) // a stale one may have been delivered before
			}
			if kind != btl.FaultLate {
				h.recover(to)
			}
			h.mustSend(from, 8, 100)
			h.settle()
		}
	}
}

// testRebindPut: a Put writes the bytes that its memory held when it was posted, whatever Rebind
// returns.
func testRebindPut(h *harness, from, to *side) {
	if h.lacks(from, btl.CapPut) {
		return
	}
	h.connect()
	const room = 1 << 20
	dst := h.register(to, room, forPeers, nil)
	for i, n := range []int{1, 64, 4096, 300_001, room} {
		src := h.register(from, room, forUs, rand.New(rand.NewPCG(1, uint64(i))))
		want := bytes.Clone(src.mem[:n])
		tr := src.access("Put", 0, n, dst.region.Key(), 0)
		h.postRemote(tr)
		h.takePutBack(tr, src)
		require.NoError(h.t, h.result(tr))
		require.True(h.t, bytes.Equal(want, dst.fetch()[:n]), "memory after a Put of %d bytes", n)
		src.release()
	}
	dst.release()
}

// takePutBack overwrites the memory of a Put once that is permitted: at once, or when the Put is
// called back.
func (h *harness) takePutBack(tr *tracked, src *memory) {
	h.t.Helper()
	tr.side.mu.Lock()
	defer tr.side.mu.Unlock()
	if h.ended(tr) || tr.rebind() {
		overwrite(src.mem)
	}
}

// testRebindPutFaults: a Put for which Rebind fails is called back before its endpoint is Drained.
func testRebindPutFaults(h *harness, from, to *side, in btl.Injector) {
	if h.lacks(from, btl.CapPut) {
		return
	}
	for _, kind := range []btl.FaultKind{btl.FaultErrorDelivered, btl.FaultErrorLost, btl.FaultSilence, btl.FaultLate} {
		src, dst := h.register(from, 64<<10, forUs, rand.New(rand.NewPCG(1, 1))), h.register(to, 64<<10, forPeers, nil)
		in.Inject(btl.Fault{Kind: kind, Peer: from.peer, Count: 1})
		tr := src.access("Put", 0, 64<<10, dst.region.Key(), 0)
		h.postRemote(tr)
		h.takePutBack(tr, src)
		if kind == btl.FaultLate {
			require.NoError(h.t, h.result(tr))
		} else {
			from.fail(errTest)
			require.Error(h.t, h.result(tr))
			h.recover(to)
		}
		release(src, dst)
	}
}
