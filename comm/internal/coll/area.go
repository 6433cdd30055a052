package coll

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
)

// An area is memory that all ranks of a team have mapped. Barriers and reductions go through it
// without messages (meeting.go).
//
//	arrived | released, result | poisoned | slot of each rank | cell of each rank | result
//
// A slot holds what the rank says of its call, and a contribution of up to smallBytes. A cell holds
// a longer one, and so does the last part a longer result.
//
// # When it is there
//
// The team sets an area up before one of its first collectives, by messages that have a sequence
// number of their own. Rank 0 makes the memory, the others map it, and it is used only if all
// could, and all have the same block. No rank completes the set-up unless all ranks take part in
// it. A rank that gives up in the middle is unfit for collectives, or was told of one that did not
// begin: so either all ranks have the area, or none, or none of the later collectives succeeds.
//
// # When it goes
//
// A rank at which a collective has failed uses the area no more. It poisons the area before its
// next collective, so that no rank waits for it there. A rank that is the first to arrive for a
// collective, or waits for others to arrive, and finds the area poisoned takes the schedule with
// messages: no rank can have completed the collective through the area, because the rank that has
// poisoned the area does not arrive. A rank that waits later in a collective ignores the poison:
// all ranks had arrived, so it is this collective that has failed, and each rank is told.
//
// Any rank can write anything to an area at any time. A rank that does so can make results wrong
// and keep others waiting, as one that sends wrong messages, or none. Lengths and places are never
// read from the area.
type area struct {
	sharer btl.Sharer
	mem    []byte
	ranks  int
	block  int // bytes of a cell
	// meets counts the meetings that this rank has arrived for, times the number of ranks.
	meets uint64
	// base is where the present block begins in the cells and in the result, and next where the
	// next one may.
	base, next int

	arrived  *uint64 // arrivals of all ranks in all meetings
	released *uint64 // meets of the last meeting whose result is there
	poisoned *uint64
}

const (
	// areaLine keeps what different ranks write on pairs of cache lines of its own, because
	// processors fetch pairs.
	areaLine = 128

	arrivedAt  = 0 * areaLine
	releasedAt = 1 * areaLine
	poisonedAt = 2 * areaLine
	slotsAt    = 3 * areaLine

	// A slot: the sequence number, the signature, and the contribution if it is small.
	slotCallBytes = 40
	smallBytes    = areaLine - slotCallBytes
)

func alignArea(n int) int { return (n + areaLine - 1) / areaLine * areaLine }

// areaBytes is the size of an area.
func areaBytes(ranks, block int) int { return slotsAt + ranks*areaLine + (ranks+1)*block }

func newArea(sharer btl.Sharer, mem []byte, ranks, block int) *area {
	word := func(at int) *uint64 { return (*uint64)(unsafe.Pointer(&mem[at])) }
	return &area{
		sharer: sharer, mem: mem, ranks: ranks, block: block,
		arrived: word(arrivedAt), released: word(releasedAt), poisoned: word(poisonedAt),
	}
}

// slot is what a rank says of its call.
func (a *area) slot(rank int) []byte { return a.mem[slotsAt+rank*areaLine:][:areaLine:areaLine] }

// cell is the place of a rank's contribution of so many bytes, from its byte at of the block.
func (a *area) cell(rank, at, bytes int) []byte {
	return a.mem[slotsAt+a.ranks*areaLine+rank*a.block+a.base+at:][:bytes:bytes]
}

// small is the place of a small contribution.
func (a *area) small(rank, bytes int) []byte { return a.slot(rank)[slotCallBytes:][:bytes:bytes] }

// result is the place of the result, from its byte at of the block.
func (a *area) result(at, bytes int) []byte { return a.cell(a.ranks, at, bytes) }

// smallResult is the place of a small result.
func (a *area) smallResult(bytes int) []byte { return a.mem[releasedAt+8:][:bytes:bytes] }

// take finds the place of the next block, of so many bytes: behind the block before if there is
// room. Memory that was not used for a while is in the cache of no other processor, so writing to
// it takes less time.
func (a *area) take(bytes int) {
	if a.next+bytes > a.block {
		a.next = 0
	}
	a.base, a.next = a.next, a.next+alignArea(bytes)
}

// describe says which collective, and which call, this rank arrives for.
func (a *area) describe(rank, seq int, sign Signature) {
	b := a.slot(rank)
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[0])), uint64(seq))
	binary.LittleEndian.PutUint64(b[8:], sign.Call)
	binary.LittleEndian.PutUint64(b[16:], uint64(sign.Root))
	binary.LittleEndian.PutUint64(b[24:], sign.Bytes)
	binary.LittleEndian.PutUint64(b[32:], sign.Kind)
}

// seq is the collective that a rank has come to last, also if it has not arrived yet.
func (a *area) seq(rank int) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&a.slot(rank)[0])))
}

// call is what a rank that has arrived says of its call.
func (a *area) call(rank int) (seq uint64, sign Signature) {
	b := a.slot(rank)
	return a.seq(rank), Signature{
		Call:  binary.LittleEndian.Uint64(b[8:]),
		Root:  int64(binary.LittleEndian.Uint64(b[16:])),
		Bytes: binary.LittleEndian.Uint64(b[24:]),
		Kind:  binary.LittleEndian.Uint64(b[32:]),
	}
}

// arrive counts this rank as one that has come to its next meeting. It returns the value of arrived
// once all have, and whether this rank is the last one. ok is false if arrived cannot be right.
func (a *area) arrive() (all uint64, last, ok bool) {
	before := a.meets
	a.meets += uint64(a.ranks)
	v := atomic.AddUint64(a.arrived, 1)
	return a.meets, v == a.meets, v-before-1 < uint64(a.ranks)
}

func (a *area) isPoisoned() bool { return atomic.LoadUint64(a.poisoned) != 0 }

// wake ends the sleep of the other ranks, which may wait for what this rank has just stored.
func (t *Team) wake() {
	for rank := range t.size {
		if rank != t.rank {
			t.area.sharer.WakePeer(t.group.World(rank))
		}
	}
}

// areaState says whether a team has an area.
type areaState uint8

const (
	areaNone areaState = iota // not yet
	areaUsed
	areaOff // no more, or never
)

// SharedMemory is the memory that the ranks of the team share, or nil. It is for tests.
func (t *Team) SharedMemory() []byte {
	if t.area == nil {
		return nil
	}
	return t.area.mem
}

// ShareNothing has all collectives go by messages. All ranks call it, before the first collective.
func (t *Team) ShareNothing() { t.areaState = areaOff }

// wantsArea reports whether the team sets an area up before the next collective. All ranks that
// make the same call agree on that. Only a call that waits for all ranks in any case may do it: a
// program may rely on others not to wait.
func (t *Team) wantsArea(call string) bool {
	if t.areaState != areaNone || t.size == 1 || call != "barrier" && call != "allreduce" {
		return false
	}
	tuning := t.Tuning()
	return tuning.SharedBytes > 0 && t.next >= tuning.SharedAfter && t.owner.OneHost()
}

// Prepare sets up the memory that the team's ranks share, if it is time for that. It is called
// before Begin of each collective, with the name, root and context of the call. Its error, which is
// described, ends the call; the call then counts as a collective.
func (t *Team) Prepare(ctx context.Context, call string, root int) (err error) {
	if !t.wantsArea(call) || t.unfit != nil || t.blocking != nil || ctx != nil && ctx.Err() != nil {
		return nil
	}
	s := t.Begin(Blocking, call, root)
	if s == nil {
		return nil
	}
	defer func() {
		s.Leave()
		if err != nil { // otherwise the call goes on, also if the communicator was freed meanwhile
			t.removeIfFreed()
		}
	}()
	s.setUp = true
	s.NoBuffers()
	block := t.hub.block
	var sharer btl.Sharer // nil: this rank shares nothing
	if block > 0 {
		sharer = t.p.Sharer(t.ctx)
	}
	bytes := areaBytes(t.size, block)
	var mem []byte
	const keyBytes = len(btl.Key{})
	offer := s.temp(keyBytes + wordBytes) // rank 0's key and block
	able := s.temp(wordBytes)
	clear(offer)
	if t.rank == 0 && sharer != nil {
		if made, k, err := sharer.Share(bytes); err == nil {
			mem = made
			copy(offer, k[:])
			binary.LittleEndian.PutUint64(offer[keyBytes:], uint64(block))
		}
	}
	s.bcastTree(offer, 0)
	s.wait()
	s.callHook(func() {
		if t.rank != 0 && sharer != nil && binary.LittleEndian.Uint64(offer[keyBytes:]) == uint64(block) {
			// If it fails, no rank uses the memory.
			mem, _ = sharer.MapShared(t.group.World(0), btl.Key(offer[:keyBytes]), bytes)
		}
		binary.LittleEndian.PutUint64(able, setUpUnable)
		if mem != nil {
			binary.LittleEndian.PutUint64(able, setUpAble)
		}
	})
	s.Reduction = Reduction{Op: both{}, Elem: wordBytes, Commutes: true}
	s.allreduceDoubling(nil, able)
	err = s.Run(ctx)
	if mem != nil && t.rank == 0 {
		sharer.Hide(mem)
	}
	result := binary.LittleEndian.Uint64(able)
	if err == nil && !isSetUp(result) {
		err = s.explain(&RevokedError{Rank: s.rank, Reason: Differs})
		s.giveUp(err)
	}
	if err == nil && result == setUpAble {
		t.area, t.areaState = newArea(sharer, mem, t.size, block), areaUsed
		t.hub.addTeam(t)
		return nil
	}
	if mem != nil {
		_ = sharer.Unshare(mem) // it was mapped, so nothing can go wrong
	}
	if err == nil {
		t.areaState = areaOff
	}
	return err
}

// What the ranks tell each other at the end of a set-up. If a rank has made another call, its
// message may be as long; all ranks then get a word that is none of these.
const (
	setUpUnable = 0x7075_2074_6573 << 8
	setUpAble   = setUpUnable | 1
)

func isSetUp(word uint64) bool { return word|1 == setUpAble }

// both is the operation on two such words which is setUpAble if both are, and 0 if one is neither.
type both struct{}

// Combine implements Combiner.
func (both) Combine(in, inout []byte) {
	v, w := binary.LittleEndian.Uint64(in), binary.LittleEndian.Uint64(inout)
	result := uint64(0)
	if isSetUp(v) && isSetUp(w) {
		result = v & w
	}
	binary.LittleEndian.PutUint64(inout, result)
}

// dropArea gives the area up. If this rank is not known to have failed a collective, others have.
func (t *Team) dropArea() {
	if t.area != nil {
		_ = t.area.sharer.Unshare(t.area.mem) // it is mapped
		t.area, t.areaState = nil, areaOff
		t.hub.removeTeam(t)
	}
}

// tidyArea gives the area up if it is time for that and no call uses it: because a collective has
// failed here, which the other ranks are told, or because the job ends.
func (t *Team) tidyArea() {
	if t.area == nil || t.blocking != nil && t.blocking.meeting.call != meetNowhere {
		return
	}
	if t.mustPoison {
		t.tellPoisoned()
	}
	if t.mustPoison || t.hub.closed {
		t.dropArea()
	}
}

// tellPoisoned poisons the area.
func (t *Team) tellPoisoned() {
	atomic.StoreUint64(t.area.poisoned, 1)
	t.wake()
}
