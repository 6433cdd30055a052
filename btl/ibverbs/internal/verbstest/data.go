package verbstest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// dataCases returns the cases for the transfer of data by each operation, with all lengths around
// the packet size.
func dataCases() (all []testCase) {
	for _, mtu := range []verbs.MTU{verbs.MTU256, verbs.MTU1024, 0} {
		name := fmt.Sprint(mtu.Bytes())
		if mtu == 0 {
			name = "active"
		}
		for op := verbs.WRRDMAWrite; op <= verbs.WRRDMARead; op++ {
			name := "/MTU-" + name + "/" + opName(op)
			all = append(all, testCase{"RC" + name, func(c *caseRun) { sizes(c, rc, mtu, op) }})
			if op != verbs.WRRDMARead {
				all = append(all, testCase{"UC" + name, func(c *caseRun) { sizes(c, uc, mtu, op) }})
			}
		}
	}
	all = append(all,
		testCase{"UD/MTU-active/SEND", func(c *caseRun) { sizes(c, ud, 0, verbs.WRSend) }},
		testCase{"UD/MTU-active/SEND_WITH_IMM", func(c *caseRun) { sizes(c, ud, 0, verbs.WRSendWithImm) }},
		testCase{"RC/scatter-gather", scatterGather},
		wired("RC/inline", opts{inline: 64}, inline),
		wired("UC/inline", opts{service: verbs.ServiceUC, inline: 64}, inline),
		wired("UD/inline", opts{service: verbs.ServiceUD, inline: 64}, inline),
		wired("RC/inline-too-long", opts{inline: 16}, inlineTooLong),
		wired("RC/sequence-wraps", opts{psn: 0xfffffe, mtu: verbs.MTU256}, sequenceWraps),
		wired("RC/CMP_AND_SWP", rc, compareAndSwap),
		wired("RC/FETCH_AND_ADD", rc, fetchAndAdd),
		testCase{"RC/many-reads", manyReads},
		testCase{"RC/read-cut-off", readCutOff},
		wired("RC/fence", rc, fence),
		wired("RC/both-ways", rc, bothWays),
		testCase{"RC/loopback", loopback},
		wired("UD/to-several", ud, toSeveral),
	)
	return all
}

func sequenceWraps(_ *caseRun, w *wire) {
	for range 4 {
		w.pings()
		w.a.awaitSent(w.a.send(remote(verbs.WRRDMAWrite), length(1000)))
	}
}

// sizes transfers messages with lengths around multiples of the MTU.
func sizes(c *caseRun, o opts, mtu verbs.MTU, op verbs.Opcode) {
	service := o.service
	active := min(c.a.pattr.ActiveMTU, c.b.pattr.ActiveMTU)
	c.skipIf(mtu > active, "the port's MTU is smaller")
	o.mtu = mtu
	w := c.wire(o)
	if mtu == 0 {
		mtu = active
	}
	m := mtu.Bytes()
	lengths := []int{0, 1, 3, 8, m - 1, m, m + 1, 2*m - 1, 2 * m, 2*m + 1, 7*m + 13}
	if service == verbs.ServiceUD {
		lengths = lengths[:6]
	}
	from, to := c.a.region(8*m, everyAccess), c.b.region(8*m+verbs.GRHBytes, everyAccess)
	for i, n := range lengths {
		for j := range from.buf {
			from.buf[j] = byte(j*7 + i + 1)
		}
		clear(to.buf)
		imm := op == verbs.WRSendWithImm || op == verbs.WRRDMAWriteWithImm
		consumes := imm || op == verbs.WRSend
		var got uint64
		if consumes {
			got = w.b.recv(func(_ *qp, wr *verbs.RecvWR) { wr.SGE[0] = to.sge(0, len(to.buf)) })
		}
		source, sink := from.buf, to.buf
		if op == verbs.WRRDMARead {
			source, sink = sink, source
			copy(source, sink)
			clear(sink)
		}
		sent := w.a.send(func(_ *qp, wr *verbs.SendWR) {
			wr.Opcode, wr.Imm = op, 0xc0ffee00+uint32(i)
			wr.RemoteAddr, wr.RKey = to.Addr(), to.RKey()
			wr.SGE[0] = from.sge(0, n)
			if n == 0 {
				wr.NumSGE = 0
			}
		})
		wc := w.a.scq.awaitOne(sent, verbs.StatusSuccess)
		require.Equal(c, sendOpcode(op), wc.Opcode, "opcode of the completion")
		if op == verbs.WRRDMARead {
			require.EqualValues(c, n, wc.ByteLen)
		}
		off := 0
		if consumes {
			off = w.a.grhBytes()
			wc := w.b.rcq.awaitOne(got, verbs.StatusSuccess)
			want := verbs.WCRecv
			if op == verbs.WRRDMAWriteWithImm {
				want = verbs.WCRecvRDMAWithImm
			}
			require.Equal(c, want, wc.Opcode, "opcode of the receive")
			require.EqualValues(c, n+off, wc.ByteLen, "bytes received")
			require.Equal(c, imm, wc.Flags&verbs.WCWithImm != 0, "flag of immediate data")
			if imm {
				require.Equal(c, 0xc0ffee00+uint32(i), wc.Imm)
			}
			require.Equal(c, w.b.Num(), wc.QPNum)
			if service == verbs.ServiceUD {
				require.Equal(c, w.a.Num(), wc.SrcQP)
			}
		}
		if service == verbs.ServiceUC && op == verbs.WRRDMAWrite {
			w.a.ping() // a UC write completes when it is sent; the ping arrives after it
		}
		require.True(c, bytes.Equal(source[:n], sink[off:off+n]), "the %d bytes are not what was sent", n)
		after := sink[off+n : min(off+n+64, len(sink))]
		require.Empty(c, bytes.Trim(after, "\x00"), "bytes after the %d sent", n)
	}
}

func sendOpcode(op verbs.Opcode) verbs.WCOpcode {
	return map[verbs.Opcode]verbs.WCOpcode{verbs.WRRDMAWrite: verbs.WCRDMAWrite, verbs.WRRDMAWriteWithImm: verbs.WCRDMAWrite,
		verbs.WRSend: verbs.WCSend, verbs.WRSendWithImm: verbs.WCSend, verbs.WRRDMARead: verbs.WCRDMARead,
		verbs.WRAtomicCmpAndSwp: verbs.WCCompSwap, verbs.WRAtomicFetchAndAdd: verbs.WCFetchAdd}[op]
}

// scatterGather sends and receives with several scatter/gather elements.
func scatterGather(c *caseRun) {
	w := c.wire(opts{sge: min(verbs.MaxSGE, c.a.attr.MaxSGE, c.b.attr.MaxSGE)})
	n := min(w.a.o.sge, verbs.MaxSGE)
	from, to := c.a.region(4096, everyAccess), c.b.region(8192, everyAccess)
	clear(to.buf)
	var want []byte
	got := w.b.recv(func(_ *qp, wr *verbs.RecvWR) {
		wr.NumSGE = uint32(n)
		for i := range n {
			wr.SGE[i] = to.sge(i*1500, 700+i)
		}
	})
	sent := w.a.send(func(_ *qp, wr *verbs.SendWR) {
		wr.NumSGE = uint32(n)
		for i := range n {
			wr.SGE[i] = from.sge(i*1000, 500+3*i)
			want = append(want, from.buf[i*1000:][:500+3*i]...)
		}
	})
	w.a.awaitSent(sent)
	wc := w.b.rcq.awaitOne(got, verbs.StatusSuccess)
	require.EqualValues(c, len(want), wc.ByteLen)
	var have []byte
	for i := range n {
		have = append(have, to.buf[i*1500:][:700+i]...)
	}
	want = append(want, make([]byte, len(have)-len(want))...)
	require.True(c, bytes.Equal(want, have), "scattered data, or bytes after the message")
	// An element of length 0 has no effect.
	got = w.b.recv()
	sent = w.a.send(func(_ *qp, wr *verbs.SendWR) { wr.NumSGE, wr.SGE[1] = 2, from.sge(0, 0) })
	w.a.awaitSent(sent)
	w.a.awaitMessage(got, 64)
}

// inline sends from unregistered memory, which the caller overwrites after the post.
func inline(c *caseRun, w *wire) {
	most := w.a.Cap().MaxInlineData
	require.GreaterOrEqual(c, most, 64)
	for _, n := range []int{0, 1, 17, 64, min(most, 1024)} {
		buf := aligned(max(n, 1))
		for i := range n {
			buf[i] = byte(3*i + n)
		}
		want := bytes.Clone(buf[:n])
		got := w.b.recv()
		id := w.a.send(func(_ *qp, wr *verbs.SendWR) {
			wr.Flags |= verbs.SendInline
			wr.SGE[0] = verbs.SGE{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))), Length: uint32(n), LKey: 0xdeadbeef}
		})
		for i := range buf {
			buf[i] = 0xee
		}
		runtime.KeepAlive(buf)
		w.a.awaitSent(id)
		wc := w.b.rcq.awaitOne(got, verbs.StatusSuccess)
		off := w.a.grhBytes()
		require.EqualValues(c, n+off, wc.ByteLen)
		require.True(c, bytes.Equal(want, w.b.mem.buf[2048+off:][:n]), "%d bytes inline", n)
	}
}

func inlineTooLong(c *caseRun, w *wire) {
	n := w.a.Cap().MaxInlineData + 1
	from := c.a.region(n, everyAccess)
	wr := w.a.sendWR()
	wr.Flags, wr.SGE[0] = wr.Flags|verbs.SendInline, from.sge(0, n)
	posted, err := w.a.PostSend([]verbs.SendWR{wr})
	w.a.requireRefused(posted, err, "more inline data than the queue pair has")
	require.ErrorIs(c, err, verbs.ErrInvalid)
	w.a.ping()
}

// word reads the word at an offset.
func (r *region) word(off int) uint64 { return binary.NativeEndian.Uint64(r.buf[off:]) }

// poll reads a word that the device may write concurrently.
func (r *region) poll(off int) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&r.buf[off])))
}

func (r *region) setWord(off int, v uint64) { binary.NativeEndian.PutUint64(r.buf[off:], v) }

// atomically executes an atomic operation on the peer's word at offset 1024 and returns the old
// value.
func (q *qp) atomically(op verbs.Opcode, compareAdd, swap uint64) uint64 {
	id := q.send(remote(op), func(_ *qp, wr *verbs.SendWR) { wr.CompareAdd, wr.Swap = compareAdd, swap })
	wc := q.scq.awaitOne(id, verbs.StatusSuccess)
	require.Equal(q.c, sendOpcode(op), wc.Opcode)
	require.EqualValues(q.c, 8, wc.ByteLen)
	return q.mem.word(0)
}

func compareAndSwap(c *caseRun, w *wire) {
	c.needs(verbs.WRAtomicCmpAndSwp)
	w.b.mem.setWord(1024, 0x1122334455667788)
	require.EqualValues(c, 0x1122334455667788, w.a.atomically(verbs.WRAtomicCmpAndSwp, 0x1122334455667788, 7), "old value")
	require.EqualValues(c, 7, w.b.mem.word(1024), "swapped")
	require.EqualValues(c, 7, w.a.atomically(verbs.WRAtomicCmpAndSwp, 8, 9), "old value")
	require.EqualValues(c, 7, w.b.mem.word(1024), "not swapped")
}

func fetchAndAdd(c *caseRun, w *wire) {
	c.needs(verbs.WRAtomicFetchAndAdd)
	w.b.mem.setWord(1024, 1<<63)
	sum := uint64(1 << 63)
	for _, add := range []uint64{1, 41, ^uint64(0), 1 << 63} {
		require.Equal(c, sum, w.a.atomically(verbs.WRAtomicFetchAndAdd, add, 0), "old value")
		sum += add
		require.Equal(c, sum, w.b.mem.word(1024))
	}
}

// manyReads posts more reads than may be outstanding; the device delays them.
func manyReads(c *caseRun) {
	w := c.wireOf(opts{rd: 1}, opts{destRd: 1})
	into, from := c.a.region(4096, everyAccess), c.b.region(4096, everyAccess)
	var ids []uint64
	for i := range 12 {
		ids = append(ids, w.a.send(remote(verbs.WRRDMARead), func(_ *qp, wr *verbs.SendWR) {
			wr.SGE[0] = into.sge(i*300, 300)
			wr.RemoteAddr, wr.RKey = from.Addr()+uint64(i*300), from.RKey()
		}))
	}
	w.a.awaitSent(ids...)
	require.True(c, bytes.Equal(from.buf[:3600], into.buf[:3600]))
}

// A case of reads that are cut off has this many reads in flight, each of this many bytes.
const cutOffReads, cutOffBytes = 8, 256 << 10

// readCutOff reduces the MTU of the responder's port while reads are in flight, so the responder
// cannot send some of the response packets. A read that succeeds must have all its bytes.
func readCutOff(c *caseRun) {
	c.skipIf(c.Injector.ShortMTU == nil, "the provider cannot change a port's MTU")
	c.skipIf(min(c.a.pattr.ActiveMTU, c.b.pattr.ActiveMTU) <= verbs.MTU1024, "the port's MTU is too small")
	rounds := 3
	if c.known != nil {
		rounds = 30 // soft-RoCE breaks the rule in a third to a half of the rounds
	}
	into, from := c.a.region(cutOffReads*cutOffBytes, everyAccess), c.b.region(cutOffReads*cutOffBytes, everyAccess)
	for range rounds {
		cutOff(c, into, from)
	}
}

// cutOff repeatedly reads pieces of a region, reduces the MTU meanwhile, and waits until all reads
// have ended.
func cutOff(c *caseRun, into, from *region) {
	w := c.wire(rc)
	pieceOf := map[uint64]int{} // the reads in flight, by request ID
	post := func(piece int) {
		off := piece * cutOffBytes
		clear(into.buf[off : off+cutOffBytes])
		read := w.a.send(remote(verbs.WRRDMARead), at(from.Addr()+uint64(off), from.RKey()),
			func(_ *qp, wr *verbs.SendWR) { wr.SGE[0] = into.sge(off, cutOffBytes) })
		pieceOf[read] = piece
	}
	for piece := range cutOffReads {
		post(piece)
	}
	// The change takes some time. Meanwhile the reads must continue.
	reduced := make(chan func(), 1)
	go func() {
		restore := func() {}
		defer func() { reduced <- restore }() // even if ShortMTU ends the goroutine
		restore = c.Injector.ShortMTU(c.b.dev, c.b.port)
	}()
	defer func() { (<-reduced)() }()
	more, failed := 2*cutOffReads, false // reads still to post after the change; a read has failed
	for len(pieceOf) > 0 {
		wc := w.a.scq.await(1)[0]
		piece, ok := pieceOf[wc.ID]
		require.True(c, ok, "request ID %d", wc.ID)
		delete(pieceOf, wc.ID)
		if wc.Status != verbs.StatusSuccess {
			failed = true
			continue
		}
		for i := piece * cutOffBytes; i < (piece+1)*cutOffBytes; i++ {
			if into.buf[i] != from.buf[i] {
				c.Fatalf("a read of %d bytes succeeded, but its bytes from %d on are missing", cutOffBytes, i%cutOffBytes)
			}
		}
		if len(reduced) > 0 {
			more--
		}
		if more > 0 && !failed {
			post(piece)
		}
	}
}

// fence sends the data of the read before it.
func fence(c *caseRun, w *wire) {
	got := w.b.recv()
	copy(w.b.mem.buf[1024:], "data that the read fetches and the send forwards")
	read := w.a.send(remote(verbs.WRRDMARead))
	sent := w.a.send(func(_ *qp, wr *verbs.SendWR) { wr.Flags |= verbs.SendFence })
	w.a.awaitSent(read, sent)
	w.b.rcq.awaitOne(got, verbs.StatusSuccess)
	require.True(c, bytes.Equal(w.b.mem.buf[1024:1024+64], w.b.mem.buf[2048:2048+64]))
}

func bothWays(_ *caseRun, w *wire) {
	var a, b, ra, rb []uint64
	for range 8 {
		ra, rb = append(ra, w.a.recv()), append(rb, w.b.recv())
	}
	for range 8 {
		a, b = append(a, w.a.send()), append(b, w.b.send())
	}
	w.a.awaitSent(a...)
	w.b.awaitSent(b...)
	w.a.rcq.awaitAll(verbs.StatusSuccess, ra...)
	w.b.rcq.awaitAll(verbs.StatusSuccess, rb...)
}

// loopback connects two queue pairs of the same device.
func loopback(c *caseRun) {
	w := &wire{c, c.a.qp(rc), c.a.qp(rc)}
	w.a.peer, w.b.peer = w.b, w.a
	toSelf := func(attr *verbs.QPAttr) { attr.AH.DGID, attr.AH.DLID = c.a.gid, c.a.pattr.LID }
	for _, q := range []*qp{w.a, w.b} {
		for _, s := range []verbs.QPState{verbs.StateInit, verbs.StateRTR, verbs.StateRTS} {
			require.NoError(c, q.moveWith(s, toSelf))
		}
	}
	w.pings()
}

// toSeveral sends from a UD queue pair to two others.
func toSeveral(c *caseRun, w *wire) {
	other := c.b.qp(ud)
	other.moveTo(verbs.StateRTS)
	first, second := w.b.recv(), other.recv()
	to := func(_ *qp, wr *verbs.SendWR) { wr.RemoteQPN = other.Num() }
	w.a.awaitSent(w.a.send(to), w.a.send())
	w.b.rcq.awaitOne(first, verbs.StatusSuccess)
	wc := other.rcq.awaitOne(second, verbs.StatusSuccess)
	require.Equal(c, w.a.Num(), wc.SrcQP)
}
