package railsim

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/network"
	"github.com/mpigo/mpigo/pml"
)

// degraded is the result of a run with two equal rails, one of which was degraded for a while.
type degraded struct {
	share    float64 // of the rate of the good rail alone, while the other one was bad
	back     float64 // seconds until both rails carry backShare again; −1: not within backLimit
	failures int
	restarts uint64
	err      error
}

func (o degraded) String() string {
	return fmt.Sprintf("%.2f of the good rail alone, back after %.1f s, %d failures, %d restarts, %v", o.share, o.back, o.failures, o.restarts, o.err)
}

const (
	// goodSpan is how long both rails are good at first, and badSpan for how long one is bad then,
	// each up to the end of a message.
	goodSpan, badSpan = network.Second, 5 * network.Second
	// Both rails are back when they carry backShare of their rate for backSpan.
	backShare = 0.9
	backSpan  = network.Second / 2
	backLimit = 10 * network.Second
)

// runDegraded sends messages of size bytes one after another.
func runDegraded(t *testing.T, p pml.Protocol, size int, degrade func(l *link, isBad func(now int64) bool)) (o degraded) {
	isBad := false
	rate := network.Mbit(100)
	rails := []link{tcpLink(100), tcpLink(100)}
	if p != pml.Copy { // only lossless networks have remote access
		rate = 100e6
		rails = []link{directLink(100), directLink(100)}
	}
	degrade(&rails[1], func(int64) bool { return isBad })
	j := open(t, config{rails: rails, protocol: p})
	j.warm(t)
	// send sends for the given time, and then until the end of the message.
	send := func(span int64) (rate float64) {
		from, bytes := j.now(), 0
		for o.err == nil && j.now() < from+span {
			m := j.post(0, 1, size)
			if !j.run(limit, m.isDone) {
				o.err = fmt.Errorf("not complete after %d s", limit/network.Second)
			}
			o.err = errors.Join(o.err, m.err)
			bytes += size
		}
		return float64(bytes) * 1e9 / float64(j.now()-from)
	}
	send(goodSpan)
	isBad = true
	o.share = send(badSpan) / rate
	isBad = false
	o.back = -1
	for from := j.now(); o.back < 0 && o.err == nil && j.now() < from+backLimit; {
		at := j.now()
		if send(backSpan) >= backShare*2*rate {
			o.back = float64(at-from) / 1e9
		}
	}
	o.failures = len(j.failures)
	o.restarts = j.count(func(s pml.Stats) uint64 { return s.Restarts })
	return o
}

// shortTime is the mean time of short messages, with long ones beside them or without, in seconds.
func shortTime(t *testing.T, rails []link, isBusy bool) float64 {
	const count, learn = 600, 200
	j := open(t, config{rails: rails, protocol: pml.Copy})
	j.warm(t)
	var long *message
	var sum float64
	var n int
	var under []*message
	look := func() bool {
		if isBusy && (long == nil || long.isDone()) {
			long = j.post(0, 1, 10e6)
		}
		for len(under) > 0 && under[0].isDone() {
			require.NoError(t, under[0].err)
			if n++; n > learn {
				sum += float64(under[0].gotAt - under[0].postedAt)
			}
			under = under[1:]
		}
		return false
	}
	start := j.now()
	for k := range count {
		under = append(under, j.post(0, 1, 8<<(k%11)))
		j.run(start+int64(k+1)*5*network.Millisecond+int64(k*k%7)*network.Millisecond/3, look)
	}
	j.run(j.now()+10*network.Second, func() bool { look(); return len(under) == 0 })
	require.Equal(t, count, n)
	return sum / (count - learn) / 1e9
}

// degradations are temporary degradations of a rail.
var degradations = []struct {
	name    string
	degrade func(l *link, isBad func(now int64) bool)
}{
	{"5 % loss", func(l *link, isBad func(int64) bool) { l.loss = network.If(isBad, 0.05, 0) }},
	{"30 % loss", func(l *link, isBad func(int64) bool) { l.loss = network.If(isBad, 0.3, 0) }},
	{"200 ms added", func(l *link, isBad func(int64) bool) {
		l.delay = network.If(isBad, l.delay(0)+200*network.Millisecond, l.delay(0))
	}},
	{"100 times slower", func(l *link, isBad func(int64) bool) { l.rate = network.If(isBad, l.rate(0)/100, l.rate(0)) }},
}

// TestDegradedRailDoesNotHoldUpTheOther: long messages.
func TestDegradedRailDoesNotHoldUpTheOther(t *testing.T) {
	skipIfBrief(t)
	for i, d := range degradations {
		for _, size := range []int{1e6, 1e7} {
			for _, p := range someOf(i + size/1e7) {
				if p != pml.Copy && i < 2 {
					continue // a lossless network
				}
				t.Run(fmt.Sprintf("%s, %v, %d", d.name, p, size), func(t *testing.T) {
					o := runDegraded(t, p, size, d.degrade)
					t.Log(o)
					require.NoError(t, o.err)
					least := 0.95
					if p != pml.Copy { // it waits once for what the rail had under way
						least = 0.8
					}
					require.GreaterOrEqual(t, o.share, least)
					require.True(t, 0 <= o.back && o.back <= 5, "both rails are back after 5 s")
					require.Zero(t, o.failures)
					require.Zero(t, o.restarts)
				})
			}
		}
	}
}

// TestShortMessagesAvoidTheDegradedRail compares their time with the time over the good rail alone.
func TestShortMessagesAvoidTheDegradedRail(t *testing.T) {
	skipIfBrief(t)
	alone := [2]float64{}
	for i := range alone {
		alone[i] = shortTime(t, []link{tcpLink(100)}, i == 1)
	}
	for _, d := range degradations {
		t.Run(d.name, func(t *testing.T) {
			rails := []link{tcpLink(100), tcpLink(100)}
			d.degrade(&rails[0], network.Steady(true))
			idle, beside := shortTime(t, rails, false)/alone[0], shortTime(t, rails, true)/alone[1]
			t.Logf("idle %.2f, beside long messages %.2f", idle, beside)
			require.LessOrEqual(t, idle, 1.2)
			require.LessOrEqual(t, beside, 1.2)
		})
	}
}
