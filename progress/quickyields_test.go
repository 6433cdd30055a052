package progress

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	turnYield = int64(6_000)      // other processes ran meanwhile
	someTime  = int64(30_000_000) // between two measurements
	someDelay = someTime / 3      // of a process that waits for its core for a third of the time
)

func TestYieldsToNobodyMakeDriverSleep(t *testing.T) {
	const quick = 64
	type measurement struct {
		others int   // yields to others before the quick ones
		delay  int64 // since the previous measurement
		known  bool
		want   int // sleeps
	}
	waits := measurement{delay: someDelay, known: true}
	with := func(m measurement, want int) measurement { m.want = want; return m }
	alone, little, ended, unknown, shared := waits, waits, waits, waits, waits
	alone.delay, ended.delay, unknown.known = someTime/stillFutileShare-1, -1, false
	little.delay = someTime/futileShare - 1
	// An eighth of all yields, together with those after the previous measurement.
	shared.others = 2*quick/7 + 2
	for _, test := range []struct {
		name string
		list []measurement
	}{
		{"the core is its own", []measurement{with(alone, 1), with(alone, 1), with(alone, 1)}},
		{"others want the core", []measurement{with(waits, 1), with(waits, skipFutile), with(waits, skipFutile)}},
		{"others want it a little", []measurement{with(little, 1), with(little, 1), with(waits, skipFutile), with(little, skipFutile), with(alone, 1), with(little, 1)}},
		{"they are gone", []measurement{with(waits, 1), with(waits, skipFutile), with(alone, 1), with(waits, skipFutile)}},
		{"other yields give the core away", []measurement{with(waits, 1), with(shared, 1), with(shared, 1)}},
		{"a thread has ended", []measurement{with(waits, 1), with(ended, 1), with(waits, skipFutile)}},
		{"the system does not say", []measurement{with(unknown, 1), with(unknown, 1), with(waits, 1), with(waits, skipFutile)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			q := quickYields{limit: quick}
			now, delay := int64(-1000), int64(5000)
			beQuick := func(others int) {
				for range others {
					q.took(turnYield)
				}
				for range quick {
					require.False(t, q.isOver())
					q.took(shortYield)
				}
				require.True(t, q.isOver())
			}
			sleeps := func() (n int) {
				for q.sleepsAtOnce() {
					n++
				}
				return n
			}
			for i, m := range test.list {
				beQuick(m.others)
				require.True(t, i == 0 || !test.list[i-1].known || !q.isDue(now+measureNanos-1))
				now, delay = now+someTime, delay+m.delay
				require.True(t, q.isDue(now))
				q.measure(now, delay, m.known)
				q.rest()
				assert.Equal(t, m.want, sleeps(), "measurement %d", i)
				beQuick(m.others)
				q.rest()
				assert.Equal(t, m.want, sleeps(), "before the next measurement")
			}
		})
	}
}

// Without a limit, or if an event comes in time, a driver does not sleep.
func TestYieldsToNobodyOfShortWaitsAreNotCountedTogether(t *testing.T) {
	unlimited, limited := quickYields{}, quickYields{limit: 64}
	for range 1000 {
		unlimited.took(shortYield)
		assert.False(t, unlimited.isOver())
	}
	for range 10 {
		limited.begins()
		for range 63 {
			limited.took(shortYield)
			assert.False(t, limited.isOver())
		}
	}
}

// core is a model of a processor core, on which a rank waits until a peer has run for some time. It
// is the engine's clock, processor, wakeup and poller at once.
type core struct {
	kind  coreKind
	now   int64
	delay int64 // of the rank

	since int64 // when the rank's slice began
	ran   int64 // for how long the peer ran in this wait
	needs int64 // for how long it must run
	w     *Waiter
}

type coreKind int

const (
	peerElsewhere coreKind = iota // on another core; this one is the rank's own
	peerHere                      // on the same core; a yield lets it run
	peerInGroup                   // on the same core, but in another group
)

const coreSlice, coreTurn = sliceYield, int64(1000)

// passes lets the rank run for the given time.
func (c *core) passes(nanos int64) {
	c.now += nanos
	if c.kind == peerElsewhere {
		c.ran += nanos
	}
	if c.kind == peerInGroup && c.now-c.since >= coreSlice {
		c.away(coreSlice)
	}
}

// away lets another process run for the given time, although the rank is ready.
func (c *core) away(nanos int64) {
	c.now, c.delay, c.ran = c.now+nanos, c.delay+nanos, c.ran+nanos
	c.since = c.now
}

func (c *core) Now() int64 { return c.now }

func (c *core) Progress() int {
	c.passes(coreTurn)
	if c.ran < c.needs || c.w.Done() {
		return 0
	}
	c.w.Signal()
	return 1
}

func (c *core) Yield() {
	c.passes(shortYield)
	if c.kind == peerHere {
		c.away(turnYield)
	}
}

func (c *core) Delay() (nanos int64, ok bool) { return c.delay, true }

func (c *core) Arm() bool { return true }
func (c *core) Disarm()   {}
func (c *core) Wake()     {}

// Sleep gives the core to the peer until it wakes the rank. The rank then waits a little for the
// core.
func (c *core) Sleep(nanos int64) (woken bool) {
	slept := min(max(c.needs-c.ran, 0), nanos)
	c.now, c.ran = c.now+slept, c.ran+slept
	if c.kind != peerElsewhere {
		c.away(2 * turnYield)
	}
	return c.ran >= c.needs
}

func (c *core) Close() error { return nil }

// waits makes a number of waits, and returns the counters and the mean time of a wait.
func (c *core) waits(n int, cfg Config) (Counters, int64) {
	cfg.Clock, cfg.Wakeup, cfg.Processor = c, c, c
	e := New(cfg)
	e.Lock()
	defer e.Unlock()
	e.AddPoller(c)
	start := c.now
	for range n {
		c.ran, c.w = 0, waiter(1)
		if err := e.Wait(context.Background(), c.w); err != nil {
			panic(err)
		}
	}
	return e.Counters(), (c.now - start) / int64(n)
}

// In each world, a wait does not take much longer than the peer needs, and a rank sleeps only where
// that is as good as yielding.
func TestDriverYieldsWhereThatHelpsAndSleepsElsewhere(t *testing.T) {
	const n, yieldNanos = 2000, 20_000_000
	for _, test := range []struct {
		kind    coreKind
		needs   int64
		most    int64 // nanoseconds of a wait
		noSleep bool
	}{
		{peerElsewhere, 20_000, 25_000, true},
		{peerElsewhere, 1_000_000, 1_050_000, false},
		{peerHere, 20_000, 40_000, true},
		{peerHere, 10_000_000, 13_000_000, true}, // several others take turns
		{peerInGroup, 20_000, 50_000, false},
		{peerInGroup, 1_000_000, 1_150_000, false},
	} {
		t.Run(fmt.Sprintf("%d needs %d ns", test.kind, test.needs), func(t *testing.T) {
			c := &core{kind: test.kind, needs: test.needs}
			counters, wait := c.waits(n, Config{YieldNanos: yieldNanos, QuickYields: 64})
			assert.LessOrEqual(t, wait, test.most)
			if test.noSleep {
				assert.Zero(t, counters.Sleeps)
			}
		})
	}
	assert.Zero(t, New(Config{QuickYields: 64, Processor: new(core), NoSleep: true}).quickYields.limit)
}

func TestSystemTellsDelay(t *testing.T) {
	if nanos, ok := SystemProcessor().Delay(); ok { // not every kernel reports it
		assert.Positive(t, nanos)
	}
}
