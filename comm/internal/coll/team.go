package coll

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/mpigo/mpigo/comm/internal/area"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// NoRoot is the root of a collective that has none.
const NoRoot = math.MinInt

// Owner is the communicator that a Team belongs to.
type Owner interface {
	// Describe wraps the error of one message of a collective.
	pml.Caller
	// DescribeCollective wraps the error of a call. err may be an error that Describe returned.
	DescribeCollective(call calls.ID, root int, err error) error
	// Panicked makes the error of an operation that has panicked with a value. It is called in the
	// deferred function that recovers it, without the engine's lock.
	Panicked(value any) error
	// Crowded reports whether ranks of the job share processor cores. It is the same at all ranks.
	Crowded() bool
	// Host is the number of a rank's host, the same at all ranks.
	Host(rank int) int
	// Hub is the rank's hub.
	Hub() *Hub
}

// Team is a communicator at one rank, as its collectives see it. The lock of the rank's engine
// guards it.
type Team struct {
	p          *pml.PML
	ctx        *pml.Context
	group      *pml.Group
	rank, size int
	owner      Owner

	blocking *Schedule   // the blocking call that a goroutine is in, or nil
	idle     []*Schedule // kept with their memory for the next collectives
	tuning   *Tuning     // nil: chosen by Owner.Crowded
	unfit    error       // why every later collective is refused here, or nil
	lost     int         // the rank whose loss made the communicator unfit, or none
	removed  bool        // by the owner; the context is removed when no collective is left

	hub       *Hub
	area      *area.Area
	areaState areaState
	hosts            // known once an area is set up or planned
	lastShort uint64 // number of the last collective that ended on its short path
	// shortTemps is for intermediate results on short paths.
	shortTemps []byte

	sequence
	mismatch
	tellings map[int]*telling // by rank in the job
}

// NewTeam makes the team of a communicator. group is its ranks, and rank is this rank's number in
// it. id is the communicator's context for collectives. Lock held.
func NewTeam(p *pml.PML, id pml.ContextID, group *pml.Group, rank int, owner Owner) *Team {
	t := &Team{p: p, group: group, rank: rank, size: group.Size(), owner: owner, lost: none, hub: owner.Hub()}
	p.AddControlledContext(id, group, rank, owner, func(c *pml.Context) pml.Handler {
		t.ctx = c
		return handler{t}
	})
	return t
}

// Begin opens the next collective and returns its empty schedule. It returns nil if a goroutine is
// in a blocking one, or if the number could be confused with an old one. The caller makes the
// steps, calls Run, Launch, Keep or Refuse, and then Leave.
//
// The number of a long-lived persistent collective may come again. Its starts have their own tags,
// so only another Init call must not get that number.
func (t *Team) Begin(how How, call calls.ID, root int) *Schedule {
	if t.blocking != nil || t.isTooOld() || t.isTelling() || how == Persistent && t.kept[t.next] != nil {
		return nil
	}
	var s *Schedule
	if last := len(t.idle) - 1; last >= 0 {
		s = t.idle[last]
		t.idle[last] = nil
		t.idle = t.idle[:last]
	} else {
		s = &Schedule{team: t, rank: t.rank, size: t.size, failedPeer: none}
		s.Bind(t.p.Engine(), s)
		s.LookAhead(s, nil)
		s.MustEnd = true
	}
	s.how, s.id, s.root, s.tuning = how, how.Of(call), root, t.Tuning()
	if how == Blocking {
		s.area = t.area
	}
	s.move(phaseOpen)
	if t.next%originSpan == 0 {
		t.expireOrigins()
		if t.area != nil {
			t.area.Age(t.count + 1 - SequenceNumbers)
		}
	}
	t.begin(s)
	if how != Nonblocking {
		t.blocking = s
	}
	return s
}

// WhyNot is why Begin returns nil.
func (t *Team) WhyNot() error {
	if t.blocking != nil {
		return fmt.Errorf("%w: another goroutine is in a collective of it", request.ErrComm)
	}
	if t.isTooOld() || t.isTelling() {
		return fmt.Errorf("%w: a collective from %d calls ago is not over", request.ErrComm, SequenceNumbers/2)
	}
	return fmt.Errorf("%w: the persistent collective from %d calls ago has to be freed first", request.ErrComm, SequenceNumbers)
}

// Blocking returns the blocking call that a goroutine is in, or nil.
func (t *Team) Blocking() *Schedule { return t.blocking }

// Active returns the nonblocking collectives and starts of persistent ones that are under way.
func (t *Team) Active() []*Schedule {
	return slices.DeleteFunc(t.underWayOrKept(), func(s *Schedule) bool { return s.State() != request.Active })
}

// Kept returns the persistent collectives whose requests are not freed, in any order.
func (t *Team) Kept() []*Schedule { return slices.Collect(maps.Values(t.kept)) }

// Next is the sequence number of the next call.
func (t *Team) Next() int { return t.next }

// Unfit is the error of every later collective of the team at this rank, or nil.
func (t *Team) Unfit() error { return t.unfit }

// Remove says that the communicator was freed. Collectives under way complete, and persistent ones
// go on until they are freed (MPI 4.1, section 7.4.3).
func (t *Team) Remove() {
	t.removed = true
	t.noFurtherCalls(Freed)
	t.removeIfFreed()
}

// removeIfFreed removes the context of a communicator that was freed when no collective needs it.
func (t *Team) removeIfFreed() {
	if t.removed && len(t.calls) == 0 && len(t.kept) == 0 {
		t.dropArea()
		t.p.RemoveContext(t.ctx)
	}
}

// none stands for no rank.
const none = -1

// markUnfit makes this rank refuse every later collective, because of cause; lost is the rank whose
// loss was the reason, or none. This rank may make no further call, so a rank that waits for it
// learns of that by a probe. Probes for the starts of a kept persistent collective get no answer,
// so these are revoked.
func (t *Team) markUnfit(call calls.ID, cause error, lost int) {
	if t.unfit != nil {
		return
	}
	t.lost = lost
	t.unfit = fmt.Errorf("%w: unfit for collectives since %v failed: %w", request.ErrComm, call, cause)
	t.declineProbes(Unfit)
	for _, s := range t.kept {
		t.revoke(s.tag, t.refusal(Unfit))
	}
}

// refusal is the error in a REVOKE of a collective that this rank does not take part in. If the
// communicator is unfit because a rank was lost, it names that rank.
func (t *Team) refusal(reason Reason) *RevokedError {
	if reason == Unfit && t.lost != none {
		return &RevokedError{Rank: t.lost, Reason: Lost}
	}
	return &RevokedError{Rank: t.rank, Reason: reason}
}
