package comm

//go:generate go run ../scripts/methods . methods_go127.go

import (
	"context"
	"sync/atomic"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// Special ranks, tags and colours.
const (
	// AnySource as the source of a receive or probe: a message from any rank.
	AnySource = request.AnySource
	// AnyTag as the tag of a receive or probe: a message with any tag.
	AnyTag = request.AnyTag
	// ProcNull as source or destination: no rank. The call succeeds at once.
	ProcNull = request.ProcNull
	// Undefined as the colour of Split: the rank gets no communicator. As an index: no request was
	// active. As Error.Peer or Error.Tag: the call has none.
	Undefined = request.Undefined
)

// tagUB is the largest tag of a user's message.
const tagUB = 1<<30 - 1

// Comm is a communicator: an ordered group of ranks with a matching space of its own. A message
// that is sent in it is never received in another communicator. Goroutines may share it.
//
// A Comm is a view of the communicator. [Comm.WithContext] returns another view of the same one.
type Comm struct {
	*state
	ctx context.Context // of blocking calls through this view; never nil
	// done is ctx.Done(), or nil if ctx never ends. In checked mode it is never nil, which keeps
	// calls from the fast paths.
	done <-chan struct{}
}

// state is a communicator at one rank. The engine's lock guards the fields that change.
type state struct {
	job     *job
	id      pml.ContextID
	name    atomic.Pointer[string] // may be read without the lock
	rank    int
	group   []int      // the rank in the job of each rank; never changed
	members *pml.Group // the same for pml
	p2p     *pml.Context
	team    *coll.Team // its collectives
	freed   bool       // also before open, when team is nil
	attrs   []attr
	topo    *topology // nil if it has none; set before the user has the communicator
}

// newComm makes a communicator of a group, in which this process has the given rank. Lock held.
func (j *job) newComm(id pml.ContextID, name string, group []int, members *pml.Group, rank int) *Comm {
	s := j.newState(name, group, members, rank)
	s.open(id)
	return s.view(context.Background())
}

// newState makes a communicator that cannot be used before open is called.
func (j *job) newState(name string, group []int, members *pml.Group, rank int) *state {
	s := &state{job: j, rank: rank, group: group, members: members, freed: true}
	s.name.Store(&name)
	return s
}

// open makes the contexts of a communicator. Lock held.
func (s *state) open(id pml.ContextID) {
	s.id, s.freed = id, false
	s.p2p = s.job.pml.AddContext(id, s.members, s.rank, (*owner)(s))
	s.team = coll.NewTeam(s.job.pml, id.Collective(), s.members, s.rank, (*owner)(s))
	if s.job.check != nil {
		s.team.ShareNothing() // the ranks would have to agree on sharing before they compare calls
	}
}

// owner is a state in its role as owner of its contexts and of its team. The separate type keeps
// these methods out of Comm, which embeds a state.
type owner state

// stateOf returns the communicator that a context belongs to.
func stateOf(c pml.Caller) *state { return (*state)(c.(*owner)) }

// Describe implements pml.Caller: the errors of requests become an *Error.
func (o *owner) Describe(op string, peer, tag int, err error) error {
	return (*state)(o).describe(op, peer, tag, err)
}

// DescribeCollective implements coll.Owner.
func (o *owner) DescribeCollective(call calls.ID, root int, err error) error {
	line, cause := lineOf(err)
	if e, ok := cause.(*Error); ok {
		own := *e // e may be shared: an earlier call may have returned it, or an exchange made it
		own.Op, own.Line = call.String(), line
		own.Tag = Undefined // the tags of collectives mean nothing to users
		return &own
	}
	return (*state)(o).describe(call.String(), root, none, err)
}

// Panicked implements coll.Owner.
func (o *owner) Panicked(value any) error { return newOperationPanic(value) }

// Crowded implements coll.Owner.
func (o *owner) Crowded() bool { return o.job.crowded }

// Host implements coll.Owner.
func (o *owner) Host(rank int) int {
	if o.job.hosts == nil {
		return 0
	}
	return o.job.hosts[o.group[rank]]
}

// Hub implements coll.Owner.
func (o *owner) Hub() *coll.Hub { return o.job.hub }

// isNull reports whether c is the null communicator, as Split returns for Undefined.
func (c *Comm) isNull() bool { return c == nil || c.state == nil }

// Rank is the rank of this process in the communicator, or Undefined if c is nil.
func (c *Comm) Rank() int {
	if c.isNull() {
		return Undefined
	}
	return c.rank
}

// Size is the number of ranks in the communicator, or 0 if c is nil.
func (c *Comm) Size() int {
	if c.isNull() {
		return 0
	}
	return len(c.group)
}

// Name is the name of the communicator in errors: "world", or the name that SetName has set. A
// communicator that is made from another one is first named after that one.
func (c *Comm) Name() string {
	if c.isNull() {
		return "null"
	}
	return *c.name.Load()
}

// SetName sets the name of the communicator, at this rank only.
func (c *Comm) SetName(name string) {
	if !c.isNull() {
		c.name.Store(&name)
	}
}

// TagUB is the largest tag that a message may have.
func (c *Comm) TagUB() int { return tagUB }

// Wtime is the time in seconds since a fixed moment of this rank's past. It never goes backwards.
func (c *Comm) Wtime() float64 {
	if c.isNull() {
		return 0
	}
	return float64(c.job.eng.Now()) / 1e9
}

// WithContext returns a view of the same communicator, whose calls end with ctx. Their errors wrap
// ctx's error. A send, receive or probe that begins after ctx has ended does nothing.
//
// If ctx has ended before a collective takes the lock of the rank, the collective counts as a call.
// It fails at all ranks that have not finished it, with [ErrGivenUp] at this rank. Like a
// collective with bad arguments, it leaves the communicator usable.
//
// A call that waits when ctx ends gives up:
//
//   - A receive or probe is withdrawn, as by Cancel. If a message had matched already, the call
//     completes without an error.
//   - A send continues in the background. Its buffer belongs to the library until the send is
//     complete, and the program cannot learn when that is. Use Isend and WaitContext where that
//     matters.
//   - A collective fails at all ranks that have not finished it (ErrGivenUp here). It leaves the
//     communicator unfit for collectives at this rank. It returns when the library no longer uses
//     its buffers. So it waits for messages that are arriving already, even if their sender has
//     stopped in the middle of one. A Split that gives up revokes the communicators that other
//     ranks got from it: see [Comm.Split].
//
// Free and Dup act on the communicator and ignore ctx. Requests do not depend on the context of the
// view through which they were made. A nil ctx stands for context.Background().
func (c *Comm) WithContext(ctx context.Context) *Comm {
	if c.isNull() {
		return c
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return c.view(ctx)
}

// view returns a view of the communicator.
func (s *state) view(ctx context.Context) *Comm {
	v := &Comm{state: s, ctx: ctx, done: ctx.Done()}
	if v.done == nil && s.job.check != nil {
		v.done = generalPath
	}
	return v
}

// enter takes the engine's lock for a call on c. It fails, and does not hold the lock, if c is nil
// or freed (ErrComm), or if the job has ended (ErrFinalized, or the error that ended it).
func (c *Comm) enter() error {
	if c.isNull() {
		return errNullComm
	}
	c.job.eng.Lock()
	if c.job.ended == nil && !c.freed {
		return nil
	}
	err := c.job.ended
	switch {
	case err != nil:
	case c.team == nil:
		err = errUnmadeComm
	default:
		err = errFreedComm
	}
	c.job.eng.Unlock()
	return err
}

// enterFreed is enter for calls that work after Free of the communicator. c is not nil.
func (c *Comm) enterFreed() error {
	c.job.eng.Lock()
	err := c.job.ended
	if err != nil {
		c.job.eng.Unlock()
	}
	return err
}

// leave releases the engine's lock.
func (c *Comm) leave() { c.job.eng.Unlock() }

// contextErr is the error of the view's context, or nil if the context has not ended. Calls check
// it after all arguments, and before they post anything.
func (c *Comm) contextErr() error {
	if c.done == nil {
		return nil
	}
	return c.ctx.Err()
}
