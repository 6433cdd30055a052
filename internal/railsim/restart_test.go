package railsim

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/internal/network"
	"github.com/mpigo/mpigo/pml"
)

// restart is the result of a message during which one of two rails failed.
type restart struct {
	carried  float64 // bytes that rails delivered, by the message's
	again    int64   // bytes that rails accepted again
	pause    int64   // the longest one of the other rail, in nanoseconds
	time     float64 // by the ideal one
	failures int
	restarts uint64
}

func (o restart) String() string {
	return fmt.Sprintf("carried %.3f, %d KiB again, pause %.3f ms, time %.2f, %d failures, %d restarts",
		o.carried, o.again>>10, float64(o.pause)/1e6, o.time, o.failures, o.restarts)
}

// runRestart sends a message of size bytes over two direct rails, and breaks the second one when a
// part of it was delivered.
func runRestart(t *testing.T, p pml.Protocol, size int, part float64) (o restart) {
	j := open(t, config{rails: []link{directLink(1000), directLink(1000)}, protocol: p})
	j.warm(t)
	delivered := func(x *rail) int64 { return x.delivered }
	m := j.post(0, 1, size)
	require.True(t, j.run(limit, func() bool { return float64(j.sum(delivered)) >= part*float64(size) }))
	require.False(t, m.isDone())
	j.startPause()
	at := j.now()
	require.NoError(t, j.fabric.FailModule(1, loop.Lose))
	require.True(t, j.run(limit, m.isDone))
	require.NoError(t, m.err)
	o.measure(j, size)
	both := j.ideal(m.postedAt, part*float64(size))
	o.time = float64(j.now()-m.postedAt) / float64(both+j.ideal(at, (1-part)*float64(size), 0))
	return o
}

func (o *restart) measure(j *job, size int) {
	o.carried = float64(j.sum(func(x *rail) int64 { return x.delivered })) / float64(size)
	o.again = j.sum(func(x *rail) int64 { return x.again })
	o.pause = j.rails[0].pause
	o.failures = len(j.failures)
	o.restarts = j.count(func(s pml.Stats) uint64 { return s.Restarts })
}

// runSilence sends a message of size bytes over two rails, the second of which is silent from
// 500 ms on.
func runSilence(t *testing.T, p pml.Protocol, rails []link, size int) (o restart) {
	const from = network.Second / 2
	rails = slices.Clone(rails)
	rails[1].silent = network.During(from, limit, true, false)
	j := open(t, config{rails: rails, protocol: p})
	j.warm(t)
	m := j.post(0, 1, size)
	require.False(t, j.run(from, m.isDone))
	j.startPause()
	require.True(t, j.run(limit, m.isDone))
	require.NoError(t, m.err)
	o.measure(j, size)
	o.time = float64(j.now()-m.postedAt) / float64(j.ideal(m.postedAt, float64(size)))
	return o
}

// TestSilentRailHoldsLittle: a rail goes silent in the middle of a message.
func TestSilentRailHoldsLittle(t *testing.T) {
	skipIfBrief(t)
	for i, rails := range [][]link{{tcpLink(20), tcpLink(100)}, {tcpLink(40), tcpLink(40)}, {directLink(100), directLink(100)}} {
		for _, p := range protocols {
			if (p == pml.Copy) == rails[0].isDirect {
				continue // only lossless networks have remote access
			}
			o := runSilence(t, p, rails, 20e6+80e6*(i/2))
			t.Logf("%d, %v: %v", i, p, o)
			assert.LessOrEqual(t, o.again, int64(256<<10), "more than its room")
			if p == pml.Copy { // else the message waits until the rail fails
				assert.LessOrEqual(t, o.pause, network.Millisecond)
				assert.LessOrEqual(t, o.time, 1.1)
			}
			assert.Zero(t, o.restarts)
		}
	}
}

// TestRestartCarriesWhatWasInTheAir: a rail fails at each tenth of a message.
func TestRestartCarriesWhatWasInTheAir(t *testing.T) {
	skipIfBrief(t)
	for _, p := range protocols {
		t.Run(p.String(), func(t *testing.T) {
			for tenth := 1; tenth < 10; tenth++ {
				o := runRestart(t, p, 32<<20, float64(tenth)/10)
				t.Logf("cut at %.1f: %v", float64(tenth)/10, o)
				assert.GreaterOrEqual(t, o.carried, 1.0)
				assert.NotZero(t, o.failures)
				assert.LessOrEqual(t, o.carried, 1.02)
				assert.LessOrEqual(t, o.again, int64(2<<20+256<<10), "more than its room and a piece")
				assert.LessOrEqual(t, o.pause, network.Millisecond)
				assert.LessOrEqual(t, o.time, 1.1)
				assert.Zero(t, o.restarts)
			}
		})
	}
}
