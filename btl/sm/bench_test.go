package sm

import (
	"encoding/gob"
	"fmt"
	"net"
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
)

// The benchmarks run between this process and another one, each pinned to a processor of its own.
// Next to each figure is that of one cache line that goes to and fro between the same two
// processors: less than that no transport can take.

// echoPlan says what an echo is to do.
type echoPlan struct {
	CPU     int
	Address []byte
	Bursts  int // of bareRounds of the bare line, then Rounds of fragments
	Rounds  int
	Window  int // fragments for each answer
	Answer  int // bytes of the answer

	RingSlots            int
	RingBytes, FragBytes int64
}

// pin binds the calling goroutine to a processor.
func pin(cpu int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set)
}

// pause lets a few nanoseconds pass between two looks at a line.
func pause() {
	for range 4 {
		nop()
	}
}

//go:noinline
func nop() {}

// counter is Events that count.
type counter struct {
	arrived int
	bytes   int
	failed  *btl.Error
}

func (c *counter) Arrived(_ btl.Module, _ int, _ btl.Tag, frag []byte) {
	c.arrived++
	c.bytes += len(frag)
	sinkhole = frag[len(frag)-1]
}
func (c *counter) Failed(_ btl.Module, _ int, err *btl.Error) { c.failed = err }
func (c *counter) Drained(btl.Module, int)                    {}

var sinkhole byte

// sink is Events that copy what arrives to where it is wanted.
type sink struct {
	counter
	to []byte
	_  [256]byte
}

func (s *sink) Arrived(_ btl.Module, _ int, _ btl.Tag, frag []byte) {
	s.arrived++
	copy(s.to, frag[16:])
}

func lines(mem []byte) (a, b *uint64) {
	return (*uint64)(unsafe.Pointer(&mem[0])), (*uint64)(unsafe.Pointer(&mem[2048]))
}

const bareRounds = 1000

func echoRole(conn *net.UnixConn) error {
	dec, enc := gob.NewDecoder(conn), gob.NewEncoder(conn)
	mem, err := unix.Mmap(4, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	for {
		var plan echoPlan
		if err := dec.Decode(&plan); err != nil {
			return nil // the parent is done
		}
		if err := pin(plan.CPU); err != nil {
			return err
		}
		ev := &sink{to: make([]byte, 64<<10)}
		m, err := New(Config{Rank: 1, Size: 2, Events: ev,
			RingSlots: plan.RingSlots, RingBytes: plan.RingBytes, FragBytes: plan.FragBytes})
		if err != nil {
			return err
		}
		ep, err := m.Connect(0, plan.Address)
		if err != nil {
			return err
		}
		if err := enc.Encode(m.Address()); err != nil {
			return err
		}
		inl := ep.(btl.Inliner)
		hdr, buf := make([]byte, 16), make([]byte, plan.Answer)
		a, b := lines(mem)
		line := uint64(0)
		for range plan.Bursts {
			for range bareRounds {
				line++
				for atomic.LoadUint64(a) != line {
					pause()
				}
				publish(b, line)
			}
			for range plan.Rounds {
				want := ev.arrived + plan.Window
				for {
					m.Progress()
					if ev.arrived >= want {
						break
					}
					pause()
				}
				for !inl.SendInline(1, hdr, buf) {
					m.Progress()
				}
			}
		}
		var more bool
		if err := dec.Decode(&more); err != nil {
			return err
		}
		if err := m.Close(); err != nil {
			return err
		}
	}
}

// exchange measures bursts of windows of fragments to and fro, in nanoseconds per window and
// answer, and the bare line in between, in nanoseconds one way.
func exchange(b testing.TB, c *child, mem []byte, cfg Config, bursts, rounds, window, bytes, answer int) (nanos, bare []float64) {
	ev := &sink{to: make([]byte, 64<<10)}
	cfg.Events, cfg.Rank, cfg.Size = ev, 0, 2
	m, err := New(cfg)
	require.NoError(b, err)
	clear(mem)
	c.tell(b, echoPlan{CPU: 1, Address: m.Address(), Bursts: bursts, Rounds: rounds, Window: window, Answer: answer,
		RingSlots: cfg.RingSlots, RingBytes: cfg.RingBytes, FragBytes: cfg.FragBytes})
	var addr []byte
	c.ask(b, &addr)
	ep, err := m.Connect(1, addr)
	require.NoError(b, err)
	inl := ep.(btl.Inliner)
	hdr, buf := make([]byte, 16), make([]byte, bytes)

	x, y := lines(mem)
	line := uint64(0)
	for range bursts {
		began := time.Now()
		for range bareRounds {
			line++
			publish(x, line)
			for atomic.LoadUint64(y) != line {
				pause()
			}
		}
		bare = append(bare, float64(time.Since(began))/bareRounds/2)
		began = time.Now()
		for range rounds {
			for range window {
				for !inl.SendInline(1, hdr, buf) {
					m.Progress()
				}
			}
			want := ev.arrived + 1
			for {
				m.Progress()
				if ev.arrived >= want {
					break
				}
				pause()
			}
		}
		nanos = append(nanos, float64(time.Since(began))/float64(rounds))
	}
	c.tell(b, true)
	require.NoError(b, m.Close())
	require.Nil(b, ev.failed)
	return nanos, bare
}

// summary is minimum, lower quartile and median.
func summary(b *testing.B, x []float64, per float64, unit string) {
	x = slices.Clone(x)
	slices.Sort(x)
	b.ReportMetric(x[0]/per, unit+"-min")
	b.ReportMetric(x[len(x)/4]/per, unit+"-q1")
	b.ReportMetric(x[len(x)/2]/per, unit+"-med")
}

func benchExchange(b *testing.B, cfg Config, window, bytes, answer int) {
	fd, err := unix.MemfdCreate("lines", unix.MFD_CLOEXEC)
	require.NoError(b, err)
	file := os.NewFile(uintptr(fd), "lines")
	defer file.Close()
	require.NoError(b, file.Truncate(4096))
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(b, err)
	defer unix.Munmap(mem)
	c := start(b, "echo", file)
	require.NoError(b, pin(0))
	rounds := max(20, 300_000/(bytes/20+100)/window)
	nanos, bare := exchange(b, c, mem, cfg, 100, rounds, window, bytes, answer)
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

func BenchmarkPingPong(b *testing.B) {
	for _, bytes := range []int{8, 64, 256, 1024, 4096, 8192 - 16, 32<<10 - 16} {
		b.Run(fmt.Sprint(bytes), func(b *testing.B) { benchExchange(b, Config{}, 1, bytes, bytes) })
	}
}

func BenchmarkStream(b *testing.B) {
	for _, bytes := range []int{8, 1024, 8192 - 16, 32<<10 - 16} {
		b.Run(fmt.Sprint(bytes), func(b *testing.B) { benchExchange(b, Config{}, 64, bytes, 8) })
	}
}
