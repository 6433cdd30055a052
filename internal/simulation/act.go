package simulation

import (
	"context"
	"errors"
	"slices"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// act executes one action.
func (w *world) act(a action) {
	r := w.ranks[a.rank%len(w.ranks)]
	if a.isFault() {
		w.injectFault(r, a)
		return
	}
	if r.dead {
		return
	}
	switch a.kind {
	case doSend, doSendInit:
		r.send(a)
	case doReceive, doReceiveInit:
		r.receive(a)
	case doStart:
		r.start(a)
	case doCancel:
		if rc := at(r.recvs, a.a); rc != nil && rc.active {
			r.cancel(rc)
		}
	case doFree:
		if a.b&1 == 0 {
			r.freeReceive(a.a)
		} else if i := a.a; len(r.sends) > 0 {
			r.free(i % len(r.sends))
		}
	case doDetach:
		r.detach(a)
	case doIprobe, doImprobe:
		r.look(a)
	case doProbe:
		r.probe(a)
	case doImrecv:
		r.receiveTaken(a.a)
	case doTest:
		r.test(a)
	case doTurn:
		r.turn()
	case doPoll:
		r.eng.Lock()
		at(r.taps, a.a).Progress()
		r.eng.Unlock()
	case doSleep:
		at(r.taps, a.a).sleep(a.b % 26)
	case doNext:
		w.next()
	case doPass:
		w.pass(int64(a.a) * 20) // 20 ms at most
	}
}

// at returns the element that a number of an action selects, nil if the list is empty.
func at[T any](of []*T, i int) *T {
	if len(of) == 0 {
		return nil
	}
	return of[i%len(of)]
}

// buffer returns memory for a message: from r.registered if it has room and choice is even, else
// from the heap.
func (r *rank) buffer(bytes, choice int) []byte {
	if r.registered != nil && choice&1 == 0 && r.used+bytes+16 <= len(r.registered) {
		b := r.registered[r.used+8:][:bytes:bytes]
		r.used += bytes + 16
		return b
	}
	return make([]byte, bytes)
}

func (r *rank) send(a action) {
	w := r.w
	ctx := r.pickContext(a.a)
	dest := a.b % len(w.plan.setup.groups[ctx])
	size := w.size(a.c)
	if a.kind == doSendInit {
		// A persistent send keeps its tag, so the tag cannot identify a message.
		size = max(size, idBytes)
	}
	s := &send{
		ctx: ctx, dest: dest, tag: a.c % 3, mode: pml.Mode(a.a >> 4 & 3), buf: r.buffer(size, a.b>>8), persistent: a.kind == doSendInit,
		to: w.groups[ctx].World(dest),
	}
	if size < idBytes {
		s.tag = uniqueTags + len(w.messages)
	}
	r.sends = append(r.sends, s)
	r.begin(s)
	r.call(func(p *pml.PML) {
		switch {
		case s.persistent:
			s.r = p.SendInit(r.ctxs[ctx], s.buf, dest, s.tag, s.mode, "send init")
			s.handle = s.r.Handle()
		case a.b>>9&3 == 0:
			s.r = p.Send(r.ctxs[ctx], s.buf, dest, s.tag, s.mode, "send")
		default:
			s.r = p.Isend(r.ctxs[ctx], s.buf, dest, s.tag, s.mode, "isend")
		}
		if s.r != nil {
			s.handle = s.r.Handle()
		}
	})
	if s.persistent {
		r.must(s.handle.Start())
	}
	if s.r == nil {
		r.done(s, nil)
		r.sends = r.sends[:len(r.sends)-1]
	}
}

func (r *rank) must(err error) {
	if err != nil {
		r.w.fail("request", "rank %d: %v", r.rank, err)
	}
}

func (r *rank) receive(a action) {
	w := r.w
	rc := &receive{rank: r.rank, ctx: r.pickContext(a.a), tag: a.b%4 - 1, persistent: a.kind == doReceiveInit, elem: a.a >> 10 % 4}
	rc.source = w.pickSource(rc.ctx, a.c)
	room := w.plan.setup.maxBytes
	if a.a>>8&3 == 0 {
		room = max(w.size(a.b), idBytes)
	}
	r.irecv(rc, r.buffer(room+guard, a.c>>8))
}

// irecv starts a receive. Its buffer is all of the memory except the guard.
func (r *rank) irecv(rc *receive, whole []byte) {
	room := len(whole) - guard
	rc.whole, rc.buf = whole, whole[:room:room]
	r.post(rc)
	r.call(func(p *pml.PML) {
		if rc.persistent {
			rc.r = p.RecvInit(r.ctxs[rc.ctx], rc.buf, rc.elem, rc.source, rc.tag, "recv init")
		} else {
			rc.r = p.Irecv(r.ctxs[rc.ctx], rc.buf, rc.elem, rc.source, rc.tag, "irecv")
		}
		rc.handle = rc.r.Handle()
	})
	if rc.persistent {
		r.must(rc.handle.Start())
	}
	r.recvs = append(r.recvs, rc)
}

// start starts all inactive persistent requests with one call.
func (r *rank) start(a action) {
	var all []request.Request
	for _, s := range r.sends {
		if s.persistent && !s.active {
			r.begin(s)
			all = append(all, s.handle)
		}
	}
	for i, rc := range r.recvs {
		if rc.persistent && !rc.active {
			// The old record keeps the message of the previous start.
			again := *rc
			again.message = nil
			r.unchanged(rc)
			r.recvs[i] = &again
			r.post(&again)
			all = append(all, again.handle)
		}
	}
	r.must(request.StartAll(all...))
}

func (r *rank) cancel(rc *receive) {
	r.must(rc.handle.Cancel())
	st, done, err := rc.handle.Test()
	r.matching.checkCancelled(rc, done && st.Cancelled)
	if !done {
		return // it has matched, so it completes
	}
	if !st.Cancelled {
		r.got(rc, st, err)
	} else if err != nil {
		r.w.fail("outcome", "rank %d: a cancelled receive returns %v", r.rank, err)
	}
	rc.active = false
	r.forget(rc)
}

// free frees a send. The send goes on in the background.
func (r *rank) free(i int) {
	s := r.sends[i]
	r.must(s.handle.Free())
	r.sends = slices.Delete(r.sends, i, i+1)
}

// detach takes the buffer of a send back, as package coll does when the context of a call ends.
func (r *rank) detach(a action) {
	s := at(r.sends, a.a)
	if s == nil || s.persistent {
		return
	}
	ended, end := context.WithCancel(context.Background())
	end()
	if _, err := s.handle.WaitContext(ended); err == nil {
		r.done(s, nil)
	} else if !errors.Is(err, context.Canceled) {
		r.done(s, err)
	} else {
		var d *pml.Detachment
		r.call(func(p *pml.PML) {
			d = s.r.Detach()
			if _, found := p.User(s.buf); found != (d != nil) {
				r.w.fail("buffer", "rank %d: the buffer of message %d is in use: %v, but Detach returns a Detachment: %v", r.rank, s.m.id, found, d != nil)
			}
		})
		r.must(s.handle.Free())
		r.w.traceOf(r.rank, "takes back the buffer of %d", s.m.id)
		r.detached = append(r.detached, detached{d, s.buf})
		r.reuse()
	}
	r.dropSend(s)
}

// detached is the buffer of a send that Detach was called for.
type detached struct {
	d   *pml.Detachment // nil if nothing used the buffer any more
	buf []byte
}

// reuse overwrites the detached buffers that nothing uses any more.
func (r *rank) reuse() {
	r.detached = slices.DeleteFunc(r.detached, func(b detached) bool {
		if b.d != nil && b.d.State() != request.Complete {
			return false
		}
		if b.d != nil {
			r.w.result.AwaitedBuffers++
		}
		clear(b.buf)
		return true
	})
}

func (r *rank) look(a action) {
	w := r.w
	ctx := r.pickContext(a.a)
	source, tag := w.pickSource(ctx, a.b), a.c%4-1
	pt := pattern{ctx, source, tag}
	r.call(func(p *pml.PML) {
		if a.kind == doIprobe {
			env, found := p.Iprobe(r.ctxs[ctx], source, tag)
			if found && !pt.covers(ctx, env.Source, env.Tag) {
				w.fail("match", "rank %d: a probe for rank %d tag %d finds a message of rank %d tag %d", r.rank, source, tag, env.Source, env.Tag)
			}
			r.matching.checkFound(pt, false, env, found)
			return
		}
		m, env, found := p.Improbe(r.ctxs[ctx], source, tag)
		expected := r.matching.checkFound(pt, true, env, found)
		if found {
			w.order++
			r.taken = append(r.taken, &taken{m: m, env: env, pattern: pt, order: w.order, expected: expected})
		}
	})
}

func (r *rank) probe(a action) {
	w := r.w
	w.order++
	ctx := r.pickContext(a.a)
	pr := &probe{pattern: pattern{ctx, w.pickSource(ctx, a.b), a.c%4 - 1}, order: w.order, matched: a.a>>8&1 == 0}
	r.matching.probe(pr)
	r.call(func(p *pml.PML) { pr.r = p.Probe(r.ctxs[pr.ctx], pr.source, pr.tag, pr.matched, "probe") })
	r.probes = append(r.probes, pr)
}

// receiveTaken receives a message that a matched probe has taken.
func (r *rank) receiveTaken(i int) {
	t := at(r.taken, i)
	if t == nil {
		return
	}
	r.taken = slices.DeleteFunc(r.taken, func(o *taken) bool { return o == t })
	room := max(int(t.env.Bytes), idBytes)
	rc := &receive{rank: r.rank, ctx: t.ctx, source: t.env.Source, tag: t.env.Tag, whole: r.buffer(room+guard, i), byProbe: true, waited: t.waited, elem: 1}
	rc.buf = rc.whole[:room:room]
	r.post(rc)
	rc.pattern, rc.order = t.pattern, t.order
	if t.expected != nil {
		rc.match(t.expected)
	}
	r.call(func(p *pml.PML) {
		rc.r = p.Imrecv(t.m, rc.buf, 1, "imrecv")
		rc.handle = rc.r.Handle()
	})
	r.recvs = append(r.recvs, rc)
}

// maxWrongs is the number of times that an operation may be refused as wrong before it fails.
const maxWrongs = 3

// injectFault executes an action that is a fault, or that repairs one.
func (w *world) injectFault(r *rank, a action) {
	s := &w.plan.setup
	other := (r.rank + 1 + a.a%(s.ranks-1)) % s.ranks
	l := s.links(r.rank, other)[a.b%len(s.links(r.rank, other))]
	rail := a.b % s.portsOf(r.rank)
	w.traceAll("%v", a)
	w.result.FaultActions[kindNames[a.kind]]++
	switch a.kind {
	case doInject:
		f := btl.Fault{Kind: faultKinds[a.c%len(faultKinds)], Peer: other, After: a.c >> 4 % 4, Count: 1 + a.c>>8%2}
		switch {
		case f.Kind == btl.FaultLate:
			f.Count = a.c >> 8 % 20
		case f.Kind == btl.FaultWrong && r.wrongs[other] == maxWrongs:
			f.Kind = btl.FaultRefuse
		case f.Kind == btl.FaultWrong:
			f.Count = 1
			r.wrongs[other]++
		case f.Kind == btl.FaultSilence && w.plan.transport >= TCP:
			// TCP does not time out a silent connection, because its peer may be computing.
			f.Kind = btl.FaultErrorLost
		}
		r.taps[rail].Module.(btl.Injector).Inject(f)
	case doAim:
		kind := []btl.FaultKind{btl.FaultErrorLost, btl.FaultErrorDelivered}[a.c&1]
		delayed := a.c>>16&3 == 0
		r.aims = append(r.aims, &aim{name: a.name, fault: kind, delayed: delayed, left: a.c >> 4 % 6 / 3})
		of, ok := causes[a.name]
		for _, o := range w.ranks {
			if !ok {
				break
			}
			if o != r {
				o.aims = append(o.aims, &aim{name: a.name, fault: kind, delayed: delayed})
			}
			// The faults that cause fragments of this kind.
			o.aims = append(o.aims, &aim{name: of[a.c>>8%len(of)], fault: kind, delayed: a.c>>18&1 == 0, left: a.c >> 12 % 3})
		}
	case doCut:
		w.net.cut(l, a.c, a.c>>4&1 == 0)
	case doPort:
		w.net.port(port{r.rank, rail}, false, a.c)
	case doRail:
		rail = a.b % len(s.rails)
		for rank := range w.ranks {
			if rail < s.portsOf(rank) {
				w.net.port(port{rank, rail}, false, a.c)
			}
		}
	case doAllRails:
		for i, l := range s.links(r.rank, other) {
			w.net.cut(l, a.c+i, a.c>>4&1 == 0)
			if a.c>>5&1 == 0 { // one rail after another
				w.next()
				r.turn()
				w.ranks[other].turn()
			}
		}
	case doDevice:
		w.breakDevice(r, rail, a)
	case doMend:
		w.net.mend(l)
	case doMendPort:
		w.net.port(port{r.rank, rail}, true, 0)
	case doSlow:
		w.setLatency(a.b%len(s.rails), 1<<(a.c%25))
	case doFlap:
		for i := range 2 + a.c%4 {
			w.net.cut(l, a.c>>2+i, a.c>>i&1 == 0)
			w.some(2)
			w.net.mend(l)
			w.pass(int64(a.a) * int64(i+1) * 10)
			w.some(4)
		}
	case doNarrow:
		bytes := 0
		if a.c&3 != 0 { // longer than any header, and shorter than a PROBE
			bytes = narrowBytes + a.c>>2%(s.fragBytes-narrowBytes)
		}
		w.net.narrow(l, bytes)
	case doDie:
		w.die(w.ranks[s.victims[0]])
	case doPart:
		w.parted = true
	case doCross, doUncross:
		w.cross(l, a)
	case doImpair, doRepair:
		w.impair(l, a)
	}
	if a.a>>10&3 == 0 { // fragments of some rail arrive late
		w.ranks[other].taps[a.a>>12%s.portsOf(other)].sleep(a.b >> 8 % 26)
	}
	if w.parted {
		w.part() // the action may have repaired a link between the victims
	}
}

// breakDevice injects a fault into a device. It avoids a case that loses peers by design: a device
// is lost with messages that it has acknowledged and its rank has not polled (bml/counters.go).
func (w *world) breakDevice(r *rank, rail int, a action) {
	if w.net.losesDevice(a.c) {
		if r.dead {
			return
		}
		r.eng.Lock()
		for r.taps[rail].Progress() > 0 {
		}
		r.eng.Unlock()
	}
	w.net.device(r.rank, rail, a.c, a.a>>4)
}

// causes lists, for a kind of fragment that only failures produce, the operations whose failure
// produces it.
var causes = map[string][]string{
	"RNDVRESTARTNOTIFY": {"FRAG", remoteWrite}, "RNDVRESTARTACK": {"FRAG", remoteWrite}, "RNDVRESTARTNACK": {"FRAG"},
	"RAILDOWN": {"MATCH", "RNDV"}, "RAILDOWNACK": {"MATCH", "RNDV"}, "PROBE": {"MATCH", "RNDV"}, "PROBEACK": {"MATCH", "RNDV"},
}

// some runs the given number of turns of every rank, and as many events of the network.
func (w *world) some(turns int) {
	for range turns {
		for _, r := range w.ranks {
			r.turn()
		}
		w.next()
	}
}

func (w *world) setLatency(rail int, nanos int64) {
	w.latency[rail] = nanos
	w.net.slow(rail, nanos)
}

func (w *world) part() {
	a, b := w.plan.setup.victims[0], w.plan.setup.victims[1]
	for i, l := range w.plan.setup.links(a, b) {
		if w.plan.setup.narrow {
			w.net.narrow(l, narrowBytes)
		} else {
			w.net.cut(l, i, false)
		}
	}
}

// narrowBytes is the longest packet that a narrow link still delivers: every header, and no PROBE.
const narrowBytes = 64

// die simulates the end of a rank's process.
func (w *world) die(r *rank) {
	r.dead = true
	for rail := range w.plan.setup.portsOf(r.rank) {
		w.net.port(port{r.rank, rail}, false, 2)
	}
	w.reportDeaths()
}

// reportDeaths reports a dead rank to every rank that does not know of it, by the first rail that
// is up. In a real job, the BTLs and the launcher do that.
func (w *world) reportDeaths() {
	if w.plan.setup.ending != Dies {
		return
	}
	for _, r := range w.ranks {
		for _, o := range w.ranks {
			if !r.dead || o.dead || o.p.PeerState(r.rank) == bml.PeerLost || o.p.PeerState(r.rank) == bml.PeerFailing {
				continue
			}
			o.eng.Lock()
			for _, l := range w.plan.setup.links(o.rank, r.rank) {
				local, remote := l[0].rail, l[1].rail
				ep, err := o.taps[local].Connect(btl.Path{Peer: r.rank, Module: uint8(remote)}, r.taps[remote].Address())
				if err == nil && ep.State() == btl.Up {
					ep.Fail(&btl.Error{Peer: r.rank, Class: btl.ClassPeerGone, Side: btl.SideRemote, Err: errDied})
					break
				}
			}
			o.eng.Unlock()
		}
	}
}

var errDied = errors.New("the process has ended")
