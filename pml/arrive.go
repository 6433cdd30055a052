package pml

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

var (
	errNotMember = errors.New("a message for a communicator that it is not in")
)

// incoming is the header of a numbered fragment. It is decoded once: a fragment may lie
// in memory that the peer can still write.
type incoming struct {
	matchHdr
	announcement
}

// announcement is what a fragment that was matched says of its message.
type announcement struct {
	kind  btl.Tag // after RNDV and RGET the sender waits for an answer
	flags uint8
	// withdrawn: no rail takes the message, and this stands for it.
	withdrawn bool

	length int64  // of the message
	send   handle // of the send, if it waits
}

// decode checks the header of such a fragment and returns what comes along: the message or its
// beginning, or exposures. Of an answer it reads no more than the number, and returns it whole.
func (in *incoming) decode(tag btl.Tag, frag []byte) (data []byte, err error) {
	in.kind = tag
	if tag == tagMatch {
		if err := in.matchHdr.decode(frag); err != nil {
			return nil, err
		}
		data = frag[matchBytes:]
		in.length = int64(len(data))
		return data, nil
	}
	if !isMessage(tag) {
		return frag[min(len(frag), matchBytes):], in.matchHdr.decode(frag)
	}
	var h rndvHdr
	if err := h.decode(frag); err != nil {
		return nil, err
	}
	data = frag[rndvBytes:]
	in.matchHdr = h.matchHdr
	in.announcement.flags, in.length, in.send = h.flags, h.length, h.send
	if tag == tagRget {
		return data, bml.CheckRemoteKeys(data)
	}
	if h.length < int64(len(data)) {
		return nil, fmt.Errorf("%w: rendezvous of length %d with %d bytes", errMalformed, h.length, len(data))
	}
	return data, nil
}

// expected hands a MATCH to its receive in the plainest case, which is to be quick: it is the next
// fragment of the peer, and the receive is posted, for this peer. In any other it reports false
// and has done nothing.
func (p *PML) expected(pr *peer, frag []byte) bool {
	var h matchHdr
	if !h.parse(frag) || !pr.IsNext(h.seq) {
		return false
	}
	c := p.context(h.context)
	if c == nil {
		return false
	}
	data := frag[matchBytes:]
	if p.direct.ctx == c {
		if !p.direct.takes(p, c, pr.Rank(), int(h.tag), data) {
			return false
		}
		pr.TakeNext()
		p.took(pr, len(data))
		return true
	}
	r := c.posted.first(pr.Rank(), int(h.tag))
	if r == nil || r.world == request.AnySource {
		return false
	}
	pr.TakeNext()
	c.posted.remove(r)
	p.took(pr, len(data))
	r.receive(int(h.tag), data)
	return true
}

// deliver takes a fragment whose turn it is: it matches it, if it is a message.
func (p *PML) deliver(pr *peer, in *incoming, data []byte) error {
	c := p.context(in.context)
	if c == nil {
		return p.keepStray(pr, in, data)
	}
	if isControl(in.kind) {
		return p.deliverControl(c, pr, in, data)
	}
	p.settleDirect()
	r := c.posted.first(pr.Rank(), int(in.tag))
	if r == nil || r.world == request.AnySource {
		if _, member := c.group.Rank(pr.Rank()); !member {
			return errNotMember
		}
	}
	if r != nil {
		c.posted.remove(r)
		r.matched(pr, int(in.tag))
		p.tookAny(pr, in.kind, len(data))
		r.begin(&in.announcement, data)
		return nil
	}
	if c.handler != nil {
		if keep, err := c.handler.Arriving(pr.Rank(), int(in.tag)); err != nil {
			return err
		} else if !keep {
			p.discard(pr, &in.announcement, len(data), false)
			return nil
		}
	}
	if p.rejects(in.kind) {
		p.reject(pr, &in.announcement, len(data))
		return nil
	}
	if err := p.keep(pr, in.kind, len(data)); err != nil {
		return err
	}
	m := p.messages.get(len(data))
	copy(m.data, data)
	m.source, m.tag, m.announcement = pr.Rank(), int(in.tag), in.announcement
	p.stats.Unexpected++
	c.unexpected.add(m)
	c.offerProbes(m)
	return nil
}

// stray is a fragment for a communicator that this rank has not finished making.
type stray struct {
	from *peer
	in   incoming
	data []byte // a copy
}

func (p *PML) keepStray(pr *peer, in *incoming, data []byte) error {
	if isControl(in.kind) {
		if keep, err := p.deliverOrphan(pr, in, data); !keep || err != nil {
			return err
		}
	}
	if p.recentlyFreed.has(in.context) {
		p.decline(pr, in, len(data))
		return nil
	}
	if p.rejects(in.kind) {
		p.reject(pr, &in.announcement, len(data))
		return nil
	}
	if err := p.keep(pr, in.kind, len(data)); err != nil {
		return err
	}
	p.strays[in.context] = append(p.strays[in.context], stray{pr, *in, slices.Clone(data)})
	return nil
}

// decline answers a message for a communicator that this rank has freed, or never got.
func (p *PML) decline(pr *peer, in *incoming, bytes int) {
	if isMessage(in.kind) {
		p.discard(pr, &in.announcement, bytes, true)
	}
}

func (p *PML) adoptStrays(c *Context) {
	strays := p.strays[c.id]
	delete(p.strays, c.id)
	for i := range strays {
		f := &strays[i]
		p.letGo(f.from, f.in.kind, len(f.data))
		if err := p.deliver(f.from, &f.in, f.data); err != nil {
			p.bml.ProtocolError(&f.from.Peer, err)
		}
	}
}

// discard drops a message that nobody will receive, and answers it, so that its sender does not wait
// for ever. That fails there if the communicator is freed; else a handler tells the sender.
func (p *PML) discard(pr *peer, a *announcement, bytes int, isFreed bool) {
	if a.kind != tagMatch && !a.withdrawn {
		h := ackHdr{send: a.send}
		if isFreed {
			h.from, h.to = freed, freed
		}
		p.sendAck(pr, h)
	}
	p.tookAny(pr, a.kind, bytes)
}

// dropMessage gives up the memory of a message that has been received, or never will be.
func (p *PML) dropMessage(m *message) {
	pr := p.peer(m.source)
	p.letGo(pr, m.kind, len(m.data))
	p.tookAny(pr, m.kind, len(m.data))
	p.messages.put(m)
}

// sendAck answers a RNDV or RGET.
func (p *PML) sendAck(pr *peer, h ackHdr) {
	p.post(pr, tagAck, ackBytes, h.encode)
}
