package railsim

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/network"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/pml"
)

// limit ends a scenario that goes wrong.
const limit = 400 * network.Second

// protocols are the protocols of a long message.
var protocols = []pml.Protocol{pml.Copy, pml.Put, pml.Get}

// someOf are the protocols for the nth of a list of scenarios: all, or one of them in turn.
func someOf(n int) []pml.Protocol {
	if race.All() {
		return protocols
	}
	n %= len(protocols)
	return protocols[n : n+1]
}

// skipIfBrief skips a test that cannot show a race, because a job has one goroutine.
func skipIfBrief(t *testing.T) {
	if race.Brief() {
		t.Skip("one goroutine")
	}
}

func open(t *testing.T, cfg config) *job {
	j, err := newJob(cfg)
	require.NoError(t, err)
	t.Cleanup(j.close)
	return j
}

// warm exchanges a short message, so that the rails are open.
func (j *job) warm(t *testing.T) {
	m := j.post(0, 1, 8)
	require.True(t, j.run(limit, m.isDone))
	require.NoError(t, m.err)
}

// course is the result of messages that were sent one after another.
type course struct {
	time     float64 // by the ideal one
	alone    float64 // by the ideal one over the better rail alone
	longest  float64 // seconds of the longest message
	failures int
	restarts uint64
	err      error
}

func (o course) String() string {
	return fmt.Sprintf("time %.2f of the ideal, %.2f of the better rail's alone, longest %.2f s, %d failures, %d restarts, %v",
		o.time, o.alone, o.longest, o.failures, o.restarts, o.err)
}

// runCourse sends count messages of size bytes one after another.
func runCourse(t *testing.T, cfg config, count, size int) (o course) {
	j := open(t, cfg)
	j.warm(t)
	from := j.now()
	for range count {
		m := j.post(0, 1, size)
		if !j.run(limit, m.isDone) {
			o.err = fmt.Errorf("not complete after %d s", limit/network.Second)
		} else if m.err != nil {
			o.err = m.err
		}
		if o.err != nil {
			break
		}
		o.longest = max(o.longest, float64(j.now()-m.postedAt)/1e9)
	}
	all := float64(count) * float64(size)
	took := float64(j.now() - from)
	o.time = took / float64(j.ideal(from, all))
	best := j.ideal(from, all, 0)
	for i := range cfg.rails {
		best = min(best, j.ideal(from, all, i))
	}
	o.alone = took / float64(best)
	o.failures = len(j.failures)
	o.restarts = j.count(func(s pml.Stats) uint64 { return s.Restarts })
	for _, f := range j.failures[:min(3, len(j.failures))] {
		t.Logf("%.3f s: %s", float64(f.at)/1e9, f.what)
	}
	return o
}

// swapping are two rails that swap their rates.
func swapping(fast, slow float64, period int64) []link {
	a, b := tcpLink(fast), tcpLink(slow)
	a.rate = network.Swap(network.Mbit(fast), network.Mbit(slow), period)
	b.rate = network.Swap(network.Mbit(slow), network.Mbit(fast), period)
	return []link{a, b}
}

// withForeign are two rails of 100 Mbit/s with flows of others on one of them, which move.
func withForeign(flows int, period int64) []link {
	a, b := tcpLink(100), tcpLink(100)
	a.foreign, a.isForeign = flows, network.Swap(true, false, period)
	b.foreign, b.isForeign = flows, network.Swap(false, true, period)
	return []link{a, b}
}

// settings are rails that always deliver.
var settings = []struct {
	name        string
	rails       []link
	count, size int
}{
	{"100 and 5 Mbit/s that swap every 2 s", swapping(100, 5, 2*network.Second), 2, 50e6},
	{"100 and 25 Mbit/s that swap every 3 s", swapping(100, 25, 3*network.Second), 2, 50e6},
	{"100 and 20 Mbit/s", []link{tcpLink(100), tcpLink(20)}, 2, 30e6},
	{"100 and 5 Mbit/s", []link{tcpLink(100), tcpLink(5)}, 2, 30e6},
	{"40 and 40 Mbit/s", []link{tcpLink(40), tcpLink(40)}, 2, 30e6},
	{"8 foreign flows that move every 2 s", withForeign(8, 2*network.Second), 2, 50e6},
	{"16 foreign flows that move every 2 s", withForeign(16, 2*network.Second), 2, 50e6},
	{"1 to 2 to 4", []link{tcpLink(25), tcpLink(50), tcpLink(100)}, 3, 20e6},
}

// TestRailsThatDeliverCarryOn sends long messages over rails of different rates.
func TestRailsThatDeliverCarryOn(t *testing.T) {
	skipIfBrief(t)
	for i, s := range settings {
		for _, p := range someOf(i) {
			t.Run(s.name+", "+p.String(), func(t *testing.T) {
				o := runCourse(t, config{rails: s.rails, protocol: p}, s.count, s.size)
				t.Log(o)
				require.NoError(t, o.err)
				require.LessOrEqual(t, o.time, 1.15)
				require.LessOrEqual(t, o.alone, 1.0, "slower than the better rail alone")
				require.Zero(t, o.failures)
				require.Zero(t, o.restarts)
			})
		}
	}
}
