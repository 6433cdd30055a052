package pml

import (
	"errors"
	"fmt"
	"slices"

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
	if isAnswer(tag) {
		if len(frag) < finBytes || len(frag) > ackBytes+maxRails*exposureBytes { // the shortest, and the longest
			return nil, fmt.Errorf("%w: an answer of %d bytes", errMalformed, len(frag))
		}
		in.seq = sequenceOf(frag)
		return frag, nil
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
		return data, checkExposures(data)
	}
	if h.length < int64(len(data)) {
		return nil, fmt.Errorf("%w: rendezvous of length %d with %d bytes", errMalformed, h.length, len(data))
	}
	return data, nil
}

// Arrived implements btl.Events. That a peer which is failing was heard has to be noted, so there the plainest case is none.
func (p *PML) Arrived(m btl.Module, rank int, tag btl.Tag, frag []byte) {
	if tag == tagMatch && uint(rank) < uint(len(p.peers)) {
		if pr := p.peers[rank]; pr != nil && pr.via != nil && pr.failing == nil && pr.lost == nil && p.expected(pr, frag) {
			return
		}
	}
	p.arrived(m, rank, tag, frag)
}

// arrived is Arrived for all but the plainest case.
func (p *PML) arrived(m btl.Module, rank int, tag btl.Tag, frag []byte) {
	if rank < 0 || rank >= len(p.peers) || p.closed != nil {
		p.stats.Malformed++
		return
	}
	pr := p.peer(rank)
	if pr.lost != nil {
		p.repel(pr, m) // who waited for it was told so; the peer may not know
		return
	}
	if pr.failing != nil {
		pr.heard = m
	}
	if pr.via == nil {
		pr.via = m
	}
	var err error
	switch {
	case isNumbered(tag):
		err = p.sequenced(pr, tag, frag)
		if p.full > 0 {
			p.demanded(pr)
		}
	case tag == tagFrag:
		var h fragHdr
		if err = h.decode(frag); err == nil {
			err = p.fragment(pr, &h, frag[fragBytes:])
		}
	case tag == tagCredit:
		var h creditHdr
		if err = h.decode(frag); err == nil {
			err = p.credited(pr, h)
		}
	case isAboutRail(tag):
		var h railHdr
		if err = h.decode(frag); err == nil {
			p.aboutRail(pr, m, tag, h)
		}
	default:
		err = fmt.Errorf("%w: of kind %d", errMalformed, tag)
	}
	if err != nil {
		p.nonsense(pr, err)
	}
	p.tellLeft(pr)
}

// expected hands a MATCH to its receive in the plainest case, which is to be quick: it is the next
// fragment of the peer, and the receive is posted, for this peer. In any other it reports false
// and has done nothing.
func (p *PML) expected(pr *peer, frag []byte) bool {
	var h matchHdr
	if !h.parse(frag) || h.seq != uint32(pr.recvSeq) || len(pr.early) > 0 {
		return false
	}
	c := p.context(h.context)
	if c == nil {
		return false
	}
	data := frag[matchBytes:]
	if p.direct.ctx == c {
		if !p.direct.takes(p, c, pr.rank, int(h.tag), data) {
			return false
		}
		pr.recvSeq++
		p.took(pr, len(data))
		return true
	}
	r := c.posted.first(pr.rank, int(h.tag))
	if r == nil || r.world == request.AnySource {
		return false
	}
	pr.recvSeq++
	c.posted.remove(r)
	p.took(pr, len(data))
	r.receive(int(h.tag), data)
	return true
}

// invitation takes a PUT apart.
func (p *PML) invitation(pr *peer, frag []byte) error {
	if len(frag) < ackBytes {
		return fmt.Errorf("%w: put of %d bytes", errMalformed, len(frag))
	}
	var h ackHdr
	if err := h.decode(frag[:ackBytes]); err != nil {
		return err
	}
	if h.refuses() {
		return fmt.Errorf("%w: put that refuses", errMalformed)
	}
	list := frag[ackBytes:]
	if err := checkExposures(list); err != nil {
		return err
	}
	return p.invited(pr, &h, list)
}

// sequenced hands on a fragment that is matched if it is the next one, or else keeps it until it
// is.
func (p *PML) sequenced(pr *peer, tag btl.Tag, frag []byte) error {
	var in incoming
	var data []byte
	var err error
	if tag == tagNack {
		data, err = p.decodeNack(pr, &in, frag)
	} else {
		data, err = in.decode(tag, frag)
	}
	if err != nil {
		return err
	}
	ahead := int32(in.seq - uint32(pr.recvSeq))
	switch {
	case ahead < 0:
		p.stats.Duplicates++
		return nil
	case ahead > 0:
		return p.keepEarly(pr, pr.recvSeq+uint64(ahead), &in, data)
	}
	if err := p.hear(pr, in.kind, len(data)); err != nil {
		return err
	}
	pr.recvSeq++
	err = p.deliver(pr, &in, data)
	for err == nil && len(pr.early) > 0 {
		e := pr.early[pr.recvSeq]
		if e == nil {
			return nil
		}
		delete(pr.early, pr.recvSeq)
		p.letGo(pr, e.in.kind, len(e.data))
		pr.recvSeq++
		err = p.deliver(pr, &e.in, e.data)
	}
	return err
}

func (p *PML) keepEarly(pr *peer, seq uint64, in *incoming, data []byte) error {
	if pr.early[seq] != nil {
		p.stats.Duplicates++
		return nil
	}
	if err := p.hear(pr, in.kind, len(data)); err != nil {
		return err
	}
	if err := p.keep(pr, in.kind, len(data)); err != nil {
		return err
	}
	if pr.early == nil {
		pr.early = make(map[uint64]*earlyFrag)
	}
	p.stats.Early++
	pr.early[seq] = &earlyFrag{*in, slices.Clone(data)}
	return nil
}

// answer takes a fragment that names a request of this rank, and whose turn it is.
func (p *PML) answer(pr *peer, kind btl.Tag, frag []byte) error {
	switch kind {
	case tagPut:
		return p.invitation(pr, frag)
	case tagFin:
		var h finHdr
		err := h.decode(frag)
		if err == nil {
			p.finished(pr, &h)
		}
		return err
	case tagRestartNotify, tagRestartNack:
		var h restartHdr
		err := h.decode(frag)
		switch {
		case err != nil:
		case kind == tagRestartNotify:
			p.restartAsked(pr, &h)
		default:
			p.restartNeedless(pr, &h)
		}
		return err
	case tagNack:
		return p.nacked(pr, frag)
	}
	var h ackHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	return p.acknowledged(pr, kind, &h)
}

// deliver takes a fragment whose turn it is: it matches it, if it is a message.
func (p *PML) deliver(pr *peer, in *incoming, data []byte) error {
	switch {
	case in.kind == tagLeft:
		return p.peerLeft(pr, in, data)
	case in.kind == tagWaiting:
		return peerWaits(in, data)
	case isAnswer(in.kind):
		return p.answer(pr, in.kind, data)
	}
	c := p.context(in.context)
	if c == nil {
		return p.keepStray(pr, in, data)
	}
	if isControl(in.kind) {
		return p.deliverControl(c, pr, in, data)
	}
	p.settleDirect()
	r := c.posted.first(pr.rank, int(in.tag))
	if r == nil || r.world == request.AnySource {
		if _, member := c.group.Rank(pr.rank); !member {
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
		if keep, err := c.handler.Arriving(pr.rank, int(in.tag)); err != nil {
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
	m.source, m.tag, m.announcement = pr.rank, int(in.tag), in.announcement
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
			p.nonsense(f.from, err)
		}
	}
}

// discard drops a message that nobody will receive, and answers it, so that its sender does not wait
// for ever. That fails there if the communicator is freed; else a handler tells the sender.
func (p *PML) discard(pr *peer, a *announcement, bytes int, freed bool) {
	if a.kind != tagMatch && !a.withdrawn {
		h := ackHdr{send: a.send}
		if freed {
			h.from, h.to = refusal, refusal
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
	p.answerWith(pr, tagAck, h)
}

// answerWith posts an ACK or RNDVRESTARTACK.
func (p *PML) answerWith(pr *peer, kind btl.Tag, h ackHdr) {
	op := p.answerOp(pr, kind, ackBytes)
	h.encode(op.Hdr[:])
	p.send(pr, op)
}

// answerOp makes an operation that belongs to no request.
func (p *PML) answerOp(pr *peer, kind btl.Tag, bytes int) *btl.Op {
	op := p.getOp()
	op.Tag, op.HdrLen, op.Owner, op.Done = kind, uint8(bytes), pr, p.answerDone
	p.busy++
	return op
}

// onAnswerDone: if the answer did not get through at all, the peer is lost, and that is told to
// whoever waits for it.
func (p *PML) onAnswerDone(op *btl.Op, err error) {
	if err != nil && p.saves(op.Owner.(*peer), op, err) {
		return
	}
	p.busy--
	p.putOp(op)
}
