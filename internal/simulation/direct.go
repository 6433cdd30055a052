package simulation

import (
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
)

// directNet is btl/loop without simulated time: a fragment is in the receiver's queue, and its
// operation complete, when the post returns. Short messages go inline. The clock is the
// simulation's all the same.
type directNet struct {
	loopNet
	now int64
}

func newDirectNet(seed uint64, s *setup) (network, error) {
	cfg := loop.Config{Ranks: s.ranks, Rails: len(s.rails), Slots: s.slots, Seed: seed}
	for _, r := range s.rails {
		cfg.Rail = append(cfg.Rail, loop.RailConfig{
			LatencyNanos: r.latency, BandwidthMBps: r.mbps, MaxSendBytes: s.fragBytes, EagerBytes: s.fragBytes / 2,
			InlineBytes: s.inline,
		})
	}
	f, err := loop.NewFabric(cfg)
	return &directNet{loopNet: loopNet{f}}, err
}

func (n *directNet) Now() int64            { return n.now }
func (n *directNet) Next() (int64, bool)   { return 0, false }
func (n *directNet) AdvanceTo(at int64)    { n.now = max(n.now, at) }
func (n *directNet) slow(int, int64)       {} // nothing takes time
func (n *directNet) narrow(_, _, _, _ int) {} // not known to a fabric without simulated time

// inlineEnd is an endpoint of a tap that sends inline.
type inlineEnd struct{ *tapEndpoint }

// SendInline implements btl.Inliner. A fragment that a fault is aimed at must come as an operation.
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
