package tcp

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
)

// Each figure stands beside the figure of bare sockets, which two goroutines poll in the same way,
// without heads, acknowledgements or epochs. No transport over TCP is faster.

// mate is Events that count.
type mate struct {
	arrived atomic.Int64
	failed  *btl.Error
	drained int
}

func (c *mate) Arrived(btl.Module, int, btl.Tag, []byte)        { c.arrived.Add(1) }
func (c *mate) Failed(_ btl.Module, _ btl.Path, err *btl.Error) { c.failed = err }
func (c *mate) Drained(btl.Module, btl.Path)                    { c.drained++ }

// couple is two modules that are connected.
type couple struct {
	a, b   *module
	ea, eb btl.Endpoint
	va, vb *mate
}

func newCouple(t testing.TB, cfg Config) *couple {
	c := &couple{va: &mate{}, vb: &mate{}}
	cfg.Secret, cfg.Size = secret, 2
	if !cfg.Local.IsValid() {
		cfg.Local = loopback4
	}
	c.a, c.b = newAt(t, cfg, 0, c.va), newAt(t, cfg, 1, c.vb)
	c.connect(t)
	return c
}

func newAt(t testing.TB, cfg Config, rank int, ev btl.Events) *module {
	cfg.Rank, cfg.Events = rank, ev
	m, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m.(*module)
}

// connect connects both ends, and waits until they are connected.
func (c *couple) connect(t testing.TB) {
	var err error
	c.ea, err = c.a.Connect(btl.Path{Peer: 1}, c.b.Address())
	require.NoError(t, err)
	c.eb, err = c.b.Connect(btl.Path{Peer: 0}, c.a.Address())
	require.NoError(t, err)
	c.until(t, "a connection", func() bool {
		return c.ea.(*endpoint).phase == phaseReady && c.eb.(*endpoint).phase == phaseReady
	})
}

// until polls both ends until cond holds.
func (c *couple) until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	until(t, what, cond, c.a, c.b)
}

func until(t testing.TB, what string, cond func() bool, ms ...*module) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for i := 1; !cond(); i++ {
		n := 0
		for _, m := range ms {
			n += m.Progress()
		}
		if n == 0 && i%64 == 0 {
			time.Sleep(20 * time.Microsecond)
			require.True(t, time.Now().Before(deadline), "waited too long for %s", what)
		}
	}
}

// bareSockets is a connection over loopback.
func bareSockets(t testing.TB) (a, b int) {
	m := newAt(t, Config{Size: 1, Local: loopback4}, 0, &mate{})
	c, err := parseRailAddress(m.Address())
	require.True(t, err)
	a, _, errno := m.dial(path{c.addresses[0], c.addresses[0]})
	require.Zero(t, errno)
	for b = -1; b < 0; {
		b, _, _ = unix.Accept4(m.locals[0].listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	}
	require.NoError(t, m.tune(b))
	t.Cleanup(func() { _, _ = unix.Close(a), unix.Close(b) })
	return a, b
}

// move moves all of b in one direction.
func move(fd int, b []byte, do call, stop *atomic.Bool) {
	var idle idler
	for len(b) > 0 && !stop.Load() {
		n, errno := do(fd, b)
		if errno == 0 {
			b = b[n:]
		}
		idle.saw(n)
	}
}

// idler gives way after some unsuccessful polls, so that a busy machine does not spend its time on
// polling.
type idler int

func (i *idler) saw(n int) {
	if n > 0 {
		*i = 0
	} else if *i++; *i%200 == 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

// beside runs a function on its own goroutine until the benchmark is over.
func beside(f func(stop *atomic.Bool)) (over func()) {
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() { f(&stop) })
	return func() {
		stop.Store(true)
		wg.Wait()
	}
}

func BenchmarkPingPong(b *testing.B) {
	for _, size := range []int{8, 1 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("bare-%d", size), func(b *testing.B) { barePingPong(b, size) })
		b.Run(fmt.Sprintf("btl-%d", size), func(b *testing.B) { pingPong(b, size) })
	}
}

// call is recv, or send.
type call func(fd int, b []byte) (int, unix.Errno)

func barePingPong(b *testing.B, size int) {
	x, y := bareSockets(b)
	defer beside(func(stop *atomic.Bool) {
		for buf := make([]byte, size); !stop.Load(); {
			move(y, buf, recv, stop)
			move(y, buf, send, stop)
		}
	})()
	buf := make([]byte, size)
	var never atomic.Bool
	shortest(b, func() {
		move(x, buf, send, &never)
		move(x, buf, recv, &never)
	})
}

// message is the message to echo, in as many fragments as necessary.
type message struct {
	ops  []btl.Op
	done int
}

func newMessage(m *module, size int) *message {
	msg := &message{}
	longest := m.Attrs().MaxSendBytes - 16
	buf := make([]byte, size)
	for len(buf) > 0 {
		n := min(len(buf), longest)
		msg.ops = append(msg.ops, btl.Op{Payload: buf[:n:n], HdrLen: 16, Done: func(*btl.Op, error) { msg.done++ }})
		buf = buf[n:]
	}
	return msg
}

// post sends the message once its previous operation has completed.
func (msg *message) post(m *module, e btl.Endpoint, stop *atomic.Bool) {
	var idle idler
	for msg.done%len(msg.ops) != 0 && !stop.Load() {
		idle.saw(m.Progress())
	}
	for i := range msg.ops {
		for e.Send(&msg.ops[i]) != nil && !stop.Load() {
			idle.saw(m.Progress())
		}
	}
}

func pingPong(b *testing.B, size int) {
	c := newCouple(b, Config{})
	defer beside(func(stop *atomic.Bool) { echo(c.b, c.eb, c.vb, size, stop) })()
	ping(b, c.a, c.ea, c.va, size)
}

// echo sends back arriving messages one by one.
func echo(m *module, e btl.Endpoint, v *mate, size int, stop *atomic.Bool) {
	msg := newMessage(m, size)
	var idle idler
	for want := int64(0); !stop.Load(); {
		want += int64(len(msg.ops))
		for v.arrived.Load() < want && !stop.Load() {
			idle.saw(m.Progress())
		}
		if !stop.Load() {
			msg.post(m, e, stop)
		}
	}
}

// ping exchanges messages with an echo.
func ping(b *testing.B, m *module, e btl.Endpoint, v *mate, size int) {
	msg := newMessage(m, size)
	var never atomic.Bool
	want := int64(0)
	shortest(b, func() {
		msg.post(m, e, &never)
		want += int64(len(msg.ops))
		var idle idler
		for v.arrived.Load() < want {
			idle.saw(m.Progress())
		}
	})
}

// echoPlan is what an echo in another process must know.
type echoPlan struct {
	Address []byte
	Size    int
}

func echoRole(t testing.TB, parent *btltest.Process) {
	plan := btltest.Ask[echoPlan](parent)
	v := &mate{}
	m := newAt(t, Config{Size: 2, Local: loopback4, Secret: secret}, 1, v)
	e, err := m.Connect(btl.Path{Peer: 0}, plan.Address)
	require.NoError(t, err)
	parent.Tell(m.Address())
	var stop atomic.Bool
	go func() {
		parent.AwaitEnd()
		stop.Store(true)
	}()
	echo(m, e, v, plan.Size, &stop)
}

// BenchmarkProcesses does what BenchmarkPingPong does, between two processes.
func BenchmarkProcesses(b *testing.B) {
	for _, size := range []int{8, 1 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			v := &mate{}
			m := newAt(b, Config{Size: 2, Local: loopback4, Secret: secret}, 0, v)
			c := btltest.Start(b, "echo")
			c.Tell(echoPlan{m.Address(), size})
			e, err := m.Connect(btl.Path{Peer: 1}, btltest.Ask[[]byte](c))
			require.NoError(b, err)
			ping(b, m, e, v, size)
		})
	}
}

// BenchmarkSerial drives both ends with one goroutine, so that it shows the cost of a message, not
// how the machine schedules. The shortest of many short runs counts.
func BenchmarkSerial(b *testing.B) {
	for _, size := range []int{8, 1 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("bare-%d", size), func(b *testing.B) {
			x, y := bareSockets(b)
			from, to := make([]byte, size), make([]byte, size)
			b.SetBytes(int64(size))
			shortest(b, func() {
				for sent, got := 0, 0; got < size; {
					if n, errno := send(x, from[sent:]); errno == 0 && sent < size {
						sent += n
					}
					if n, errno := recv(y, to[got:]); errno == 0 {
						got += n
					}
				}
				x, y = y, x
			})
		})
		b.Run(fmt.Sprintf("btl-%d", size), func(b *testing.B) {
			c := newCouple(b, Config{})
			x, y := newMessage(c.a, size), newMessage(c.b, size)
			var never atomic.Bool
			b.SetBytes(int64(size))
			shortest(b, func() {
				want := c.vb.arrived.Load() + int64(len(x.ops))
				x.post(c.a, c.ea, &never)
				for c.vb.arrived.Load() < want {
					c.b.Progress()
					if len(x.ops) > 1 {
						c.a.Progress()
					}
				}
				c.a, c.b, c.ea, c.eb, c.va, c.vb, x, y = c.b, c.a, c.eb, c.ea, c.vb, c.va, y, x
			})
		})
	}
}

// shortest calls once in groups, and reports the time of one call in the fastest group.
func shortest(b *testing.B, once func()) {
	const group = 20
	for range 2 * group {
		once()
	}
	best := time.Duration(1 << 62)
	b.ResetTimer()
	for done := 0; done < b.N; done += group {
		start := time.Now()
		for range group {
			once()
		}
		best = min(best, time.Since(start))
	}
	b.StopTimer()
	b.ReportMetric(float64(best.Nanoseconds())/group, "best-ns")
}

// BenchmarkRate posts short fragments one after the other. One goroutine drives both ends.
func BenchmarkRate(b *testing.B) {
	const window = 64
	for _, wakes := range []bool{false, true} {
		b.Run(fmt.Sprintf("wakeup-%v", wakes), func(b *testing.B) {
			cfg := Config{}
			if wakes {
				cfg.AsyncProgress = func() {}
			}
			c := newCouple(b, cfg)
			done := 0
			var ops [window]btl.Op
			for i := range ops {
				ops[i] = btl.Op{HdrLen: 16, Payload: make([]byte, 8), Done: func(*btl.Op, error) { done++ }}
			}
			shortest(b, func() {
				done = 0
				for i := range ops {
					if c.ea.Send(&ops[i]) != nil {
						b.Fatal("refused")
					}
				}
				for done < window {
					c.a.Progress()
					c.b.Progress()
				}
			})
		})
	}
}
