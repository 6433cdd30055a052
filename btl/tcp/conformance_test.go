package tcp

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/progress"
)

var (
	loopback4 = netip.MustParseAddr("127.0.0.1")
	loopback6 = netip.MustParseAddr("::1")
	secret    = []byte("of the job")
)

// pairs makes pairs of modules of one process.
func pairs(cfg Config) btltest.Maker {
	return func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
		a, b := cfg, cfg
		a.Rank, a.Size, a.Events, a.Wakeup = 0, 3, evA, btltest.NewPipeWakeup(t)
		b.Rank, b.Size, b.Events, b.Wakeup = 2, 3, evB, btltest.NewPipeWakeup(t)
		ma, err := New(a)
		require.NoError(t, err)
		mb, err := New(b)
		require.NoError(t, err)
		return &btltest.Pair{A: ma, B: mb, RankA: 0, RankB: 2, WakeupA: a.Wakeup, WakeupB: b.Wakeup}
	}
}

func TestConformance(t *testing.T) {
	btltest.TestBTL(t, pairs(Config{Local: loopback4, Secret: secret}))
}

func TestConformanceIPv6(t *testing.T) {
	needs(t, loopback6)
	// With Wakeup, fragments wait for each other.
	btltest.TestBTL(t, pairs(Config{Local: loopback6, Secret: secret, AsyncProgress: func() {}}))
}

// Sizes so small that windows, sockets and buffers are full all the time.
func TestConformanceSmall(t *testing.T) {
	btltest.TestBTL(t, pairs(Config{
		Local: loopback4, Secret: secret,
		FragBytes: 4096, WindowFrags: 3, WindowBytes: 8192, BufferBytes: 4096 + headBytes, SendBuffer: 8192,
	}))
}

// needs skips a test if this machine lacks an address.
func needs(t testing.TB, addr netip.Addr) {
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		t.Skipf("this machine does not have %v: %v", addr, err)
	}
	require.NoError(t, l.Close())
}

// remote makes modules of a job of two ranks in two processes.
func remote(rank int, ev btl.Events, wakeup *progress.PipeWakeup) (btl.Module, error) {
	return New(Config{Rank: rank, Size: 2, Events: ev, Wakeup: wakeup, Local: loopback4, Secret: secret})
}

func TestConformanceTwoProcesses(t *testing.T) {
	btltest.TestBTL(t, btltest.RemotePairs("serve", remote))
}

// TestMain lets this program also be the other process of a test.
func TestMain(m *testing.M) {
	btltest.Main(m, map[string]btltest.Role{"serve": btltest.ServeRole(remote), "echo": echoRole})
}
