package comm

import (
	"errors"
	"os"
	"runtime"
	"slices"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/goroutines"
	"github.com/mpigo/mpigo/internal/introspect"
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

// observed is a rank as the test harness sees it. It implements observe.Rank and
// introspect.Describer. Its reports have no goroutines: the harness knows which ones belong to a
// rank.
type observed struct {
	job     *job
	objects map[*request.Object]struct{} // that are or may be in use; guarded by the engine's lock
}

// attach passes the ranks to the hook before their bodies run.
func attach(hook observe.Hook, jobs []*job) {
	if hook.Attach == nil {
		return
	}
	ranks := make([]observe.Rank, len(jobs))
	for rank, j := range jobs {
		o := &observed{job: j, objects: make(map[*request.Object]struct{})}
		j.eng.Lock()
		if j.check != nil {
			j.check.tell = nobody // the harness reports such requests and messages
		}
		j.eng.OnBound(
			func(obj any) { o.objects[obj.(*request.Object)] = struct{}{} },
			func(obj any) { delete(o.objects, obj.(*request.Object)) },
		)
		j.eng.Unlock()
		ranks[rank] = o
	}
	hook.Attach(hook, ranks)
}

// Progress implements observe.Rank. The engine's count of events is no measure, because it includes
// timers.
func (o *observed) Progress() uint64 {
	o.job.eng.Lock()
	defer o.job.eng.Unlock()
	return o.job.progress()
}

// progress is the result of observe.Rank.Progress. Lock held.
func (j *job) progress() uint64 {
	s := j.pml.Stats()
	return j.eng.Counters().Done + s.SentInline + s.SentEager + s.SentRendezvous + s.Received
}

// Snapshot implements observe.Rank.
func (o *observed) Snapshot() observe.Snapshot {
	o.job.eng.Lock()
	defer o.job.eng.Unlock()
	return o.job.snapshot()
}

// Report implements introspect.Describer.
func (o *observed) Report() introspect.Report {
	r := introspect.Report{Rank: o.job.rank, Size: o.job.size, PID: os.Getpid()}
	o.job.eng.Lock()
	defer o.job.eng.Unlock()
	o.job.report(&r)
	return r
}

// Metrics implements introspect.Describer.
func (o *observed) Metrics(bool) introspect.Metrics {
	m := introspect.Metrics{Rank: o.job.rank, PID: os.Getpid(), Nanos: o.job.eng.Now()}
	o.job.eng.Lock()
	defer o.job.eng.Unlock()
	o.job.metrics(&m)
	return m
}

// DumpTrace implements introspect.Describer.
func (o *observed) DumpTrace() error { return errNoTrace }

// snapshot is the result of observe.Rank.Snapshot. Lock held.
func (j *job) snapshot() observe.Snapshot {
	snap := observe.Snapshot{Progress: j.progress(), Ended: j.ended != nil}
	waits := make(map[*progress.Waiter]*wait)
	var order []*progress.Waiter
	waitWith := func(w *progress.Waiter) *wait {
		if waits[w] == nil {
			waits[w] = new(wait)
			order = append(order, w)
		}
		return waits[w]
	}
	pending := j.pml.Pending()
	for i, p := range pending {
		s := stateOf(p.Caller)
		isCollective := p.Context == p.Context.Collective()
		out := observe.Pending{
			Op: p.Op, Sends: p.Sends, Comm: *s.name.Load(), Peer: p.Peer, Tag: p.Tag, Bytes: p.Bytes, Phase: p.Phase,
			Collective: isCollective, Abandoned: p.Abandoned, MadeSynchronous: j.madeSynchronous(p),
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
			if w.IsTask() {
				continue // no call waits with it
			}
			wt := waitWith(w)
			if run := s.team.Blocking(); isCollective && run != nil {
				// The call waits for one operation at a time, but the collective needs all of them.
				wt.collectives = []collectiveOf{{s, run}}
				continue
			}
			wt.ops = append(wt.ops, i)
		}
	}
	for _, s := range j.contexts() {
		if !s.freed {
			snap.Collectives = append(snap.Collectives, observe.Collective{Comm: uint64(s.id), Number: s.team.Next()})
		}
		for _, run := range s.team.Kept() {
			snap.Starts = append(snap.Starts, collectiveOf{s, run}.place())
		}
		for _, run := range s.team.Active() {
			for _, w := range run.Waiters() {
				wt := waitWith(w)
				wt.collectives = append(wt.collectives, collectiveOf{s, run})
			}
		}
	}
	for _, w := range order {
		if !w.Done() { // else the call is about to return
			out := waits[w].describe(w, pending, snap.Pending)
			out.Call, out.Site, out.Nanos = j.originOf(w)
			snap.Waits = append(snap.Waits, out)
		}
	}
	for _, c := range j.pml.Channels() {
		snap.Channels = append(snap.Channels, observe.Channel(c))
	}
	return snap
}

// wait is what a call waits for: operations, by their places among the pending ones, and
// collectives.
type wait struct {
	ops         []int
	collectives []collectiveOf
}

type collectiveOf struct {
	comm *state
	run  *coll.Schedule
}

// describe describes the call that waits with w. listed describes the pending operations.
func (wt *wait) describe(w *progress.Waiter, pending []pml.Pending, listed []observe.Pending) observe.Wait {
	out := observe.Wait{Ops: wt.ops, Need: w.Need(), MayGiveUp: w.MayGiveUp()}
	if len(wt.collectives) == 0 {
		return out
	}
	needsAll := w.Need() == len(wt.ops)+len(wt.collectives)
	for _, c := range wt.collectives {
		in := c.describe()
		out.Shared = len(wt.collectives) == 1 && c.run.InSharedMemory()
		posted := c.posted(pending)
		if len(posted) == 0 && !c.run.IsBlocking() {
			out.MayGiveUp = true // it is about to go on
		}
		out.Ops = append(out.Ops, posted...)
		out.Members = append(out.Members, c.comm.group...)
		if endsAlone := !c.run.NeedsAll() || c.run.HasFailed(); needsAll && !endsAlone {
			in.Awaits = c.comm.group
			if out.Collective == nil {
				out.Collective = &in.Collective
			}
		} else {
			for _, i := range posted {
				in.Awaits = append(in.Awaits, listed[i].By...)
			}
			in.Awaits = unique(in.Awaits)
		}
		out.In = append(out.In, in)
	}
	if len(wt.collectives) > 1 {
		out.Members = unique(out.Members)
	}
	if out.Need = len(out.Ops); !needsAll {
		out.Need = min(1, len(out.Ops)) // a rank that may still be released is not deadlocked
	}
	return out
}

// originOf returns the call that waits with w, the program's line, and how long the call has slept.
// Lock held.
func (j *job) originOf(w *progress.Waiter) (call string, site *observe.Site, nanos int64) {
	since, pcs, ok := w.Origin()
	if !ok {
		return "", nil, 0
	}
	call, site = callAt(pcs)
	return call, site, max(j.eng.Now()-since, 0)
}

// callAt returns the library call in a stack, and the program's line; nil and "" if there is none.
func callAt(pcs []uintptr) (call string, site *observe.Site) {
	var stack []introspect.Frame
	frames := runtime.CallersFrames(pcs)
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		stack = append(stack, introspect.Frame{Function: f.Function, File: f.File, Line: f.Line})
	}
	if f, ok := goroutines.Site(stack); ok {
		site = &observe.Site{Function: f.Function, File: f.File, Line: f.Line}
	}
	return goroutines.CallName(stack), site
}

// place is the position of the collective among those of its communicator.
func (c collectiveOf) place() observe.Collective {
	return observe.Collective{Comm: uint64(c.comm.id), Number: c.run.Number(), Start: c.run.Starts()}
}

func (c collectiveOf) describe() observe.CollectiveCall {
	out := observe.CollectiveCall{Collective: c.place(), Name: c.run.ID().String(), CommName: *c.comm.name.Load(), Root: -1}
	if out.Start > 0 {
		_, out.Init = callAt(c.run.Origin())
	}
	if root := c.run.Root(); root >= 0 && root < len(c.comm.group) {
		out.Root = c.comm.group[root]
	}
	return out
}

// posted lists the operations of the collective among the pending ones.
func (c collectiveOf) posted(pending []pml.Pending) (ops []int) {
	for i, p := range pending {
		if stateOf(p.Caller) == c.comm && p.Context == c.comm.id.Collective() && c.run.Posts(p.Tag) {
			ops = append(ops, i)
		}
	}
	return ops
}

// unique sorts ranks and removes duplicates.
func unique(ranks []int) []int {
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

// contexts lists the communicators of the rank that are not freed, or that have active collectives.
// Lock held.
func (j *job) contexts() []*state {
	var out []*state
	for _, caller := range j.pml.Contexts() {
		s := stateOf(caller) // both contexts of a communicator follow each other
		if last := len(out) - 1; last < 0 || out[last] != s {
			out = append(out, s)
		}
	}
	return out
}

// comms lists the communicators of the rank that are not freed. Lock held.
func (j *job) comms() []*state {
	return slices.DeleteFunc(j.contexts(), func(s *state) bool { return s.freed })
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
			l.Requests = append(l.Requests, withLine(obj, errActive))
		default:
			l.Requests = append(l.Requests, withLine(obj, errUnobserved))
		}
	}
	slices.Sort(l.Requests)
	for _, s := range o.job.comms() {
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

// Unreceived implements observe.Rank.
func (o *observed) Unreceived() []observe.Message {
	o.job.eng.Lock()
	defer o.job.eng.Unlock()
	list := o.job.pml.Unreceived()
	if k := o.job.check; k != nil {
		list = append(list, k.dropped...)
	}
	return described(list)
}

// unreceived lists the messages that a receive might still match. Lock held.
func (j *job) unreceived() []observe.Message { return described(j.pml.Unreceived()) }

// described describes messages. It leaves out those of collectives.
func described(list []pml.Unreceived) []observe.Message {
	var out []observe.Message
	for _, m := range list {
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
