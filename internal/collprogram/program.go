package collprogram

import (
	"fmt"
	"strings"
)

// Program is a random program.
type Program struct {
	Seed   uint64
	Ranks  int
	steps  []step
	groups []group
	inits  []*collective // of the persistent collectives
}

// group is a communicator. Group 0 is the one that the program runs in.
type group struct {
	members []int // ranks of group 0, by rank
}

// step is one step of the ranks of a group. A rank that is not in the group skips it.
type step interface {
	fmt.Stringer
	do(r *runner) error
}

// collective is a call. An Init call makes the persistent collective with the number handle.
type collective struct {
	group  int
	call   Call
	form   Form
	handle int
}

// start starts persistent collectives, in any order. A rank starts the collectives of its groups.
type start struct {
	handles  []int
	contents []uint64 // by handle
}

// release frees a persistent collective.
type release struct{ handle int }

// message is a message from one rank of a group to another one. Messages between two ranks match in
// the order of the steps, because the receives are posted in the same order, and each names its
// source.
type message struct {
	group, from, to, tag int
	length               int // elements
	contents             uint64
	send                 sendMode
	recv                 recvMode
	anyTag               bool
}

// sendMode is the call by which a message is sent.
type sendMode int

const (
	isend sendMode = iota // the others block
	issend
	send
	ssend
	bsend
	sendModes
)

// recvMode is the call by which a message is received.
type recvMode int

const (
	irecv recvMode = iota // the others block
	recv
	probe
	mprobe
	recvModes
)

// funnel makes several ranks send a message to one rank, which receives from any source. No other
// step uses the tag.
type funnel struct {
	group, to, tag, length int
	from                   []int
	contents               uint64
}

// exchange is a Sendrecv of each rank of a group with other ranks.
type exchange struct {
	group, shift, length int
	contents             uint64
}

// split makes communicators, by Split, or by Dup if there are no colours.
type split struct {
	group         int
	colours, keys []int // by rank
	made          []int // groups, by colour
}

// free frees a communicator, and its persistent collectives. Other operations may be under way.
type free struct {
	group   int
	handles []int
}

func (s *collective) String() string {
	return fmt.Sprintf("group %d: %v %v", s.group, s.form, &s.call)
}

func (s *start) String() string    { return fmt.Sprintf("start %v", s.handles) }
func (s *release) String() string  { return fmt.Sprintf("free %d", s.handle) }
func (s *message) String() string  { return fmt.Sprintf("message %+v", *s) }
func (s *funnel) String() string   { return fmt.Sprintf("funnel %+v", *s) }
func (s *exchange) String() string { return fmt.Sprintf("exchange %+v", *s) }
func (s *split) String() string    { return fmt.Sprintf("split %+v", *s) }
func (s *free) String() string     { return fmt.Sprintf("free communicator %+v", *s) }

// Len is the number of steps.
func (p *Program) Len() int { return len(p.steps) }

// Cut leaves out all steps but the first n.
func (p *Program) Cut(n int) { p.steps = p.steps[:min(n, len(p.steps))] }

// String lists the steps.
func (p *Program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %d ranks\n", p.Seed, p.Ranks)
	for i, g := range p.groups {
		fmt.Fprintf(&b, "group %d: %v\n", i, g.members)
	}
	for i, s := range p.steps {
		fmt.Fprintf(&b, "%3d  %v\n", i, s)
	}
	return b.String()
}
