package loop

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Fate is what happens to what is in flight when a virtual fabric breaks. A free-running fabric has
// nothing in flight.
type Fate uint8

const (
	// Lose: nothing of it arrives.
	Lose Fate = iota
	// Deliver: all of it arrives, and no acknowledgement does.
	Deliver
	// DeliverSome: of each link's flights a part arrives, in the order in which they were posted,
	// and no acknowledgement does. The seed decides how many.
	DeliverSome
)

// Cut says how a link breaks.
type Cut struct {
	Fate Fate
	// HalfOpen: only the first of the two ranks is told. The other one fails when it finds out.
	HalfOpen bool
}

// tell gives a notice to the port of rank to, about an event at rank from.
func (f *Fabric) tell(rail, from, to int, n notice) {
	if f.sim == nil {
		f.ports[rail][to].notify(n)
		return
	}
	f.sim.after(f.cfg.Rail[rail].LatencyNanos, func() { f.ports[rail][to].notify(n) })
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

// FailLane cuts the link of ranks a and b on a rail until ReviveLane. Endpoints made meanwhile fail
// at their first post.
func (f *Fabric) FailLane(a, b, rail int, how Cut) error {
	if err := f.checkFault(rail, a, b); err != nil {
		return err
	}
	f.tracef("cut %s %d-%d", f.cfg.Rail[rail].Name, a, b)
	l := f.link(rail, a, b)
	l.mu.Lock()
	l.cut = true
	epoch := l.epoch
	l.mu.Unlock()
	f.settleFlights(l, how.Fate)
	err := &btl.Error{Class: btl.ClassPath, Side: btl.SideNone, Native: "cut", Err: btl.ErrInjected}
	f.ports[rail][a].notify(notice{kind: peerFailed, peer: b, upTo: epoch, err: err})
	if !how.HalfOpen && a != b {
		f.ports[rail][b].notify(notice{kind: peerFailed, peer: a, upTo: epoch, err: err})
	}
	return nil
}

// Packet is a fragment, or a remote read or write, on a lossy path.
type Packet struct {
	From, To int // ranks
	Bytes    int
	Remote   bool
}

// SetLoss makes the link of ranks a and b on a rail of a virtual fabric lose every packet that
// loses selects, until ReviveLane. As with a cut, an endpoint that has posted a lost packet fails
// after the rail's retries. Other packets pass, also in the endpoint's next incarnation.
func (f *Fabric) SetLoss(a, b, rail int, loses func(p Packet) bool) error {
	if err := f.checkFault(rail, a, b); err != nil {
		return err
	}
	if f.sim == nil {
		return fmt.Errorf("%w: loss on a fabric that is not virtual", ErrConfig)
	}
	f.tracef("loss %s %d-%d", f.cfg.Rail[rail].Name, a, b)
	f.link(rail, a, b).loses = loses
	return nil
}

// ReviveLane undoes FailLane and SetLoss.
func (f *Fabric) ReviveLane(a, b, rail int) error {
	if err := f.checkFault(rail, a, b); err != nil {
		return err
	}
	f.tracef("revive %s %d-%d", f.cfg.Rail[rail].Name, a, b)
	l := f.link(rail, a, b)
	l.mu.Lock()
	l.cut, l.loses = false, nil
	l.mu.Unlock()
	return nil
}

// FailPort breaks the device of one rank on one rail, until RevivePort: Connect there fails with
// ClassDevice. Its peers find out when they send.
func (f *Fabric) FailPort(rank, rail int, fate Fate) error {
	if err := f.checkFault(rail, rank); err != nil {
		return err
	}
	f.failPorts(rail, fate, rank)
	return nil
}

// FailRail breaks the devices of all ranks on one rail, until ReviveRail.
func (f *Fabric) FailRail(rail int, fate Fate) error {
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
	for _, l := range f.linksOf(rail) {
		if slices.Contains(ranks, l.name.low) || slices.Contains(ranks, l.name.high) {
			f.settleFlights(l, fate)
		}
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

// ReviveRail undoes FailRail and FailPort on one rail.
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

// linksOf returns the links of a rail in a fixed order.
func (f *Fabric) linksOf(rail int) []*link {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ls []*link
	for name, l := range f.links {
		if name.rail == rail {
			ls = append(ls, l)
		}
	}
	slices.SortFunc(ls, func(a, b *link) int {
		return cmp.Or(cmp.Compare(a.name.low, b.name.low), cmp.Compare(a.name.high, b.name.high))
	})
	return ls
}

// settleFlights ends what is in flight on a link of a virtual fabric.
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
