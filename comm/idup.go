package comm

import (
	"context"
	"fmt"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
)

// Idup is the nonblocking form of [Comm.Dup]. The communicator can be used once the request is
// complete without an error; until then its calls are ErrComm. Several calls may be under way. Idup
// copies the attributes before it returns. If the request ends with an error, there is no
// communicator.
func (c *Comm) Idup() (*Comm, Request, error) {
	var attrs []attr
	if !c.isNull() {
		attrs = c.copyAttrs()
	}
	s, err := c.begin(nonblocking, calls.Dup, nil)
	if err != nil {
		return nil, Request{}, err
	}
	defer c.endCollective(s)
	me := splitMember{call: uint64(calls.Idup)}
	all := c.contribute(s, me)
	made := c.job.newState(derivedName(*c.name.Load(), "dup"), c.group, c.members, c.rank)
	made.topo, made.attrs = c.topo, attrs
	s.AtEnd(func() error { return c.duplicate(s, made, me.call, c.decodeMembers(all)) })
	r, err := c.WithContext(context.Background()).run(s, nil)
	if err != nil {
		return nil, r, err
	}
	return made.view(context.Background()), r, nil
}

// duplicate makes a communicator of the ranks of c. Like makeComm, it takes the id that rank 0
// proposes.
func (c *Comm) duplicate(s *coll.Schedule, made *state, call uint64, all []splitMember) error {
	for r, m := range all {
		if m.call != call { // like different lengths, this leaves the communicator usable
			return fmt.Errorf("%w: %w: the arguments differ: rank %d is in another collective", ErrComm, ErrCount, r)
		}
	}
	err := c.checkIDs(all)
	if err == nil {
		err = s.Take(all[0].proposal, c.group[0])
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrComm, err)
	}
	made.open(all[0].proposal.ID)
	s.Made(made.p2p, made.team)
	return nil
}
