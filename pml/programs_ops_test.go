package pml

import (
	"bytes"
	"errors"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// What the ranks of random programs do, and what they hold its outcome to.

// source is a rank of the context, or the wildcard; model is the same in the job.
func (n *player) source(ctx int) (source, world int) {
	group := n.w.groups[ctx]
	source = n.w.rng.IntN(len(group)+1) - 1
	if source < 0 {
		return request.AnySource, request.AnySource
	}
	return source, group[source]
}

func (n *player) tag() int { return n.w.rng.IntN(4) - 1 }

func (n *player) send(ctx int) {
	w := n.w
	dest := w.rng.IntN(len(w.groups[ctx]))
	s := &sending{ctx: ctx, dest: dest, tag: w.rng.IntN(3), mode: Mode(w.rng.IntN(4)), buf: n.buffer(w.size())}
	switch w.rng.IntN(5) {
	case 0:
		s.persistent = true
		s.r = n.p.SendInit(n.ctxs[ctx], s.buf, dest, s.tag, s.mode, "send init")
		n.begin(s)
		start(s.r)
	case 1:
		n.begin(s)
		s.r = n.p.Send(n.ctxs[ctx], s.buf, dest, s.tag, s.mode, "send")
		if s.r == nil {
			w.check(s.mode != Synchronous, "a synchronous send that was done at once")
			n.sent(s)
			return
		}
	default:
		n.begin(s)
		s.r = n.p.Isend(n.ctxs[ctx], s.buf, dest, s.tag, s.mode, "isend")
	}
	n.sends = append(n.sends, s)
}

// buffer is memory for a message, which may be in memory that was added.
func (n *player) buffer(bytes int) []byte {
	if bytes == 0 || n.w.rng.IntN(3) > 0 {
		return make([]byte, bytes)
	}
	n.w.did["in added memory"]++
	return n.lent.bytes(bytes, n.w.rng.IntN(100))
}

// begin writes a new message, which is about to be sent.
func (n *player) begin(s *sending) {
	w := n.w
	s.id = w.id()
	copy(s.buf, pattern(len(s.buf), s.id))
	world := w.groups[s.ctx][s.dest]
	pair := [2]int{n.rank, world}
	if n.rank == world {
		w.did["to itself"]++
	}
	w.sizes[s.id] = len(s.buf)
	w.largest = max(w.largest, len(s.buf))
	w.sent[pair] = append(w.sent[pair], modelMsg{id: s.id, source: n.rank, context: s.ctx, tag: s.tag})
	w.note("%d>%d message %d context %d tag %d bytes %d mode %d", n.rank, world, s.id, s.ctx, s.tag, len(s.buf), s.mode)
}

// sent looks at a send that is complete. Its buffer is the user's again.
func (n *player) sent(s *sending) {
	w := n.w
	w.note("%d sent %d", n.rank, s.id)
	if s.mode == Synchronous {
		to := w.players[w.groups[s.ctx][s.dest]].model
		matched := w.taken[s.id]
		for r, m := range to.matched {
			matched = matched || m == s.id && !slices.ContainsFunc(to.probes, func(p modelRecv) bool { return p.id == r })
		}
		w.check(matched, "synchronous send %d is complete and not matched", s.id)
	}
	for i := range s.buf {
		s.buf[i] = 0xAA
	}
	s.id = 0
}

func (n *player) receive(ctx int) {
	w := n.w
	room := w.most
	if w.rng.IntN(4) == 0 {
		room = w.size()
	}
	r := &receiving{ctx: ctx, tag: n.tag(), elem: w.rng.IntN(4), whole: n.buffer(room + 8)}
	r.source, _ = n.source(ctx)
	r.buf = r.whole[:room:room]
	if w.rng.IntN(4) == 0 {
		r.persistent = true
		r.r = n.p.RecvInit(n.ctxs[ctx], r.buf, r.elem, r.source, r.tag, "recv init")
	}
	n.beginReceive(r)
	if r.persistent {
		start(r.r)
	} else {
		r.r = n.p.Irecv(n.ctxs[ctx], r.buf, r.elem, r.source, r.tag, "irecv")
	}
	n.recvs = append(n.recvs, r)
}

func (n *player) beginReceive(r *receiving) {
	for i := range r.whole {
		r.whole[i] = 0xEE
	}
	r.id = n.w.id()
	world := r.source
	if world >= 0 {
		world = n.w.groups[r.ctx][world]
	}
	n.w.note("%d receive %d context %d source %d tag %d room %d", n.rank, r.id, r.ctx, world, r.tag, len(r.buf))
	n.model.post(modelRecv{id: r.id, source: world, context: r.ctx, tag: r.tag})
}

// matched is the message that a receive must have got.
func (n *player) matched(r *receiving) (modelMsg, bool) {
	id := r.message
	if id == 0 {
		var ok bool
		if id, ok = n.model.matched[r.id]; !ok {
			return modelMsg{}, false
		}
	}
	for from := range n.w.players {
		for _, m := range n.w.sent[[2]int{from, n.rank}] {
			if m.id == id {
				return m, true
			}
		}
	}
	n.w.fail("message %d was never sent to %d", id, n.rank)
	return modelMsg{}, false
}

// received looks at a receive that is complete.
func (n *player) received(r *receiving) {
	w := n.w
	st, err := r.r.Take()
	w.note("%d received %d: %+v %v", n.rank, r.id, st, err)
	if st.Cancelled {
		w.fail("receive %d says that it was cancelled", r.id)
	}
	m, ok := n.matched(r)
	w.check(ok, "receive %d is complete, and nothing has matched it", r.id)
	size := w.sizes[m.id]
	fits := min(size, len(r.buf))
	want := request.Status{Source: slices.Index(w.groups[r.ctx], m.source), Tag: m.tag, Bytes: int64(fits)}
	switch {
	case r.elem > 0:
		want.Count = fits / r.elem
	case fits > 0:
		want.Count = -1
	}
	w.check(st == want, "receive %d: %+v, not %+v", r.id, st, want)
	if size > len(r.buf) {
		w.did["truncated"]++
		w.check(errors.Is(err, request.ErrTruncate), "receive %d of %d bytes into %d: %v", r.id, size, len(r.buf), err)
	} else {
		w.check(err == nil, "receive %d: %v", r.id, err)
	}
	n.compare(r, m)
	r.id, r.message = 0, 0
}

// compare looks at every byte that a receive may have written.
func (n *player) compare(r *receiving, m modelMsg) {
	size := n.w.sizes[m.id]
	fits := min(size, len(r.buf))
	n.w.check(bytes.Equal(r.buf[:fits], pattern(size, m.id)[:fits]), "receive %d: the bytes are not those of message %d", r.id, m.id)
	for i, b := range r.whole[fits:] {
		if b != 0xEE {
			n.w.fail("receive %d: byte %d behind the message was written", r.id, i)
		}
	}
}

// observe looks at all that is complete.
func (n *player) observe() {
	n.sends = slices.DeleteFunc(n.sends, func(s *sending) bool {
		if s.r.State() != request.Complete {
			return false
		}
		_, err := s.r.Take()
		n.w.check(err == nil, "send %d: %v", s.id, err)
		n.sent(s)
		return !s.persistent
	})
	n.recvs = slices.DeleteFunc(n.recvs, func(r *receiving) bool {
		if r.freed || r.r.State() != request.Complete {
			return false
		}
		n.received(r)
		return !r.persistent
	})
	n.probes = slices.DeleteFunc(n.probes, func(pr *probing) bool {
		if pr.r.State() != request.Complete {
			return false
		}
		n.probed(pr)
		return true
	})
}

func (n *player) cancel() {
	var active []*receiving
	for _, r := range n.recvs {
		if r.id != 0 && r.message == 0 && !r.freed {
			active = append(active, r)
		}
	}
	if len(active) == 0 {
		return
	}
	n.cancelOne(active[n.w.rng.IntN(len(active))])
}

func (n *player) cancelOne(r *receiving) (cancelled bool) {
	r.r.Cancel()
	cancelled = n.model.cancel(r.id)
	n.w.note("%d cancel %d: %v", n.rank, r.id, cancelled)
	if !cancelled {
		return false
	}
	n.w.did["cancelled"]++
	n.w.check(r.r.State() == request.Complete, "receive %d was not cancelled", r.id)
	st, err := r.r.Take()
	n.w.check(st.Cancelled && err == nil, "receive %d: %+v %v", r.id, st, err)
	r.id = 0
	if !r.persistent {
		n.recvs = slices.DeleteFunc(n.recvs, func(o *receiving) bool { return o == r })
	}
	return true
}

// restart starts a persistent request that is inactive.
func (n *player) restart() {
	for _, s := range n.sends {
		if s.id == 0 && n.w.rng.IntN(2) == 0 {
			n.w.did["restarts"]++
			n.begin(s)
			start(s.r)
			break
		}
	}
	for _, r := range n.recvs {
		if r.id == 0 && n.w.rng.IntN(2) == 0 {
			n.w.did["restarts"]++
			n.beginReceive(r)
			start(r.r)
			break
		}
	}
}

// free frees a request, active or not. What is active goes on.
func (n *player) free() {
	if len(n.sends) > 0 && n.w.rng.IntN(2) == 0 {
		i := n.w.rng.IntN(len(n.sends))
		n.w.note("%d free send %d", n.rank, n.sends[i].id)
		n.sends[i].r.Abandon()
		n.sends = slices.Delete(n.sends, i, i+1)
		n.w.did["freed"]++
	} else if len(n.recvs) > 0 {
		i := n.w.rng.IntN(len(n.recvs))
		r := n.recvs[i]
		if r.freed {
			return
		}
		n.w.note("%d free receive %d", n.rank, r.id)
		n.w.did["freed"]++
		r.r.Abandon()
		r.freed = true
		if r.id == 0 {
			n.recvs = slices.Delete(n.recvs, i, i+1)
		}
	}
}

// detach takes the buffer of a send back.
func (n *player) detach() {
	var active []*sending
	for _, s := range n.sends {
		if s.id != 0 && !s.persistent {
			active = append(active, s)
		}
	}
	if len(active) == 0 {
		return
	}
	s := active[n.w.rng.IntN(len(active))]
	n.w.note("%d detach send %d", n.rank, s.id)
	n.w.did["detached"]++
	d := s.r.Detach()
	_, used := n.p.User(s.buf)
	n.w.check(used == (d != nil), "send %d has its buffer in use: %v", s.id, used)
	n.detached = append(n.detached, detached{d, s.buf})
	n.reuse()
}

// detached is a buffer that was given back, or has to be waited for.
type detached struct {
	d   *Detachment
	buf []byte
}

// reuse overwrites buffers that are free.
func (n *player) reuse() {
	n.detached = slices.DeleteFunc(n.detached, func(b detached) bool {
		if b.d != nil && b.d.State() != request.Complete {
			return false
		}
		clear(b.buf)
		return true
	})
}

func (n *player) envelope(ctx int, m modelMsg) Envelope {
	return Envelope{Source: slices.Index(n.w.groups[ctx], m.source), Tag: m.tag, Bytes: int64(n.w.sizes[m.id])}
}

func (n *player) iprobe(ctx int) {
	source, world := n.source(ctx)
	tag := n.tag()
	m, want := n.model.probe(modelRecv{source: world, context: ctx, tag: tag})
	env, found := n.p.Iprobe(n.ctxs[ctx], source, tag)
	n.w.check(found == want, "rank %d iprobe of %d tag %d: %v", n.rank, source, tag, found)
	if found {
		n.w.did["probes"]++
		n.w.check(env == n.envelope(ctx, m), "rank %d iprobe: %+v, not %+v", n.rank, env, n.envelope(ctx, m))
	}
}

func (n *player) improbe(ctx int) {
	source, world := n.source(ctx)
	tag := n.tag()
	m, want := n.model.probe(modelRecv{source: world, context: ctx, tag: tag, taking: true})
	msg, env, found := n.p.Improbe(n.ctxs[ctx], source, tag)
	n.w.check(found == want, "rank %d improbe of %d tag %d: %v", n.rank, source, tag, found)
	if found {
		n.take(msg, env, ctx, m)
	}
}

func (n *player) take(msg *Message, env Envelope, ctx int, m modelMsg) {
	n.w.did["matched probes"]++
	n.w.check(env == n.envelope(ctx, m) && env == msg.Envelope(), "rank %d mprobe: %+v, not %+v", n.rank, env, n.envelope(ctx, m))
	n.messages = append(n.messages, &taken{m: msg, ctx: ctx, modelMsg: m})
}

func (n *player) probe(ctx int) {
	w := n.w
	source, world := n.source(ctx)
	pr := &probing{id: w.id(), ctx: ctx}
	pr.modelRecv = modelRecv{id: pr.id, source: world, context: ctx, tag: n.tag(), taking: w.rng.IntN(2) == 0}
	w.note("%d probe %d context %d source %d tag %d taking %v", n.rank, pr.id, ctx, world, pr.tag, pr.taking)
	n.model.wait(pr.modelRecv)
	pr.r = n.p.Probe(n.ctxs[ctx], source, pr.tag, pr.taking, "probe")
	n.probes = append(n.probes, pr)
}

func (n *player) probed(pr *probing) {
	w := n.w
	m, ok := n.matched(&receiving{id: pr.id})
	w.check(ok, "probe %d is complete, and nothing is there", pr.id)
	msg := pr.r.Message()
	st, err := pr.r.Take()
	w.check(err == nil && !st.Cancelled, "probe %d: %+v %v", pr.id, st, err)
	env := Envelope{st.Source, st.Tag, st.Bytes}
	w.note("%d probed %d: %+v", n.rank, pr.id, env)
	w.did["probes"]++
	w.check(env == n.envelope(pr.ctx, m), "probe %d: %+v, not %+v", pr.id, env, n.envelope(pr.ctx, m))
	w.check((msg != nil) == pr.taking, "probe %d: its message is %v", pr.id, msg)
	if msg != nil {
		delete(n.model.matched, pr.id) // only its receive is a match
		n.take(msg, env, pr.ctx, m)
	}
}

// receiveTaken receives a message that a matched probe took.
func (n *player) receiveTaken() {
	if len(n.messages) == 0 {
		return
	}
	i := n.w.rng.IntN(len(n.messages))
	m := n.messages[i]
	n.messages = slices.Delete(n.messages, i, i+1)
	r := &receiving{id: n.w.id(), ctx: m.ctx, elem: 1, message: m.id, whole: bytes.Repeat([]byte{0xEE}, n.w.sizes[m.id]+8)}
	r.buf = r.whole[:len(r.whole)-8]
	n.w.taken[m.id] = true
	r.r = n.p.Imrecv(m.m, r.buf, 1, "imrecv")
	n.recvs = append(n.recvs, r)
}

// trouble makes rails refuse, or call back late, what they are given next.
func (n *player) trouble() {
	rng := n.w.rng
	f := btl.Fault{Kind: btl.FaultRefuse, Peer: btl.AllPeers, After: rng.IntN(3), Count: 1 + rng.IntN(4)}
	if rng.IntN(2) == 0 {
		f.Kind = btl.FaultLate
	}
	n.modules[rng.IntN(len(n.modules))].(btl.Injector).Inject(f)
}
