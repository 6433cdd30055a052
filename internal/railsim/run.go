package railsim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/internal/network"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// Options of a run.
type Options struct {
	// CarriesOn also checks the invariants of the second list in the package comment.
	CarriesOn bool
}

// Failure describes a broken invariant.
type Failure struct{ Invariant, What string }

func (f Failure) Error() string { return f.Invariant + ": " + f.What }

// Result is the outcome of a seed.
type Result struct {
	Plan     string // in words
	Failures []Failure
	// Messages is the number of messages sent, and Bytes the sum of their lengths. Errors counts
	// failed messages.
	Messages, Errors int
	Bytes            int64
	// Again is the number of bytes that rails carried again. Lost is the number of bytes in flight
	// on rails when they failed.
	Again, Lost int64
	// RailsFailed counts failures at each end, Restarts the transfers that began again.
	RailsFailed, Restarts int
	// Worst is the largest ratio of a message's time to the allowed time (mostTimes).
	Worst float64
	Nanos int64
}

const (
	// againShare of the delivered bytes and againCredit for each sender and receiver may be sent
	// again because another rail ends them earlier (bml/rating: budgetShare, firstBudget).
	againShare  = 0.02
	againCredit = 256 << 10
	// A message may take mostTimes the time of the fluid model over the sound rails, plus
	// mostExtra. The rating of rails needs a few round trips and its memory of 250 ms to follow a
	// rate that changes. A TCP connection repairs losses at the end of a message after 200 ms and
	// more. If rates change within a message, the ratio reaches 1.5.
	mostTimes = 2
	mostExtra = network.Second / 2
	// remoteExtra is the same for remote access, which waits for the operations in flight on a rail
	// that has become up to 100 times slower.
	remoteExtra = 2 * network.Second
	// runLimit bounds a run. Late fragments arrive within quietNanos after it.
	runLimit, quietNanos = 300 * network.Second, 2 * network.Second
)

// Run runs the plan of a seed.
func Run(seed uint64, o Options) *Result { return draw(seed).run(o) }

func (p *plan) run(o Options) *Result {
	r := &Result{Plan: p.String()}
	j, err := newJob(p.cfg)
	if err != nil {
		r.fail("setup", "%v", err)
		return r
	}
	defer j.close()
	for _, f := range p.faults {
		j.fabric.After(f.from, func() { r.must(j.begin(f)) })
		j.fabric.After(f.to, func() { r.must(j.repair(f)) })
	}
	j.send(p.flows)
	isOver := j.run(runLimit, func() bool { return j.isOver() })
	if !isOver {
		r.fail("bounded", "messages are not complete after %d s", runLimit/network.Second)
	}
	r.Nanos = j.now()
	j.run(j.now()+quietNanos, func() bool { return false })
	for _, m := range j.messages {
		r.Messages++
		r.Bytes += int64(len(m.out))
		if err := m.checkReused(); err != nil {
			r.fail("canary", "%v", err)
		}
		if m.err == nil {
			continue
		}
		r.Errors++
		switch isLoss := errors.Is(m.err, request.ErrUnreachable) || errors.Is(m.err, request.ErrProcFailed); {
		case !isLoss:
			r.fail("bytes", "%v", m.err)
		case o.CarriesOn:
			r.fail("abort", "message %d: %v", m.id, m.err)
		}
	}
	for _, what := range j.illegal {
		r.fail("transition", "%s", what)
	}
	r.Again = j.sum(func(x *rail) int64 { return x.again })
	r.Lost = j.sum(func(x *rail) int64 { return x.failed })
	r.RailsFailed = len(j.failures)
	r.Restarts = int(j.count(func(s pml.Stats) uint64 { return s.Restarts }))
	for _, m := range j.messages {
		r.Worst = max(r.Worst, float64(m.nanos())/float64(p.mostNanos(j, m)))
	}
	if o.CarriesOn {
		p.checkCarriesOn(j, r)
	}
	return r
}

func (r *Result) fail(invariant, format string, args ...any) {
	r.Failures = append(r.Failures, Failure{invariant, fmt.Sprintf(format, args...)})
}

func (r *Result) String() string {
	return fmt.Sprintf("%d messages, %d bytes, %d errors, %.2f s, slowest %.2f of what is allowed, %d bytes again, %d in the air of failed rails, %d failures, %d restarts; %s",
		r.Messages, r.Bytes, r.Errors, float64(r.Nanos)/1e9, r.Worst, r.Again, r.Lost, r.RailsFailed, r.Restarts, r.Plan)
}

// Add adds the counts of another result.
func (r *Result) Add(o *Result) {
	r.Messages += o.Messages
	r.Errors += o.Errors
	r.Bytes += o.Bytes
	r.Again += o.Again
	r.Lost += o.Lost
	r.RailsFailed += o.RailsFailed
	r.Restarts += o.Restarts
	r.Worst = max(r.Worst, o.Worst)
	r.Nanos += o.Nanos
}

func (r *Result) must(err error) {
	if err != nil {
		r.fail("setup", "%v", err)
	}
}

// send posts the messages of flows.
func (j *job) send(flows []flow) {
	for _, f := range flows {
		j.flows = append(j.flows, &running{flow: f})
	}
}

// running is a flow, with its messages under way.
type running struct {
	flow
	under []*message
	// isLost: a message has failed, so the remaining ones would fail too.
	isLost bool
}

// isOver posts the next messages of all flows, and reports whether there are none.
func (j *job) isOver() bool {
	isOver := true
	for _, f := range j.flows {
		for _, m := range f.under {
			f.isLost = f.isLost || m.err != nil
		}
		f.under = slices.DeleteFunc(f.under, (*message).isDone)
		for !f.isLost && len(f.sizes) > 0 && len(f.under) < f.window {
			f.under = append(f.under, j.post(f.from, f.to, f.sizes[0]))
			f.sizes = f.sizes[1:]
		}
		isOver = isOver && len(f.under) == 0
	}
	return isOver
}

func (j *job) begin(f fault) error {
	here, there := loop.Port{Rank: f.rank, Rail: f.rail}, loop.Port{Rank: (f.rank + 1) % j.cfg.ranks, Rail: f.rail}
	switch f.kind {
	case cutLink:
		return j.fabric.FailLink(here, there, f.cut)
	case breakPort:
		return j.fabric.FailPort(f.rank, f.rail, f.cut.Fate)
	}
	return j.fabric.FailModule(f.rail, f.cut.Fate)
}

func (j *job) repair(f fault) error {
	here, there := loop.Port{Rank: f.rank, Rail: f.rail}, loop.Port{Rank: (f.rank + 1) % j.cfg.ranks, Rail: f.rail}
	return cmp.Or(j.fabric.ReviveLink(here, there), j.fabric.ReviveRail(f.rail))
}

// nanos returns the time of a message, or 0 if it did not arrive.
func (m *message) nanos() int64 {
	if m.err != nil || !m.isDone() {
		return 0
	}
	return max(m.sentAt, m.gotAt) - m.postedAt
}

// heldNanos returns how long a rail may delay a message. If a rail falls silent during a remote
// access, the access uses the buffer until the rail delivers again, or fails. A TCP connection
// doubles its time-out at each retransmission. So after the path has recovered, it may take as long
// as the outage until the connection delivers.
func (p *plan) heldNanos() (longest int64) {
	if p.cfg.protocol == pml.Copy {
		return 0
	}
	longest = remoteExtra
	for _, may := range p.mayFail {
		for _, s := range may {
			longest = max(longest, remoteExtra+2*(s.to-s.from-afterFault))
		}
	}
	return longest
}

// mostNanos returns how long a message may take. It applies the fluid model to all bytes that the
// two ranks sent meanwhile, because requests for reads queue behind sent data. Only sound rails
// count.
func (p *plan) mostNanos(j *job, m *message) int64 {
	end, bytes := m.postedAt+m.nanos(), 0
	for _, o := range j.messages {
		if (o.from == m.from || o.from == m.to) && o.postedAt <= end && (o.nanos() == 0 || o.postedAt+o.nanos() > m.postedAt) {
			bytes += len(o.out)
		}
	}
	return mostTimes*network.Fluid(p.sound, m.postedAt, float64(bytes), network.Millisecond, runLimit) + mostExtra + p.stopNanos + p.heldNanos()
}

// checkCarriesOn checks that no rail fails because it is slow, and bounds the cost of failures.
func (p *plan) checkCarriesOn(j *job, r *Result) {
	peers := int64(j.cfg.ranks * (j.cfg.ranks - 1))
	delivered := j.sum(func(x *rail) int64 { return x.delivered })
	if most := r.Lost + int64(againShare*float64(delivered)) + againCredit*peers; r.Again > most {
		r.fail("again", "%d bytes were carried again, at most %d may be: failed rails had %d in the air", r.Again, most, r.Lost)
	}
	if r.Restarts > 0 {
		r.fail("restart", "%d transfers went on in another way, though a rail was up that they could use", r.Restarts)
	}
	for _, f := range j.failures {
		if !slices.ContainsFunc(p.mayFail[f.rail], func(s span) bool { return s.from <= f.at && f.at < s.to }) {
			r.fail("failure", "%.3f s: rail %d, which delivers: %s", float64(f.at)/1e9, f.rail, f.what)
			break
		}
	}
	for _, m := range j.messages {
		if most := p.mostNanos(j, m); m.nanos() > most {
			r.fail("time", "message %d of %d bytes took %.3f s, at most %.3f s is allowed", m.id, len(m.out), float64(m.nanos())/1e9, float64(most)/1e9)
			break
		}
	}
}

func (p *plan) String() string {
	return fmt.Sprintf("%d ranks, %v, %d bytes a fragment, rails: %s", p.cfg.ranks, p.cfg.protocol, p.cfg.fragBytes, strings.Join(p.what, "; "))
}
