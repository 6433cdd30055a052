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
)

// devicesEnv names two devices that reach each other, separated by a comma. Without it, the tests
// and benchmarks whose names begin with Device are skipped.
const devicesEnv = "MPIGO_TEST_VERBS_DEVICES"

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(devicesEnv) == "" {
		fmt.Printf("%s is not set: the tests TestDevice… are not run\n", devicesEnv)
		skip := "^(TestDevice|BenchmarkDevice)"
		if old := flag.Lookup("test.skip").Value.String(); old != "" {
			skip += "|" + old
		}
		if err := flag.Set("test.skip", skip); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// openReal makes the module of rank 0 or 1 on the first or second device.
func openReal(t testing.TB, cfg Config) *module {
	t.Helper()
	names := strings.Split(os.Getenv(devicesEnv), ",")
	require.Len(t, names, 2, devicesEnv)
	provider, err := libibverbs.New()
	require.NoError(t, err)
	cfg.Provider, cfg.Device, cfg.Secret = provider, names[cfg.Rank], testSecret
	m, err := New(cfg)
	require.NoError(t, err)
	return m.(*module)
}

func TestDeviceConformance(t *testing.T) {
	// soft-RoCE uses reads only if the configuration asks for them.
	reads := Config{Reads: ReadsOn}
	for name, cfg := range map[string]Config{"sends": reads, "rings": withRings(reads), "auto": {}, "shared": withSharedReceives(reads)} {
		t.Run(name, func(t *testing.T) {
			btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
				return pairOf(cfg, evA, evB, func(cfg Config) *module { return openReal(t, cfg) })
			})
		})
	}
}

// setLink sets the link of a soft-RoCE device's end up or down; "r" is the first of the two.
func setLink(t testing.TB, end byte, state string) {
	out, err := exec.Command("ip", "link", "set", string(end)+"0", state).CombinedOutput()
	require.NoError(t, err, string(out))
}

// realRanks is two ranks on the real devices. The first is connected to the second.
func realRanks(t testing.TB, cfg Config) (a, b *testRank, turn func()) {
	cfg.Size = 2
	var ranks [2]*testRank
	for rank := range ranks {
		r := new(testRank)
		cfg.Rank, cfg.Events = rank, r
		r.m = openReal(t, cfg)
		t.Cleanup(func() { require.NoError(t, r.m.Close()) })
		ranks[rank] = r
	}
	a, b = ranks[0], ranks[1]
	var err error
	a.ep, err = a.m.Connect(btl.Path{Peer: 1}, b.m.Address())
	require.NoError(t, err)
	return a, b, func() { a.m.Progress(); b.m.Progress() }
}

// TestDeviceReadsNewPages: a region's pages are pinned, but Go's runtime may return the pages of
// dead memory to the system and get other pages at the same address. If memory there is registered
// again, reads never return the old content.
func TestDeviceReadsNewPages(t *testing.T) {
	const size = 4 << 20
	a, b, turn := realRanks(t, Config{})
	target := make([]byte, size)
	into, err := a.m.Register(target, btl.AccessLocal)
	require.NoError(t, err)
	defer func() { require.NoError(t, into.Release()) }()
	seen, again := map[uint64]bool{}, 0
	for i := range 20 {
		func() {
			source := bytes.Repeat([]byte{byte(i + 1)}, size)
			if seen[addressOf(source)] {
				again++
			}
			seen[addressOf(source)] = true
			from, err := b.m.Register(source, btl.AccessRemoteRead)
			require.NoError(t, err)
			done := false
			op := &btl.Op{Payload: target, Local: into, Remote: from.Key(), Done: func(_ *btl.Op, err error) {
				require.NoError(t, err)
				done = true
			}}
			for posted := false; !done; turn() {
				posted = posted || a.end().Get(op) == nil
				require.Empty(t, a.failed)
			}
			require.True(t, bytes.Equal(source, target), "read %d", i)
			require.NoError(t, from.Release())
		}()
		debug.FreeOSMemory() // gives the pages of the source back to the system
	}
	require.Positive(t, again, "no address came twice, so nothing was shown")
}

// TestDevicePortDown: the rail fails when its port goes down under traffic, and works again when
// the port is up.
func TestDevicePortDown(t *testing.T) {
	a, b, turn := realRanks(t, Config{AckTimeout: 14, RetryCount: 2})
	until := func(what string, cond func() bool) {
		for deadline := time.Now().Add(time.Minute); !cond(); turn() {
			require.True(t, time.Now().Before(deadline), what)
		}
	}
	post := func() {
		until("a post", func() bool { return a.ep.State() != btl.Up || a.send("x") == nil })
	}
	post()
	until("arrival", func() bool { return a.isIdle() && len(b.arrived) == 1 })
	setLink(t, 'r', "down")
	post()
	until("the failure", func() bool { return len(a.failed) > 0 })
	until("Drained", a.isDrained)
	setLink(t, 'r', "up")
	reconnected := func() bool {
		ep, err := a.m.Connect(btl.Path{Peer: 1}, b.m.Address())
		if err == nil {
			a.ep = ep
		}
		return err == nil
	}
	until("a new connection", reconnected)
	before := len(b.arrived)
	until("traffic again", func() bool {
		if a.isDrained() { // the path was not ready for it
			reconnected()
		}
		if a.ep.State() == btl.Up {
			_ = a.send("y")
		}
		return len(b.arrived) > before
	})
}
