package sm

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// The tests here let two threads meet where the order of what each one stores and loads matters,
// again and again, each time with a slightly different start. Who gets an order wrong fails sooner
// or later; the longer they run, the sooner.

// litmusVariable is the environment's word for how long each of them runs.
const litmusVariable = "MPIGO_SM_LITMUS"

// meet runs one and other at the same time, on threads of their own, in each round, and then after,
// while neither runs. A result of false ends it.
func meet(t *testing.T, one func(), other func(round int64), after func() bool) {
	cpus := allowedCPUs(t)
	defer keep(t, cpus[0])()
	var begun, done atomic.Int64
	gone := make(chan bool)
	defer func() { <-gone }()
	go func() {
		defer close(gone)
		defer keep(t, cpus[len(cpus)-1])()
		for round := int64(1); ; round++ {
			for begun.Load() != round {
				if begun.Load() < 0 {
					return
				}
			}
			other(round)
			done.Store(round)
		}
	}()
	defer begun.Store(-1)
	for round, end := int64(1), time.Now().Add(litmusTime(t)); ; round++ {
		begun.Store(round)
		one()
		for done.Load() != round {
		}
		if !after() {
			t.Errorf("in round %d", round)
			return
		}
		if time.Now().After(end) {
			t.Logf("%d rounds", round)
			return
		}
	}
}

// keep binds the calling goroutine to a processor until the function that it returns is called. The
// thread then lives on, and a process runs there first: so membarrier leaves neither out, see
// idle.go.
func keep(t *testing.T, cpu int) (release func()) {
	runtime.LockOSThread()
	var before unix.CPUSet
	assert.NoError(t, unix.SchedGetaffinity(0, &before))
	assert.NoError(t, pin(cpu))
	assert.NoError(t, exec.Command("true").Run())
	return func() {
		assert.NoError(t, unix.SchedSetaffinity(0, &before))
		runtime.UnlockOSThread() // of pin
		runtime.UnlockOSThread()
	}
}

func litmusTime(t *testing.T) time.Duration {
	s := os.Getenv(litmusVariable)
	if s == "" {
		return 100 * time.Millisecond
	}
	d, err := time.ParseDuration(s)
	require.NoError(t, err)
	return d
}

// allowedCPUs are the processors that this process may run on.
func allowedCPUs(t *testing.T) (cpus []int) {
	var set unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &set))
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// fetch brings a word near: to look at it then takes less time than to publish something.
//
//go:noinline
func fetch(word *uint32) { atomic.LoadUint32(word) }

// delay lets so many times about 1 ns pass.
func delay(n int64) {
	for range n {
		nop()
	}
}

// bothWays runs a test with modules that have membarrier, and with such that have not.
func bothWays(t *testing.T, cfg Config, test func(t *testing.T, a, b *module, ja, jb *journal)) {
	for _, name := range []string{"barrier", "fence"} {
		t.Run(name, func(t *testing.T) {
			ca, cb := cfg, cfg
			ca.Rank, ca.Size, ca.Wakeup = 0, 2, newBell(t)
			cb.Rank, cb.Size, cb.Wakeup = 1, 2, newBell(t)
			a, ja := newTest(t, ca)
			b, jb := newTest(t, cb)
			if name == "fence" {
				withoutBarrier(t, a)
				withoutBarrier(t, b)
			}
			test(t, a, b, ja, jb)
		})
	}
}

// TestLitmusSleep: of a sender and a receiver that goes to sleep, one notices the other.
func TestLitmusSleep(t *testing.T) {
	bothWays(t, Config{}, func(t *testing.T, a, b *module, ja, _ *journal) {
		eb := connect(t, b, 0, a.Address())
		until(t, "room", func() bool { return eb.SendInline(1, nil, []byte("x")) }, a, b)
		until(t, "the fragment", func() bool { return ja.arrived == 1 }, a, b)
		before := ja.arrived
		meet(t, func() {
			a.Arm()
			a.Progress()
		}, func(round int64) {
			fetch(eb.attention)
			delay(round & 511)
			for !eb.SendInline(1, nil, []byte("x")) {
			}
		}, func() bool {
			lost := ja.arrived == before && atomic.LoadUint32(a.own.attention)&asleep != 0
			a.Disarm()
			for ja.arrived == before {
				a.Progress()
			}
			before = ja.arrived
			return !lost
		})
	})
}

// TestLitmusRoom: a sender that goes to sleep until there is room is rung, or has seen that there
// is. What it wants may be more than a receiver gives back at a time.
func TestLitmusRoom(t *testing.T) {
	cfg := Config{RingSlots: 8, RingBytes: 4096, FragBytes: 1024}
	bothWays(t, cfg, func(t *testing.T, a, b *module, ja, _ *journal) {
		eb := connect(t, b, 0, a.Address())
		until(t, "the beginning", func() bool { return eb.begin() && len(a.inbounds) == 1 }, a, b)
		short, long := make([]byte, 320), make([]byte, 1024)
		fill := func() {
			for _, frag := range [][]byte{short, short, long, long, long} {
				if !eb.SendInline(1, nil, frag) {
					panic("no room")
				}
			}
		}
		fill()
		require.False(t, eb.SendInline(1, nil, long))
		sent := false
		meet(t, func() {
			b.Arm()
			sent = eb.SendInline(1, nil, long)
		}, func(round int64) {
			delay(round & 511)
			for a.Progress() > 0 {
			}
		}, func() bool {
			lost := !sent && atomic.LoadUint32(b.own.attention)&asleep != 0
			b.Disarm()
			// The next round finds the ring as this one did.
			for n := 0; n < 4; {
				if sent || eb.SendInline(1, nil, long) {
					n++
					sent = false
				} else {
					a.Progress()
				}
			}
			for a.Progress() > 0 {
			}
			fill()
			eb.SendInline(1, nil, long)
			return !lost
		})
	})
}

// TestLitmusEnd: what a sender takes for delivered is handed up, if the receiver's end fails at
// that moment.
func TestLitmusEnd(t *testing.T) {
	bothWays(t, Config{RingSlots: 2}, func(t *testing.T, a, b *module, ja, _ *journal) {
		c := ending{a: a, b: b, ja: ja}
		c.begin(t)
		taken := false
		meet(t, func() {
			c.ea.Fail(errEnough)
			a.Progress()
		}, func(round int64) {
			fetch(c.eb.attention)
			// The very moment: the attention word is next.
			for loadSession(b.peers[0].in.session).state() != failed {
			}
			delay(round & 63)
			taken = c.eb.SendInline(1, nil, []byte("x"))
		}, func() bool {
			arrived := ja.arrived == 1
			c.begin(t)
			return taken == arrived
		})
	})
}

var errEnough = errors.New("enough")

// ending is a connection that ends again and again.
type ending struct {
	a, b   *module
	ja     *journal
	ea, eb *endpoint
}

// begin lets it end, and begin anew.
func (c *ending) begin(t *testing.T) {
	for _, e := range []*endpoint{c.ea, c.eb} {
		if e != nil {
			until(t, "the end", func() bool { return e.State() == btl.Drained }, c.a, c.b)
		}
	}
	c.ea, c.eb = connect(t, c.a, 1, c.b.Address()), connect(t, c.b, 0, c.a.Address())
	until(t, "the beginning", func() bool {
		return c.ea.begin() && c.eb.begin() && len(c.a.inbounds) == 1 && len(c.b.inbounds) == 1
	}, c.a, c.b)
	*c.ja = journal{}
}

// TestLitmusLook stops a sender anywhere in its look at the attention word, on a processor that it
// shares with the receiver, whose end fails meanwhile: that is not missed.
func TestLitmusLook(t *testing.T) {
	bothWays(t, Config{}, func(t *testing.T, a, b *module, ja, _ *journal) {
		cpu := allowedCPUs(t)[0]
		defer keep(t, cpu)()
		c := ending{a: a, b: b, ja: ja}
		var looks, over atomic.Bool
		rounds, taken := make(chan bool), make(chan bool)
		defer func() {
			close(rounds)
			<-taken
		}()
		go func() {
			defer close(taken)
			defer keep(t, cpu)()
			for range rounds {
				looks.Store(true)
				for !over.Load() {
					c.eb.attend()
				}
				taken <- c.eb.SendInline(1, nil, []byte("x"))
			}
		}()
		for end := time.Now().Add(litmusTime(t)); time.Now().Before(end); {
			c.begin(t)
			looks.Store(false)
			over.Store(false)
			rounds <- true
			for !looks.Load() {
				time.Sleep(time.Microsecond) // gives the processor up, and takes it at any time
			}
			c.ea.Fail(errEnough)
			a.Progress()
			over.Store(true)
			require.False(t, <-taken)
		}
	})
}

// TestLitmusNotice: no notice gets lost.
func TestLitmusNotice(t *testing.T) {
	a, b, _, _ := twoTest(t)
	eb := connect(t, b, 0, a.Address())
	until(t, "the beginning", func() bool { return eb.begin() && len(a.inbounds) == 1 }, a, b)
	meet(t, func() {
		for before := a.noticed; a.noticed-before < 2; {
			a.Progress()
		}
	}, func(round int64) {
		eb.remote.notify(1)
		delay(round & 63)
		eb.remote.notify(1)
	}, func() bool {
		a.Progress()
		return atomic.LoadUint64(a.own.bits(0)) == 0
	})
}
