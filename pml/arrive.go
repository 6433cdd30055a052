package pml

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

var errNotMember = errors.New("a message for a communicator that it is not in")

// incoming is the decoded header of a fragment that belongs to a context: of a message or a control
// fragment. It is decoded once, because the peer may still be able to write the fragment's memory.
type incoming struct {
	matchHdr
	kind   btl.Tag // a sender that sent RNDV or RGET waits for an answer
	isNack bool    // a NACK replaces the message, which no rail of the sender takes
	length int64   // of the message
	send   handle  // of the send, if the sender waits for an answer
}

// decode checks and decodes the header. It returns the payload: the message or its first bytes,
// remote key descriptors, or the data of a control fragment.
func (in *incoming) decode(tag btl.Tag, frag []byte) (data []byte, err error) {
	in.kind = tag
	if tag != tagRndv && tag != tagRget {
		if err := in.matchHdr.decode(frag); err != nil {
			return nil, err
		}
		data = frag[matchBytes:]
		in.length = int64(len(data))
		return data, nil
	}
	var h rndvHdr
	if err := h.decode(frag); err != nil {
		return nil, err
	}
	data = frag[rndvBytes:]
	in.matchHdr, in.length, in.send = h.matchHdr, h.length, h.send
	if tag == tagRget {
		return data, bml.CheckRemoteKeys(data)
	}
	if h.length < int64(len(data)) {
		return nil, fmt.Errorf("%w: RNDV of length %d with %d bytes", errMalformed, h.length, len(data))
	}
	return data, nil
}

// matchFast is the fast path of deliver. It receives a MATCH that is the next fragment of the peer
// and has no flags, if a receive from that peer is posted. In any other case it reports false and
// changes nothing.
func (p *PML) matchFast(pr *peer, frag []byte) bool {
	var h matchHdr
	if !h.parsePlain(frag) || !pr.IsNext(h.seq) {
		return false
	}
	c := p.context(h.context)
	if c == nil {
		return false
	}
	data := frag[matchBytes:]
	if p.blocking.ctx == c {
		if !p.blocking.awaits(pr.Rank(), int(h.tag), len(data)) {
			return false
		}
		pr.TakeNext(1)
		p.blocking.take(pr, &h, data)
		return true
	}
	r := c.posted.first(pr.Rank(), int(h.tag))
	if r == nil || r.world == request.AnySource {
		return false
	}
	pr.TakeNext(1)
	c.posted.remove(r)
	r.matched(pr, &h, int64(len(data)))
	r.complete(data)
	p.consumed(pr, 1, len(data))
	return true
}

// deliver takes a fragment whose turn it is. It matches a message with a receive, or keeps it as
// unexpected, and gives a control fragment to the handler.
func (p *PML) deliver(pr *peer, in *incoming, data []byte) error {
	c := p.context(in.context)
	if c == nil {
		return p.keepEarlyContext(pr, in, data)
	}
	if isControl(in.kind) {
		return p.deliverControl(c, pr, in, data)
	}
	p.postBlocking()
	r := c.posted.first(pr.Rank(), int(in.tag))
	if r == nil || r.world == request.AnySource {
		if _, member := c.group.Rank(pr.Rank()); !member {
			return errNotMember
		}
	}
	if r != nil {
		c.posted.remove(r)
		r.matched(pr, &in.matchHdr, in.length)
		r.begin(in, data)
		p.consumedMessage(pr, in.kind, len(data))
		return nil
	}
	if c.handler != nil {
		if keep, err := c.handler.Arriving(pr.Rank(), int(in.tag)); err != nil {
			return err
		} else if !keep {
			p.reject(pr, in, len(data), discarded)
			return nil
		}
	}
	if p.rejectsUnmatched(in.kind) {
		p.reject(pr, in, len(data), unmatched)
		return nil
	}
	if err := p.buffer(pr, in.kind, len(data)); err != nil {
		return err
	}
	m := p.messages.get(len(data))
	copy(m.data, data)
	m.source, m.incoming = pr.Rank(), *in
	p.stats.Unexpected++
	c.unexpected.add(m)
	c.offerProbes(m)
	return nil
}

// earlyContextFragment is a fragment for a context that this rank has not made yet.
type earlyContextFragment struct {
	from *peer
	in   incoming
	data []byte // a copy
}

// keepEarlyContext keeps a fragment until its context is made. It rejects a message for a context
// that this rank has freed or will never have.
func (p *PML) keepEarlyContext(pr *peer, in *incoming, data []byte) error {
	if isControl(in.kind) {
		if keep, err := p.deliverOrphan(pr, in, data); !keep || err != nil {
			return err
		}
	}
	switch {
	case !p.isToCome(in.context):
		if isMessage(in.kind) {
			p.reject(pr, in, len(data), freed)
		}
		return nil
	case p.rejectsUnmatched(in.kind):
		p.reject(pr, in, len(data), unmatched)
		return nil
	}
	if err := p.buffer(pr, in.kind, len(data)); err != nil {
		return err
	}
	p.earlyContext[in.context] = append(p.earlyContext[in.context], earlyContextFragment{pr, *in, slices.Clone(data)})
	return nil
}

// rejectEarlyContext rejects the fragments that wait for a context which this rank will not make.
func (p *PML) rejectEarlyContext(id ContextID) {
	p.takeEarlyContext(id, func(f *earlyContextFragment) (err error) {
		if isMessage(f.in.kind) {
			p.reject(f.from, &f.in, len(f.data), freed)
		} else {
			_, err = p.deliverOrphan(f.from, &f.in, f.data)
		}
		return err
	})
}

// takeEarlyContext takes the fragments that wait for a context out of the buffer, and handles each.
// Those of a peer that follow one which breaks the protocol are dropped.
func (p *PML) takeEarlyContext(id ContextID, handle func(f *earlyContextFragment) error) {
	early := p.earlyContext[id]
	delete(p.earlyContext, id)
	for i := range early {
		f := &early[i]
		p.unbuffer(f.from, f.in.kind, len(f.data))
	}
	for len(early) > 0 {
		f := early[0]
		early = early[1:]
		if err := handle(&f); err != nil {
			p.bml.ProtocolError(&f.from.Peer, err)
			early = slices.DeleteFunc(early, func(other earlyContextFragment) bool { return other.from == f.from })
		}
	}
}

// deliverEarlyContext delivers the fragments that waited for a context that is now made.
func (p *PML) deliverEarlyContext(c *Context) {
	p.takeEarlyContext(c.id, func(f *earlyContextFragment) error { return p.deliver(f.from, &f.in, f.data) })
}

// reject drops a message that no receive will take. It tells the sender, if that waits for an
// answer.
func (p *PML) reject(pr *peer, in *incoming, bytes int, why int64) {
	if in.kind != tagMatch && !in.isNack {
		p.sendAck(pr, ackHdr{send: in.send, from: why, to: why})
	}
	p.consumedMessage(pr, in.kind, bytes)
}

// rejectUnexpected drops an unexpected message.
func (p *PML) rejectUnexpected(q *unexpected, m *message, why int64) {
	q.remove(m)
	pr := p.peer(m.source)
	p.unbuffer(pr, m.kind, len(m.data))
	p.reject(pr, &m.incoming, len(m.data), why)
	p.messages.put(m)
}

// sendAck answers a RNDV or RGET.
func (p *PML) sendAck(pr *peer, h ackHdr) {
	p.post(pr, tagAck, ackBytes, h.encode)
}
