package simulation

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// What was sent and received, and what has to hold of it.
//
// A message has its number in its first bytes, and a content that follows from the number. One that is too short for that has a tag of its
// own. So a receive can tell what it has got, whatever it was.

const (
	idBytes    = 8
	guard      = 8    // bytes behind a buffer that nobody may write to
	uniqueTags = 1000 // from here on, of messages that are too short for a number
	untouched  = 0xEE
)

// message is one that was sent.
type message struct {
	id, from, to, ctx, tag, size int
	nth                          int // in the order of that sender's, in that communicator
	got                          bool
	matched                      bool // a receive must get it, see matching
}

func (m *message) content() []byte {
	b := make([]byte, m.size)
	for i := range b {
		b[i] = byte(m.id*31 + i*7 + i>>8)
	}
	if m.size >= idBytes {
		binary.LittleEndian.PutUint64(b, uint64(m.id))
	}
	return b
}

type send struct {
	r          *pml.SendRequest
	handle     request.Request
	m          *message
	ctx, dest  int
	to         int // of the job
	tag        int
	mode       pml.Mode
	buf        []byte
	persistent bool
	active     bool
}

// pattern is what a receive or probe takes.
type pattern struct{ ctx, source, tag int }

func (p pattern) covers(ctx, source, tag int) bool {
	return p.ctx == ctx && (p.source == request.AnySource || p.source == source) && (p.tag == request.AnyTag || p.tag == tag)
}

type receive struct {
	pattern            // what was asked for first, by a probe perhaps
	r                  *pml.RecvRequest
	handle             request.Request
	rank, ctx          int
	source, tag        int
	whole, buf         []byte
	order              int
	message            *message // that it has got
	expected           *message // that it must get, see matching
	elem               int
	persistent, active bool
	byProbe, waited    bool
}

type probe struct {
	pattern
	r        *pml.ProbeRequest
	order    int
	matched  bool
	expected *message
}

type taken struct {
	pattern
	m        *pml.Message
	env      pml.Envelope
	order    int
	waited   bool
	expected *message
}

// kept is a buffer that is the user's again: whom of, and what it holds.
type kept struct {
	what     string
	rank     int
	buf, has []byte
}

// size of a message.
func (w *world) size(choice int) int {
	s := &w.plan.setup
	switch choice % 10 {
	case 0:
		return choice / 10 % (idBytes + 1)
	case 1, 2, 3:
		return choice / 10 % 200
	case 4, 5:
		edges := []int{s.fragBytes, s.fragBytes - 32, s.fragBytes - 16, s.fragBytes/2 - 32, s.eager, s.rdma, 2 * s.fragBytes}
		return max(0, edges[choice/10%len(edges)]+choice/100%3-1)
	}
	return choice / 10 % s.most
}

// begin writes a new message, which is about to be sent.
func (r *rank) begin(s *send) {
	w := r.w
	key := [2]int{r.rank, s.ctx}
	s.m = &message{id: len(w.messages), from: r.rank, to: s.to, ctx: s.ctx, tag: s.tag, size: len(s.buf), nth: w.sent[key]}
	w.sent[key]++
	w.messages = append(w.messages, s.m)
	pair := [2]int{r.rank, s.to}
	w.between[pair] = append(w.between[pair], s.m)
	copy(s.buf, s.m.content())
	s.active = true
	w.tellOf(r.rank, "sends %d of %d bytes to %d, %v", s.m.id, s.m.size, s.to, [...]string{"standard", "synchronous", "ready", "buffered"}[s.mode])
}

// done looks at a send that is complete.
func (r *rank) done(s *send, err error) {
	r.w.note(evDone, r.rank, s.to, 0, uint64(s.m.id), uint64(len(s.buf)))
	r.w.tellOf(r.rank, "has sent %d: %v", s.m.id, err)
	if err != nil {
		r.excused(err, s.to, fmt.Sprintf("a send of %d", s.m.id))
	} else {
		r.w.checkSent(s)
	}
	if !bytes.Equal(s.buf, s.m.content()) {
		r.w.fail("bytes", "rank %d: the buffer of send %d was written", r.rank, s.m.id)
	}
	clear(s.buf) // it is the user's again
	s.active = false
}

func (r *rank) dropSend(s *send) {
	r.sends = slices.DeleteFunc(r.sends, func(o *send) bool { return o == s })
}

func (r *rank) forget(rc *receive) {
	if !rc.persistent {
		r.recvs = slices.DeleteFunc(r.recvs, func(o *receive) bool { return o == rc })
	}
}

// excused looks at the error of an operation: it has to be one of a peer that is lost, and to name it.
func (r *rank) excused(err error, peer int, what string) {
	w := r.w
	switch w.plan.setup.ending {
	case Heals:
		w.fail("outcome", "rank %d: %s: %v", r.rank, what, err)
	case Refuses:
		w.result.Ends["refused"]++
		return
	}
	if !errors.Is(err, request.ErrUnreachable) && !errors.Is(err, request.ErrProcFailed) {
		w.fail("outcome", "rank %d: %s: %v, which is neither unreachable nor failed", r.rank, what, err)
	}
	var be *btl.Error
	if errors.As(err, &be) && be.Peer >= 0 && peer >= 0 && be.Peer != peer && peer != r.rank {
		w.fail("outcome", "rank %d: %s with %d: %v, which names another one", r.rank, what, peer, err)
	}
	if !errors.As(err, &be) && !errors.Is(err, btl.ErrFailed) {
		w.fail("outcome", "rank %d: %s with %d: %v, which does not say why", r.rank, what, peer, err)
	}
	w.result.Ends[err.Error()[:min(len(err.Error()), 12)]]++
}

// post notes a receive that is about to be started.
func (r *rank) post(rc *receive) {
	for i := range rc.whole {
		rc.whole[i] = untouched
	}
	r.w.order++
	rc.order, rc.active = r.w.order, true
	rc.pattern = pattern{rc.ctx, rc.source, rc.tag}
	if !rc.byProbe {
		r.matching.post(rc)
	}
	r.w.tellOf(r.rank, "receives from %d tag %d", rc.source, rc.tag)
}

// got looks at a receive that is complete.
func (r *rank) got(rc *receive, st request.Status, err error) {
	w := r.w
	rc.active = false
	if err != nil && !errors.Is(err, request.ErrTruncate) {
		world := rc.source
		if world >= 0 {
			world = w.groups[rc.ctx].World(world)
		}
		w.tellOf(r.rank, "receive ends: %v", err)
		r.excused(err, world, "a receive")
		r.keep(rc)
		return
	}
	id := st.Tag - uniqueTags
	if st.Bytes >= idBytes {
		id = int(binary.LittleEndian.Uint64(rc.buf))
	}
	if id < 0 || id >= len(w.messages) {
		w.fail("bytes", "rank %d received %d bytes from %d that nobody sent", r.rank, st.Bytes, st.Source)
	}
	m := w.messages[id]
	w.note(evDone, r.rank, m.from, 1, uint64(id), uint64(st.Bytes))
	w.tellOf(r.rank, "has received %d from %d", id, m.from)
	fits := min(m.size, len(rc.buf))
	source, _ := w.groups[rc.ctx].Rank(m.from)
	if m.to != r.rank || m.ctx != rc.ctx || st.Source != source || st.Tag != m.tag || st.Bytes != int64(fits) || st.Cancelled ||
		!rc.covers(m.ctx, source, m.tag) || errors.Is(err, request.ErrTruncate) != (m.size > len(rc.buf)) {
		w.fail("match", "rank %d received message %+v into %d bytes as %+v %v", r.rank, *m, len(rc.buf), st, err)
	}
	if !bytes.Equal(rc.buf[:fits], m.content()[:fits]) {
		w.fail("bytes", "rank %d: the bytes of message %d of %d are not what was sent", r.rank, id, m.size)
	}
	r.checkCanary(rc, fits, m)
	r.matching.checkReceived(rc, m)
	if want := wholeElements(fits, rc.elem); st.Count != want {
		w.fail("match", "rank %d: %d bytes are %d elements of %d, not %d", r.rank, st.Bytes, st.Count, rc.elem, want)
	}
	if m.got {
		w.fail("twice", "rank %d received message %d twice", r.rank, id)
	}
	m.got = true
	rc.message = m
	w.received = append(w.received, rc)
	r.keep(rc)
}

// keep fills a buffer, as a user would who has it again, and remembers that.
func (r *rank) keep(rc *receive) {
	for i := range rc.whole {
		rc.whole[i] ^= 0x5a
	}
	if !rc.persistent {
		r.w.over = append(r.w.over, kept{"a receive", r.rank, rc.whole, slices.Clone(rc.whole)})
		return
	}
	r.w.over = slices.DeleteFunc(r.w.over, func(k kept) bool { return &k.buf[0] == &rc.whole[0] })
	r.w.over = append(r.w.over, kept{"a persistent receive", r.rank, rc.whole, slices.Clone(rc.whole)})
}

// unchanged looks at the buffer of a persistent receive before it is started again.
func (r *rank) unchanged(rc *receive) {
	r.w.over = slices.DeleteFunc(r.w.over, func(k kept) bool {
		if &k.buf[0] != &rc.whole[0] {
			return false
		}
		k.check(r.w)
		return true
	})
}

func (k kept) check(w *world) {
	if !bytes.Equal(k.buf, k.has) {
		w.fail("canary", "rank %d: the buffer of %s was written after that was complete", k.rank, k.what)
	}
}

// observe looks at all that is complete.
func (w *world) observe() {
	for _, r := range w.ranks {
		if !r.dead {
			r.observe()
		}
	}
}

func (r *rank) observe() {
	r.observeSends()
	r.observeReceives()
}

func (r *rank) observeSends() {
	for _, s := range slices.Clone(r.sends) {
		if !s.active || s.r.State() != request.Complete {
			continue
		}
		_, done, err := s.handle.Test()
		if !done {
			r.w.fail("request", "rank %d: a complete send is not done", r.rank)
		}
		r.done(s, err)
		if !s.persistent {
			r.dropSend(s)
		}
	}
}

// observeReceives looks at receives and probes.
func (r *rank) observeReceives() {
	for _, rc := range slices.Clone(r.recvs) {
		if !rc.active || rc.r.State() != request.Complete {
			continue
		}
		st, done, err := rc.handle.Test()
		if !done {
			r.w.fail("request", "rank %d: a complete receive is not done", r.rank)
		}
		r.got(rc, st, err)
		r.forget(rc)
	}
	r.probes = slices.DeleteFunc(r.probes, func(pr *probe) bool {
		if pr.r.State() != request.Complete {
			return false
		}
		r.probed(pr)
		return true
	})
}

func (r *rank) probed(pr *probe) {
	var msg *pml.Message
	var st request.Status
	var err error
	r.call(func(*pml.PML) {
		msg = pr.r.Message()
		st, err = pr.r.Take()
	})
	r.matching.checkProbed(pr, pml.Envelope{Source: st.Source, Tag: st.Tag, Bytes: st.Bytes}, st.Cancelled)
	switch {
	case err != nil:
		r.excused(err, -1, "a probe")
	case !st.Cancelled && (!pr.covers(pr.ctx, st.Source, st.Tag) || (msg != nil) != pr.matched):
		r.w.fail("match", "rank %d: a probe of %d tag %d finds %+v", r.rank, pr.source, pr.tag, st)
	case msg != nil:
		r.taken = append(r.taken, &taken{m: msg, env: msg.Envelope(), pattern: pr.pattern, order: pr.order, waited: true, expected: pr.expected})
	}
}

// ordered holds who received what to the rule that messages do not overtake each other (MPI 4.1, section 3.5): if two receives
// of a rank could both take the earlier one of two messages, the one that was posted first got it.
func (w *world) ordered() {
	slices.SortFunc(w.received, func(a, b *receive) int { return a.order - b.order })
	for i, first := range w.received {
		for _, second := range w.received[i+1:] {
			m, n := first.message, second.message
			if first.rank != second.rank || m.from != n.from || m.ctx != n.ctx || n.nth > m.nth {
				continue
			}
			// A probe that waits gets what no receive takes, whenever that was posted.
			if first.byProbe && first.waited {
				continue
			}
			if source, _ := w.groups[n.ctx].Rank(n.from); first.covers(n.ctx, source, n.tag) {
				w.fail("order", "rank %d: message %d overtook %d from %d", first.rank, m.id, n.id, n.from)
			}
		}
	}
}

// test tests requests, by whichever call.
func (r *rank) test(a action) {
	var all []request.Request
	for _, s := range r.sends {
		if s.active {
			all = append(all, s.handle)
		}
	}
	switch a.a % 4 {
	case 0:
		i, _, done, err := request.TestAny(all...)
		if done && i >= 0 {
			r.ended(all[i], err)
		}
	case 1:
		sts, indices := make([]request.Status, len(all)), make([]int, len(all))
		n, err := request.TestSome(all, indices, sts)
		for i := range max(n, 0) {
			if e := sts[i].Err; e != nil || err == nil {
				r.ended(all[indices[i]], e)
			} else {
				r.ended(all[indices[i]], nil)
			}
		}
	case 2:
		sts := make([]request.Status, len(all))
		if done, _ := request.TestAll(all, sts); done {
			for i, h := range all {
				r.ended(h, sts[i].Err)
			}
		}
	default:
		for _, h := range all {
			if _, done, err := h.GetStatus(); done {
				_, _, again := h.Test()
				if (err == nil) != (again == nil) {
					r.w.fail("request", "rank %d: a status says %v, and then %v", r.rank, err, again)
				}
				r.ended(h, err)
			}
		}
	}
}

// ended looks at a send whose end a call has seen.
func (r *rank) ended(h request.Request, err error) {
	for _, s := range r.sends {
		if s.active && s.handle == h {
			r.done(s, err)
			if !s.persistent {
				r.dropSend(s)
			}
			return
		}
	}
}
