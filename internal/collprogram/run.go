package collprogram

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// runner is a program at one rank.
type runner struct {
	*rand.Rand // differs from rank to rank
	p          *Program
	comms      []*comm.Comm // by group, nil where this rank is not in it
	pending    []pending
	handles    []*handle // by number, nil where this rank is not in the group
}

// pending is an operation that is under way.
type pending struct {
	request.Request
	// done checks the result, and the status unless st is nil.
	done func(st *request.Status) error
	// isAnySource says that done needs the status.
	isAnySource bool
}

// handle is a persistent collective.
type handle struct {
	request.Request
	operands *Operands
	isActive bool
}

// Run runs the program at a rank of w, which has as many ranks as the program.
func (p *Program) Run(w *comm.Comm) error {
	if w.Size() != p.Ranks {
		return fmt.Errorf("the program has %d ranks, not %d", p.Ranks, w.Size())
	}
	r := &runner{
		Rand: rand.New(rand.NewPCG(p.Seed, uint64(w.Rank())<<32)), p: p,
		comms: make([]*comm.Comm, len(p.groups)), handles: make([]*handle, len(p.inits)),
	}
	r.comms[0] = w
	if err := r.run(); err != nil {
		return fmt.Errorf("seed %d, %d ranks, rank %d: %w", p.Seed, p.Ranks, w.Rank(), err)
	}
	return nil
}

func (r *runner) run() error {
	patience := r.IntN(6) // the higher, the less often this rank waits
	for i, s := range r.p.steps {
		if err := s.do(r); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		for len(r.pending) > 0 && r.IntN(1+patience) == 0 {
			if err := r.completeSome(); err != nil {
				return fmt.Errorf("after step %d: %w", i, err)
			}
		}
	}
	for len(r.pending) > 0 {
		if err := r.completeSome(); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	for h := range r.handles {
		if err := r.freeHandle(h); err != nil {
			return err
		}
	}
	for _, c := range r.comms[1:] {
		if c != nil {
			if err := c.Free(); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin adds an operation to the pending ones, unless err is set.
func (r *runner) begin(req request.Request, err error, done func(st *request.Status) error) error {
	if err == nil {
		r.pending = append(r.pending, pending{Request: req, done: done})
	}
	return err
}

func (s *collective) do(r *runner) error {
	w := r.comms[s.group]
	if w == nil {
		return nil
	}
	own := s.call // a copy, because a start changes it
	o := own.Prepare(w.Rank(), w.Size())
	req, err := o.Make(w, s.form)
	switch {
	case err != nil:
		return err
	case s.form == Blocking:
		return o.Check()
	case s.form == Persistent:
		r.handles[s.handle] = &handle{Request: req, operands: o}
		return nil
	}
	return r.begin(req, nil, checkEmpty(o))
}

// checkEmpty checks the status and the result of a collective.
func checkEmpty(o *Operands) func(st *request.Status) error {
	return func(st *request.Status) error {
		if st != nil && *st != request.Empty() {
			return fmt.Errorf("%v: the status is %+v", o.call, *st)
		}
		return o.Check()
	}
}

func (s *start) do(r *runner) error {
	var mine []int
	for _, h := range s.handles {
		if r.handles[h] != nil {
			mine = append(mine, h)
		}
	}
	for _, h := range mine { // before any start, to avoid a cycle of waiting ranks
		if err := r.await(h); err != nil {
			return err
		}
	}
	r.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
	var reqs []request.Request
	for _, i := range mine {
		h := r.handles[i]
		h.operands.Load(s.contents[i])
		h.isActive = true
		check := checkEmpty(h.operands)
		reqs = append(reqs, h.Request)
		if err := r.begin(h.Request, nil, func(st *request.Status) error {
			h.isActive = false
			return check(st)
		}); err != nil {
			return err
		}
	}
	if r.IntN(2) == 0 {
		return request.StartAll(reqs...)
	}
	for _, req := range reqs {
		if err := req.Start(); err != nil {
			return err
		}
	}
	return nil
}

// await completes a persistent collective that may be active.
func (r *runner) await(h int) error {
	for r.handles[h].isActive {
		i := slices.IndexFunc(r.pending, func(p pending) bool { return p.Request == r.handles[h].Request })
		if err := r.wait(i); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) freeHandle(h int) error {
	if r.handles[h] == nil {
		return nil
	}
	if err := r.await(h); err != nil {
		return err
	}
	err := r.handles[h].Free()
	r.handles[h] = nil
	return err
}

func (s *release) do(r *runner) error { return r.freeHandle(s.handle) }

// fill makes a message.
func fill(contents uint64, from, length int) []Affine {
	return (&Call{Contents: contents}).elements(from, 0, length)
}

// checkMessage checks a message and its status.
func checkMessage(want, got []Affine, from, tag int, st *request.Status) error {
	whole := request.Status{Source: from, Tag: tag, Count: len(want), Bytes: int64(len(want)) * affineBytes}
	if st != nil && *st != whole {
		return fmt.Errorf("message: the status is %+v, want %+v", *st, whole)
	}
	return same("message", want, got)
}

func (s *message) do(r *runner) error {
	w := r.comms[s.group]
	if w == nil {
		return nil
	}
	want := fill(s.contents, s.from, s.length)
	if w.Rank() == s.from {
		if err := s.post(r, w, want); err != nil {
			return err
		}
	}
	if w.Rank() == s.to {
		return s.take(r, w, want)
	}
	return nil
}

// post sends the message.
func (s *message) post(r *runner, w *comm.Comm, b []Affine) error {
	switch s.send {
	case send:
		return comm.Send(w, b, s.to, s.tag)
	case ssend:
		return comm.Ssend(w, b, s.to, s.tag)
	case bsend:
		return comm.Bsend(w, b, s.to, s.tag)
	}
	begin := comm.Isend[Affine]
	if s.send == issend {
		begin = comm.Issend[Affine]
	}
	req, err := begin(w, b, s.to, s.tag)
	return r.begin(req, err, func(*request.Status) error { return nil })
}

// take receives the message.
func (s *message) take(r *runner, w *comm.Comm, want []Affine) error {
	tag, got := s.tag, make([]Affine, len(want))
	if s.anyTag {
		tag = comm.AnyTag
	}
	check := func(st *request.Status) error { return checkMessage(want, got, s.from, s.tag, st) }
	var st request.Status
	var err error
	switch s.recv {
	case irecv:
		req, err := comm.Irecv(w, got, s.from, tag)
		return r.begin(req, err, check)
	case recv:
		st, err = comm.Recv(w, got, s.from, tag)
	case probe:
		if st, err = w.Probe(s.from, tag); err == nil {
			st, err = comm.Recv(w, got, st.Source, st.Tag)
		}
	case mprobe:
		m, _, failed := w.Mprobe(s.from, tag)
		if err = failed; err == nil {
			st, err = comm.Mrecv(m, got)
		}
	}
	if err != nil {
		return err
	}
	return check(&st)
}

func (s *funnel) do(r *runner) error {
	w := r.comms[s.group]
	if w == nil {
		return nil
	}
	if slices.Contains(s.from, w.Rank()) {
		req, err := comm.Isend(w, fill(s.contents, w.Rank(), s.length), s.to, s.tag)
		if err := r.begin(req, err, func(*request.Status) error { return nil }); err != nil {
			return err
		}
	}
	if w.Rank() != s.to {
		return nil
	}
	seen := map[int]bool{}
	for range s.from {
		got := make([]Affine, s.length)
		req, err := comm.Irecv(w, got, comm.AnySource, s.tag)
		if err := r.begin(req, err, func(st *request.Status) error {
			if seen[st.Source] || !slices.Contains(s.from, st.Source) {
				return fmt.Errorf("%v: a message from %d", s, st.Source)
			}
			seen[st.Source] = true
			return checkMessage(fill(s.contents, st.Source, s.length), got, st.Source, s.tag, st)
		}); err != nil {
			return err
		}
		r.pending[len(r.pending)-1].isAnySource = true
	}
	return nil
}

func (s *exchange) do(r *runner) error {
	w := r.comms[s.group]
	if w == nil {
		return nil
	}
	n, me := w.Size(), w.Rank()
	to, from := (me+s.shift)%n, (me+n-s.shift)%n
	got := make([]Affine, s.length)
	st, err := comm.Sendrecv(w, fill(s.contents, me, s.length), to, tags, got, from, tags)
	if err != nil {
		return err
	}
	return checkMessage(fill(s.contents, from, s.length), got, from, tags, &st)
}

func (s *split) do(r *runner) error {
	w := r.comms[s.group]
	if w == nil {
		return nil
	}
	if s.colours == nil {
		d, err := w.Dup()
		r.comms[s.made[0]] = d
		return err
	}
	colour := s.colours[w.Rank()]
	if colour < 0 {
		colour = comm.Undefined
	}
	c, err := w.Split(colour, s.keys[w.Rank()])
	if err != nil || colour == comm.Undefined {
		return err
	}
	made := s.made[colour]
	r.comms[made] = c
	if members := r.p.groups[made].members; c.Size() != len(members) || members[c.Rank()] != r.comms[0].Rank() {
		return fmt.Errorf("%v: rank %d of %d, not as in %v", s, c.Rank(), c.Size(), members)
	}
	return nil
}

func (s *free) do(r *runner) error {
	c := r.comms[s.group]
	if c == nil {
		return nil
	}
	for _, h := range s.handles {
		if err := r.freeHandle(h); err != nil {
			return err
		}
	}
	r.comms[s.group] = nil
	return c.Free()
}

var errNothingCompleted = errors.New("a wait returned without a completed request")
