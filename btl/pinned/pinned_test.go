package pinned

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// card is a module that registers memory.
type card struct {
	btl.Registrar
	err     error
	regions int // registered and not released
}

type cardRegion struct {
	btl.Region
	c *card
}

func (c *card) Register([]byte, btl.Access) (btl.Region, error) {
	if c.err != nil {
		return nil, c.err
	}
	c.regions++
	return &cardRegion{c: c}, nil
}

func (r *cardRegion) Release() error {
	r.c.regions--
	return nil
}

func TestOfFindsBlockThatHoldsAll(t *testing.T) {
	var m Memory
	mem := make([]byte, 100)
	m.Add(mem[50:60])
	m.Add(mem[10:20])
	m.Add(mem[20:30])
	for _, c := range []struct {
		from, to, offset int // offset < 0: no block
	}{{10, 20, 0}, {12, 15, 2}, {20, 30, 0}, {29, 30, 9}, {50, 60, 0}, {19, 21, -1}, {9, 10, -1}, {5, 15, -1}, {30, 31, -1}, {55, 61, -1}, {99, 100, -1}} {
		b, offset := m.Of(mem[c.from:c.to:c.to])
		require.Equal(t, c.offset >= 0, b != nil, "%d to %d", c.from, c.to)
		if b != nil {
			require.EqualValues(t, c.offset, offset, "%d to %d", c.from, c.to)
		}
	}
	m.Remove(mem[20:30])
	b, _ := m.Of(mem[20:30])
	require.Nil(t, b)
	m.Remove(mem[:10]) // was never added
	b, _ = m.Of(mem[10:20])
	require.NotNil(t, b)
}

func TestBlockIsRegisteredOnceForModuleAndAccess(t *testing.T) {
	var m Memory
	mem := make([]byte, 100)
	m.Add(mem)
	b, _ := m.Of(mem)
	c, other := &card{}, &card{}
	r := b.On(c, btl.AccessRemoteRead)
	require.Same(t, r, b.On(c, btl.AccessRemoteRead))
	require.NotSame(t, r, b.On(c, btl.AccessRemoteWrite))
	require.NotNil(t, b.On(other, btl.AccessRemoteRead))
	require.Equal(t, []int{2, 1}, []int{c.regions, other.regions})

	m.Revoke([]btl.Region{r, nil})
	require.Equal(t, 1, m.Revoked())
	require.Equal(t, 1, c.regions)
	require.NotSame(t, r, b.On(c, btl.AccessRemoteRead))
	m.Revoke([]btl.Region{r})
	require.Equal(t, 1, m.Revoked())

	m.Remove(mem)
	require.Equal(t, []int{0, 0}, []int{c.regions, other.regions})
}

func TestModuleWithoutRoomForBlock(t *testing.T) {
	var m Memory
	mem := make([]byte, 100)
	m.Add(mem)
	b, _ := m.Of(mem)
	c := &card{err: btl.ErrMemory}
	require.Nil(t, b.On(c, btl.AccessRemoteRead))
	c.err = nil
	require.NotNil(t, b.On(c, btl.AccessRemoteRead))
}
