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
	"github.com/mpigo/mpigo/btl/btltest"
)

// The tests here repeatedly let two threads meet where the order of their stores and loads matters,
// each time with a slightly different start. Code with a wrong order fails with some probability in
// each round, so long runs find more.

// litmusVariable is the environment variable with the duration of each of these tests.
const litmusVariable = "MPIGO_SM_LITMUS"

// meet runs rounds. In each round, one and other run at the same time on their own threads; then
// after runs alone. If after returns false, the test fails.
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

// keep binds the calling goroutine to a processor until release is called. The thread continues to
// exist after that. Another process has run on the processor before keep returns. Both ensure that
// membarrier leaves out neither thread, see idle.go.
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

// allowedCPUs returns the processors on which this process may run.
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

// fetch brings a word into the cache: loading it then takes less time than publishing a fragment.
//
//go:noinline
func fetch(word *uint32) { atomic.LoadUint32(word) }

// delay lets about n ns pass.
func delay(n int64) {
	for range n {
		nop()
	}
}

// bothWays runs a test with modules that have membarrier, and with modules that do not.
func bothWays(t *testing.T, cfg Config, test func(t *testing.T, a, b *module, ja *journal)) {
	for _, name := range []string{"barrier", "fence"} {
		t.Run(name, func(t *testing.T) {
			cfg := cfg
			cfg.Size, cfg.Wakeup = 2, btltest.NewPipeWakeup(t)
			a, ja := newTest(t, cfg)
			cfg.Rank, cfg.Wakeup = 1, btltest.NewPipeWakeup(t)
			b, _ := newTest(t, cfg)
			if name == "fence" {
				withoutBarrier(t, a)
				withoutBarrier(t, b)
			}
			test(t, a, b, ja)
		})
	}
}

// TestLitmusSleep: while a receiver goes to sleep, a sender publishes a fragment. The receiver sees
// the fragment, or the sender sees that it must wake the receiver. The receiver only waits for a
// time (idle.go), which may be too short when a processor is taken away: once in 40,000 rounds on a
// machine with four times the load that it can handle. The engine's second poll covers that case.
func TestLitmusSleep(t *testing.T) {
	const mostLost = 1.0 / 10_000
	bothWays(t, Config{}, func(t *testing.T, a, b *module, ja *journal) {
		eb := connect(t, b, 0, a.Address())
		until(t, "room", func() bool { return eb.SendInline(1, nil, []byte("x")) }, a, b)
		until(t, "the fragment", func() bool { return ja.arrived == 1 }, a, b)
		before := ja.arrived
		rounds, allLost := 0, 0
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
			if rounds++; lost {
				allLost++
			}
			return float64(allLost) <= 2+mostLost*float64(rounds)
		})
	})
}

// TestLitmusRoom: while a sender goes to sleep because there is no room, the receiver makes room.
// The sender sees the room, or the receiver wakes it. The sender may need more room than a receiver
// gives back at once.
func TestLitmusRoom(t *testing.T) {
	cfg := Config{RingSlots: 8, RingBytes: 4096, FragBytes: 1024}
	bothWays(t, cfg, func(t *testing.T, a, b *module, ja *journal) {
		eb := connect(t, b, 0, a.Address())
		until(t, "the session", func() bool { return eb.begin() && len(a.inbounds) == 1 }, a, b)
		short, long := make([]byte, 320), make([]byte, 1024)
		fill := func() {
			for _, frag := range [][]byte{short, short, long, long, long} {
				require.True(t, eb.SendInline(1, nil, frag), "room")
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
			// Bring the ring back into the state at the beginning of this round.
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

// TestLitmusEnd: the receiver's end fails while a sender sends. The fragment is handed up exactly
// if the sender considers it delivered.
func TestLitmusEnd(t *testing.T) {
	bothWays(t, Config{RingSlots: 2}, func(t *testing.T, a, b *module, ja *journal) {
		c := ending{a: a, b: b, ja: ja}
		c.begin(t)
		taken := false
		meet(t, func() {
			c.ea.Fail(errEnough)
			a.Progress()
		}, func(round int64) {
			fetch(c.eb.attention)
			// The receiver writes the attention word next.
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

// ending is a connection that fails and is made again, many times.
type ending struct {
	a, b   *module
	ja     *journal
	ea, eb *endpoint
}

// begin waits until the connection has ended, and connects again.
func (c *ending) begin(t *testing.T) {
	for _, e := range []*endpoint{c.ea, c.eb} {
		if e != nil {
			until(t, "the end", func() bool { return e.State() == btl.Drained }, c.a, c.b)
		}
	}
	c.ea, c.eb = connect(t, c.a, 1, c.b.Address()), connect(t, c.b, 0, c.a.Address())
	until(t, "the session", func() bool {
		return c.ea.begin() && c.eb.begin() && len(c.a.inbounds) == 1 && len(c.b.inbounds) == 1
	}, c.a, c.b)
	*c.ja = journal{}
}

// TestLitmusLook interrupts a sender anywhere in its check of the attention word, because it shares
// a processor with the receiver. Meanwhile the receiver's end fails. The sender does not miss that.
func TestLitmusLook(t *testing.T) {
	bothWays(t, Config{}, func(t *testing.T, a, b *module, ja *journal) {
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
				time.Sleep(time.Microsecond) // yields the processor, and gets it back at any time
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
	until(t, "the session", func() bool { return eb.begin() && len(a.inbounds) == 1 }, a, b)
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

//go:noinline
func nop() {}
