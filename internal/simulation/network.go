package simulation

import (
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/faults"
	"github.com/mpigo/mpigo/btl/loop"
)

// network connects the ranks. It has a virtual clock, and breaks on request. Rails are numbered.
type network interface {
	Now() int64
	Next() (at int64, ok bool)
	AdvanceTo(at int64)

	// module makes the rail of a rank, once. It is a btl.Injector.
	module(rank, rail int, ev btl.Events) (btl.Module, error)
	// ownRail is the number of one more rail of each rank that leads to itself, if the others do
	// not.
	ownRail() (rail int, ok bool)

	// cut breaks the link of two ranks until mend. half: only one of them may notice. fate chooses
	// what becomes of operations in flight.
	cut(a, b, rail int, fate int, half bool)
	mend(a, b, rail int)
	// narrow makes the link of two ranks lose packets of more than bytes bytes until mend. With 0
	// it loses remote accesses.
	narrow(a, b, rail, bytes int)
	// port breaks or mends the port of a rank.
	port(rank, rail int, up bool, fate int)
	// device injects a fault that only this kind of network has. losesDevice reports whether the
	// fault is the loss of a device.
	device(rank, rail, what, after int)
	losesDevice(what int) bool
	// slow sets the latency of operations that are posted on a rail from now on.
	slow(rail int, nanos int64)
	// fired is the number of faults from device that have had an effect.
	fired() int
	close()
}

// faulty decorates the module that open makes, so that its operations fail on request. Silent
// operations fail by the clock of the network.
func faulty(n network, ev btl.Events, open func(ev btl.Events) (btl.Module, error)) (btl.Module, error) {
	return faults.Wrap(faults.Config{Events: ev, Clock: n, DeadlineNanos: deadlineNanos}, open)
}

// loopNet is btl/loop.
type loopNet struct{ *loop.Fabric }

func newLoopNet(seed uint64, s *setup) (network, error) {
	cfg := loop.Config{Ranks: s.ranks, Rails: len(s.rails), Slots: s.slots, Seed: seed, Virtual: true}
	for _, r := range s.rails {
		cfg.Rail = append(cfg.Rail, loop.RailConfig{
			LatencyNanos: r.latency, JitterNanos: r.jitter, BandwidthMBps: r.mbps, MaxSendBytes: s.fragBytes, EagerBytes: s.fragBytes / 2,
		})
	}
	f, err := loop.NewFabric(cfg)
	return loopNet{f}, err
}

func (n loopNet) module(rank, rail int, ev btl.Events) (btl.Module, error) {
	return faulty(n, ev, func(ev btl.Events) (btl.Module, error) { return n.Module(rank, rail, ev, nil) })
}

func (n loopNet) ownRail() (int, bool) { return 0, false }

// The methods of Fabric fail only for ranks and rails that do not exist.

func (n loopNet) cut(a, b, rail, fate int, half bool) {
	_ = n.FailLane(a, b, rail, loop.Cut{Fate: loop.Fate(fate % 3), HalfOpen: half})
}

func (n loopNet) mend(a, b, rail int) { _ = n.ReviveLane(a, b, rail) }

func (n loopNet) narrow(a, b, rail, bytes int) {
	_ = n.SetLoss(a, b, rail, func(p loop.Packet) bool { return p.Remote && bytes == 0 || bytes > 0 && p.Bytes > bytes })
}

func (n loopNet) port(rank, rail int, up bool, fate int) {
	if up {
		_ = n.RevivePort(rank, rail)
	} else {
		_ = n.FailPort(rank, rail, loop.Fate(fate%3))
	}
}

func (n loopNet) device(int, int, int, int) {}

func (n loopNet) losesDevice(int) bool { return false }

func (n loopNet) slow(rail int, nanos int64) { _ = n.SetLatency(rail, nanos) }

func (n loopNet) fired() int { return 0 }

func (n loopNet) close() {}
