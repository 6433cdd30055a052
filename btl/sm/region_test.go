package sm

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

func TestRegister(t *testing.T) {
	m, _ := newTest(t, Config{Size: 1})
	alloc(t, m, 1)
	mem := alloc(t, m, 3*int(m.own.page))
	alloc(t, m, 1)
	const forPeers = btl.AccessLocal | btl.AccessRemoteRead | btl.AccessRemoteWrite

	for _, part := range [][]byte{mem, mem[1:], mem[:1], mem[5:500], mem[len(mem)-1:]} {
		r := register(t, m, part, forPeers)
		require.NotEqual(t, btl.Key{}, r.Key())
		require.NoError(t, r.Release())
		require.Equal(t, base.ErrReleased, r.Release())
	}
	// Only memory of the rail can be exposed, but any memory can be used locally.
	_, a := m.findAllocation(mem)
	for _, foreign := range [][]byte{nil, make([]byte, 100), a.mem, a.mem[1 : len(mem)+1], a.mem[len(mem)+1:]} {
		for _, access := range []btl.Access{btl.AccessRemoteRead, btl.AccessRemoteWrite, forPeers} {
			_, err := m.Register(foreign, access)
			require.ErrorIs(t, err, btl.ErrMemory)
		}
		r := register(t, m, foreign, btl.AccessLocal)
		require.Equal(t, btl.Key{}, r.Key())
		require.NoError(t, r.Release())
	}
	r := register(t, m, mem, btl.AccessRemoteWrite)
	require.Equal(t, btl.Key{}, r.Key(), "the rail has no remote writes")
	require.NoError(t, r.Release())

	require.NoError(t, m.Close())
	_, err := m.Register(mem, btl.AccessLocal)
	require.Equal(t, btl.ErrClosed, err)
}

// TestManyRegions: an allocation has as many regions as its ledger has entries, each with its own
// key.
func TestManyRegions(t *testing.T) {
	m, _ := newTest(t, Config{Size: 1})
	mem := alloc(t, m, 1)
	_, a := m.findAllocation(mem)
	keys := map[btl.Key]bool{}
	var regions []*region
	for i := range ledgerEntries {
		r := register(t, m, mem[i:i+1], btl.AccessRemoteRead)
		regions = append(regions, r)
		keys[r.Key()] = true
	}
	require.Len(t, keys, ledgerEntries)
	_, err := m.Register(mem, btl.AccessRemoteRead)
	require.ErrorIs(t, err, btl.ErrResource)
	require.NoError(t, regions[7].Release())
	r := register(t, m, mem, btl.AccessRemoteRead)
	require.NotContains(t, keys, r.Key(), "a key came back")

	// An entry whose generations are used up is not used again, so that no key comes back.
	require.NoError(t, r.Release())
	a.ledger.entries[7].generation = math.MaxUint32 - 1
	r = register(t, m, mem, btl.AccessRemoteRead)
	require.Equal(t, uint32(math.MaxUint32), a.ledger.entries[7].generation)
	require.NoError(t, r.Release())
	require.Zero(t, a.ledger.entries[7].generation)
	_, err = m.Register(mem, btl.AccessRemoteRead)
	require.ErrorIs(t, err, btl.ErrResource)
}

func TestKey(t *testing.T) {
	good := key{nonce: [16]byte{1, 15: 2}, fd: math.MaxInt32, entry: ledgerEntries - 1, generation: math.MaxUint32}
	b := good.encode()
	k, ok := parseKey(&b)
	require.True(t, ok)
	require.Equal(t, good, k)
	for _, bad := range []key{
		{fd: math.MaxInt32 + 1, generation: 1},
		{entry: ledgerEntries, generation: 1},
		{generation: 2},
		{},
	} {
		b := bad.encode()
		_, ok := parseKey(&b)
		require.False(t, ok, "%+v", bad)
	}
	_, ok = parseKey(&btl.Key{24: 1})
	require.False(t, ok)
}

// TestRegistersWithoutAllocating: a receiver registers its buffer for each long message that it
// reads.
func TestRegistersWithoutAllocating(t *testing.T) {
	m, _ := newTest(t, Config{Size: 1})
	mem, own := alloc(t, m, 1), make([]byte, 100)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		local, err := m.Register(own, btl.AccessLocal)
		require.NoError(t, err)
		remote, err := m.Register(mem, btl.AccessRemoteRead)
		require.NoError(t, err)
		require.NoError(t, local.Release())
		require.NoError(t, remote.Release())
		require.Equal(t, base.ErrReleased, local.Release())
		_, err = m.Register(own, btl.AccessRemoteRead)
		require.ErrorIs(t, err, btl.ErrMemory)
	}))
}
