package network

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

func never() bool { return false }

// wire is a link to and fro with a queue of 50 ms, as Linux's tbf has it.
func wire(q *Queue, rate func(int64) float64, delay int64) (out, back *Link) {
	rng := rand.New(rand.NewPCG(1, 2))
	links := [2]*Link{NewLink(q, rng, rate, delay), NewLink(q, rng, rate, delay)}
	for _, l := range links {
		l.QueueSeconds, l.BurstBytes = 0.05, 32<<10
	}
	return links[0], links[1]
}

// stream writes frames of 64 KiB, 8 at a time, and returns how many bytes arrived.
func stream(q *Queue, c Conn, until int64) (bytes int64) {
	const frame = 64 << 10
	var next func()
	next = func() { c.Write(frame, func() { bytes += frame; next() }) }
	for range 8 {
		next()
	}
	q.Run(until, never)
	return bytes
}

func TestDirectMovesBytesAtTheRate(t *testing.T) {
	q := &Queue{}
	out, _ := wire(q, Steady(1e9), Microsecond)
	out.QueueSeconds = 0
	assert.InEpsilon(t, 1e8, float64(stream(q, Direct{out}, Second/10)), 0.01)
}

func TestTCPFillsALink(t *testing.T) {
	for _, rate := range []float64{Mbit(5), Mbit(100), Mbit(1000)} {
		q := &Queue{}
		out, back := wire(q, Steady(rate), 100*Microsecond)
		assert.InEpsilon(t, 10*rate, float64(stream(q, NewTCP(q, out, back), 10*Second)), 0.05, "%.0f bytes a second", rate)
	}
}

func TestTCPFollowsARateThatChanges(t *testing.T) {
	q := &Queue{}
	out, back := wire(q, Swap(Mbit(100), Mbit(5), 2*Second), 100*Microsecond)
	assert.InEpsilon(t, 10*Mbit(52.5), float64(stream(q, NewTCP(q, out, back), 20*Second))/2, 0.1)
}

func TestTCPRepairsLoss(t *testing.T) {
	for _, loss := range []float64{0.05, 0.3} {
		q := &Queue{}
		out, back := wire(q, Steady(Mbit(100)), 100*Microsecond)
		out.Loss, back.Loss = Steady(loss), Steady(loss)
		c := NewTCP(q, out, back)
		order := 0
		for i := range 100 {
			c.Write(10_000, func() {
				assert.Equal(t, i, order, "frames arrive in order")
				order++
			})
		}
		q.Run(1000*Second, func() bool { return order == 100 })
		assert.Equal(t, 100, order)
	}
}

// TestForeignFlowsTakeTheirShare: one flow of ours beside three others has a quarter.
func TestForeignFlowsTakeTheirShare(t *testing.T) {
	q := &Queue{}
	out, back := wire(q, Steady(Mbit(100)), 100*Microsecond)
	for range 3 {
		Foreign(q, out, back, Steady(true))
	}
	assert.InEpsilon(t, 20*Mbit(25), float64(stream(q, NewTCP(q, out, back), 20*Second)), 0.25)
}

func TestForeignFlowEnds(t *testing.T) {
	q := &Queue{}
	out, back := wire(q, Steady(Mbit(100)), 100*Microsecond)
	Foreign(q, out, back, During(0, Second, true, false))
	q.Run(2*Second, never)
	c := NewTCP(q, out, back)
	assert.InEpsilon(t, 8*Mbit(100), float64(stream(q, c, 10*Second)), 0.05)
}

func TestSilentLinkDeliversNothing(t *testing.T) {
	q := &Queue{}
	out, back := wire(q, Steady(Mbit(100)), 100*Microsecond)
	out.Silent = During(0, Second, true, false)
	c := NewTCP(q, out, back)
	arrivedAt := int64(0)
	c.Write(1000, func() { arrivedAt = q.Now() })
	q.Run(10*Second, never)
	assert.Greater(t, arrivedAt, Second, "the retransmission arrives after the silence")
}

// TestSilentLosslessLinkKeepsPackets: they arrive after the silence.
func TestSilentLosslessLinkKeepsPackets(t *testing.T) {
	q := &Queue{}
	out, _ := wire(q, Steady(1e9), Microsecond)
	out.QueueSeconds = 0
	out.Silent = During(11*Millisecond/20, Second, true, false)
	order, arrivedAt := 0, int64(0)
	for i := range 20 {
		Direct{out}.Write(100_000, func() {
			assert.Equal(t, i, order)
			order++
			arrivedAt = q.Now()
		})
	}
	q.Run(Second-1, never)
	assert.Equal(t, 5, order)
	q.Run(2*Second, never)
	assert.Equal(t, 20, order)
	assert.Greater(t, arrivedAt, Second)
}

func TestClosedConnectionDropsWhatItHasNotSent(t *testing.T) {
	q := &Queue{}
	out, back := wire(q, Steady(Mbit(100)), 100*Microsecond)
	out.Loss = Steady(0.3)
	c := NewTCP(q, out, back)
	arrived := 0
	for range 100 {
		c.Write(1000, func() { arrived++ })
	}
	dropped := c.Close()
	assert.NotZero(t, dropped)
	q.Run(100*Second, never)
	assert.Equal(t, 100-dropped, arrived, "what was sent is repaired")
}

func TestFluidTakesTheSumOfTheRates(t *testing.T) {
	rates := []func(int64) float64{Steady(100.0), During(Second, 2*Second, 900.0, 0)}
	assert.InEpsilon(t, Second, Fluid(rates, 0, 100, Millisecond, 10*Second), 1e-9)
	assert.InEpsilon(t, 3*Second/2, Fluid(rates, 0, 600, Millisecond, 10*Second), 1e-9)
	assert.Equal(t, 10*Second, Fluid(rates, 0, 1e9, Millisecond, 10*Second))
}

// TestPacketsStayInOrder: packets do not overtake a delayed packet.
func TestPacketsStayInOrder(t *testing.T) {
	q := &Queue{}
	out, _ := wire(q, Steady(1e9), 0)
	out.QueueSeconds, out.Delay = 0, During(0, Millisecond, Second, Microsecond)
	order := 0
	Direct{out}.Write(1000, func() { order++ })
	q.Run(2*Millisecond, never)
	Direct{out}.Write(1000, func() { assert.Equal(t, 1, order); order++ })
	q.Run(2*Second, never)
	assert.Equal(t, 2, order)
}
