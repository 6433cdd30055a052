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

// Records of the messages that were sent and received, and the checks on them.
//
// The first bytes of a message hold its number, and the number determines the other bytes. A
// message that is too short for a number has a unique tag. So a receive can identify any message.

const (
	idBytes    = 8
	guard      = 8    // bytes behind a buffer that must not be written
	uniqueTags = 1000 // the first tag of messages that are too short for a number
	untouched  = 0xEE
)

// message is a message that was sent.
type message struct {
	id, from, to, ctx, tag, size int
	nth                          int // position among its sender's messages in the communicator
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
	to         int // rank in the job
	tag        int
	mode       pml.Mode
	buf        []byte
	persistent bool
	active     bool
}

// pattern says which messages a receive or probe takes.
type pattern struct{ ctx, source, tag int }

func (p pattern) covers(ctx, source, tag int) bool {
	return p.ctx == ctx && (p.source == request.AnySource || p.source == source) && (p.tag == request.AnyTag || p.tag == tag)
}

type receive struct {
	pattern            // of the receive, or of the matched probe that took its message
	r                  *pml.RecvRequest
	handle             request.Request
	rank, ctx          int
	source, tag        int
	whole, buf         []byte
	order              int
	message            *message // the received message
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

// finishedBuffer is a buffer that belongs to the user again, with the content that it must keep.
type finishedBuffer struct {
	what     string
	rank     int
	buf, has []byte
}

// size chooses the length of a message, often near a limit of a protocol.
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
	return choice / 10 % s.maxBytes
}

// begin records a new message, and fills the buffer of a send that is about to start.
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
	w.traceOf(r.rank, "sends message %d of %d bytes to rank %d, %v", s.m.id, s.m.size, s.to, [...]string{"standard", "synchronous", "ready", "buffered"}[s.mode])
}

// done checks a send that is complete.
func (r *rank) done(s *send, err error) {
	r.w.note(evDone, r.rank, s.to, 0, uint64(s.m.id), uint64(len(s.buf)))
	r.w.traceOf(r.rank, "send of message %d completes: %v", s.m.id, err)
	if err != nil {
		r.excused(err, s.to, fmt.Sprintf("send of message %d", s.m.id))
	} else {
		r.w.checkSent(s)
	}
	if !bytes.Equal(s.buf, s.m.content()) {
		r.w.fail("bytes", "rank %d: the buffer of send %d was overwritten", r.rank, s.m.id)
	}
	clear(s.buf) // it belongs to the user again
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

// excused checks the error of an operation: it must report a lost peer, and name the peer and the
// cause.
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
		w.fail("outcome", "rank %d: %s: %v, which is neither ErrUnreachable nor ErrProcFailed", r.rank, what, err)
	}
	var be *btl.Error
	if errors.As(err, &be) && be.Peer >= 0 && peer >= 0 && be.Peer != peer && peer != r.rank {
		w.fail("outcome", "rank %d: %s with rank %d: %v, which names another rank", r.rank, what, peer, err)
	}
	if !errors.As(err, &be) && !errors.Is(err, btl.ErrFailed) {
		w.fail("outcome", "rank %d: %s with rank %d: %v, which names no cause", r.rank, what, peer, err)
	}
	w.result.Ends[err.Error()[:min(len(err.Error()), 12)]]++
}

// post records a receive that is about to start.
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
	r.w.traceOf(r.rank, "receives from rank %d tag %d", rc.source, rc.tag)
}

// got checks a receive that is complete.
func (r *rank) got(rc *receive, st request.Status, err error) {
	w := r.w
	rc.active = false
	if err != nil && !errors.Is(err, request.ErrTruncate) {
		world := rc.source
		if world >= 0 {
			world = w.groups[rc.ctx].World(world)
		}
		w.traceOf(r.rank, "receive ends: %v", err)
		r.excused(err, world, "a receive")
		r.recordFinished(rc)
		return
	}
	id := st.Tag - uniqueTags
	if st.Bytes >= idBytes {
		id = int(binary.LittleEndian.Uint64(rc.buf))
	}
	if id < 0 || id >= len(w.messages) {
		w.fail("bytes", "rank %d received %d bytes from rank %d that no rank sent", r.rank, st.Bytes, st.Source)
	}
	m := w.messages[id]
	w.note(evDone, r.rank, m.from, 1, uint64(id), uint64(st.Bytes))
	w.traceOf(r.rank, "has received message %d from rank %d", id, m.from)
	fits := min(m.size, len(rc.buf))
	source, _ := w.groups[rc.ctx].Rank(m.from)
	if m.to != r.rank || m.ctx != rc.ctx || st.Source != source || st.Tag != m.tag || st.Bytes != int64(fits) || st.Cancelled ||
		!rc.covers(m.ctx, source, m.tag) || errors.Is(err, request.ErrTruncate) != (m.size > len(rc.buf)) {
		w.fail("match", "rank %d received message %+v into %d bytes as %+v %v", r.rank, *m, len(rc.buf), st, err)
	}
	if !bytes.Equal(rc.buf[:fits], m.content()[:fits]) {
		w.fail("bytes", "rank %d: message %d of %d bytes arrived with other bytes", r.rank, id, m.size)
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
	r.recordFinished(rc)
}

// recordFinished changes the buffer of a completed receive, as its user may, and records its
// content.
func (r *rank) recordFinished(rc *receive) {
	for i := range rc.whole {
		rc.whole[i] ^= 0x5a
	}
	what := "a receive"
	if rc.persistent {
		what = "a persistent receive"
		r.w.finished = slices.DeleteFunc(r.w.finished, func(k finishedBuffer) bool { return &k.buf[0] == &rc.whole[0] })
	}
	r.w.finished = append(r.w.finished, finishedBuffer{what, r.rank, rc.whole, slices.Clone(rc.whole)})
}

// unchanged checks the buffer of a persistent receive before the receive starts again.
func (r *rank) unchanged(rc *receive) {
	r.w.finished = slices.DeleteFunc(r.w.finished, func(k finishedBuffer) bool {
		if &k.buf[0] != &rc.whole[0] {
			return false
		}
		k.check(r.w)
		return true
	})
}

func (k finishedBuffer) check(w *world) {
	if !bytes.Equal(k.buf, k.has) {
		w.fail("canary", "rank %d: the buffer of %s was written after completion", k.rank, k.what)
	}
}

// observe checks every operation that has completed.
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
			r.w.fail("request", "rank %d: Test of a completed send reports false", r.rank)
		}
		r.done(s, err)
		if !s.persistent {
			r.dropSend(s)
		}
	}
}

// observeReceives checks receives and probes that have completed.
func (r *rank) observeReceives() {
	for _, rc := range slices.Clone(r.recvs) {
		if !rc.active || rc.r.State() != request.Complete {
			continue
		}
		st, done, err := rc.handle.Test()
		if !done {
			r.w.fail("request", "rank %d: Test of a completed receive reports false", r.rank)
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
		r.w.fail("match", "rank %d: a probe for rank %d tag %d finds %+v", r.rank, pr.source, pr.tag, st)
	case msg != nil:
		r.taken = append(r.taken, &taken{m: msg, env: msg.Envelope(), pattern: pr.pattern, order: pr.order, waited: true, expected: pr.expected})
	}
}

// ordered checks that messages do not overtake each other (MPI 4.1, section 3.5): if two receives
// of a rank could both take the earlier one of two messages, the receive that was posted first has
// got it.
func (w *world) ordered() {
	slices.SortFunc(w.received, func(a, b *receive) int { return a.order - b.order })
	for i, first := range w.received {
		for _, second := range w.received[i+1:] {
			m, n := first.message, second.message
			if first.rank != second.rank || m.from != n.from || m.ctx != n.ctx || n.nth > m.nth {
				continue
			}
			// A waiting probe only sees messages that no posted receive takes, also a receive that
			// was posted after the probe.
			if first.byProbe && first.waited {
				continue
			}
			if source, _ := w.groups[n.ctx].Rank(n.from); first.covers(n.ctx, source, n.tag) {
				w.fail("order", "rank %d: message %d overtook %d from %d", first.rank, m.id, n.id, n.from)
			}
		}
	}
}

// test tests the active sends by one of the calls of the Test family.
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
		n, _ := request.TestSome(all, indices, sts)
		for i := range max(n, 0) {
			r.ended(all[indices[i]], sts[i].Err)
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
					r.w.fail("request", "rank %d: GetStatus returns %v, and then Test returns %v", r.rank, err, again)
				}
				r.ended(h, err)
			}
		}
	}
}

// ended checks a send that a call has reported as complete.
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

// freeReceive frees a receive, which goes on if it is active (MPI 4.1, section 3.7.3). Only the
// matching says then which message it gets.
func (r *rank) freeReceive(choice int) {
	rc := at(r.recvs, choice)
	if rc == nil || !r.w.isExact() {
		return
	}
	r.must(rc.handle.Free())
	r.recvs = slices.DeleteFunc(r.recvs, func(o *receive) bool { return o == rc })
	if rc.active {
		r.freed = append(r.freed, rc)
	}
}

// finishFreed checks what freed receives have got. It cancels those that nothing has matched.
func (r *rank) finishFreed() {
	w := r.w
	for _, rc := range r.freed {
		m := rc.expected
		if m == nil {
			r.call(func(*pml.PML) { rc.r.Cancel() })
			r.matching.checkCancelled(rc, true)
			continue
		}
		fits := min(m.size, len(rc.buf))
		if !bytes.Equal(rc.buf[:fits], m.content()[:fits]) {
			w.fail("bytes", "rank %d: a freed receive has not got message %d of %d bytes", r.rank, m.id, m.size)
		}
		r.checkCanary(rc, fits, m)
		if m.got {
			w.fail("twice", "rank %d received message %d twice", r.rank, m.id)
		}
		m.got = true
		r.recordFinished(rc)
		w.result.Freed++
	}
	r.freed = nil
}

// checkCanary checks that nothing behind a message was written.
func (r *rank) checkCanary(rc *receive, fits int, m *message) {
	for i, b := range rc.whole[fits:] {
		if b != untouched {
			r.w.fail("canary", "rank %d: byte %d behind message %d was written", r.rank, i, m.id)
		}
	}
}
