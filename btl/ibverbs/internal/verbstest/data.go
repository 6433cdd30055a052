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

// dataCases: bytes that are sent arrive, of all lengths around the packets' size, by each operation.
func dataCases() (all []kase) {
	rc, uc, ud := verbs.ServiceRC, verbs.ServiceUC, verbs.ServiceUD
	for _, mtu := range []verbs.MTU{verbs.MTU256, verbs.MTU1024, 0} {
		name := fmt.Sprint(mtu.Bytes())
		if mtu == 0 {
			name = "active"
		}
		for op := verbs.WRRDMAWrite; op <= verbs.WRRDMARead; op++ {
			all = append(all, kase{"RC/MTU-" + name + "/" + opName(op), func(c *c) { sizes(c, rc, mtu, op) }})
			if op != verbs.WRRDMARead {
				all = append(all, kase{"UC/MTU-" + name + "/" + opName(op), func(c *c) { sizes(c, uc, mtu, op) }})
			}
		}
	}
	all = append(all,
		kase{"UD/MTU-active/SEND", func(c *c) { sizes(c, ud, 0, verbs.WRSend) }},
		kase{"UD/MTU-active/SEND_WITH_IMM", func(c *c) { sizes(c, ud, 0, verbs.WRSendWithImm) }},
		kase{"RC/pieces", pieces},
		kase{"RC/inline", func(c *c) { inline(c, rc) }},
		kase{"UC/inline", func(c *c) { inline(c, uc) }},
		kase{"UD/inline", func(c *c) { inline(c, ud) }},
		kase{"RC/inline-too-long", inlineTooLong},
		kase{"RC/sequence-wraps", func(c *c) {
			w := c.wire(opts{service: rc, psn: 0xfffffe, mtu: verbs.MTU256})
			for range 4 {
				w.a.carry()
				w.b.carry()
				w.a.scq.one(w.a.send(remote(verbs.WRRDMAWrite), length(1000)), verbs.StatusSuccess)
			}
		}},
		kase{"RC/CMP_AND_SWP", compareAndSwap},
		kase{"RC/FETCH_AND_ADD", fetchAndAdd},
		kase{"RC/many-reads", manyReads},
		kase{"RC/fence", fence},
		kase{"RC/both-ways", bothWays},
		kase{"RC/loopback", loopback},
		kase{"UD/to-several", toSeveral},
	)
	return all
}

// sizes carries messages of lengths around multiples of the MTU.
func sizes(c *c, service verbs.Services, mtu verbs.MTU, op verbs.Opcode) {
	active := min(c.a.pattr.ActiveMTU, c.b.pattr.ActiveMTU)
	if mtu > active {
		c.skip("the port's MTU is smaller")
	}
	w := c.wire(opts{service: service, mtu: mtu})
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
		wc := w.a.scq.one(sent, verbs.StatusSuccess)
		require.Equal(c, sendOpcode(op), wc.Opcode, "opcode of the completion")
		if op == verbs.WRRDMARead {
			require.EqualValues(c, n, wc.ByteLen)
		}
		off := 0
		if consumes {
			if service == verbs.ServiceUD {
				off = verbs.GRHBytes
			}
			wc := w.b.rcq.one(got, verbs.StatusSuccess)
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
			w.a.carry() // its completion says only that it was sent; this comes behind it
		}
		require.True(c, bytes.Equal(source[:n], sink[off:off+n]), "%d bytes are not what was sent", n)
		for _, v := range sink[off+n : min(off+n+64, len(sink))] {
			require.Zero(c, v, "behind %d bytes", n)
		}
	}
}

func sendOpcode(op verbs.Opcode) verbs.WCOpcode {
	return map[verbs.Opcode]verbs.WCOpcode{verbs.WRRDMAWrite: verbs.WCRDMAWrite, verbs.WRRDMAWriteWithImm: verbs.WCRDMAWrite,
		verbs.WRSend: verbs.WCSend, verbs.WRSendWithImm: verbs.WCSend, verbs.WRRDMARead: verbs.WCRDMARead,
		verbs.WRAtomicCmpAndSwp: verbs.WCCompSwap, verbs.WRAtomicFetchAndAdd: verbs.WCFetchAdd}[op]
}

// pieces gathers and scatters.
func pieces(c *c) {
	w := c.wire(opts{service: verbs.ServiceRC, sge: min(verbs.MaxSGE, c.a.attr.MaxSGE, c.b.attr.MaxSGE)})
	n := min(w.a.o.sge, verbs.MaxSGE)
	from, to := c.a.region(4096, everyAccess), c.b.region(8192, everyAccess)
	clear(to.buf)
	var want []byte
	total := 0
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
			total += 500 + 3*i
		}
	})
	w.a.scq.one(sent, verbs.StatusSuccess)
	wc := w.b.rcq.one(got, verbs.StatusSuccess)
	require.EqualValues(c, total, wc.ByteLen)
	var have []byte
	for i := range n {
		have = append(have, to.buf[i*1500:][:700+i]...)
	}
	require.True(c, bytes.Equal(want, have[:total]), "pieces")
	for _, v := range have[total:] {
		require.Zero(c, v, "behind the message")
	}
	// A piece of no length is nothing.
	got = w.b.recv()
	sent = w.a.send(func(_ *qp, wr *verbs.SendWR) { wr.NumSGE = 2; wr.SGE[1] = from.sge(0, 0) })
	w.a.scq.one(sent, verbs.StatusSuccess)
	w.a.arrived(got, 64)
}

// inline: memory that is not registered, and that is the caller's again when the post returns.
func inline(c *c, service verbs.Services) {
	w := c.wire(opts{service: service, inline: 64})
	most := w.a.Cap().MaxInlineData
	require.GreaterOrEqual(c, most, 64)
	for _, n := range []int{0, 1, 17, 64, min(most, 1024)} {
		buf := aligned(max(n, 1))
		want := make([]byte, n)
		for i := range n {
			buf[i] = byte(3*i + n)
		}
		copy(want, buf)
		got := w.b.recv()
		id := w.a.send(func(_ *qp, wr *verbs.SendWR) {
			wr.Flags |= verbs.SendInline
			wr.SGE[0] = verbs.SGE{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))), Length: uint32(n), LKey: 0xdeadbeef}
		})
		for i := range buf {
			buf[i] = 0xee
		}
		runtime.KeepAlive(buf)
		w.a.scq.one(id, verbs.StatusSuccess)
		wc := w.b.rcq.one(got, verbs.StatusSuccess)
		off := 0
		if service == verbs.ServiceUD {
			off = verbs.GRHBytes
		}
		require.EqualValues(c, n+off, wc.ByteLen)
		require.True(c, bytes.Equal(want, w.b.mem.buf[2048+off:][:n]), "%d bytes inline", n)
	}
}

func inlineTooLong(c *c) {
	w := c.wire(opts{service: verbs.ServiceRC, inline: 16})
	n := w.a.Cap().MaxInlineData + 1
	from := c.a.region(n, everyAccess)
	wr := w.a.sendWR()
	wr.Flags |= verbs.SendInline
	wr.SGE[0] = from.sge(0, n)
	posted, err := w.a.PostSend([]verbs.SendWR{wr})
	w.a.refused(posted, err, "more inline than the queue pair was made for")
	require.ErrorIs(c, err, verbs.ErrInvalid)
	w.a.carry()
}

func (r *region) word(off int) uint64 { return binary.NativeEndian.Uint64(r.buf[off:]) }

// poll reads a word that the device may be writing.
func (r *region) poll(off int) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&r.buf[off])))
}

func (r *region) setWord(off int, v uint64) { binary.NativeEndian.PutUint64(r.buf[off:], v) }

// atomically does an operation on the peer's word at 1024 and gives what was there.
func (q *qp) atomically(op verbs.Opcode, compareAdd, swap uint64) uint64 {
	id := q.send(remote(op), func(_ *qp, wr *verbs.SendWR) { wr.CompareAdd, wr.Swap = compareAdd, swap })
	wc := q.scq.one(id, verbs.StatusSuccess)
	require.Equal(q.c, sendOpcode(op), wc.Opcode)
	require.EqualValues(q.c, 8, wc.ByteLen)
	return q.mem.word(0)
}

func compareAndSwap(c *c) {
	c.needs(verbs.WRAtomicCmpAndSwp)
	w := c.wire(opts{service: verbs.ServiceRC})
	w.b.mem.setWord(1024, 0x1122334455667788)
	require.EqualValues(c, 0x1122334455667788, w.a.atomically(verbs.WRAtomicCmpAndSwp, 0x1122334455667788, 7), "what was there")
	require.EqualValues(c, 7, w.b.mem.word(1024), "swapped")
	require.EqualValues(c, 7, w.a.atomically(verbs.WRAtomicCmpAndSwp, 8, 9), "what was there")
	require.EqualValues(c, 7, w.b.mem.word(1024), "not swapped")
}

func fetchAndAdd(c *c) {
	c.needs(verbs.WRAtomicFetchAndAdd)
	w := c.wire(opts{service: verbs.ServiceRC})
	w.b.mem.setWord(1024, 1<<63)
	sum := uint64(1 << 63)
	for _, add := range []uint64{1, 41, ^uint64(0), 1 << 63} {
		require.Equal(c, sum, w.a.atomically(verbs.WRAtomicFetchAndAdd, add, 0), "what was there")
		sum += add
		require.Equal(c, sum, w.b.mem.word(1024))
	}
}

// manyReads: more than may be under way at once. The device sees to that.
func manyReads(c *c) {
	w := c.pairOf(opts{service: verbs.ServiceRC, rd: 1}, opts{service: verbs.ServiceRC, destRd: 1})
	w.a.bring(verbs.StateRTS)
	w.b.bring(verbs.StateRTS)
	into, from := c.a.region(4096, everyAccess), c.b.region(4096, everyAccess)
	var ids []uint64
	for i := range 12 {
		ids = append(ids, w.a.send(remote(verbs.WRRDMARead), func(_ *qp, wr *verbs.SendWR) {
			wr.SGE[0] = into.sge(i*300, 300)
			wr.RemoteAddr, wr.RKey = from.Addr()+uint64(i*300), from.RKey()
		}))
	}
	for _, id := range ids {
		w.a.scq.one(id, verbs.StatusSuccess)
	}
	require.True(c, bytes.Equal(from.buf[:3600], into.buf[:3600]))
}

// fence: what is sent is what the read before it brought.
func fence(c *c) {
	w := c.wire(opts{service: verbs.ServiceRC})
	got := w.b.recv()
	copy(w.b.mem.buf[1024:], "what the read brings, and the send takes on")
	read := w.a.send(remote(verbs.WRRDMARead))
	sent := w.a.send(func(_ *qp, wr *verbs.SendWR) { wr.Flags |= verbs.SendFence })
	w.a.scq.one(read, verbs.StatusSuccess)
	w.a.scq.one(sent, verbs.StatusSuccess)
	w.b.rcq.one(got, verbs.StatusSuccess)
	require.True(c, bytes.Equal(w.b.mem.buf[1024:1024+64], w.b.mem.buf[2048:2048+64]))
}

func bothWays(c *c) {
	w := c.wire(opts{service: verbs.ServiceRC})
	var a, b, ra, rb []uint64
	for range 8 {
		ra, rb = append(ra, w.a.recv()), append(rb, w.b.recv())
	}
	for range 8 {
		a, b = append(a, w.a.send()), append(b, w.b.send())
	}
	for i := range 8 {
		w.a.scq.one(a[i], verbs.StatusSuccess)
		w.b.scq.one(b[i], verbs.StatusSuccess)
		w.a.rcq.one(ra[i], verbs.StatusSuccess)
		w.b.rcq.one(rb[i], verbs.StatusSuccess)
	}
}

// loopback: two queue pairs of one device.
func loopback(c *c) {
	w := &wire{c, c.a.qp(opts{service: verbs.ServiceRC}), c.a.qp(opts{service: verbs.ServiceRC})}
	w.a.peer, w.b.peer = w.b, w.a
	for _, q := range []*qp{w.a, w.b} {
		for _, s := range []verbs.QPState{verbs.StateInit, verbs.StateRTR, verbs.StateRTS} {
			row, _ := verbs.FindTransition(verbs.ServiceRC, s-1, s)
			attr := q.attr(s)
			attr.AH.DGID, attr.AH.DLID = c.a.gid, c.a.pattr.LID
			require.NoError(c, q.Modify(attr, verbs.AttrState|row.Required))
		}
	}
	w.a.carry()
	w.b.carry()
}

// toSeveral: one UD queue pair sends to two, by number.
func toSeveral(c *c) {
	w := c.wire(opts{service: verbs.ServiceUD})
	other := c.b.qp(opts{service: verbs.ServiceUD})
	other.bring(verbs.StateRTS)
	first, second := w.b.recv(), other.recv()
	to := func(_ *qp, wr *verbs.SendWR) { wr.RemoteQPN = other.Num() }
	a, b := w.a.send(to), w.a.send()
	w.a.scq.one(a, verbs.StatusSuccess)
	w.a.scq.one(b, verbs.StatusSuccess)
	w.b.rcq.one(first, verbs.StatusSuccess)
	wc := other.rcq.one(second, verbs.StatusSuccess)
	require.Equal(c, w.a.Num(), wc.SrcQP)
}
