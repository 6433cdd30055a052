package timeline

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// recorded returns a second with 1 MB every 10 ms, in which a rail was down from 300 to 500 ms.
func recorded() *Timeline {
	t := &Timeline{Begin: time.Now(), end: time.Second}
	for i := range 100 {
		at := time.Duration(i) * 10 * ms
		t.messages = append(t.messages, message{at, 1e6})
		up := i < 30 || i >= 50
		t.observe(at, []rail{{name: "a<b", up: up, health: map[bool]int{true: 1000}[up]}})
	}
	return t
}

func TestTimeline(t *testing.T) {
	line := recorded()
	assert.Len(t, line.states, 3, "only changes are kept")
	assert.Equal(t, []event{{300 * ms, 0, false}, {500 * ms, 0, true}}, line.events())
	samples := line.samples(50 * ms)
	assert.Len(t, samples, 20)
	for _, s := range samples {
		assert.InDelta(t, 100, s.mbps, 1e-6)
		assert.Equal(t, 50*ms, s.to-s.from)
	}
	messages, bytes := line.Total()
	assert.Equal(t, []int{100, 100e6}, []int{messages, bytes})
	at := func(d time.Duration) time.Time { return line.Begin.Add(d) }
	assert.InDelta(t, 100, line.Rate(at(200*ms), at(400*ms)), 1e-6)
	assert.Equal(t, at(300*ms), line.FirstFailure(line.Begin))
	assert.Zero(t, line.FirstFailure(at(400*ms)))
	assert.Equal(t, at(500*ms), line.LastReturn(line.Begin))
	assert.Zero(t, line.LastReturn(at(600*ms)))
	assert.Equal(t, at(300*ms), line.NoRailUp())
}

func TestLongestGap(t *testing.T) {
	line := &Timeline{Begin: time.Now()}
	for _, at := range []time.Duration{10, 20, 50, 60, 200, 210} {
		line.messages = append(line.messages, message{at: at * ms})
	}
	at := func(d time.Duration) time.Time { return line.Begin.Add(d * ms) }
	assert.Equal(t, 30*ms, line.LongestGap(at(10), at(60)))
	assert.Equal(t, 140*ms, line.LongestGap(at(10), at(100)), "a gap that ends later counts as a whole")
	assert.Equal(t, 140*ms, line.LongestGap(at(150), at(300)), "a gap that begins before, too")
	assert.Zero(t, line.LongestGap(at(210), at(300)))
	assert.Equal(t, 30*ms, line.LongestGapWithin(at(10), at(100)))
	assert.Equal(t, 25*ms, line.LongestGapWithin(at(25), at(60)))
	assert.Zero(t, line.LongestGapWithin(at(70), at(200)))
}

func TestDrawAndChart(t *testing.T) {
	line, run := recorded(), Run{Every: 50 * ms, Rate: 90e6, Again: 1.25e6}
	svg := line.Draw(run)
	parses(t, svg)
	assert.Contains(t, svg, "a&lt;b")
	assert.Contains(t, svg, "limited to 90 MB/s (dotted)")
	assert.Contains(t, svg, "sent again, because a failed rail had it: 1250.0 kB of 100.0 MB")
	assert.Equal(t, 2+3, strings.Count(svg, `fill-opacity="0.55"`), "two times up, and the legend")
	assert.Contains(t, line.Chart(run), "a<b failed")
	assert.Contains(t, line.Chart(run), "a<b is back")
	// A run that ended as it began has a picture too.
	for _, line := range []*Timeline{{}, {states: []state{{}}}, {end: time.Nanosecond}} {
		parses(t, line.Draw(Run{Every: MinEvery}))
		assert.Empty(t, line.Chart(Run{Every: MinEvery}))
	}
}

// parses checks that a picture is XML and holds neither NaN nor infinity.
func parses(t *testing.T, svg string) {
	t.Helper()
	assert.NotContains(t, svg, "NaN")
	assert.NotContains(t, svg, "Inf")
	require.NoError(t, xml.Unmarshal([]byte(svg), &struct{}{}))
}
