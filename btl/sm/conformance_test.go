package sm

import (
	"net"
	"runtime"
	"testing"

	"encoding/gob"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/progress"
)

func newBell(t testing.TB) *progress.PipeWakeup {
	bell, err := progress.NewPipeWakeup()
	require.NoError(t, err)
	t.Cleanup(func() { _ = bell.Close() })
	return bell
}

// pairs makes pairs of modules of one process.
func pairs(cfg Config) btltest.Maker {
	return func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
		a, b := cfg, cfg
		a.Rank, a.Size, a.Events, a.Wakeup = 0, 3, evA, newBell(t)
		b.Rank, b.Size, b.Events, b.Wakeup = 2, 3, evB, newBell(t)
		ma, err := New(a)
		require.NoError(t, err)
		mb, err := New(b)
		require.NoError(t, err)
		return &btltest.Pair{A: ma, B: mb, RankA: 0, RankB: 2, WakeupA: a.Wakeup, WakeupB: b.Wakeup}
	}
}

func TestConformance(t *testing.T) {
	t.Run("default", func(t *testing.T) { btltest.TestBTL(t, pairs(Config{})) })
	// So small that rings are full and wrap round all the time.
	t.Run("small", func(t *testing.T) {
		btltest.TestBTL(t, pairs(Config{RingSlots: 4, FragBytes: 4096}))
	})
	t.Run("fenced", func(t *testing.T) {
		btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
			p := pairs(Config{})(t, evA, evB)
			withoutBarrier(t, p.A.(*module))
			withoutBarrier(t, p.B.(*module))
			return p
		})
	})
}

// withoutBarrier makes a module as it is where the kernel has no membarrier.
func withoutBarrier(t testing.TB, m *module) {
	c, err := parseAddress(m.Address())
	require.NoError(t, err)
	c.fences, m.fences = false, false
	copy(m.Address(), c.encode())
}

// serveRole is the other process of a remote pair.
func serveRole(conn *net.UnixConn) error {
	var cfg Config
	if err := gob.NewDecoder(&onlyBytes{conn}).Decode(&cfg.RingSlots); err != nil {
		return err
	}
	bell, err := progress.NewPipeWakeup()
	if err != nil {
		return err
	}
	defer bell.Close()
	return btltest.Serve(conn, func(ev btl.Events) (btl.Module, error) {
		return New(Config{Rank: 1, Size: 2, Events: ev, Wakeup: bell, RingSlots: cfg.RingSlots})
	})
}

// onlyBytes keeps a decoder from reading ahead.
type onlyBytes struct{ *net.UnixConn }

// ReadByte implements io.ByteReader.
func (c *onlyBytes) ReadByte() (byte, error) {
	var b [1]byte
	_, err := c.Read(b[:])
	return b[0], err
}

func TestConformanceTwoProcesses(t *testing.T) {
	btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
		bell := newBell(t)
		a, err := New(Config{Rank: 0, Size: 2, Events: evA, Wakeup: bell, RingSlots: 16})
		require.NoError(t, err)
		c := start(t, "serve")
		c.tell(t, 16)
		b, err := btltest.Dial(c, evB)
		require.NoError(t, err)
		return &btltest.Pair{A: a, B: b, RankA: 0, RankB: 1, WakeupA: bell, Remote: true, Close: func() { _ = c.Close() }}
	})
	runtime.KeepAlive(t)
}
