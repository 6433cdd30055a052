package comm

import (
	"errors"
	"slices"

	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

func init() {
	observe.NewOption = func(change func(*observe.Hook)) any {
		return Option(func(o *options) { change(&o.hook) })
	}
}

// observed is a rank as the test harness sees it. It implements observe.Rank.
type observed struct {
	job     *job
	objects map[*request.Object]struct{} // that are or may be in use; guarded by the engine's lock
}

// attach shows the ranks to the hook before their bodies run.
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

// Progress implements observe.Rank. The engine's count of events does not serve, because it
// includes timers.
func (o *observed) Progress() uint64 {
	o.job.eng.Lock()
	defer o.job.eng.Unlock()
	return o.progress()
}

func (o *observed) progress() uint64 {
	s := o.job.pml.Stats()
	return o.job.eng.Counters().Done + s.SentInline + s.SentEager + s.SentRendezvous + s.Received
}

// Snapshot implements observe.Rank.
func (o *observed) Snapshot() observe.Snapshot {
	o.job.eng.Lock()
	defer o.job.eng.Unlock()
	snap := observe.Snapshot{Progress: o.progress(), Ended: o.job.ended != nil}
	var order []*progress.Waiter
	ops := make(map[*progress.Waiter][]int)
	comms := make(map[*progress.Waiter]*state) // the communicators of waits in collectives
	pending := o.job.pml.Pending()
	for i, p := range pending {
		s := stateOf(p.Caller)
		isCollective := p.Context == p.Context.Collective()
		out := observe.Pending{
			Op: p.Op, Comm: *s.name.Load(), Peer: p.Peer, Tag: p.Tag, Bytes: p.Bytes, Phase: p.Phase,
			Collective: isCollective,
		}
		if p.Tag > tagUB && !isCollective {
			out.Tag -= inviteTag
		}
		if p.Peer >= 0 {
			out.Peer = s.group[p.Peer]
		}
		switch {
		case p.GoesOn:
		case p.Peer >= 0:
			out.By = []int{out.Peer}
		default:
			out.By = s.group
		}
		snap.Pending = append(snap.Pending, out)
		for _, w := range p.Request.Waiters() {
			if ops[w] == nil {
				order = append(order, w)
			}
			ops[w] = append(ops[w], i)
			if isCollective {
				comms[w] = s
			}
		}
	}
	for _, w := range order {
		if w.Done() {
			continue // the call is about to return
		}
		wait := observe.Wait{Ops: ops[w], Need: w.Need(), MayGiveUp: w.MayGiveUp()}
		if s := comms[w]; s != nil {
			s.awaited(&wait, pending)
		}
		snap.Waits = append(snap.Waits, wait)
	}
	for _, s := range o.comms() {
		snap.Collectives = append(snap.Collectives,
			observe.Collective{Comm: uint64(s.id), Next: s.team.Next(), In: s.team.Running() != nil})
	}
	return snap
}

// awaited fills in wait, a wait in the collective that is running. The call waits for one of the
// operations that are posted, but the collective needs all of them.
func (s *state) awaited(wait *observe.Wait, pending []pml.Pending) {
	run := s.team.Running()
	if run == nil {
		return
	}
	wait.Ops = nil
	for i, p := range pending {
		if stateOf(p.Caller) == s && p.Context == s.id.Collective() && run.Posts(p.Tag) {
			wait.Ops = append(wait.Ops, i)
		}
	}
	wait.Need = len(wait.Ops)
	wait.Members = s.group
	if run.NeedsAll() && !run.HasFailed() { // else it ends without the other ranks
		wait.Collective = &observe.Collective{Comm: uint64(s.id), Next: run.Number(), In: true}
	}
}

// comms lists the communicators of the rank that are not freed.
func (o *observed) comms() []*state {
	var out []*state
	for _, caller := range o.job.pml.Contexts() {
		s := stateOf(caller) // two contexts in a row have the same
		if last := len(out) - 1; !s.freed && (last < 0 || out[last] != s) {
			out = append(out, s)
		}
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
	for _, s := range o.comms() {
		if s != o.job.world.state {
			l.Comms = append(l.Comms, *s.name.Load())
		}
	}
	for _, a := range o.job.allocs {
		l.Blocks = append(l.Blocks, int64(a.n)*int64(a.elemBytes))
	}
	slices.Sort(l.Blocks)
	return l
}

// Unreceived implements observe.Rank. Messages of collectives are not the user's.
func (o *observed) Unreceived() []observe.Message {
	o.job.eng.Lock()
	defer o.job.eng.Unlock()
	var out []observe.Message
	for _, m := range o.job.pml.Unreceived() {
		if m.Context == m.Context.Collective() {
			continue
		}
		s := stateOf(m.Caller)
		out = append(out, observe.Message{
			Source: s.group[m.Source], Tag: m.Tag, Bytes: m.Bytes, Comm: *s.name.Load(),
		})
	}
	return out
}

var (
	errActive     = errors.New("still active")
	errUnobserved = errors.New("complete, but not waited for")
)

// Stop implements observe.Rank.
func (o *observed) Stop(cause error) { o.job.stop(cause) }
