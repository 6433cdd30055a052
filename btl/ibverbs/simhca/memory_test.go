package simhca

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

func TestRegMRKeysAndLimits(t *testing.T) {
	a, b := pair(t, setup{device: DeviceConfig{MaxLocked: 68 << 10}})
	mem := make([]byte, 100)
	keys := map[uint32]bool{}
	for range 3 * freshSlots {
		mr, err := b.pd.RegMR(mem, allAccess)
		require.NoError(t, err)
		require.False(t, keys[mr.RKey()], "a key was reused")
		keys[mr.RKey()], keys[mr.LKey()] = true, true
		require.NoError(t, mr.Dereg())
	}
	_, err := b.pd.RegMR(mem, 1<<30)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = b.pd.RegMR(make([]byte, 5<<10), 0)
	require.ErrorIs(t, err, verbs.ErrNoMemory, "more than MaxLocked")
	require.NoError(t, b.mr.Dereg())
	for range maxRegions {
		_, err := b.pd.RegMR(mem[:1], 0)
		require.NoError(t, err)
	}
	_, err = b.pd.RegMR(mem[:1], 0)
	require.ErrorIs(t, err, verbs.ErrNoMemory, "too many regions")
	a.exec(a.wr(1, verbs.WRRDMAWrite, b, 0, 8))
	require.Equal(t, []string{"1 REM_ACCESS_ERR"}, a.results())
}

// Datagrams are received after their global route header.
func TestDatagramHasGRH(t *testing.T) {
	a, b := pair(t, setup{service: verbs.ServiceUD})
	want := a.fill(0, 60, 1)
	b.recv(1, 0, 100)
	wr := a.wr(3, verbs.WRSendWithImm, b, 0, 60)
	a.exec(wr)
	require.Equal(t, []verbs.WC{{
		ID: 1, Opcode: verbs.WCRecv, ByteLen: 100, QPNum: b.qp.Num(), SrcQP: a.qp.Num(), Imm: 3,
		Flags: verbs.WCGRH | verbs.WCWithImm,
	}}, b.poll())
	require.Equal(t, a.gid[:], b.mem[8:24])
	require.Equal(t, want, b.mem[40:100])
	wr.SGE[0].Length = 4097
	_, err := a.qp.PostSend([]verbs.SendWR{wr})
	require.ErrorIs(t, err, verbs.ErrInvalid, "longer than the port's MTU")
	require.NoError(t, a.ah.Destroy())
	wr.SGE[0].Length = 60
	_, err = a.qp.PostSend([]verbs.SendWR{wr})
	require.ErrorIs(t, err, verbs.ErrInvalid, "the address handle is gone")
}

// store writes the bytes at every offset and length, and no others.
func TestStoreWritesExactlyTheBytes(t *testing.T) {
	src := []byte("0123456789abcdefghijklmnopqrstuvwxyz")
	for at := range 17 {
		for n := range len(src) + 1 {
			mem := make([]byte, 64)
			store(mem[at:], src[:n])
			require.Equal(t, string(src[:n]), string(mem[at:at+n]))
			for i, c := range mem {
				require.True(t, c == 0 || i >= at && i < at+n)
			}
		}
	}
}

// Over InfiniBand, packets are routed by LID and datagrams have no global route header.
func TestDatagramRoutedByLIDHasNoGRH(t *testing.T) {
	a, b := pair(t, setup{service: verbs.ServiceUD, device: DeviceConfig{Link: verbs.LinkInfiniBand}, idle: true})
	p, err := b.dev.QueryPort(1)
	require.NoError(t, err)
	a.ah, err = a.pd.CreateAH(verbs.AHAttr{Port: 1, DLID: p.LID})
	require.NoError(t, err)
	for _, e := range []*end{a, b} {
		e.toInit()
		e.toRTR(nil)
		e.toRTS()
	}
	b.recv(9, 0, 100)
	copy(a.mem, "by LID")
	a.exec(a.wr(1, verbs.WRSend, b, 0, 6))
	wc := b.poll()[0]
	require.Zero(t, wc.Flags&verbs.WCGRH)
	require.Equal(t, uint32(46), wc.ByteLen)
	require.NotZero(t, wc.SLID)
	require.Equal(t, "by LID", string(b.mem[40:46]))
	b.recv(10, 0, 100)
	b.hca.Raise(verbs.EventLIDChange, 1)
	a.exec(a.wr(2, verbs.WRSend, b, 0, 6))
	require.Empty(t, b.poll(), "the LID changed")
}
