//go:build ibverbs

package ibverbs

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/btl/ibverbs/libibverbs"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/progress"
)

// devicesEnv names two devices that reach each other, with a comma between. Tests and benchmarks
// whose names begin with Device work on them, and are left out without it.
const devicesEnv = "MPIGO_TEST_VERBS_DEVICES"

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(devicesEnv) == "" {
		fmt.Printf("%s is not set: the tests TestDevice… are not run\n", devicesEnv)
		if err := flag.Set("test.skip", "^(TestDevice|BenchmarkDevice)"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// realDevices are the two devices, and who opens them.
func realDevices(t testing.TB) (p verbs.Provider, a, b string) {
	t.Helper()
	names := strings.Split(os.Getenv(devicesEnv), ",")
	require.Len(t, names, 2, devicesEnv)
	provider, err := libibverbs.New()
	require.NoError(t, err)
	return provider, names[0], names[1]
}

// TestDeviceConformance holds the BTL to its contract on real devices.
func TestDeviceConformance(t *testing.T) { deviceConformance(t, Config{}) }

// TestDeviceConformanceRings: with small fragments by remote writes.
func TestDeviceConformanceRings(t *testing.T) {
	deviceConformance(t, Config{EagerPeers: 1, EagerAfter: 1})
}

func deviceConformance(t *testing.T, cfg Config) {
	btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
		provider, a, b := realDevices(t)
		p := &btltest.Pair{RankA: 0, RankB: 1, WakeupA: progress.NewChanWakeup(), WakeupB: progress.NewChanWakeup()}
		mk := func(rank int, device string, ev btl.Events, bell progress.Wakeup) btl.Module {
			cfg := cfg
			cfg.Rank, cfg.Size, cfg.Events, cfg.Wakeup, cfg.Secret = rank, 2, ev, bell, testSecret
			cfg.Provider, cfg.Device = provider, device
			m, err := New(cfg)
			require.NoError(t, err)
			return m
		}
		p.A, p.B = mk(0, a, evA, p.WakeupA), mk(1, b, evB, p.WakeupB)
		return p
	})
}

// link sets the link of a soft-RoCE device's end, "r" the first of the two, up or down.
func link(t testing.TB, end byte, state string) {
	out, err := exec.Command("ip", "link", "set", string(end)+"0", state).CombinedOutput()
	require.NoError(t, err, string(out))
}

// told is a rank that only counts what it is told.
type told struct{ arrived, failed int }

func (e *told) Arrived(btl.Module, int, btl.Tag, []byte) { e.arrived++ }
func (e *told) Failed(btl.Module, int, *btl.Error)       { e.failed++ }
func (e *told) Drained(btl.Module, int)                  {}

// realPair is two connected modules on the real devices.
func realPair(t testing.TB, cfg Config) (a, b btl.Module, toB btl.Endpoint, evA, evB *told, turn func()) {
	provider, devA, devB := realDevices(t)
	evA, evB = new(told), new(told)
	mk := func(rank int, device string, ev *told) btl.Module {
		c := cfg
		c.Rank, c.Size, c.Events, c.Provider, c.Device, c.Secret = rank, 2, ev, provider, device, testSecret
		m, err := New(c)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		return m
	}
	a, b = mk(0, devA, evA), mk(1, devB, evB)
	toB, err := a.Connect(1, b.Address())
	require.NoError(t, err)
	turn = func() { a.Progress(); b.Progress() }
	return a, b, toB, evA, evB, turn
}

// TestDeviceFreshPages: a region's pages are pinned, but Go's runtime may give the pages of dead
// memory back to the system and get others at the same address. Memory that is registered anew
// there is never read as it was.
func TestDeviceFreshPages(t *testing.T) {
	const size = 4 << 20
	a, b, toB, evA, _, turn := realPair(t, Config{})
	target := make([]byte, size)
	into, err := a.(btl.Registrar).Register(target, btl.AccessLocal)
	require.NoError(t, err)
	defer func() { require.NoError(t, into.Release()) }()
	seen, again := map[uint64]bool{}, 0
	for i := range 20 {
		func() {
			source := make([]byte, size)
			for j := range source {
				source[j] = byte(i + 1)
			}
			if seen[addressOf(source)] {
				again++
			}
			seen[addressOf(source)] = true
			from, err := b.(btl.Registrar).Register(source, btl.AccessRemoteRead)
			require.NoError(t, err)
			done := false
			op := &btl.Op{Payload: target, Local: into, Remote: from.Key(), Done: func(_ *btl.Op, err error) {
				require.NoError(t, err)
				done = true
			}}
			for posted := false; !done; turn() {
				if !posted {
					posted = toB.(btl.Getter).Get(op) == nil
				}
				require.Zero(t, evA.failed)
			}
			require.True(t, bytes.Equal(source, target), "round %d", i)
			require.NoError(t, from.Release())
		}()
		debug.FreeOSMemory() // what nobody refers to goes back to the system
	}
	require.Positive(t, again, "no address came twice, so nothing was shown")
}

// TestDevicePortDown: a cable is pulled under traffic. The rail fails for it, and works again when
// it is back.
func TestDevicePortDown(t *testing.T) {
	a, b, toB, evA, evB, turn := realPair(t, Config{AckTimeout: 14, RetryCount: 2})
	until := func(what string, cond func() bool) {
		for deadline := time.Now().Add(time.Minute); !cond(); turn() {
			require.True(t, time.Now().Before(deadline), what)
		}
	}
	send := func(ep btl.Endpoint) (ended *bool) {
		ended = new(bool)
		op := &btl.Op{Payload: []byte("x"), Done: func(*btl.Op, error) { *ended = true }}
		until("a post", func() bool { return ep.State() != btl.Up || ep.Send(op) == nil })
		return ended
	}
	ended := send(toB)
	until("arrival", func() bool { return *ended && evB.arrived == 1 })
	link(t, 'r', "down")
	send(toB)
	until("the failure", func() bool { return evA.failed > 0 })
	until("Drained", func() bool { return toB.State() == btl.Drained })
	link(t, 'r', "up")
	until("a new connection", func() bool {
		ep, err := a.Connect(1, b.Address())
		toB = ep
		return err == nil
	})
	before := evB.arrived
	until("traffic again", func() bool {
		if toB.State() == btl.Drained { // the path was not ready for it
			if ep, err := a.Connect(1, b.Address()); err == nil {
				toB = ep
			}
		}
		if toB.State() == btl.Up {
			_ = toB.Send(&btl.Op{Payload: []byte("y"), Done: func(*btl.Op, error) {}})
		}
		return evB.arrived > before
	})
}
