package pml

import (
	"cmp"
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
}

// maxRails bounds the rails to one peer that are used.
const maxRails = 8

// rail is a route to a peer in use.
type rail struct {
	peer     *peer
	module   btl.Module
	endpoint btl.Endpoint
	// What can be done beyond Send, and is not forbidden; else nil.
	getter    btl.Getter
	putter    btl.Putter
	registrar btl.Registrar

	local, remote uint8
	sendBytes     int   // longest fragment
	weight        int64 // its share of large messages, in 10⁶ bytes a second
	latencyNanos  int64

	// queue holds operations in the order in which they are to be posted, while the rail
	// refuses them. What comes later queues behind.
	queue     opQueue
	isBlocked bool // is in PML.blocked
}

// opQueue is a queue of operations, linked through them.
type opQueue struct {
	head, tail *btl.Op
}

func (q *opQueue) empty() bool { return q.head == nil }

func (q *opQueue) push(op *btl.Op) {
	op.Next = nil
	if q.tail == nil {
		q.head = op
	} else {
		q.tail.Next = op
	}
	q.tail = op
}

func (q *opQueue) pushFront(op *btl.Op) {
	op.Next = q.head
	q.head = op
	if q.tail == nil {
		q.tail = op
	}
}

func (q *opQueue) pop() *btl.Op {
	op := q.head
	q.head = op.Next
	if q.head == nil {
		q.tail = nil
	}
	op.Next = nil
	return op
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
	for _, f := range p.fallen { // also by a rail that is no way any more, something may still come
		if !f.drained && (err != nil || pr.uses(f.module)) {
			p.fail(pr, f.cause, f.module)
		}
	}
	if err == nil {
		return nil
	}
	if pr.failing == nil {
		p.lose(pr, causeOf(err))
	}
	return cmp.Or(pr.lost, pr.failing)
}

// useRoutes makes rails of routes, that of the lowest latency first: it takes all but large
// messages, whose pieces go by all of them.
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
		return int(a.Module.Attrs().LatencyNanos - b.Module.Attrs().LatencyNanos)
	})
	routes = routes[:min(len(routes), maxRails)]
	pr.rails = make([]rail, len(routes))
	for i, r := range routes {
		pr.rails[i] = p.newRail(pr, r)
	}
	p.preferFirst(pr)
	// What is exposed has to fit into the fragment that says where.
	n := min((pr.first.sendBytes-rndvBytes)/exposureBytes, len(pr.rails))
	for i := range pr.rails[:n] {
		if pr.rails[i].getter != nil {
			pr.getters |= 1 << i
		}
		if pr.rails[i].putter != nil {
			pr.putters |= 1 << i
		}
	}
	return nil
}

func (p *PML) newRail(pr *peer, r Route) rail {
	a := r.Module.Attrs()
	rl := rail{
		peer: pr, module: r.Module, endpoint: r.Endpoint, local: uint8(r.Local), remote: uint8(r.Remote),
		sendBytes: a.MaxSendBytes, weight: max(a.BandwidthMBps, 1), latencyNanos: max(a.LatencyNanos, 0),
	}
	caps := a.Caps & p.cfg.Protocol.caps()
	registrar, ok := r.Module.(btl.Registrar)
	if !ok || caps == 0 {
		return rl
	}
	if caps&btl.CapGet != 0 {
		rl.getter, _ = r.Endpoint.(btl.Getter)
	}
	if caps&btl.CapPut != 0 {
		rl.putter, _ = r.Endpoint.(btl.Putter)
	}
	if rl.getter != nil || rl.putter != nil {
		rl.registrar = registrar
		if least := a.RDMABytes; pr.rdmaBytes == 0 || least < pr.rdmaBytes {
			pr.rdmaBytes = max(least, 1)
		}
		if p.cfg.RDMABytes > 0 {
			pr.rdmaBytes = p.cfg.RDMABytes
		}
	}
	return rl
}

// preferFirst takes over what is to be known of the first rail.
func (p *PML) preferFirst(pr *peer) {
	first := &pr.rails[0]
	a := first.module.Attrs()
	pr.first = first
	pr.eagerBytes = min(a.EagerBytes, a.MaxSendBytes) - rndvBytes
	if p.cfg.EagerBytes > 0 {
		pr.eagerBytes = min(p.cfg.EagerBytes, a.MaxSendBytes-rndvBytes)
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

// send posts op by the peer's first rail. Its Done may be called inside, with an error if the
// peer is lost.
func (p *PML) send(pr *peer, op *btl.Op) {
	if err := p.route(pr); err != nil {
		op.Done(op, err)
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
	if pr.failing == nil && rl.queue.empty() && p.tryPost(rl, op) {
		return
	}
	p.stats.Retries++
	rl.queue.push(op)
	if pr.failing == nil && !rl.isBlocked {
		rl.isBlocked = true
		p.blocked = append(p.blocked, rl)
		p.eng.Nudge()
	}
}

// Tags of operations that are no fragments, and do not go over the wire.
const (
	opGet btl.Tag = 0xfe
	opPut btl.Tag = 0xff
)

// tryPost posts op once, and reports whether it was taken. If it never will be, the peer is failing.
func (p *PML) tryPost(rl *rail, op *btl.Op) bool {
	p.number(rl.peer, op)
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
		return true
	}
	p.unnumber(rl.peer, op)
	if !errors.Is(err, btl.ErrResource) {
		// The endpoint is down, and whoever waits for an answer by it must not wait for ever.
		p.fail(rl.peer, causeOf(err), nil)
	}
	return false
}

// number gives a fragment that is matched the next sequence number, and unnumber takes it back:
// a number belongs to a fragment only once the rail has taken it, or there would be gaps.
func (p *PML) number(pr *peer, op *btl.Op) {
	if isMatched(op.Tag) {
		setSequence(op, uint32(pr.sendSeq))
		pr.sendSeq++
	}
}

func (p *PML) unnumber(pr *peer, op *btl.Op) {
	if isMatched(op.Tag) {
		pr.sendSeq--
	}
}

// retry posts what a rail has refused, until it refuses again.
func (p *PML) retry(rl *rail) int {
	n := 0
	for rl.peer.failing == nil && !rl.queue.empty() {
		// It leaves the queue first: once posted, it is the BTL's to link.
		op := rl.queue.pop()
		if !p.tryPost(rl, op) {
			rl.queue.pushFront(op)
			break
		}
		n++
	}
	return n
}
