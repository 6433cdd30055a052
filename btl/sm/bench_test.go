package sm

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/progress"
)

// The benchmarks run between this process and another one, each pinned to its own processor. Each
// figure stands beside the figure of a single cache line that goes back and forth between the same
// two processors. No transport can be faster than that.

// echoPlan says what an echo does.
type echoPlan struct {
	CPU     int
	Address []byte
	Bursts  int // of bareRounds of the bare line, then Rounds of fragments
	Rounds  int
	Window  int // fragments for each answer
	Answer  int // bytes of the answer
}

// pin binds the calling goroutine to a processor.
func pin(cpu int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set)
}

// counter is Events that count.
type counter struct {
	arrived int
	last    byte // of the last fragment
	failed  *btl.Error
}

func (c *counter) Arrived(_ btl.Module, _ int, _ btl.Tag, frag []byte) {
	c.arrived++
	c.last = frag[len(frag)-1]
}
func (c *counter) Failed(_ btl.Module, _ btl.Path, err *btl.Error) { c.failed = err }
func (c *counter) Drained(btl.Module, btl.Path)                    {}

// sink is Events that copy arriving fragments to their place.
type sink struct {
	counter
	to [64 << 10]byte
}

func (s *sink) Arrived(_ btl.Module, _ int, _ btl.Tag, frag []byte) {
	s.arrived++
	copy(s.to[:], frag[16:])
}

// await polls until the given number of fragments have arrived.
func (s *sink) await(m *module, arrived int) {
	for m.Progress(); s.arrived < arrived; m.Progress() {
		progress.Relax()
	}
}

// mustSend sends a fragment inline as soon as there is room.
func mustSend(m *module, ep *endpoint, hdr, payload []byte) {
	for !ep.SendInline(1, hdr, payload) {
		m.Progress()
	}
}

// awaitLine polls a cache line until it holds a value.
func awaitLine(line *uint64, value uint64) {
	for atomic.LoadUint64(line) != value {
		progress.Relax()
	}
}

// mapLines maps the file with the two cache lines that both processes share.
func mapLines(t testing.TB, fd int) (a, b *uint64) {
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return (*uint64)(unsafe.Pointer(&mem[0])), (*uint64)(unsafe.Pointer(&mem[2048]))
}

const bareRounds = 1000

func echoRole(t testing.TB, parent *btltest.Process) {
	a, b := mapLines(t, 4)
	plan := btltest.Ask[echoPlan](parent)
	require.NoError(t, pin(plan.CPU))
	ev := &sink{}
	mod, err := New(Config{Rank: 1, Size: 2, Events: ev})
	require.NoError(t, err)
	m := mod.(*module)
	ep := connect(t, m, 0, plan.Address)
	parent.Tell(m.Address())
	hdr, buf := make([]byte, 16), make([]byte, plan.Answer)
	line := uint64(0)
	for range plan.Bursts {
		for range bareRounds {
			line++
			awaitLine(a, line)
			publish(b, line)
		}
		for range plan.Rounds {
			ev.await(m, ev.arrived+plan.Window)
			mustSend(m, ep, hdr, buf)
		}
	}
	btltest.Ask[bool](parent)
	require.NoError(t, m.Close())
}

// benchExchange measures windows of fragments and their answers, in nanoseconds per window and
// answer. In between, it measures the bare line, in nanoseconds one way.
func benchExchange(b *testing.B, window, bytes, answer int) {
	const bursts = 100
	fd, err := unix.MemfdCreate("lines", unix.MFD_CLOEXEC)
	require.NoError(b, err)
	file := os.NewFile(uintptr(fd), "lines")
	defer file.Close()
	require.NoError(b, file.Truncate(4096))
	x, y := mapLines(b, fd)
	c := btltest.Start(b, "echo", file)
	require.NoError(b, pin(0))
	rounds := max(20, 300_000/(bytes/20+100)/window)
	ev := &sink{}
	mod, err := New(Config{Rank: 0, Size: 2, Events: ev})
	require.NoError(b, err)
	m := mod.(*module)
	c.Tell(echoPlan{CPU: 1, Address: m.Address(), Bursts: bursts, Rounds: rounds, Window: window, Answer: answer})
	ep := connect(b, m, 1, btltest.Ask[[]byte](c))
	hdr, buf := make([]byte, 16), make([]byte, bytes)
	var nanos, bare []float64
	line := uint64(0)
	for range bursts {
		began := time.Now()
		for range bareRounds {
			line++
			publish(x, line)
			awaitLine(y, line)
		}
		bare = append(bare, float64(time.Since(began))/bareRounds/2)
		began = time.Now()
		for range rounds {
			for range window {
				mustSend(m, ep, hdr, buf)
			}
			ev.await(m, ev.arrived+1)
		}
		nanos = append(nanos, float64(time.Since(began))/float64(rounds))
	}
	c.Tell(true)
	require.NoError(b, m.Close())
	require.Nil(b, ev.failed)
	for range b.N {
	}
	b.ReportMetric(0, "ns/op")
	if window == 1 {
		summary(b, nanos, 2, "ns-one-way")
	} else {
		summary(b, nanos, float64(window), "ns/frag")
	}
	summary(b, bare, 1, "ns-bare")
}

// summary is minimum, lower quartile and median.
func summary(b *testing.B, x []float64, per float64, unit string) {
	x = slices.Sorted(slices.Values(x))
	b.ReportMetric(x[0]/per, unit+"-min")
	b.ReportMetric(x[len(x)/4]/per, unit+"-q1")
	b.ReportMetric(x[len(x)/2]/per, unit+"-med")
}

func BenchmarkPingPong(b *testing.B) {
	for _, bytes := range []int{8, 64, 256, 1024, 4096, 8192 - 16, 32<<10 - 16} {
		b.Run(fmt.Sprint(bytes), func(b *testing.B) { benchExchange(b, 1, bytes, bytes) })
	}
}

func BenchmarkStream(b *testing.B) {
	for _, bytes := range []int{8, 1024, 8192 - 16, 32<<10 - 16} {
		b.Run(fmt.Sprint(bytes), func(b *testing.B) { benchExchange(b, 64, bytes, 8) })
	}
}
