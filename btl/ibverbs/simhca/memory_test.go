package simhca

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

func TestRegMRKeysAndLimits(t *testing.T) {
	a, b := pair(t, setup{device: DeviceConfig{MaxMR: 4, MaxLocked: 65 << 10}})
	mem := make([]byte, 100)
	keys := map[uint32]bool{}
	for range 3 * freshSlots {
		mr, err := b.pd.RegMR(mem, allAccess)
		require.NoError(t, err)
		require.False(t, keys[mr.RKey()], "a key was reused")
		keys[mr.RKey()], keys[mr.LKey()] = true, true
		require.NoError(t, mr.Dereg())
	}
	for i, c := range []struct {
		mem    []byte
		access verbs.Access
	}{{nil, 0}, {mem, verbs.AccessRemoteWrite}, {mem, verbs.AccessRemoteAtomic}, {mem, 1 << 30}} {
		_, err := b.pd.RegMR(c.mem, c.access)
		require.ErrorIs(t, err, verbs.ErrInvalid, i)
	}
	_, err := b.pd.RegMR(make([]byte, 2<<10), 0)
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	for range 3 {
		_, err := b.pd.RegMR(mem[:1], 0)
		require.NoError(t, err)
	}
	_, err = b.pd.RegMR(mem[:1], 0)
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	require.NoError(t, b.mr.Dereg())
	a.post(a.wr(1, verbs.WRRDMAWrite, b, 0, 8))
	a.run()
	require.Equal(t, []string{"1 REM_ACCESS_ERR"}, a.results())
}

// Objects of different protection domains do not work together.
func TestObjectsOfOtherDomainAreRefused(t *testing.T) {
	a, b := pair(t, setup{})
	pd, err := b.dev.AllocPD()
	require.NoError(t, err)
	mem := make([]byte, 64)
	mr, err := pd.RegMR(mem, allAccess)
	require.NoError(t, err)
	wr := a.wr(1, verbs.WRRDMAWrite, b, 0, 8)
	wr.RemoteAddr, wr.RKey = mr.Addr(), mr.RKey()
	a.post(wr)
	a.run()
	require.Equal(t, []string{"1 REM_ACCESS_ERR"}, a.results())
	srq, err := pd.CreateSRQ(verbs.SRQInit{MaxWR: 1})
	require.NoError(t, err)
	_, err = b.pd.CreateQP(verbs.QPInit{Service: verbs.ServiceRC, SendCQ: b.cq, RecvCQ: b.cq, SRQ: srq})
	require.ErrorIs(t, err, verbs.ErrInvalid)

	c, d := pair(t, setup{service: verbs.ServiceUD})
	pd, err = c.dev.AllocPD()
	require.NoError(t, err)
	ah, err := pd.CreateAH(c.pathTo(d))
	require.NoError(t, err)
	wr = c.wr(1, verbs.WRSend, d, 0, 8)
	wr.AH = ah.Handle()
	c.post(wr)
	require.Equal(t, []string{"1 LOC_QP_OP_ERR"}, c.results())
	require.NoError(t, ah.Destroy())
	_, err = c.qp.PostSend([]verbs.SendWR{wr})
	require.ErrorIs(t, err, verbs.ErrInvalid)
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
	a.post(a.wr(1, verbs.WRSend, b, 0, 6))
	a.run()
	wc := b.poll()[0]
	require.Zero(t, wc.Flags&verbs.WCGRH)
	require.Equal(t, uint32(46), wc.ByteLen)
	require.NotZero(t, wc.SLID)
	require.Equal(t, "by LID", string(b.mem[40:46]))
	b.recv(10, 0, 100)
	b.hca.Raise(verbs.EventLIDChange, 1)
	a.post(a.wr(2, verbs.WRSend, b, 0, 6))
	a.run()
	require.Empty(t, b.poll(), "the LID changed")
}
