package simulation

import (
	"slices"

	"github.com/mpigo/mpigo/pml"
)

// matching is a simple model of MPI's matching rules for the messages, receives and probes of one
// rank (MPI 4.1, sections 3.5 and 3.8). It sees every fragment immediately before the rank's PML
// does, and every receive and probe in the order of the calls.
//
// The PML must agree with it exactly, as long as no operation fails: see world.isExact.
type matching struct {
	r       *rank
	posted  []*receive
	probes  []*probe
	arrived []*message // that no receive or matched probe has taken

	sources []source // by rank of the job
}

// source is the sequence of fragments from one rank. Fragments arrive by several rails, and again
// after a failure; they count in the order of their numbers.
type source struct {
	next     uint32          // number of the fragment that counts next
	early    map[uint32]bool // fragments with later numbers; true for messages
	messages int             // counted so far
}

func newMatching(r *rank) *matching {
	return &matching{r: r, sources: make([]source, r.w.plan.setup.ranks)}
}

// isExact reports whether every rank must agree with its matching. If operations may end with an
// error, messages are missing, so it may differ.
func (w *world) isExact() bool { return w.plan.setup.ending == Heals }

// fragment counts a fragment that arrives. It does nothing if mt is nil.
func (mt *matching) fragment(from int, f pml.Fragment) {
	if mt == nil {
		return
	}
	s := &mt.sources[from]
	if !f.Numbered || f.Number < s.next {
		return
	}
	if s.early == nil {
		s.early = map[uint32]bool{}
	}
	s.early[f.Number] = isMessage(f.Name)
	for {
		isMessage, ok := s.early[s.next]
		if !ok {
			return
		}
		delete(s.early, s.next)
		s.next++
		if isMessage {
			mt.arrive(mt.r.w.between[[2]int{from, mt.r.rank}][s.messages])
			s.messages++
		}
	}
}

// isMessage reports whether a kind of fragments begins a message.
func isMessage(name string) bool { return name == "MATCH" || name == "RNDV" || name == "RGET" }

// covers reports whether a pattern takes a message.
func (mt *matching) covers(p pattern, m *message) bool {
	from, _ := mt.r.w.groups[m.ctx].Rank(m.from)
	return p.covers(m.ctx, from, m.tag)
}

// arrive gives a message to the first receive that takes it, or else to the probes.
func (mt *matching) arrive(m *message) {
	takes := func(rc *receive) bool { return mt.covers(rc.pattern, m) }
	if i := slices.IndexFunc(mt.posted, takes); i >= 0 {
		mt.posted[i].match(m)
		mt.posted = slices.Delete(mt.posted, i, i+1)
		return
	}
	isTaken := false
	mt.probes = slices.DeleteFunc(mt.probes, func(pr *probe) bool {
		if isTaken || !mt.covers(pr.pattern, m) {
			return false
		}
		pr.expected, isTaken = m, pr.matched
		return true
	})
	if !isTaken {
		mt.arrived = append(mt.arrived, m)
	}
}

// find returns the oldest message that a pattern takes, or nil. If take is set, the message is no
// longer there afterwards.
func (mt *matching) find(p pattern, take bool) *message {
	i := slices.IndexFunc(mt.arrived, func(m *message) bool { return mt.covers(p, m) })
	if i < 0 {
		return nil
	}
	m := mt.arrived[i]
	if take {
		mt.arrived = slices.Delete(mt.arrived, i, i+1)
	}
	return m
}

// post starts a receive.
func (mt *matching) post(rc *receive) {
	if m := mt.find(rc.pattern, true); m != nil {
		rc.match(m)
		return
	}
	rc.expected = nil
	mt.posted = append(mt.posted, rc)
}

func (rc *receive) match(m *message) {
	rc.expected = m
	m.matched = true
}

// probe starts a probe that waits.
func (mt *matching) probe(pr *probe) {
	if pr.expected = mt.find(pr.pattern, pr.matched); pr.expected == nil {
		mt.probes = append(mt.probes, pr)
	}
}

// checkFound compares the immediate result of a probe with the message that it must find.
func (mt *matching) checkFound(p pattern, take bool, env pml.Envelope, found bool) *message {
	want := mt.find(p, take)
	if w := mt.r.w; w.isExact() {
		if found != (want != nil) {
			w.fail("match", "rank %d: a probe %+v finds a message: %v, not %v", mt.r.rank, p, found, want != nil)
		}
		mt.checkEnvelope(want, env)
	}
	return want
}

// unreceived finds a message that a receive can take. If the matching is exact, the PML is not
// asked: a probe opens the sender's window, and it must open by itself.
func (r *rank) unreceived(p pattern) (env pml.Envelope, found bool) {
	if !r.w.isExact() {
		r.call(func(pm *pml.PML) { env, found = pm.Iprobe(r.ctxs[p.ctx], p.source, p.tag) })
		return env, found
	}
	m := r.matching.find(p, false)
	if m == nil {
		return pml.Envelope{}, false
	}
	return pml.Envelope{Source: p.source, Tag: m.tag, Bytes: int64(m.size)}, true
}

// checkEnvelope compares the envelope that a probe returns with the message that it must find.
func (mt *matching) checkEnvelope(m *message, env pml.Envelope) {
	w := mt.r.w
	if m == nil || !w.isExact() {
		return
	}
	from, _ := w.groups[m.ctx].Rank(m.from)
	if want := (pml.Envelope{Source: from, Tag: m.tag, Bytes: int64(m.size)}); env != want {
		w.fail("match", "rank %d: a probe finds %+v, not %+v", mt.r.rank, env, want)
	}
}

// checkProbed checks a probe that is complete.
func (mt *matching) checkProbed(pr *probe, env pml.Envelope, isCancelled bool) {
	mt.probes = slices.DeleteFunc(mt.probes, func(o *probe) bool { return o == pr })
	if w := mt.r.w; w.isExact() && isCancelled != (pr.expected == nil) {
		w.fail("match", "rank %d: a probe %+v is cancelled: %v, and must find %+v", mt.r.rank, pr.pattern, isCancelled, pr.expected)
	}
	if !isCancelled {
		mt.checkEnvelope(pr.expected, env)
	}
}

// checkCancelled checks the result of cancelling a receive: the receive goes on if and only if it
// has matched.
func (mt *matching) checkCancelled(rc *receive, isCancelled bool) {
	mt.posted = slices.DeleteFunc(mt.posted, func(o *receive) bool { return o == rc })
	if w := mt.r.w; w.isExact() && isCancelled != (rc.expected == nil) {
		w.fail("match", "rank %d: a receive %+v is cancelled: %v, and must get %+v", mt.r.rank, rc.pattern, isCancelled, rc.expected)
	}
}

// checkReceived checks which message a receive has got.
func (mt *matching) checkReceived(rc *receive, m *message) {
	if w := mt.r.w; w.isExact() && rc.expected != m {
		w.fail("match", "rank %d: a receive %+v gets message %+v, not %+v", mt.r.rank, rc.pattern, *m, rc.expected)
	}
}

// checkSent checks that a synchronous send ends only when its message has matched (MPI 4.1, section
// 3.4).
func (w *world) checkSent(s *send) {
	if w.isExact() && s.mode == pml.Synchronous && !s.m.matched {
		w.fail("match", "rank %d: synchronous send %d is complete, and nothing has matched it", s.m.from, s.m.id)
	}
}

// wholeElements returns the count of a status: the number of elements of size elem in bytes bytes.
func wholeElements(bytes, elem int) int {
	switch {
	case elem > 0:
		return bytes / elem
	case bytes > 0:
		return -1 // undefined
	}
	return 0
}
