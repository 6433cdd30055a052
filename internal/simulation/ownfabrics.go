package simulation

import (
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
)

// ownFabrics holds a fabric for each rank that leads to itself, for networks that do not.
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

func (e ownEvents) Failed(m btl.Module, peer int, err *btl.Error) {
	e.Events.Failed(m, e.peer(peer), err)
}

func (e ownEvents) Drained(m btl.Module, peer int) { e.Events.Drained(m, e.peer(peer)) }

func (e ownEvents) peer(peer int) int {
	if peer == btl.AllPeers {
		return peer
	}
	return e.rank
}
