package comm

import (
	"errors"
	"slices"

	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/request"
)

// Observe lets package mpitest watch the ranks of RunLocal. It is of no use to others.
func Observe(change func(*observe.Hook)) Option {
	return func(o *options) { change(&o.hook) }
}

// observed is a rank as its observer sees it.
type observed struct {
	job     *job
	objects map[*request.Object]struct{} // that are or may be used; guarded by the engine's lock
}

// attach shows the ranks to whoever observes, before anything has happened.
func attach(hook observe.Hook, jobs []*job) {
	if hook.Attach == nil {
		return
	}
	ranks := make([]observe.Rank, len(jobs))
	for rank, j := range jobs {
		o := &observed{job: j, objects: make(map[*request.Object]struct{})}
		j.eng.Lock()
		j.eng.OnBound(
			func(obj any) { o.objects[obj.(*request.Object)] = struct{}{} },
			func(obj any) { delete(o.objects, obj.(*request.Object)) },
		)
		j.eng.Unlock()
		ranks[rank] = o
	}
	hook.Attach(hook, ranks)
}

// Progress implements observe.Rank. The engine's count of events will not do: timers are
// among them.
func (o *observed) Progress() uint64 {
	o.job.eng.Lock()
	defer o.job.eng.Unlock()
	s := o.job.pml.Stats()
	return o.job.eng.Counters().Done + s.SentInline + s.SentEager + s.SentRendezvous + s.Received
}

// Pending implements observe.Rank.
func (o *observed) Pending() []observe.Pending {
	o.job.eng.Lock()
	defer o.job.eng.Unlock()
	var out []observe.Pending
	for _, p := range o.job.pml.Pending() {
		s := p.Caller.(*state)
		peer := p.Peer
		if peer >= 0 {
			peer = s.group[peer]
		}
		out = append(out, observe.Pending{
			Op: p.Op, Comm: *s.name.Load(), Peer: peer, Tag: p.Tag, Bytes: p.Bytes, Phase: p.Phase,
			Collective: p.Context == p.Context.Collective(),
		})
	}
	return out
}

// Leaks implements observe.Rank.
func (o *observed) Leaks() observe.Leaks {
	o.job.eng.Lock()
	defer o.job.eng.Unlock()
	var l observe.Leaks
	for obj := range o.objects {
		switch {
		case !obj.Outstanding():
		case obj.State() == request.Active:
			l.Requests = append(l.Requests, obj.About(errActive).Error())
		default:
			l.Requests = append(l.Requests, obj.About(errUnobserved).Error())
		}
	}
	slices.Sort(l.Requests)
	for _, a := range o.job.allocs {
		l.Blocks = append(l.Blocks, int64(a.n)*int64(a.elemBytes))
	}
	slices.Sort(l.Blocks)
	return l
}

// Unreceived implements observe.Rank. What belongs to a collective is not the user's.
func (o *observed) Unreceived() []observe.Message {
	o.job.eng.Lock()
	defer o.job.eng.Unlock()
	var out []observe.Message
	for _, m := range o.job.pml.Unreceived() {
		if m.Context == m.Context.Collective() {
			continue
		}
		s := m.Caller.(*state)
		out = append(out, observe.Message{
			Source: s.group[m.Source], Tag: m.Tag, Bytes: m.Bytes, Comm: *s.name.Load(),
		})
	}
	return out
}

var (
	errActive     = errors.New("still active")
	errUnobserved = errors.New("complete, but nobody has waited for it")
)

// Stop implements observe.Rank.
func (o *observed) Stop(cause error) { o.job.stop(cause) }
