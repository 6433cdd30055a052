package pml

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// Ranks whose calls do not belong together may wait for each other without any of them noticing:
// two that each take the other for the root of a broadcast both receive, and nothing is sent. So a
// rank that is about to fall asleep for the second time without having received anything asks each
// rank that it waits for, once a round, by an ASK with the signature of its call. The rank that is
// asked
//
//   - spoils the round if it is in it with another signature;
//   - answers if it has done with the round, or will never come to it because it has freed the
//     communicator, or is in Finalize, or knows the communicator to be revoked or unfit;
//   - keeps the question until one of these is so, or until it is in the round with the same signature.
//
// If all those who wait for each other have the same signature, they follow one schedule, in which
// nobody waits in a circle. So each wait that would have no end has somebody in it who is asked and
// knows better.

// ask is a question that this rank keeps.
type ask struct {
	rank int // in the communicator
	tag  int
	sign Signature
}

// stillAwaits reports whether a message of the peer is missing, or one to it is not matched. If
// not, what the peer was asked is not so any more, and it may be asked again.
func (p *PML) stillAwaits(c *Context, pr *peer, tag int) bool {
	r := c.rounds
	if r.now == tag && (c.posted.table.first(keyOf(pr.Rank(), tag)) != nil || p.awaitsMatch(c, pr, tag)) {
		return true
	}
	r.asked = slices.DeleteFunc(r.asked, func(world int) bool { return world == pr.Rank() })
	return false
}

// awaitsMatch reports whether a send under a tag waits for the peer to match it.
func (p *PML) awaitsMatch(c *Context, pr *peer, tag int) bool {
	found := false
	p.sends.each(func(s *SendRequest) {
		found = found || s.ctx == c && s.peer == pr && s.tag == tag && (s.state == sendAnnounced || s.state == sendPending)
	})
	return found
}

// wasAsked answers an ASK, or keeps it.
func (p *PML) wasAsked(c *Context, pr *peer, a ask) {
	r := c.rounds
	switch ahead := r.ahead(a.tag); {
	case ahead < 0:
		p.answerRound(c, pr, a.tag, Over)
		return
	case ahead == 0:
		if ours, in := r.collective.Signature(); in {
			p.compare(c, a, ours)
			return
		}
	}
	var why Why
	switch {
	case len(c.revoked) > 0, r.unfit:
		why = Unfit
	case c.removed:
		why = Freed
	case p.leaving != nil:
		why = Finalized
	}
	if why != 0 {
		p.answerRound(c, pr, a.tag, why)
		return
	}
	if i := slices.IndexFunc(r.asks, func(old ask) bool { return old.rank == a.rank }); i >= 0 {
		r.asks[i] = a
	} else {
		r.asks = append(r.asks, a)
	}
}

// MarkUnfit says that this rank will refuse every later collective of c. A rank that waits for it
// in one is told when it asks: this rank may make no further call there.
func (p *PML) MarkUnfit(c *Context) {
	c.rounds.unfit = true
	p.declineAsks(c, Unfit)
}

// declineAsks answers whoever has asked for a round to which this rank will not come.
func (p *PML) declineAsks(c *Context, why Why) {
	if c.rounds == nil {
		return
	}
	asks := c.rounds.asks
	c.rounds.asks = nil
	for _, a := range asks {
		p.answerRound(c, p.peer(c.group.World(a.rank)), a.tag, why)
	}
}

// answerAsks compares this rank's call with those of whoever has asked before it came.
func (p *PML) answerAsks(c *Context) {
	r := c.rounds
	ours, _ := r.collective.Signature()
	for _, a := range r.asks {
		if a.tag == r.now {
			p.compare(c, a, ours)
		}
	}
	r.asks = slices.DeleteFunc(r.asks, func(a ask) bool { return r.ahead(a.tag) <= 0 })
}

// compare spoils the round now if another rank, which is in it, has made another call.
func (p *PML) compare(c *Context, a ask, ours Signature) {
	if a.sign == ours {
		return
	}
	why := Differs
	if a.sign.Call == ours.Call && a.sign.Root == ours.Root {
		why = Lengths
	}
	p.spoil(c, &SpoiledError{Rank: a.rank, Why: why, Theirs: &a.sign, Ours: &ours})
}

// patienceTurns is how many turns a rank that does not sleep takes for idle.
const patienceTurns = 1 << 18

// wonder is called when the rank is about to sleep. Whom it waits for in a round, without having
// received anything since it was about to sleep before, it asks.
func (p *PML) wonder() {
	p.patience = patienceTurns
	var stuck []*Context
	for _, c := range p.contexts {
		r := c.rounds
		if r == nil {
			continue
		}
		if _, in := r.collective.Signature(); !in {
			continue
		}
		if r.idleIn == r.now && r.idleReceived == p.stats.Received {
			stuck = append(stuck, c)
		}
		r.idleIn, r.idleReceived = r.now, p.stats.Received
	}
	slices.SortFunc(stuck, func(a, b *Context) int { return cmp.Compare(a.id, b.id) })
	for _, c := range stuck {
		p.askAround(c)
	}
}

// askAround asks each rank that this one waits for, once a round.
func (p *PML) askAround(c *Context) {
	r := c.rounds
	var awaited []int
	for _, recv := range c.posted.inOrder() {
		if recv.tag == r.now {
			awaited = append(awaited, recv.world)
		}
	}
	p.sends.each(func(s *SendRequest) {
		if s.ctx == c && s.tag == r.now && (s.state == sendAnnounced || s.state == sendPending) {
			awaited = append(awaited, s.peer.Rank())
		}
	})
	ours, _ := r.collective.Signature()
	for _, world := range awaited {
		if world == p.cfg.Rank || slices.Contains(r.asked, world) {
			continue
		}
		r.asked = append(r.asked, world)
		h := signHdr{sign: ours}
		op := p.noticeOp(tagAsk, askBytes, c.id, r.now)
		h.encode(op.Hdr[matchBytes:])
		p.send(p.peer(world), op)
	}
}

// signHdr is what follows it in an ASK.
type signHdr struct{ sign Signature }

func (h *signHdr) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, h.sign.Call)
	binary.LittleEndian.PutUint64(b[8:], uint64(h.sign.Root))
	binary.LittleEndian.PutUint64(b[16:], h.sign.Bytes)
	binary.LittleEndian.PutUint64(b[24:], h.sign.Kind)
}

func (h *signHdr) decode(b []byte) error {
	if len(b) != askBytes-matchBytes {
		return fmt.Errorf("%w: ask of %d bytes", errMalformed, matchBytes+len(b))
	}
	h.sign = Signature{
		Call:  binary.LittleEndian.Uint64(b),
		Root:  int64(binary.LittleEndian.Uint64(b[8:])),
		Bytes: binary.LittleEndian.Uint64(b[16:]),
		Kind:  binary.LittleEndian.Uint64(b[24:]),
	}
	return nil
}
