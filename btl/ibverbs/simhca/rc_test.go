package simhca

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

func TestRCSendDeliversEveryLength(t *testing.T) {
	for _, n := range []int{0, 1, 8, 1023, 1024, 1025, 5000, 40_000} {
		a, b := pair(t, setup{})
		want := a.fill(0, n, 3)
		b.recv(1, 0, n)
		a.post(a.wr(2, verbs.WRSend, b, 0, n))
		a.run()
		require.Equal(t, []string{"2 SUCCESS"}, a.results())
		wcs := b.poll()
		require.Len(t, wcs, 1)
		require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCRecv, ByteLen: uint32(n), QPNum: b.qp.Num()}, wcs[0])
		require.Equal(t, want, append([]byte(nil), b.mem[:n]...))
		require.Empty(t, b.events())
	}
}

func TestRCSendAndWriteWithImm(t *testing.T) {
	a, b := pair(t, setup{})
	want := a.fill(0, 3000, 9)
	b.recv(1, 0, 4000)
	b.recv(2, 0, 0)
	a.post(a.wr(7, verbs.WRSendWithImm, b, 0, 3000))
	a.run()
	wc := b.poll()[0]
	require.Equal(t, verbs.WCWithImm, wc.Flags)
	require.Equal(t, uint32(7), wc.Imm)
	require.Equal(t, want, b.mem[:3000])
	clear(b.mem)
	a.post(a.wr(8, verbs.WRRDMAWriteWithImm, b, 0, 3000))
	a.run()
	wc = b.poll()[0]
	require.Equal(t, verbs.WC{ID: 2, Opcode: verbs.WCRecvRDMAWithImm, ByteLen: 3000, Imm: 8, Flags: verbs.WCWithImm, QPNum: b.qp.Num()}, wc)
	require.Equal(t, want, b.mem[:3000])
	require.Equal(t, []string{"7 SUCCESS", "8 SUCCESS"}, a.results())
}

func TestRCWriteAndRead(t *testing.T) {
	a, b := pair(t, setup{})
	want := a.fill(100, 9000, 5)
	a.post(a.wr(1, verbs.WRRDMAWrite, b, 100, 9000))
	a.run()
	require.Equal(t, []string{"1 SUCCESS"}, a.results())
	require.Equal(t, want, b.mem[100:9100])
	require.Zero(t, b.mem[99])
	require.Zero(t, b.mem[9100])
	clear(a.mem)
	a.post(a.wr(2, verbs.WRRDMARead, b, 100, 9000))
	a.run()
	wcs := a.poll()
	require.Len(t, wcs, 1)
	require.Equal(t, verbs.WCRDMARead, wcs[0].Opcode)
	require.Equal(t, uint32(9000), wcs[0].ByteLen)
	require.Equal(t, want, a.mem[100:9100])
	require.Empty(t, b.poll())
}

func TestRCAtomics(t *testing.T) {
	a, b := pair(t, setup{})
	binary.NativeEndian.PutUint64(b.mem[64:], 41)
	add := a.wr(1, verbs.WRAtomicFetchAndAdd, b, 64, 8)
	add.CompareAdd = 1
	swap := a.wr(2, verbs.WRAtomicCmpAndSwp, b, 64, 8)
	swap.CompareAdd, swap.Swap, swap.SGE[0] = 42, 1000, a.sge(128, 8)
	fails := swap
	fails.ID, fails.Swap, fails.SGE[0] = 3, 5, a.sge(192, 8)
	a.post(add, swap, fails)
	a.run()
	require.Equal(t, []string{"1 SUCCESS", "2 SUCCESS", "3 SUCCESS"}, a.results())
	require.Equal(t, uint64(41), binary.NativeEndian.Uint64(a.mem[64:]))
	require.Equal(t, uint64(42), binary.NativeEndian.Uint64(a.mem[128:]))
	require.Equal(t, uint64(1000), binary.NativeEndian.Uint64(a.mem[192:]))
	require.Equal(t, uint64(1000), binary.NativeEndian.Uint64(b.mem[64:]))
}

func TestInlineDataIsCopiedAtPost(t *testing.T) {
	a, b := pair(t, setup{})
	buf := a.mem[1000:1100] // not a local array: the address must not be on a goroutine's stack
	copy(buf, "copied at post")
	b.recv(1, 0, 200)
	wr := verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendInline, NumSGE: 1}
	wr.SGE[0] = verbs.SGE{Addr: addressOf(buf), Length: 100, LKey: 0xdead}
	a.post(wr)
	clear(buf)
	a.run()
	require.Equal(t, "copied at post", string(b.mem[:14]))
	require.Empty(t, a.poll(), "unsignaled")
	wr.SGE[0].Length = 129
	_, err := a.qp.PostSend([]verbs.SendWR{wr})
	require.ErrorIs(t, err, verbs.ErrInvalid)
}

func TestScatterGatherLists(t *testing.T) {
	a, b := pair(t, setup{})
	want := a.fill(0, 3500, 1)
	wr := a.wr(1, verbs.WRSend, b, 0, 0)
	wr.NumSGE = 4
	wr.SGE = [verbs.MaxSGE]verbs.SGE{a.sge(0, 3), a.sge(3, 0), a.sge(3, 2000), a.sge(2003, 1497)}
	rr := verbs.RecvWR{ID: 2, NumSGE: 3, SGE: [verbs.MaxSGE]verbs.SGE{b.sge(0, 1001), b.sge(5000, 2000), b.sge(1001, 4000)}}
	_, err := b.qp.PostRecv([]verbs.RecvWR{rr})
	require.NoError(t, err)
	a.post(wr)
	a.run()
	require.Equal(t, []string{"1 SUCCESS"}, a.results())
	got := append(append(append([]byte(nil), b.mem[:1001]...), b.mem[5000:7000]...), b.mem[1001:1001+499]...)
	require.Equal(t, want, got)
}

func TestUDSend(t *testing.T) {
	a, b := pair(t, setup{service: verbs.ServiceUD})
	want := a.fill(0, 2000, 1)
	b.recv(1, 0, 100) // too short: the datagram is dropped and the receive stays
	a.post(a.wr(2, verbs.WRSend, b, 0, 2000))
	a.run()
	require.Equal(t, []string{"2 SUCCESS"}, a.results())
	require.Empty(t, b.poll())
	small := append([]byte(nil), a.mem[:60]...)
	a.post(a.wr(3, verbs.WRSendWithImm, b, 0, 60))
	a.run()
	wcs := b.poll()
	require.Len(t, wcs, 1)
	require.Equal(t, verbs.WC{
		ID: 1, Opcode: verbs.WCRecv, ByteLen: 100, QPNum: b.qp.Num(), SrcQP: a.qp.Num(), Imm: 3,
		Flags: verbs.WCGRH | verbs.WCWithImm,
	}, wcs[0])
	require.Equal(t, a.gid[:], b.mem[8:24])
	require.Equal(t, small, b.mem[40:100])
	b.recv(4, 0, 4000)
	a.post(a.wr(5, verbs.WRSend, b, 0, 2000))
	a.run()
	require.Equal(t, want, b.mem[40:2040])
	_, err := a.qp.PostSend([]verbs.SendWR{a.wr(6, verbs.WRSend, b, 0, 4097)})
	require.ErrorIs(t, err, verbs.ErrInvalid)
}

func TestUCSend(t *testing.T) {
	a, b := pair(t, setup{service: verbs.ServiceUC})
	want := a.fill(0, 5000, 1)
	b.recv(1, 0, 6000)
	a.post(a.wr(2, verbs.WRSend, b, 0, 5000))
	a.run()
	require.Equal(t, []string{"2 SUCCESS"}, a.results())
	require.Equal(t, []string{"1 SUCCESS"}, b.results())
	require.Equal(t, want, b.mem[:5000])
}

func TestSendAndReadInRealTime(t *testing.T) {
	a, b := pair(t, setup{real: true})
	want := a.fill(0, 50_000, 1)
	b.recv(1, 0, 50_000)
	a.post(a.wr(2, verbs.WRSend, b, 0, 50_000), a.wr(3, verbs.WRRDMARead, b, 0, 50_000))
	require.Equal(t, []string{"2 SUCCESS", "3 SUCCESS"}, a.results())
	require.Equal(t, []string{"1 SUCCESS"}, b.results())
	require.Equal(t, want, b.mem[:50_000])
}
