package pml

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// Route is one way to a peer.
type Route struct {
	Module   btl.Module
	Endpoint btl.Endpoint
	// Local and Remote are the numbers of the rail on this side and on the peer's: what Local is
	// here is Remote there. They name rails in headers. At most 255.
	Local, Remote int
	// Tier: only rails of the lowest tier that has one which is up take traffic. The others are spare.
	Tier int
	// Reopen makes the next incarnation of the endpoint, when the last one is drained. nil: a rail that
	// has failed does not come back. With it, Endpoint may be nil: the rail is down to begin with, for the reason in Down.
	Reopen func() (btl.Endpoint, error)
	Down   error
}

// maxRails bounds the rails to one peer that are used.
const maxRails = 8

// rail is a route to a peer in use.
type rail struct {
	peer     *peer
	module   btl.Module
	endpoint btl.Endpoint // nil before the first, of a rail that is down
	// What can be done beyond Send, and is not forbidden; else nil.
	getter    btl.Getter
	putter    btl.Putter
	registrar btl.Registrar

	local, remote uint8
	index         uint8 // in peer.rails
	tier          int
	sendBytes     int   // longest fragment
	weight        int64 // its share of large messages, in 10⁶ bytes a second, as its health is now
	latencyNanos  int64

	repelling bool // see repel

	state   railState
	reopen  func() (btl.Endpoint, error)
	mending mending
	health  health
	device  *device

	// queue holds operations in the order in which they are to be posted, while the rail
	// refuses them. What comes later queues behind.
	queue     btl.Queue
	isBlocked bool // is in PML.blocked
}

// route finds the ways to a peer if they are not known yet. A failure is for good. While the peer is
// failing, the error is only that no way is known.
func (p *PML) route(pr *peer) error {
	switch {
	case pr.lost != nil:
		return pr.lost
	case pr.first != nil:
		return nil
	case pr.failing != nil:
		return pr.failing
	case p.closed != nil:
		return p.closed
	}
	routes, err := p.cfg.Resolve(pr.rank)
	if err == nil {
		err = p.useRoutes(pr, routes)
	}
	if err == nil {
		p.findFallen(pr)
		p.noteContact(pr)
		return nil
	}
	for _, f := range p.fallen { // also by a rail that is no way any more, something may still come
		if !f.drained {
			p.fail(pr, p.causeOf(f.cause), f.module)
		}
	}
	switch {
	case pr.failing != nil:
	case len(pr.draining) > 0: // something may still come
		return err
	default:
		p.lose(pr, causeOf(err))
	}
	return cmp.Or(pr.lost, pr.failing)
}

// useRoutes makes rails of routes, by tier and then that of the lowest latency first: it takes all but large
// messages, whose pieces go by all of its tier.
func (p *PML) useRoutes(pr *peer, routes []Route) error {
	err := errors.New("no rail leads there")
	routes = slices.DeleteFunc(slices.Clone(routes), func(r Route) bool {
		a := r.Module.Attrs()
		if a.MaxSendBytes >= btl.MaxHeaderBytes {
			return false
		}
		err = fmt.Errorf("%w: rail %s takes no more than %d bytes at a time", request.ErrUnreachable, a.Name, a.MaxSendBytes)
		return true
	})
	if len(routes) == 0 {
		return err
	}
	slices.SortStableFunc(routes, func(a, b Route) int {
		return cmp.Or(a.Tier-b.Tier, cmp.Compare(a.Module.Attrs().LatencyNanos, b.Module.Attrs().LatencyNanos))
	})
	routes = routes[:min(len(routes), maxRails)]
	pr.rails = make([]rail, len(routes))
	for i, r := range routes {
		pr.rails[i] = p.newRail(pr, r)
		pr.rails[i].index = uint8(i)
	}
	p.preferFirst(pr, 0)
	// What is exposed has to fit into the fragment that says where.
	n := min((pr.leastSendBytes()-ackBytes)/exposureBytes, len(pr.rails))
	for i := range pr.rails[:n] {
		if rl := &pr.rails[i]; rl.registrar != nil {
			caps := rl.module.Attrs().Caps & p.cfg.Protocol.caps()
			if caps&btl.CapGet != 0 {
				pr.getters |= 1 << i
			}
			if caps&btl.CapPut != 0 {
				pr.putters |= 1 << i
			}
		}
	}
	return nil
}

func (p *PML) newRail(pr *peer, r Route) rail {
	a := r.Module.Attrs()
	rl := rail{
		peer: pr, module: r.Module, local: uint8(r.Local), remote: uint8(r.Remote), tier: r.Tier, reopen: r.Reopen,
		sendBytes: a.MaxSendBytes, weight: max(a.BandwidthMBps, 1), latencyNanos: max(a.LatencyNanos, 0), health: fullHealth, device: p.deviceOf(r.Module),
	}
	if registrar, ok := r.Module.(btl.Registrar); ok && a.Caps&p.cfg.Protocol.caps() != 0 {
		rl.registrar = registrar
		if least := a.RDMABytes; pr.rdmaBytes == 0 || least < pr.rdmaBytes {
			pr.rdmaBytes = max(least, 1)
		}
		if p.cfg.RDMABytes > 0 {
			pr.rdmaBytes = p.cfg.RDMABytes
		}
	}
	if r.Endpoint != nil {
		p.adopt(&rl, r.Endpoint)
		rl.mending.wasUp = true
	} else {
		rl.mending.cause = r.Down
	}
	return rl
}

// adopt takes an incarnation of a rail's endpoint in use.
func (p *PML) adopt(rl *rail, ep btl.Endpoint) {
	rl.endpoint, rl.getter, rl.putter = ep, nil, nil
	if ep.State() == btl.Up {
		p.risen(rl.module)
	}
	if rl.registrar == nil {
		return
	}
	caps := rl.module.Attrs().Caps & p.cfg.Protocol.caps()
	if caps&btl.CapGet != 0 {
		rl.getter, _ = ep.(btl.Getter)
	}
	if caps&btl.CapPut != 0 {
		rl.putter, _ = ep.(btl.Putter)
	}
}

// leastSendBytes is the longest fragment that each of the peer's rails takes: what one did not deliver another
// has to.
func (pr *peer) leastSendBytes() int {
	least := pr.rails[0].sendBytes
	for i := range pr.rails {
		least = min(least, pr.rails[i].sendBytes)
	}
	return least
}

// preferFirst makes a rail the first, and takes over what is to be known of it.
func (p *PML) preferFirst(pr *peer, index int) {
	first := &pr.rails[index]
	a := first.module.Attrs()
	pr.first = first
	most := pr.leastSendBytes()
	pr.eagerBytes = min(a.EagerBytes, most) - rndvBytes
	if p.cfg.EagerBytes > 0 {
		pr.eagerBytes = min(p.cfg.EagerBytes, most-rndvBytes)
	}
	pr.inliner, pr.inlineBytes = nil, 0
	if a.Caps&btl.CapInline != 0 {
		pr.inliner, _ = first.endpoint.(btl.Inliner)
	}
	if pr.inliner != nil {
		pr.inlineBytes = min(a.InlineBytes, pr.eagerBytes+matchBytes)
	}
}

// numbered is the index of the rail that the peer calls number, or −1.
func (pr *peer) numbered(number uint8) int {
	for i := range pr.rails {
		if pr.rails[i].remote == number {
			return i
		}
	}
	return -1
}

// ours is the index of the rail that this rank calls number, or −1.
func (pr *peer) ours(number uint8) int {
	for i := range pr.rails {
		if pr.rails[i].local == number {
			return i
		}
	}
	return -1
}

// send posts op by the peer's first rail, or when one comes up if none is. Its Done may be called inside, with an
// error if the peer is lost.
func (p *PML) send(pr *peer, op *btl.Op) {
	if err := p.route(pr); err != nil {
		op.Done(op, err)
		return
	}
	if pr.stranded != nil && pr.lost == nil {
		p.number(pr, op)
		pr.waiting.Push(op)
		return
	}
	p.post(pr.first, op)
}

// post hands op to the rail's endpoint, or queues it behind what that has refused, or until it is known
// what becomes of a peer that is failing. Its Done may be called inside. It is called later with an
// error if the peer is lost.
func (p *PML) post(rl *rail, op *btl.Op) {
	pr := rl.peer
	if pr.lost != nil {
		op.Done(op, pr.lost)
		return
	}
	p.number(pr, op)
	if pr.failing == nil && rl.queue.Empty() {
		switch p.tryPost(rl, op) {
		case accepted:
			return
		case railIsDown:
			p.divert(rl, op, rl.mending.cause)
			return
		}
	}
	p.stats.Retries++
	rl.queue.Push(op)
	if pr.failing == nil && !rl.isBlocked {
		rl.isBlocked = true
		p.blocked = append(p.blocked, rl)
		p.eng.Wake()
	}
}

// Tags of operations that are no fragments, and do not go over the wire.
const (
	opGet btl.Tag = 0xfe
	opPut btl.Tag = 0xff
)

// isBound reports whether operations of a kind are made for the rail that they are posted on, so that no other can
// take them.
func isBound(tag btl.Tag) bool {
	return tag == tagFrag || tag == opGet || tag == opPut || tag == tagProbe || tag == tagProbeAck
}

// outcome is what became of a post.
type outcome uint8

const (
	accepted outcome = iota
	refused
	railIsDown
)

// tryPost posts op once. A rail that takes nothing any more has failed. What it calls wrong was
// called back with an error, and counts as accepted.
func (p *PML) tryPost(rl *rail, op *btl.Op) outcome {
	if rl.state == railFailing || rl.state == railDown {
		return railIsDown
	}
	op.Hdr[opRail] = rl.index
	var err error
	switch op.Tag {
	case opGet:
		err = rl.getter.Get(op)
	case opPut:
		err = rl.putter.Put(op)
	default:
		err = rl.endpoint.Send(op)
	}
	if err == nil {
		return accepted
	}
	switch {
	case errors.Is(err, btl.ErrResource):
		return refused
	case errors.Is(err, btl.ErrFailed):
		p.railFailed(rl, err)
		if rl.peer.failing == nil {
			return railIsDown
		}
	case errors.Is(err, btl.ErrTooLong), misused(err):
		rl.callsWrong(op, err)
		return accepted
	default: // no rail would take that, and whoever waits for it must not wait for ever
		p.fail(rl.peer, causeOf(err), nil)
	}
	return refused
}

// number gives a fragment the next sequence number, if it is of a kind that has one and was not posted before: in the order in
// which they are posted, whatever rails they wait for then.
func (p *PML) number(pr *peer, op *btl.Op) {
	if !isNumbered(op.Tag) || op.Hdr[opNumbered] != 0 {
		return
	}
	binary.LittleEndian.PutUint32(op.Hdr[12:], uint32(pr.sendSeq))
	op.Hdr[opNumbered] = 1
	pr.sendSeq++
}

// Places in an operation's header, past all that is sent.
const (
	opRail     = btl.MaxHeaderBytes - 1 - iota // the index of the rail that it was posted by; of a piece, before that too
	opNumbered                                 // not 0: it has its sequence number
	opTries                                    // how often it was posted again
	opMistakes                                 // how often a rail called it wrong
	opTrouble                                  // by which rails it failed: trouble.by

	opUntil = opTrouble - 4 // trouble.until, 4 bytes
)

// Every header leaves these places free.
const _ = uint(opUntil - matchBytes - maxControlBytes)

// retry posts what a rail has refused, until it refuses again.
func (p *PML) retry(rl *rail) int {
	n := 0
	for rl.peer.failing == nil && !rl.queue.Empty() {
		// It leaves the queue first: once posted, it is the BTL's to link.
		op := rl.queue.Pop()
		switch p.tryPost(rl, op) {
		case refused:
			rl.queue.PushFront(op)
			return n
		case railIsDown:
			p.divert(rl, op, rl.mending.cause)
		}
		n++
	}
	return n
}
