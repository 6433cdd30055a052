// Package network simulates the networks under rails, for tests in virtual time. A Link is one
// direction of a wire whose rate, delay and loss change in time, with a token bucket and a finite
// queue that all its connections share. A Conn delivers frames over it in order: TCP repairs loss,
// and Direct is lossless, such as verbs or shared memory. Foreign is the traffic of other programs.
//
// The package has no clock and no goroutine of its own: the Clock runs its events. One goroutine
// owns all its objects. Times are in nanoseconds, rates in bytes a second, without headers.
package network

import (
	"math"
	"math/rand/v2"
)

// Units of time, in nanoseconds.
const (
	Microsecond = int64(1e3)
	Millisecond = int64(1e6)
	Second      = int64(1e9)
)

// Mbit turns 10⁶ bits a second into bytes a second.
func Mbit(rate float64) float64 { return rate * 1e6 / 8 }

// Clock is virtual time. After calls run after the given number of nanoseconds. Events of the same
// time run in the order of the calls of After.
type Clock interface {
	Now() int64
	After(nanos int64, run func())
}

// Steady returns a constant function.
func Steady[T any](x T) func(now int64) T { return func(int64) T { return x } }

// Swap returns a function that alternates between two values, one for each period.
func Swap[T any](a, b T, period int64) func(now int64) T {
	return func(now int64) T {
		if now/period%2 == 0 {
			return a
		}
		return b
	}
}

// During returns a function with one value within a span of time, and another one outside of it.
func During[T any](from, to int64, inside, outside T) func(now int64) T {
	return func(now int64) T {
		if from <= now && now < to {
			return inside
		}
		return outside
	}
}

// If returns a function with one value while a condition holds, and another one otherwise.
func If[T any](is func(now int64) bool, then, otherwise T) func(now int64) T {
	return func(now int64) T {
		if is(now) {
			return then
		}
		return otherwise
	}
}

// Link is one direction of a wire. Use NewLink, and then set the other fields before the first
// packet.
type Link struct {
	// Rate in bytes a second, above 0.
	Rate func(now int64) float64
	// Delay of a packet after it has left the queue.
	Delay func(now int64) int64
	// Loss is the probability that a packet is lost.
	Loss func(now int64) float64
	// Silent: no packet passes. Every packet that arrives in the queue, or would leave it, is lost.
	// On a lossless link it stays in the queue.
	Silent func(now int64) bool
	// BurstBytes is the number of bytes that may pass at once after a pause. QueueSeconds bounds
	// the queue by the time to send it at the current rate; 0: the queue is unbounded and loses no
	// packets.
	BurstBytes   float64
	QueueSeconds float64

	clock     Clock
	rng       *rand.Rand
	packets   []packet
	queued    int // bytes
	tokens    float64
	filledAt  int64
	arriveAt  int64 // of the last packet: they stay in order when the delay falls
	isServing bool  // a later call of serve is asked for
}

type packet struct {
	bytes  int
	arrive func()
}

// NewLink makes a link that loses nothing.
func NewLink(clock Clock, rng *rand.Rand, rate func(now int64) float64, delay int64) *Link {
	return &Link{
		clock: clock, rng: rng, Rate: rate, Delay: Steady(delay), Loss: Steady(0.0), Silent: Steady(false),
	}
}

func (l *Link) isLossless() bool { return l.QueueSeconds == 0 }

// longestWait bounds the time for which the link relies on the current rate, which may change.
const longestWait = 5 * Millisecond

// Send puts a packet into the queue. arrive is called at the other end, unless it is lost.
func (l *Link) Send(bytes int, arrive func()) {
	now := l.clock.Now()
	if !l.isLossless() && (l.Silent(now) || float64(l.queued+bytes) > l.Rate(now)*l.QueueSeconds+l.BurstBytes) {
		return
	}
	if p := l.Loss(now); p > 0 && l.rng.Float64() < p {
		return
	}
	l.packets = append(l.packets, packet{bytes, arrive})
	l.queued += bytes
	if !l.isServing {
		l.serve()
	}
}

// serve takes packets from the queue as far as there are tokens.
func (l *Link) serve() {
	l.isServing = false
	for len(l.packets) > 0 {
		p, now := l.packets[0], l.clock.Now()
		isSilent := l.Silent(now)
		if isSilent && l.isLossless() {
			l.filledAt = now
			l.isServing = true
			l.clock.After(longestWait, l.serve)
			return
		}
		rate := l.Rate(now)
		l.tokens = min(l.tokens+rate*float64(now-l.filledAt)/1e9, max(l.BurstBytes, float64(p.bytes)))
		l.filledAt = now
		if missing := float64(p.bytes) - l.tokens; missing > 1e-3 {
			l.isServing = true
			l.clock.After(min(int64(math.Ceil(missing/rate*1e9)), longestWait), l.serve)
			return
		}
		l.tokens -= float64(p.bytes)
		l.packets[0].arrive = nil // for the garbage collector
		l.packets = l.packets[1:]
		l.queued -= p.bytes
		if !isSilent {
			l.arriveAt = max(l.arriveAt, now+l.Delay(now))
			l.clock.After(l.arriveAt-now, p.arrive)
		}
	}
}

// wait returns the time that a packet of length 0 would take if it were sent now.
func (l *Link) wait() int64 {
	now := l.clock.Now()
	return l.Delay(now) + int64(max(float64(l.queued)-l.tokens, 0)/l.Rate(now)*1e9)
}

// Conn is one direction of a connection: it delivers frames in order.
type Conn interface {
	// Write sends a frame. arrive is called at the other end when all of it is there.
	Write(bytes int, arrive func())
}

// Direct is a lossless transport over a link without loss.
type Direct struct{ Out *Link }

// directPacket is the longest packet of a Direct, in bytes. It is short, so that packets of others
// get their turn.
const directPacket = 16 << 10

// Write implements Conn.
func (d Direct) Write(bytes int, arrive func()) {
	for ; bytes > directPacket; bytes -= directPacket {
		d.Out.Send(directPacket, func() {})
	}
	d.Out.Send(bytes, arrive)
}

// Close drops no frame, because the link already has all of them.
func (d Direct) Close() (dropped int) { return 0 }
