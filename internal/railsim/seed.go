package railsim

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/internal/network"
	"github.com/mpigo/mpigo/pml"
)

// plan is a random job.
type plan struct {
	cfg    config
	faults []fault
	flows  []flow
	// sound are the rates, in bytes a second, of the rails that always deliver and lose no packets.
	sound []func(now int64) float64
	// stopNanos is the time for which a rank is stopped.
	stopNanos int64
	// mayFail has, for each rail, the times in which it may fail.
	mayFail [][]span
	what    []string // a description of each rail and each event
}

// fault is a temporary failure.
type fault struct {
	from, to int64
	rail     int
	kind     faultKind
	rank     int
	cut      loop.Cut
}

type faultKind int

const (
	cutLink faultKind = iota
	breakPort
	breakRail
	faultKinds
)

// flow is a sequence of messages, window of which are under way at a time.
type flow struct {
	from, to, window int
	sizes            []int
}

const (
	// planNanos is the approximate time of a plan's messages without faults. mostBytes bounds the
	// bytes that one rank sends.
	planNanos = 2 * network.Second
	mostBytes = 8e6
	// mostSize is the longest message.
	mostSize = 2 << 20
	// afterFault is the time after a fault within which a rail may still fail because of it: TCP's
	// retransmission time-out has grown meanwhile, and the ranks inform each other.
	afterFault = 12 * network.Second
)

// kinds of rails. The first ones are sound.
const (
	steadyRail = iota
	alsoSteadyRail
	swappingRail
	sharedRail
	soundKinds

	lossyRail = iota - 1
	veryLossyRail
	farRail
	slowedRail
	silentRail
	brokenRail
	railKinds
)

// draw makes the plan of a seed.
func draw(seed uint64) *plan {
	rng := rand.New(rand.NewPCG(seed, 0x7261696c))
	pick := func(of ...int) int { return of[rng.IntN(len(of))] }
	p := &plan{cfg: config{
		ranks: pick(2, 2, 2, 3), protocol: protocolsOf[rng.IntN(len(protocolsOf))], fragBytes: pick(16, 64, 128)<<10 + btl.MaxHeaderBytes,
		seed: seed, grace: network.Second << rng.IntN(4), keepsBuffers: true,
	}}
	isDirect := rng.IntN(4) == 0
	bytes := 0.0 // that a rank sends
	for i := range pick(1, 2, 2, 2, 2, 3, 3, 4) {
		kind := rng.IntN(railKinds)
		if i == 0 {
			kind = rng.IntN(soundKinds)
		}
		if isDirect && (kind == sharedRail || kind == lossyRail || kind == veryLossyRail) {
			kind = swappingRail
		}
		bytes += p.drawRail(rng, kind, isDirect) * float64(planNanos) / 1e9
	}
	bytes = min(bytes, mostBytes)
	p.drawAway(rng)
	for _, may := range p.mayFail {
		for i := range may {
			may[i].to += p.stopNanos // a stopped rank detects the fault later
		}
	}
	for from := range p.cfg.ranks {
		if from > 0 && rng.IntN(2) == 0 {
			continue
		}
		for left, n := bytes, 1+rng.IntN(p.cfg.ranks-1); n > 0; n-- {
			f := flow{from: from, to: (from + n) % p.cfg.ranks, window: pick(1, 1, 2, 4)}
			for left > bytes*float64(n-1)/float64(n) {
				size := min(int(math.Exp(rng.Float64()*math.Log(mostSize))), int(bytes))
				left -= float64(max(size, 1000))
				f.sizes = append(f.sizes, size)
			}
			p.flows = append(p.flows, f)
		}
	}
	return p
}

var protocolsOf = [...]pml.Protocol{pml.Auto, pml.Copy, pml.Copy, pml.Put, pml.Get}

// drawRail adds a rail, and returns its approximate rate, in bytes a second.
func (p *plan) drawRail(rng *rand.Rand, kind int, isDirect bool) float64 {
	pick := func(of ...int) int { return of[rng.IntN(len(of))] }
	l := tcpLink(float64(pick(2, 5, 10, 20, 50)))
	if isDirect {
		l = directLink(int64(pick(1, 2, 5, 20)))
	}
	rate, i := l.rate(0), len(p.cfg.rails)
	from := int64(rng.Float64() * float64(planNanos))
	to := from + network.Second/10<<rng.IntN(6)
	usual, share := rate, l.rate
	what := fmt.Sprintf("%.2g MB/s", rate/1e6)
	during := fmt.Sprintf("from %.2f to %.2f s", float64(from)/1e9, float64(to)/1e9)
	var may []span
	switch kind {
	case swappingRail:
		other, period := rate/float64(pick(4, 20)), network.Second*int64(pick(3, 10, 20))/10
		if usual = (rate + other) / 2; rng.IntN(2) == 0 {
			rate, other = other, rate
		}
		l.rate = network.Swap(rate, other, period)
		share = l.rate
		what = fmt.Sprintf("%.2g and %.2g MB/s each %.1f s", rate/1e6, other/1e6, float64(period)/1e9)
	case sharedRail:
		// Slower links have no room in their queues for this many flows.
		l = tcpLink(50)
		rate, l.foreign = l.rate(0), pick(2, 8, 16)
		usual, what = rate, fmt.Sprintf("%.2g MB/s", rate/1e6)
		usual /= float64(l.foreign + 1)
		// A connection that is sometimes idle, and loses packets in a full queue, gets a smaller
		// share.
		share = network.Steady(usual / 4)
		l.isForeign = network.Swap(rng.IntN(2) == 0, rng.IntN(2) == 0, network.Second*int64(pick(3, 10, 20))/10)
		what += fmt.Sprintf(" with %d foreign flows", l.foreign)
	case lossyRail:
		l.loss = network.Steady(float64(pick(1, 5)) / 100)
		what += fmt.Sprintf(" with %.2f lost", l.loss(0))
	case veryLossyRail:
		l.loss = network.During(from, to, 0.3, 0)
		what += " with 0.30 lost " + during
		may = append(may, span{from, to + afterFault})
	case farRail:
		l.delay = network.During(from, to, l.delay(0)+200*network.Millisecond, l.delay(0))
		what += " with 200 ms " + during
	case slowedRail:
		l.rate = network.During(from, to, rate/100, rate)
		if float64(p.cfg.fragBytes) > rate/100 { // a fragment takes seconds
			may = append(may, span{from, to + afterFault})
		}
		what += ", a hundredth of it " + during
	case silentRail:
		l.silent = network.During(from, to, true, false)
		what += ", silent " + during
		may = append(may, span{from, to + afterFault})
	case brokenRail:
		f := fault{from: from, to: to, rail: i, kind: faultKind(rng.IntN(int(faultKinds))), rank: rng.IntN(p.cfg.ranks), cut: loop.Cut{Fate: loop.Fate(rng.IntN(3)), HalfOpen: rng.IntN(2) == 0}}
		p.faults = append(p.faults, f)
		what += ", broken " + during
		may = append(may, span{from, to + afterFault})
	}
	p.cfg.rails = append(p.cfg.rails, l)
	if kind < soundKinds {
		p.sound = append(p.sound, share)
	}
	p.mayFail = append(p.mayFail, may)
	p.what = append(p.what, what)
	return usual
}

// drawAway makes ranks pause at times, in a quarter of the plans.
func (p *plan) drawAway(rng *rand.Rand) {
	switch rng.IntN(8) {
	case 0:
		p.cfg.away = pauses(5*network.Millisecond, 25*network.Millisecond)
		p.what = append(p.what, "ranks are away for 5 of 25 ms")
	case 1:
		rank, from := rng.IntN(p.cfg.ranks), int64(rng.Float64()*float64(planNanos))
		p.stopNanos = network.Second / 10 << rng.IntN(7)
		p.cfg.away = stopped(rank, from, from+p.stopNanos)
		p.what = append(p.what, fmt.Sprintf("rank %d is stopped from %.2f to %.2f s", rank, float64(from)/1e9, float64(from+p.stopNanos)/1e9))
	}
}
