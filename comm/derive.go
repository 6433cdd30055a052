package comm

import (
	"fmt"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
)

// derivation is a collective that, like Split, makes a communicator from the contributions of all
// ranks. It has more conditions than Split.
type derivation struct {
	op     calls.ID
	suffix string
	// refused is the error of this rank's arguments, or nil.
	refused error
	me      splitMember
	// check, if not nil, examines the contributions of all ranks. These are the same at all ranks,
	// so all ranks get the same result.
	check func(all []splitMember) error
	topo  *topology // of the communicator
}

// derive makes a communicator. It returns nil if this rank gets none.
func (c *Comm) derive(d derivation) (*Comm, error) {
	s, err := c.begin(blocking, d.op, nil)
	if err != nil {
		return nil, err
	}
	defer c.endCollective(s)
	all, err := c.gatherFor(s, &d)
	if err != nil {
		return nil, err
	}
	made, err := c.makeComm(s, all, d.me, d.suffix)
	if err != nil {
		return nil, c.describe(d.op.String(), none, none, fmt.Errorf("%w: %w", ErrComm, err))
	}
	if made != nil {
		made.topo = d.topo
	}
	return made, nil
}

// compare is the first part of derive: it returns the contributions of all ranks.
func (c *Comm) compare(d derivation) ([]splitMember, error) {
	s, err := c.begin(blocking, d.op, nil)
	if err != nil {
		return nil, err
	}
	defer c.endCollective(s)
	return c.gatherFor(s, &d)
}

// gatherFor returns the contributions of all ranks, after all checks.
func (c *Comm) gatherFor(s *coll.Schedule, d *derivation) ([]splitMember, error) {
	if d.refused != nil {
		return nil, s.Refuse(d.refused)
	}
	all, err := c.gatherMembers(s, d.op, d.me)
	if err != nil {
		return nil, err
	}
	if d.check != nil {
		if err := d.check(all); err != nil {
			return nil, c.describe(d.op.String(), none, none, err)
		}
	}
	return all, nil
}

// gatherParts is a collective that gives each rank the contributions of all ranks. parts, by rank,
// have the right lengths. All ranks have compared their calls before.
func (c *Comm) gatherParts(op calls.ID, own []byte, parts [][]byte) error {
	s, err := c.begin(blocking, op, nil)
	if err != nil {
		return err
	}
	defer c.endCollective(s)
	s.Allgatherv(own, parts)
	_, err = c.run(s, nil)
	return err
}

// sameDigest is the check that all ranks pass the same arguments. what names the arguments.
func sameDigest(what string) func(all []splitMember) error {
	return func(all []splitMember) error {
		for r := range all {
			if all[r].digest != all[0].digest {
				return fmt.Errorf("%w: rank %d passes other %s than rank 0", ErrCount, r, what)
			}
		}
		return nil
	}
}
