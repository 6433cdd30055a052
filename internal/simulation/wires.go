package simulation

import (
	"fmt"
	"math/rand/v2"

	"github.com/mpigo/mpigo/btl/loop"
	links "github.com/mpigo/mpigo/internal/network"
)

// In half of the plans over btl/loop, fragments cross a network whose rates change (package
// network): they wait for room, and for traffic of other ranks on the same port. Package railsim
// has longer messages, and more kinds of networks.

// wires describes the network below the rails of a plan.
type wires struct {
	isTCP       bool
	windowBytes int
	rails       []wireSetup
}

// wireSetup describes the network below a rail.
type wireSetup struct {
	rate     float64 // bytes a second
	factor   float64 // of the rate, in each second period
	period   int64
	loss     float64 // of TCP
	from, to int64   // when it is silent
}

const (
	// wireSilence is the time without arrivals after which an endpoint fails. wireQueue is the
	// length of a port's queue in seconds: TCP needs loss.
	wireSilence = 500_000_000
	wireQueue   = 0.01
)

// drawWires draws the wires of a plan over btl/loop, if it has any.
func (s *setup) drawWires(seed uint64, t Transport) {
	rng := rand.New(rand.NewPCG(seed, 0x77697265))
	if t != Loop || rng.IntN(2) == 0 {
		return
	}
	s.impaired = false // wires are slow by themselves
	w := &wires{isTCP: rng.IntN(2) == 0, windowBytes: []int{0, 2 * s.fragBytes, 16 << 10}[rng.IntN(3)]}
	for range s.rails {
		r := wireSetup{
			rate: 1e6 * []float64{1, 10, 100}[rng.IntN(3)], factor: []float64{1, 1, 0.3, 0.05, 0.01}[rng.IntN(5)],
			period: 100_000 << rng.IntN(10),
		}
		if w.isTCP && rng.IntN(3) == 0 {
			r.loss = []float64{0.01, 0.05, 0.3}[rng.IntN(3)]
		}
		if rng.IntN(4) == 0 {
			r.from = int64(rng.IntN(100_000_000))
			r.to = r.from + 1_000_000<<rng.IntN(11)
		}
		w.rails = append(w.rails, r)
	}
	s.wires = w
}

func (r wireSetup) String() string {
	return fmt.Sprintf("%.0f MB/s, %.2f of it each %d ns, loss %.2f, silent from %d to %d ns", r.rate/1e6, r.factor, r.period, r.loss, r.from, r.to)
}

// useWires gives the fabric of a plan its wires. Healing the network makes them sound.
func (n *loopNet) useWires(seed uint64, s *setup) error {
	rng := rand.New(rand.NewPCG(seed, 0x6c6f7373))
	ports := map[loop.Port]*links.Link{}
	for rail, r := range s.wires.rails {
		n.latency = append(n.latency, s.rails[rail].latency)
		for rank := range s.ranks {
			slow := links.Swap(r.rate, r.rate*r.factor, r.period)
			l := links.NewLink(n.Fabric, rng, func(now int64) float64 {
				if n.isHealed {
					return r.rate
				}
				return slow(now)
			}, 0)
			l.Delay = func(int64) int64 { return n.latency[rail] }
			l.Loss = func(int64) float64 {
				if n.isHealed {
					return 0
				}
				return r.loss
			}
			l.Silent = func(now int64) bool { return !n.isHealed && r.from <= now && now < r.to }
			if s.wires.isTCP {
				l.QueueSeconds, l.BurstBytes = wireQueue, 32<<10
			}
			ports[loop.Port{Rank: rank, Rail: rail}] = l
		}
	}
	return n.SetWires(loop.Wires{WindowBytes: s.wires.windowBytes, SilenceNanos: wireSilence, AcksTaken: s.wires.isTCP, Dial: func(a, b loop.Port) (to, fro loop.Wire) {
		switch {
		case a.Rank == b.Rank:
			return nil, nil
		case s.wires.isTCP:
			return links.NewTCP(n.Fabric, ports[a], ports[b]), links.NewTCP(n.Fabric, ports[b], ports[a])
		}
		return links.Direct{Out: ports[a]}, links.Direct{Out: ports[b]}
	}})
}
