package pml

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
)

// ContextID names a matching space in the whole job. It has 48 bits: the rank of its maker in the
// job, in as many bits as the size of the job needs; one bit for the way in which ranks learn the
// id; a counter of that rank; and in the lowest bit whether the id is for collectives. No rank uses
// an id twice, so a fragment with an id belongs to the only communicator that ever had it.
//
// A message may arrive for a communicator that the receiver has not made yet, or has freed long
// ago. The receiver keeps a message of the first sort and rejects one of the second. It does not
// store freed ids, but knows which ids are to come. There are two kinds:
//
//   - The maker announces an id to the other members (CreateGroup, with an INVITE), always a higher
//     one than before. An id is to come if it was announced to the rank and the rank has not made
//     the communicator, or if it is higher than all ids that its maker has announced to the rank.
//   - All ranks of a parent propose one, and a rule decides which ones are used (Split, Dup). No
//     rank has such a communicator before all ranks of the parent have called the collective. So an
//     id is to come only if this rank is in such a collective, in a parent with the maker.
//
// Messages for communicators of other members can arrive during a Split, and a peer may wait for
// the rejection before it calls that Split. So a rank also has to know the ids that the collective
// cannot make. Each rank sends with its proposal its floor: the oldest of its proposals whose
// collective is still under way at that rank. A collective that another rank calls after it has
// received a floor makes no id below the floor, and no id that the other rank has already received.
// A rank stores received ids down to the floor with which its oldest collective under way began.
// They form one span, unless the maker is in several collectives at once, with different ranks.
//
// Each Dup and Split takes one id, and fails if its rank has none left. A Dup gathers 64 bytes from
// each rank. At 10 GB/s and 1 µs for each step of the exchange, a job that does nothing but Dup
// uses up the ids after:
//
//	   ranks  counter  time of a Dup  ids last
//	       2  45 bits          1 µs     1 year
//	      64  40 bits          6 µs     75 days
//	   1,024  36 bits         15 µs     12 days
//	  65,536  30 bits        300 µs      4 days
//	1 << 20   26 bits          5 ms      4 days
type ContextID uint64

const (
	// WorldContext is the context of the communicator of all ranks.
	WorldContext ContextID = 0
	// SetupContext is a context of all ranks that has no messages. Ranks use it to agree on
	// communicators that only their members make.
	SetupContext ContextID = 2
	// NoContext means no context, because the maker has no ids left.
	NoContext ContextID = 1<<64 - 1

	contextBits = 48
	// reservedCounter is the last counter that NewContextID does not use.
	reservedCounter = uint64(SetupContext) >> 1
)

// counterBits returns the number of bits of the counter in the context ids of a job with the given
// number of ranks.
func counterBits(ranks int) int { return contextBits - 2 - bits.Len(uint(ranks-1)) }

var (
	errContextID = errors.New("invalid context id")
	errNoContext = errors.New("context ids exhausted")
)

// Collective is the id that collectives in the same communicator use.
func (id ContextID) Collective() ContextID { return id | 1 }

// Proposal is what a rank contributes to a collective that makes communicators.
type Proposal struct {
	ID ContextID
	// Floor is the oldest proposal of the rank whose collective is still under way there. It may be
	// this proposal.
	Floor ContextID
}

// Making is a collective that makes communicators and is under way at this rank.
type Making struct {
	// Proposal of this rank. The ID is NoContext if the rank has none left.
	Proposal
	p      *PML
	group  *Group         // of the parent
	floors map[int]uint64 // by maker: the collective makes no id with a lower counter
}

// contextIDs is a rank's knowledge of context ids.
type contextIDs struct {
	rank, bits int // of this rank; of the counter
	// announced and proposed are the counters of this rank's last ids.
	announced, proposed uint64
	makings             []*Making // oldest first
	// due has the ids that were announced and whose communicators are not made yet.
	due     map[ContextID]struct{}
	learned map[int]*learnedIDs // by maker
}

// learnedIDs is a rank's knowledge of the ids of one maker, as counters.
type learnedIDs struct {
	announced uint64 // the highest
	floor     uint64 // future collectives of this rank make no lower id
	// spans are the received ids, sorted, and not adjacent. Spans below the floor matter for
	// collectives that were called when the floor was lower.
	spans []span
}

type span struct{ first, last uint64 }

// maxSpans bounds the spans of one maker. If the lowest ones are dropped, messages for some freed
// communicators are kept while other collectives that make communicators are under way.
const maxSpans = 1 << 10

func (d *contextIDs) init(rank, ranks int) {
	*d = contextIDs{
		rank: rank, bits: counterBits(ranks), announced: reservedCounter, learned: make(map[int]*learnedIDs),
		due: map[ContextID]struct{}{WorldContext: {}, SetupContext: {}},
	}
}

// id makes an id of this rank.
func (d *contextIDs) id(isProposed bool, counter uint64) ContextID {
	id := uint64(d.rank)<<(d.bits+2) | counter<<1
	if isProposed {
		id |= 1 << (d.bits + 1)
	}
	return ContextID(id)
}

func (d *contextIDs) maker(id ContextID) int       { return int(id >> (d.bits + 2)) }
func (d *contextIDs) isProposed(id ContextID) bool { return id>>(d.bits+1)&1 == 1 }
func (d *contextIDs) counter(id ContextID) uint64  { return uint64(id>>1) & d.maxCounter() }
func (d *contextIDs) maxCounter() uint64           { return 1<<d.bits - 1 }

// of returns the record of the ids of id's maker.
func (d *contextIDs) of(id ContextID) *learnedIDs {
	l := d.learned[d.maker(id)]
	if l == nil {
		l = new(learnedIDs)
		d.learned[d.maker(id)] = l
	}
	return l
}

// made records that this rank has made a communicator, or one of its two contexts.
func (d *contextIDs) made(id ContextID) {
	id &^= 1
	delete(d.due, id)
	if d.isProposed(id) {
		d.of(id).add(d.counter(id))
	} else if l := d.of(id); l.announced < d.counter(id) {
		l.announced = d.counter(id)
	}
}

// disown records that this rank will not make a communicator.
func (d *contextIDs) disown(id ContextID) {
	delete(d.due, id)
	if d.isProposed(id) {
		d.of(id).add(d.counter(id))
	}
}

// isToCome reports whether this rank may still make a communicator with an id. It has not made it.
func (d *contextIDs) isToCome(id ContextID) bool {
	if d.isProposed(id) {
		return slices.ContainsFunc(d.makings, func(m *Making) bool { return m.mayMake(id) })
	}
	_, is := d.due[id]
	l := d.learned[d.maker(id)]
	return is || l == nil || d.counter(id) > l.announced
}

// isToCome reports whether this rank may still get a communicator with an id that it does not have.
func (p *PML) isToCome(id ContextID) bool {
	return p.contexts[id] == nil && p.contexts[id^1] == nil && p.ids.isToCome(id&^1)
}

// IsFreed reports whether this rank had a communicator with an id, and has freed it, or whether it
// will never have it.
func (p *PML) IsFreed(id ContextID) bool {
	if c := p.contexts[id]; c != nil {
		return c.removed
	}
	return !p.isToCome(id)
}

// NewContextID returns an id that no communicator of the job has had, or NoContext if this rank has
// none left. The caller announces it to the other members before it does anything else.
func (p *PML) NewContextID() ContextID {
	d := &p.ids
	if d.announced == d.maxCounter() {
		return NoContext
	}
	d.announced++
	return d.id(false, d.announced)
}

// Announced records an id for a new communicator that came over the wire. maker is the rank of the
// job that got it from NewContextID. This rank makes the communicator, or disowns the id.
func (p *PML) Announced(id ContextID, maker int) error {
	if err := p.CheckNewContext(id, maker); err != nil {
		return err
	}
	d := &p.ids
	if l := d.learned[maker]; d.isProposed(id) || l != nil && d.counter(id) <= l.announced {
		return fmt.Errorf("%w %#x of rank %d: used before", errContextID, uint64(id), maker)
	}
	d.made(id)
	d.due[id] = struct{}{}
	return nil
}

// CheckNewContext checks an id for a new communicator that came over the wire. maker is the rank of
// the job that it came from.
func (p *PML) CheckNewContext(id ContextID, maker int) error {
	twin := id.Collective()
	switch {
	case id == NoContext:
		return fmt.Errorf("%w: rank %d has none left", errNoContext, maker)
	case p.ids.maker(id) != maker:
		return fmt.Errorf("%w %#x: not of rank %d", errContextID, uint64(id), maker)
	case id == twin:
		return fmt.Errorf("%w %#x of rank %d: for collectives", errContextID, uint64(id), maker)
	case p.contexts[id] != nil || p.contexts[twin] != nil:
		return fmt.Errorf("%w %#x of rank %d: in use", errContextID, uint64(id), maker)
	}
	return nil
}

// Propose begins a collective of the ranks of a parent that makes communicators. The caller calls
// End when the collective is over.
func (p *PML) Propose(parent *Group) *Making {
	d := &p.ids
	m := &Making{p: p, group: parent, floors: make(map[int]uint64)}
	for maker, l := range d.learned {
		low := l.floor
		if len(d.makings) > 0 {
			low = d.makings[0].floors[maker] // the lowest of all
		}
		l.trim(low)
		if l.floor > 0 {
			m.floors[maker] = l.floor
		}
	}
	m.ID = NoContext
	if d.proposed < d.maxCounter() {
		d.proposed++
		m.ID = d.id(true, d.proposed)
	}
	d.makings = append(d.makings, m)
	m.Floor = d.makings[0].ID
	return m
}

// End says that the collective is over. It rejects the messages that were kept for communicators
// that the collective could have made, but has not.
func (m *Making) End() {
	p := m.p
	p.ids.makings = slices.DeleteFunc(p.ids.makings, func(other *Making) bool { return other == m })
	if len(p.earlyContext) == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(p.earlyContext)) {
		if !p.isToCome(id) {
			p.rejectEarlyContext(id)
		}
	}
}

// mayMake reports whether this rank may get a communicator with a proposed id from the collective.
func (m *Making) mayMake(id ContextID) bool {
	d := &m.p.ids
	maker, n := d.maker(id), d.counter(id)
	if _, member := m.group.Rank(maker); !member || n < m.floors[maker] {
		return false
	}
	l := d.learned[maker]
	return l == nil || !l.has(n)
}

// Take accepts the proposal that the collective has chosen for the communicator of this rank. maker
// is the rank in the job that proposed it. The proposal came over the wire.
func (m *Making) Take(of Proposal, maker int) error {
	d, id := &m.p.ids, of.ID
	if err := m.p.CheckNewContext(id, maker); err != nil {
		return err
	}
	switch {
	case !d.isProposed(id) || !m.mayMake(id):
		return fmt.Errorf("%w %#x of rank %d: used before", errContextID, uint64(id), maker)
	case of.Floor > id || of.Floor == of.Floor.Collective() || d.maker(of.Floor) != maker || !d.isProposed(of.Floor):
		return fmt.Errorf("%w %#x of rank %d: with floor %#x", errContextID, uint64(id), maker, uint64(of.Floor))
	}
	d.of(id).raise(d.counter(of.Floor))
	return nil
}

// find returns the place of the first span that ends at or above n.
func (l *learnedIDs) find(n uint64) int {
	i, _ := slices.BinarySearchFunc(l.spans, n, func(s span, n uint64) int { return cmp.Compare(s.last, n) })
	return i
}

// has reports whether n was added and not trimmed.
func (l *learnedIDs) has(n uint64) bool {
	i := l.find(n)
	return i < len(l.spans) && l.spans[i].first <= n
}

// add adds n.
func (l *learnedIDs) add(n uint64) {
	if l.has(n) {
		return
	}
	i := l.find(n)
	follows, precedes := i > 0 && l.spans[i-1].last == n-1, i < len(l.spans) && l.spans[i].first == n+1
	switch {
	case follows && precedes:
		l.spans[i-1].last = l.spans[i].last
		l.spans = slices.Delete(l.spans, i, i+1)
	case follows:
		l.spans[i-1].last = n
	case precedes:
		l.spans[i].first = n
	default:
		l.spans = slices.Insert(l.spans, i, span{n, n})
	}
	if len(l.spans) > maxSpans {
		l.spans = slices.Delete(l.spans, 0, 1)
	}
	l.raise(l.floor)
}

// raise makes the floor at least n, and higher if the ids from there on were added.
func (l *learnedIDs) raise(n uint64) {
	l.floor = max(l.floor, n)
	if i := l.find(l.floor); i < len(l.spans) && l.spans[i].first <= l.floor {
		l.floor = l.spans[i].last + 1
	}
}

// trim removes the spans that end below n.
func (l *learnedIDs) trim(n uint64) { l.spans = slices.Delete(l.spans, 0, l.find(n)) }
