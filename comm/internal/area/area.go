// Package area is the memory that ranks of one host share for their collectives. It knows stamps,
// places and counts, but no collectives: package coll decides what the ranks do there.
//
//	entries | waiting | what each rank has passed | slots of each rank | cells of each rank
//
// # Rounds
//
// A collective in an area consists of rounds, which all ranks of the area number alike. The stamp
// of a round is the collective sequence number, or that of the start, and the number of the round.
// A round uses one entry, by its number modulo RoundsAhead, and one slot of each rank. Everything
// in them bears the stamp. So nothing is ever reset, and the data of a failed collective does not
// disturb later ones.
//
// Stamps wrap after 2⁴⁴ collectives, and those in counts after 2³². So no stamp has a special
// meaning, not even 0: an area begins with the stamp of the collective that made it. Stamps are
// compared by their difference, and Area.Age replaces old ones.
//
//	entry  Ranks that have come to the round are counted in it, unless they are few. If a rank does
//	       something for all others, it says in the entry that it has.
//	slot   What a rank says of its call, and what it contributes. Up to SmallBytes are in the slot,
//	       more are in the rank's cells, at a place that the slot names.
//
// # Who writes what, and when
//
//	word or place    written by         when, and how
//	count            every rank         it comes to the round, by compare-and-swap (Arrive)
//	done, result     one rank           it was counted last, which Arrive tells it; the result and
//	                                    doneBy first, then done, with a fence (Finish)
//	waiting          every rank         it begins or ends to wait for room, by an atomic addition
//	passed           the rank itself    it reads nothing any more of the rounds before (PassRounds)
//	slot, cells      the rank itself    after Reserve has found room for the round; published last,
//	                                    with a fence (Publish, Arrive)
//
// A rank may write to a slot or cells again when all their readers have passed the round of the
// earlier write. They have passed it when all of them have come to a later round (AllArrived).
// Otherwise the rank reads their passed words. Age may replace old stamps in count and done, and in
// this rank's own words, by compare-and-swap. Before any other rank has mapped the memory, Clear
// writes every stamp.
//
// Between the two rounds of a block, a rank also writes its results over that range of its
// contribution which only it reads. Keep says that the first round's memory is read in the second.
//
// A rank that stores something that others wait for calls Wake, because they may sleep.
//
// A faulty rank can write anything to an area at any time. It can make results wrong and keep
// others waiting, as it could with messages. Lengths are never read from the area, and places are
// checked.
package area

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/fence"
)

// Area is one rank's view of an area. The lock of the rank's engine guards it. An Area without
// memory is a plan: it has only Ranks, Self and Block.
type Area struct {
	Ranks int
	Self  int // this rank's number among them
	Block int // bytes of a rank's cells

	sharer btl.Sharer // nil if this rank is alone
	mem    []byte
	world  []int // ranks in the job

	mine [RoundsAhead]publication // of this rank, by entry
	// counted is, by entry, the last round in which this rank was counted.
	counted [RoundsAhead]uint64
	newest  uint64 // the last round in which a publication is read
	next    int    // where the next publication may be in the cells
	known   uint64 // the last round that all ranks are known to have passed
	told    uint64 // the last value of this rank's passed word
	short   uint64 // the last round for which this rank filled its slot early (Filled)
	last    uint64 // the last round in which this rank was counted last
}

// Plan is an area without memory.
func Plan(ranks, self, block int) *Area { return &Area{Ranks: ranks, Self: self, Block: block} }

// Mem is the memory, which is nil for a plan.
func (a *Area) Mem() []byte { return a.mem }

// Unshare unmaps the memory, which must not be used any more. It does nothing for a plan, or for a
// rank that is alone. It reports whether the memory was shared.
func (a *Area) Unshare() (wasShared bool) {
	if a.sharer != nil {
		_ = a.sharer.Unshare(a.mem) // it is mapped
	}
	return a.sharer != nil
}

// publication is a rank's contribution to a round.
type publication struct {
	stamp    uint64 // of the last round in which it is read
	from, to int    // in the rank's cells
}

const (
	// areaLine separates the data of different writers by two cache lines, because processors fetch
	// pairs.
	areaLine = 128

	// RoundsAhead is how many rounds a rank may be ahead of others that it need not wait for. So a
	// rank that shares a core with others runs once for many bcasts.
	RoundsAhead = 16

	// A rank uses only a part of its cells, in turn: room for CellsInTurn contributions, and at
	// least shortCellBytes.
	CellsInTurn    = 4
	shortCellBytes = 64 << 10

	// An entry: a line with the count, and a line with the stamp of a finished round, the rank that
	// finished it, and a small result.
	entryBytes       = 2 * areaLine
	doneAt           = areaLine
	doneByAt         = doneAt + 8
	smallResultAt    = doneByAt + 8
	smallResultBytes = entryBytes - smallResultAt

	// A slot: the stamp, the signature, the place in the cells, and a small contribution.
	signatureAt = 8
	placeAt     = signatureAt + SignatureBytes
	smallAt     = placeAt + 8
	// SmallBytes is the longest contribution in a slot.
	SmallBytes = areaLine - smallAt

	// SignatureBytes is the length of a signature, which describes a rank's call.
	SignatureBytes = 32

	// roundBits is the number of bits of a stamp for the round.
	roundBits = 20
	// MostRound is the highest number of a round in a collective.
	MostRound = 1<<roundBits - 1

	// countBits is the number of bits of a count for the ranks. The stamp above them loses its
	// highest bits.
	countBits = 12
	// MostRanks is the most ranks that an area may have.
	MostRanks = 1<<countBits - 1
)

// Nobody stands for no rank.
const Nobody = -1

// Align rounds a number of bytes up to a multiple of areaLine.
func Align(n int) int { return (n + areaLine - 1) / areaLine * areaLine }

const (
	waitingAt = RoundsAhead * entryBytes
	passedAt  = waitingAt + areaLine
)

func slotsAt(ranks int) int { return passedAt + ranks*areaLine }

func cellsAt(ranks int) int { return slotsAt(ranks) + ranks*RoundsAhead*areaLine }

// Bytes is the size of an area.
func Bytes(ranks, block int) int { return cellsAt(ranks) + ranks*block }

// New returns this rank's view of an area. before is a stamp before that of the first round.
func New(sharer btl.Sharer, mem []byte, world []int, self, block int, before uint64) *Area {
	a := &Area{sharer: sharer, mem: mem, world: world, Ranks: len(world), Self: self, Block: block}
	for i := range RoundsAhead {
		a.mine[i].stamp, a.counted[i] = before, before
	}
	a.newest, a.known, a.told, a.short, a.last = before, before, before, before, before
	return a
}

// Clear writes the stamp before that of the first round to every word for a stamp. The rank that
// made the memory calls it before others map the memory.
func Clear(mem []byte, ranks int, before uint64) {
	a := Area{mem: mem, Ranks: ranks}
	for i := range uint64(RoundsAhead) {
		*a.Count(i), *a.Done(i) = before<<countBits, before
		for rank := range ranks {
			*a.Published(rank, i) = before
		}
	}
	for rank := range ranks {
		*a.Passed(rank) = before
	}
}

// Stamp is the stamp of a round of the collective or start with a number.
func Stamp(number, round uint64) uint64 { return number<<roundBits | round }

// IsAfter reports whether a stamp is after another one.
func IsAfter(stamp, other uint64) bool { return int64(stamp-other) > 0 }

// later returns the later one of two stamps.
func later(stamp, other uint64) uint64 {
	if IsAfter(stamp, other) {
		return stamp
	}
	return other
}

// Age replaces the stamps that this rank reads, or may write, and that are older than the
// collective or start with a number. Older stamps do not matter any more. It is called often enough
// that no stamp, in a count or elsewhere, reaches half the age at which it wraps.
func (a *Area) Age(number uint64) {
	old := number << roundBits
	for i := range uint64(RoundsAhead) {
		word := a.Count(i)
		if v := atomic.LoadUint64(word); IsAfter(old<<countBits, v) {
			atomic.CompareAndSwapUint64(word, v, old<<countBits) // fails if it is in use
		}
		ageWord(a.Done(i), old)
		ageWord(a.Published(a.Self, i), old)
		a.mine[i].stamp = later(a.mine[i].stamp, old)
		a.counted[i] = later(a.counted[i], old)
	}
	ageWord(a.Passed(a.Self), old)
	for _, stamp := range []*uint64{&a.newest, &a.known, &a.told, &a.short, &a.last} {
		*stamp = later(*stamp, old)
	}
}

func ageWord(word *uint64, old uint64) {
	if v := atomic.LoadUint64(word); IsAfter(old, v) {
		atomic.CompareAndSwapUint64(word, v, old)
	}
}

func (a *Area) word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&a.mem[at])) }

// entryOf is the number of the entry of a round.
func entryOf(stamp uint64) int { return int((stamp>>roundBits + stamp&MostRound) % RoundsAhead) }

// Count is the word that counts the ranks that have come to a round.
func (a *Area) Count(stamp uint64) *uint64 { return a.word(entryOf(stamp) * entryBytes) }

// AllCounted is the value of count once all ranks have come to the round.
func (a *Area) AllCounted(stamp uint64) uint64 { return stamp<<countBits | uint64(a.Ranks) }

// Done is the word that has the stamp of a round once a rank has finished it for all. doneBy has
// that rank.
func (a *Area) Done(stamp uint64) *uint64   { return a.word(entryOf(stamp)*entryBytes + doneAt) }
func (a *Area) doneBy(stamp uint64) *uint64 { return a.word(entryOf(stamp)*entryBytes + doneByAt) }

// ResultPlace is where this rank puts the result of a round for all ranks.
func (a *Area) ResultPlace(stamp uint64, bytes int) []byte {
	*a.doneBy(stamp) = uint64(a.Self)
	place, _ := a.Result(stamp, bytes)
	return place
}

// Finish says that this rank has finished a round for all ranks.
func (a *Area) Finish(stamp uint64) { fence.Store(a.Done(stamp), stamp) }

// Result is the result of a round that a rank has finished for all. ok is false if the entry is
// invalid.
func (a *Area) Result(stamp uint64, bytes int) (result []byte, ok bool) {
	if bytes <= smallResultBytes {
		return a.mem[entryOf(stamp)*entryBytes+smallResultAt:][:bytes:bytes], true
	}
	by := *a.doneBy(stamp)
	if by >= uint64(a.Ranks) {
		return nil, false
	}
	return a.At(int(by), stamp, bytes), true
}

// waiting is the number of ranks that wait until others have passed a round.
func (a *Area) waiting() *uint64 { return a.word(waitingAt) }

// Passed is the word with the first round that a rank has not passed.
func (a *Area) Passed(rank int) *uint64 { return a.word(passedAt + rank*areaLine) }

// slot is the slot of a rank for a round.
func (a *Area) slot(rank int, stamp uint64) []byte {
	return a.mem[slotsAt(a.Ranks)+(rank*RoundsAhead+entryOf(stamp))*areaLine:][:areaLine:areaLine]
}

// Published is the word that has the stamp of a round once a rank has come to it.
func (a *Area) Published(rank int, stamp uint64) *uint64 {
	return (*uint64)(unsafe.Pointer(&a.slot(rank, stamp)[0]))
}

// cells is the place of a rank's cells.
func (a *Area) cells(rank int) []byte { return a.mem[cellsAt(a.Ranks)+rank*a.Block:][:a.Block:a.Block] }

// Reserve finds room for this rank's bytes in a round. If another rank must pass an earlier round
// first, it returns that rank and that round's stamp, otherwise Nobody.
func (a *Area) Reserve(stamp uint64, bytes int) (rank int, until uint64) {
	if !IsAfter(a.newest, a.known) {
		return Nobody, 0
	}
	mine := &a.mine[entryOf(stamp)]
	if rank := a.isRead(mine); rank != Nobody || bytes <= SmallBytes {
		return rank, mine.stamp
	}
	from := a.room(bytes)
	for i := range a.mine {
		if p := &a.mine[i]; p.from < from+bytes && from < p.to {
			if rank := a.isRead(p); rank != Nobody {
				return rank, p.stamp
			}
		}
	}
	return Nobody, 0
}

// room returns the place of this rank's next bytes: behind the last ones, so that ranks may still
// read those. It uses only a part of the cells, for CellsInTurn contributions or shortCellBytes:
// memory used a while ago has left the caches, and unused pages have to be made first.
func (a *Area) room(bytes int) (from int) {
	if a.next+bytes > min(a.Block, max(CellsInTurn*bytes, shortCellBytes)) {
		return 0
	}
	return a.next
}

// isRead returns the number of a rank that may still read a publication, or Nobody.
func (a *Area) isRead(p *publication) (rank int) {
	if !IsAfter(p.stamp, a.known) {
		return Nobody
	}
	least := uint64(math.MaxInt64) // after p.stamp
	for rank := range a.Ranks {
		if rank != a.Self {
			v := atomic.LoadUint64(a.Passed(rank))
			if !IsAfter(v, p.stamp) {
				return rank
			}
			least = min(least, v-p.stamp)
		}
	}
	a.known = later(a.known, p.stamp+least-1)
	return Nobody
}

// Place is where this rank puts its bytes for a round, after Reserve has found room.
func (a *Area) Place(stamp uint64, bytes int) []byte {
	p := &a.mine[entryOf(stamp)]
	*p = publication{stamp: stamp}
	a.newest = stamp
	slot := a.slot(a.Self, stamp)
	if bytes <= SmallBytes {
		return slot[smallAt:][:bytes:bytes]
	}
	p.from = a.room(bytes)
	p.to = p.from + bytes
	a.next = p.from + Align(bytes)
	binary.LittleEndian.PutUint64(slot[placeAt:], uint64(p.from))
	return a.cells(a.Self)[p.from:p.to:p.to]
}

// IsPut reports whether this rank has filled its slot for a round on a short path.
func (a *Area) IsPut(stamp uint64) bool { return a.short == stamp }

// Keep says that other ranks read this rank's data for a round until a later round, for which the
// rank puts nothing into the area.
func (a *Area) Keep(stamp, until uint64) {
	a.mine[entryOf(stamp)].stamp = until
	a.newest = until
	a.mine[entryOf(until)] = publication{stamp: until}
}

// Filled says that this rank has filled its slot for a round on a short path.
func (a *Area) Filled(stamp uint64) { a.short = stamp }

// Sign is the empty place in this rank's slot for the signature of its call.
func (a *Area) Sign(stamp uint64) []byte {
	return a.slot(a.Self, stamp)[signatureAt:signatureAt:placeAt]
}

// Publish says that this rank has come to a round, with its slot filled.
func (a *Area) Publish(stamp uint64) { fence.Store(a.Published(a.Self, stamp), stamp) }

// At is where a rank has put its bytes for a round. The result is always inside its cells.
func (a *Area) At(rank int, stamp uint64, bytes int) []byte {
	slot := a.slot(rank, stamp)
	if bytes <= SmallBytes {
		return slot[smallAt:][:bytes:bytes]
	}
	from := min(binary.LittleEndian.Uint64(slot[placeAt:]), uint64(a.Block-bytes))
	return a.cells(rank)[from:][:bytes:bytes]
}

// Signature is the signature of a rank that has come to a round.
func (a *Area) Signature(rank int, stamp uint64) []byte {
	return a.slot(rank, stamp)[signatureAt:placeAt:placeAt]
}

// HasCome reports whether a rank has come to a round.
func (a *Area) HasCome(rank int, stamp uint64) bool {
	return atomic.LoadUint64(a.Published(rank, stamp)) == stamp
}

// Missing returns the first rank that has not come to a round, or Nobody.
func (a *Area) Missing(stamp uint64) (rank int) {
	for rank = range a.Ranks {
		if !a.HasCome(rank, stamp) {
			return rank
		}
	}
	return Nobody
}

// Arrive counts this rank, which has filled its slot, in a round, and publishes the slot: if a rank
// is missing in the count, some slot is not published. It reports whether this rank is the last
// one, also if it was counted before. ok is false if the count is invalid.
func (a *Area) Arrive(stamp uint64) (last, ok bool) {
	word, counted := a.Count(stamp), &a.counted[entryOf(stamp)]
	if *counted == stamp {
		return a.last == stamp, true
	}
	for {
		v, n := atomic.LoadUint64(word), uint64(1)
		switch of, now := v&^MostRanks, stamp<<countBits; {
		case of == now:
			n = v&MostRanks + 1
		case IsAfter(of, now): // others are in a later round, and gave this collective up
			return false, true
		}
		if n > uint64(a.Ranks) {
			return false, false
		}
		if atomic.CompareAndSwapUint64(word, v, stamp<<countBits|n) {
			*counted = stamp
			a.Publish(stamp)
			if n < uint64(a.Ranks) {
				return false, true
			}
			a.last = stamp
			return true, true
		}
	}
}

// AllArrived says that all ranks have come to a round, and so have passed those before.
func (a *Area) AllArrived(stamp uint64) { a.known = later(a.known, stamp-1) }

// pass says that this rank has passed all rounds before the given one.
func (a *Area) pass(stamp uint64) {
	fence.Store(a.Passed(a.Self), stamp)
	a.told = stamp
}

// NeedRoom says that this rank begins or ends to wait until others have passed a round.
func (a *Area) NeedRoom(does bool) {
	if does {
		atomic.AddUint64(a.waiting(), 1)
	} else {
		atomic.AddUint64(a.waiting(), ^uint64(0))
	}
}

// PassRounds says that this rank has passed all rounds before the given one, and wakes ranks that
// wait for room.
func (a *Area) PassRounds(stamp uint64) {
	if a.told == stamp {
		return
	}
	a.pass(stamp)
	if atomic.LoadUint64(a.waiting()) != 0 {
		a.Wake()
	}
}

// Wake wakes the other ranks of the area, which may wait for the data that this rank has just
// stored.
func (a *Area) Wake() {
	for rank, world := range a.world {
		if rank != a.Self {
			a.sharer.WakePeer(world)
		}
	}
}
