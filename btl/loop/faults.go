package loop

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Fate is what happens to operations in flight when a virtual fabric breaks. A free-running fabric
// has nothing in flight.
type Fate uint8

const (
	// Lose: none of them arrives.
	Lose Fate = iota
	// Deliver: all of them arrive, but no acknowledgement does.
	Deliver
	// DeliverSome: on each link, the operations posted first arrive. No acknowledgement does. The
	// seed decides how many operations arrive.
	DeliverSome
)

// Cut says how a link breaks.
type Cut struct {
	Fate Fate
	// HalfOpen: only the first of the two ranks gets a notice. The other one fails when it detects
	// the cut.
	HalfOpen bool
}

// tell gives a port a notice about an event at another port.
func (f *Fabric) tell(to *port, n notice) {
	if f.sim == nil {
		to.notify(n)
		return
	}
	f.sim.after(f.cfg.Rail[to.name.Rail].LatencyNanos, func() { to.notify(n) })
}

// linkFor finds the link of two ports for a fault.
func (f *Fabric) linkFor(a, b Port) (*link, error) {
	if err := cmp.Or(f.checkFault(a.Rail, a.Rank), f.checkFault(b.Rail, b.Rank)); err != nil {
		return nil, err
	}
	if a.Rail != b.Rail && !f.cfg.Switched {
		return nil, fmt.Errorf("%w: no link from rail %d to rail %d", ErrConfig, a.Rail, b.Rail)
	}
	return f.link(f.ports[a.Rail][a.Rank], f.ports[b.Rail][b.Rank]), nil
}

func (f *Fabric) checkFault(rail int, ranks ...int) error {
	if rail < 0 || rail >= f.cfg.Rails {
		return fmt.Errorf("%w: rail %d of %d", ErrConfig, rail, f.cfg.Rails)
	}
	for _, r := range ranks {
		if r < 0 || r >= f.cfg.Ranks {
			return fmt.Errorf("%w: rank %d of %d", ErrConfig, r, f.cfg.Ranks)
		}
	}
	return nil
}

// FailLane is FailLink for the ports of ranks a and b on a rail.
func (f *Fabric) FailLane(a, b, rail int, how Cut) error {
	return f.FailLink(Port{a, rail}, Port{b, rail}, how)
}

// FailLink cuts the link of two ports until ReviveLink. Endpoints made meanwhile fail at their
// first post.
func (f *Fabric) FailLink(a, b Port, how Cut) error {
	l, err := f.linkFor(a, b)
	if err != nil {
		return err
	}
	f.tracef("cut %v-%v", a, b)
	l.mu.Lock()
	l.cut = true
	epoch := l.epoch
	l.mu.Unlock()
	f.settleFlights(l, how.Fate)
	why := &btl.Error{Class: btl.ClassPath, Side: btl.SideNone, Native: "cut", Err: btl.ErrInjected}
	f.ports[a.Rail][a.Rank].notify(notice{kind: peerFailed, peer: f.place(b), upTo: epoch, err: why})
	if !how.HalfOpen && a != b {
		f.ports[b.Rail][b.Rank].notify(notice{kind: peerFailed, peer: f.place(a), upTo: epoch, err: why})
	}
	return nil
}

// Packet is a fragment, or a remote read or write, on a lossy path.
type Packet struct {
	From, To int // ranks
	Bytes    int
	Remote   bool
}

// SetLoss makes the link of two ports of a virtual fabric lose every packet that loses selects,
// until ReviveLink. As with a cut, an endpoint whose packet is lost fails after the rail's retries.
// Other packets pass, also in the endpoint's next incarnation.
func (f *Fabric) SetLoss(a, b Port, loses func(p Packet) bool) error {
	l, err := f.linkFor(a, b)
	if err == nil && f.sim == nil {
		err = fmt.Errorf("%w: loss on a fabric that is not virtual", ErrConfig)
	}
	if err != nil {
		return err
	}
	f.tracef("loss %v-%v", a, b)
	l.loses = loses
	return nil
}

// ReviveLane is ReviveLink for the ports of ranks a and b on a rail.
func (f *Fabric) ReviveLane(a, b, rail int) error {
	return f.ReviveLink(Port{a, rail}, Port{b, rail})
}

// ReviveLink undoes FailLink and SetLoss.
func (f *Fabric) ReviveLink(a, b Port) error {
	l, err := f.linkFor(a, b)
	if err != nil {
		return err
	}
	f.tracef("revive %v-%v", a, b)
	l.mu.Lock()
	l.cut, l.loses = false, nil
	l.mu.Unlock()
	return nil
}

// FailPort breaks the device of one rank on one rail, until RevivePort: Connect there fails with
// ClassDevice. Its peers detect that when they send.
func (f *Fabric) FailPort(rank, rail int, fate Fate) error {
	if err := f.checkFault(rail, rank); err != nil {
		return err
	}
	f.failPorts(rail, fate, rank)
	return nil
}

// FailModule breaks the devices of all ranks on one rail, until ReviveRail.
func (f *Fabric) FailModule(rail int, fate Fate) error {
	if err := f.checkFault(rail); err != nil {
		return err
	}
	all := make([]int, f.cfg.Ranks)
	for i := range all {
		all[i] = i
	}
	f.failPorts(rail, fate, all...)
	return nil
}

func (f *Fabric) failPorts(rail int, fate Fate, ranks ...int) {
	err := &btl.Error{Class: btl.ClassDevice, Side: btl.SideLocal, Native: "down", Err: btl.ErrInjected}
	for _, rank := range ranks {
		f.tracef("break %s %d", f.cfg.Rail[rail].Name, rank)
	}
	failed := func(p *port) bool { return p.name.Rail == rail && slices.Contains(ranks, p.name.Rank) }
	for _, l := range f.linksOf(failed) {
		f.settleFlights(l, fate)
	}
	for _, rank := range ranks {
		p := f.ports[rail][rank]
		p.setDown(err)
		p.notify(notice{kind: railFailed, err: err})
	}
}

// RevivePort undoes FailPort.
func (f *Fabric) RevivePort(rank, rail int) error {
	if err := f.checkFault(rail, rank); err != nil {
		return err
	}
	f.tracef("revive %s %d", f.cfg.Rail[rail].Name, rank)
	f.ports[rail][rank].setDown(nil)
	return nil
}

// ReviveRail undoes FailModule and FailPort on one rail.
func (f *Fabric) ReviveRail(rail int) error {
	if err := f.checkFault(rail); err != nil {
		return err
	}
	for rank := range f.cfg.Ranks {
		if err := f.RevivePort(rank, rail); err != nil {
			return err
		}
	}
	return nil
}

// linksOf returns the links of some ports in a fixed order.
func (f *Fabric) linksOf(are func(p *port) bool) []*link {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ls []*link
	for _, l := range f.links {
		if are(l.ports[0]) || are(l.ports[1]) {
			ls = append(ls, l)
		}
	}
	slices.SortFunc(ls, func(a, b *link) int {
		return cmp.Or(a.ports[0].name.compare(b.ports[0].name), a.ports[1].name.compare(b.ports[1].name))
	})
	return ls
}

// settleFlights ends the operations in flight on a link of a virtual fabric.
func (f *Fabric) settleFlights(l *link, fate Fate) {
	if f.sim == nil {
		return
	}
	arriving := 0
	switch fate {
	case Deliver:
		arriving = math.MaxInt
	case DeliverSome:
		arriving = int(f.sim.below(int64(len(l.flights))))
	}
	for i, fl := range slices.Clone(l.flights) {
		if !fl.over && i < arriving {
			fl.arrive()
		}
		fl.lose()
	}
}
