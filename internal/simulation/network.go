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
	// ownRail returns the number of an additional rail from each rank to itself, if the other rails
	// do not connect a rank to itself.
	ownRail() (rail int, ok bool)

	// cut breaks a link until mend. With half, only one of the ranks may notice. fate chooses the
	// outcome of operations in flight.
	cut(l link, fate int, half bool)
	mend(l link)
	// narrow makes a link lose packets of more than bytes bytes until mend. With 0 the link loses
	// remote accesses.
	narrow(l link, bytes int)
	// impair makes a link slow or lossy.
	impair(l link, i impairment)
	// port breaks or mends a port, with all its links.
	port(p port, up bool, fate int)
	// device injects a fault that only this kind of network has. losesDevice reports whether the
	// fault is the loss of a device.
	device(rank, rail, what, after int)
	losesDevice(what int) bool
	// slow sets the latency of operations that are posted on a rail from now on.
	slow(rail int, nanos int64)
	// hasNoKeepAlive reports whether the network has no keep-alive. Then a rank whose sends wait
	// for a peer's window does not learn that the peer has declared it lost.
	hasNoKeepAlive() bool
	// heal makes all wires work well from now on.
	heal()
	// fired returns the number of faults from device that have had an effect.
	fired() int
	close()
}

// faulty decorates the module that open makes, so that its operations fail on request. Silent
// operations fail by the clock of the network.
func faulty(n network, ev btl.Events, open func(ev btl.Events) (btl.Module, error)) (btl.Module, error) {
	return faults.Wrap(faults.Config{Events: ev, Clock: n, DeadlineNanos: deadlineNanos}, open)
}

// noFaults is embedded in the networks. It has empty methods for the faults that a network does not
// support.
type noFaults struct{}

func (noFaults) narrow(link, int)        {}
func (noFaults) impair(link, impairment) {}
func (noFaults) device(_, _, _, _ int)   {}
func (noFaults) losesDevice(int) bool    { return false }
func (noFaults) slow(int, int64)         {}
func (noFaults) hasNoKeepAlive() bool    { return false }
func (noFaults) heal()                   {}
func (noFaults) fired() int              { return 0 }
func (noFaults) close()                  {}

// loopNet is btl/loop.
type loopNet struct {
	noFaults
	*loop.Fabric
	// With wires: the latency of each rail, and whether the wires are healed.
	latency  []int64
	isHealed bool
}

func newLoopNet(seed uint64, s *setup) (network, error) {
	cfg := loop.Config{Ranks: s.ranks, Rails: len(s.rails), Slots: s.slots, Seed: seed, Switched: s.switched, Virtual: true}
	for _, r := range s.rails {
		cfg.Rail = append(cfg.Rail, loop.RailConfig{
			LatencyNanos: r.latency, JitterNanos: r.jitter, BandwidthMBps: r.mbps, MaxSendBytes: s.fragBytes, EagerBytes: s.fragBytes / 2,
		})
	}
	f, err := loop.NewFabric(cfg)
	n := &loopNet{Fabric: f}
	if err == nil && s.wires != nil {
		err = n.useWires(seed, s)
	}
	return n, err
}

func (n *loopNet) module(rank, rail int, ev btl.Events) (btl.Module, error) {
	return faulty(n, ev, func(ev btl.Events) (btl.Module, error) { return n.Module(rank, rail, ev, nil) })
}

func (n *loopNet) ownRail() (int, bool) { return 0, false }

func (n *loopNet) hasNoKeepAlive() bool { return true }

// The methods of Fabric fail only for ranks and rails that do not exist.

func ends(l link) (a, b loop.Port) {
	return loop.Port{Rank: l[0].rank, Rail: l[0].rail}, loop.Port{Rank: l[1].rank, Rail: l[1].rail}
}

func (n *loopNet) cut(l link, fate int, half bool) {
	a, b := ends(l)
	_ = n.FailLink(a, b, loop.Cut{Fate: loop.Fate(fate % 3), HalfOpen: half})
}

func (n *loopNet) mend(l link) {
	a, b := ends(l)
	_ = n.ReviveLink(a, b)
}

func (n *loopNet) impair(l link, i impairment) {
	a, b := ends(l)
	to := loop.Impairment{Latency: i.latency, PerByte: i.perByte, Loss: i.loss}
	if i.loss > 0 {
		to.RetryNanos = retryNanos
	}
	_ = n.ImpairLink(a, b, to)
}

func (n *loopNet) narrow(l link, bytes int) {
	a, b := ends(l)
	_ = n.SetLoss(a, b, func(p loop.Packet) bool { return p.Remote && bytes == 0 || bytes > 0 && p.Bytes > bytes })
}

func (n *loopNet) port(p port, up bool, fate int) {
	if up {
		_ = n.RevivePort(p.rank, p.rail)
	} else {
		_ = n.FailPort(p.rank, p.rail, loop.Fate(fate%3))
	}
}

func (n *loopNet) slow(rail int, nanos int64) {
	_ = n.SetLatency(rail, nanos)
	if n.latency != nil {
		n.latency[rail] = nanos
	}
}

func (n *loopNet) heal() { n.isHealed = true }

// directNet is btl/loop without simulated time: a fragment is in the receiver's queue, and its
// operation complete, when the post returns. Short messages go inline. The clock is still the
// simulation's.
type directNet struct {
	loopNet
	now int64
}

func newDirectNet(seed uint64, s *setup) (network, error) {
	cfg := loop.Config{Ranks: s.ranks, Rails: len(s.rails), Slots: s.slots, Seed: seed, Switched: s.switched}
	for _, r := range s.rails {
		cfg.Rail = append(cfg.Rail, loop.RailConfig{
			LatencyNanos: r.latency, BandwidthMBps: r.mbps, MaxSendBytes: s.fragBytes, EagerBytes: s.fragBytes / 2,
			InlineBytes: s.inline,
		})
	}
	f, err := loop.NewFabric(cfg)
	return &directNet{loopNet: loopNet{Fabric: f}}, err
}

func (n *directNet) Now() int64          { return n.now }
func (n *directNet) Next() (int64, bool) { return 0, false }
func (n *directNet) AdvanceTo(at int64)  { n.now = max(n.now, at) }
func (n *directNet) slow(int, int64)     {} // nothing takes time
func (n *directNet) narrow(link, int)    {} // not known to a fabric without simulated time

// inlineEnd is an endpoint of a tap that sends inline.
type inlineEnd struct{ *tapEndpoint }

// SendInline implements btl.Inliner. A fragment at which a fault is aimed must be posted as an
// operation.
func (e inlineEnd) SendInline(tag btl.Tag, hdr, payload []byte) bool {
	t := e.t
	w, r := t.w, t.w.ranks[t.rank]
	name := r.p.FragmentName(tag)
	if r.isAimedAt(name) || w.isWrong(t, name) {
		return false
	}
	w.note(evPost, t.rank, e.peer, t.rail, uint64(tag), uint64(len(hdr)+len(payload)))
	return e.Endpoint.(btl.Inliner).SendInline(tag, hdr, payload)
}

// ownFabrics has for each rank a fabric that connects the rank to itself, for networks that do not.
type ownFabrics []*loop.Fabric

func newOwnFabrics(seed uint64, s *setup) (ways ownFabrics, err error) {
	for range s.ranks {
		f, err := loop.NewFabric(loop.Config{Seed: seed, Virtual: true, Rail: []loop.RailConfig{{Name: "own", MaxSendBytes: s.fragBytes, EagerBytes: s.fragBytes / 2}}})
		if err != nil {
			return nil, err
		}
		ways = append(ways, f)
	}
	return ways, nil
}

func (o ownFabrics) next() (at int64, ok bool) {
	for _, f := range o {
		if t, is := f.Next(); is && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}

func (o ownFabrics) advanceTo(at int64) {
	for _, f := range o {
		f.AdvanceTo(at)
	}
}

func (o ownFabrics) module(n network, rank int, ev btl.Events) (btl.Module, error) {
	return faulty(n, ownEvents{ev, rank}, func(ev btl.Events) (btl.Module, error) { return o[rank].Module(0, 0, ev, nil) })
}

// ownEvents translates rank 0, the only rank of such a fabric, to the rank in the job.
type ownEvents struct {
	btl.Events
	rank int
}

func (e ownEvents) Arrived(m btl.Module, _ int, tag btl.Tag, frag []byte) {
	e.Events.Arrived(m, e.rank, tag, frag)
}

func (e ownEvents) Failed(m btl.Module, to btl.Path, err *btl.Error) {
	e.Events.Failed(m, e.path(to), err)
}

func (e ownEvents) Drained(m btl.Module, to btl.Path) { e.Events.Drained(m, e.path(to)) }

func (e ownEvents) path(to btl.Path) btl.Path {
	if to != btl.WholeModule {
		to.Peer = e.rank
	}
	return to
}
