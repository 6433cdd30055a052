package coll

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/fence"
)

// An area is memory that the ranks of a team which are on one host have mapped. Collectives go
// through it without messages (meeting.go): the blocking ones of a team through one area, and each
// persistent one of ranks of one host through an area of its own.
//
//	entries | waiting | what each rank has passed | slots of each rank | cells of each rank
//
// # Rounds
//
// A collective that goes through the area consists of rounds, which all ranks of the area count
// alike. A round has a stamp: the number of the collective, or of the start, which all ranks count
// alike too, and the number of the round in it. Everything about a round is in the entry with the
// number of the round, modulo RoundsAhead, and in one slot of each rank. All of it bears the stamp.
// So nothing is ever reset, and what is left of a collective that has failed disturbs no later one.
//
// Stamps wrap after 2⁴⁴ collectives, and those in counts after 2³². So no stamp has a meaning of
// its own, not even 0: an area begins with that of the collective that made it. Stamps are compared
// by their difference, and no stamp in an area is ever old (see age).
//
//	entry  Ranks that have come to the round are counted in it, unless they are few. If a rank does
//	       something for all others, it says in the entry that it has.
//	slot   What a rank says of its call, and what it contributes. Up to smallBytes are in the slot,
//	       more are in the rank's cells, at a place that the slot names.
//
// Only the rank itself writes to its slots and cells. It may do so again when all ranks that read
// them have passed the round in which it wrote them before. It knows that when it has seen all of
// them come to a later round. Otherwise it looks at what they say that they have passed.
//
// Any rank can write anything to an area at any time. A rank that does so can make results wrong
// and keep others waiting, as one that sends wrong messages, or none. Lengths are never read from
// the area, and places are checked.
//
// area_setup.go makes it and gives it up, area_persistent.go that of a persistent collective.
type area struct {
	sharer btl.Sharer // nil if this rank is alone
	mem    []byte
	world  []int // its ranks, as ranks of the job
	ranks  int
	self   int // this rank's number among them
	block  int // bytes of a rank's cells

	mine [RoundsAhead]publication // of this rank, by entry
	// counted is, by entry, the round in which this rank was counted there last.
	counted [RoundsAhead]uint64
	newest  uint64 // the last round in which one of them is read
	next    int    // where the next one may be in the cells
	known   uint64 // the last round that all ranks are known to have passed
	told    uint64 // what this rank has said last that it has passed
	short   uint64 // the last round for which this rank filled its slot on a short path (short.go)
	last    uint64 // the last round in which this rank was the last one to be counted
}

// publication is what a rank has put into a slot.
type publication struct {
	stamp    uint64 // of the last round in which it is read
	from, to int    // in the rank's cells
}

const (
	// areaLine keeps what different ranks write on pairs of cache lines of its own, because
	// processors fetch pairs.
	areaLine = 128

	// RoundsAhead is how many rounds a rank may be ahead of others if it need not wait for them.
	// Each rank that shares a core with others then runs once for many bcasts.
	RoundsAhead = 16

	// Of its cells, a rank uses a part in turn: for so many contributions, or so many bytes.
	cellsInTurn    = 4
	shortCellBytes = 64 << 10

	// An entry: a line with the count, and a line with the stamp of a round that is done, the rank
	// that has done it, and the result if that is small.
	entryBytes       = 2 * areaLine
	doneAt           = areaLine
	doneByAt         = doneAt + 8
	smallResultAt    = doneByAt + 8
	smallResultBytes = entryBytes - smallResultAt

	// A slot: the stamp, the signature, the place in the cells, and the contribution if it is
	// small.
	signatureAt = 8
	placeAt     = signatureAt + signatureBytes
	smallAt     = placeAt + 8
	smallBytes  = areaLine - smallAt

	// roundBits is how many bits of a stamp are for the round.
	roundBits = 20
	mostRound = 1<<roundBits - 1

	// countBits is how many bits of a count are for the ranks. The stamp above them loses its
	// highest bits.
	countBits     = 12
	mostAreaRanks = 1<<countBits - 1
)

func alignArea(n int) int { return (n + areaLine - 1) / areaLine * areaLine }

const (
	waitingAt = RoundsAhead * entryBytes
	passedAt  = waitingAt + areaLine
)

func slotsAt(ranks int) int { return passedAt + ranks*areaLine }

func cellsAt(ranks int) int { return slotsAt(ranks) + ranks*RoundsAhead*areaLine }

// areaBytes is the size of an area.
func areaBytes(ranks, block int) int { return cellsAt(ranks) + ranks*block }

// newArea returns this rank's view of an area. before is a stamp before that of the first round.
func newArea(sharer btl.Sharer, mem []byte, world []int, self, block int, before uint64) *area {
	a := &area{sharer: sharer, mem: mem, world: world, ranks: len(world), self: self, block: block}
	for i := range RoundsAhead {
		a.mine[i].stamp, a.counted[i] = before, before
	}
	a.newest, a.known, a.told, a.short, a.last = before, before, before, before, before
	return a
}

// stampArea puts the stamp before that of the first round wherever ranks look for one. The rank
// that has made the memory does so before others map it.
func stampArea(mem []byte, ranks int, before uint64) {
	a := area{mem: mem, ranks: ranks}
	for i := range uint64(RoundsAhead) {
		*a.count(i), *a.done(i) = before<<countBits, before
		for rank := range ranks {
			*a.published(rank, i) = before
		}
	}
	for rank := range ranks {
		*a.passed(rank) = before
	}
}

// isAfter reports whether a stamp is after another one.
func isAfter(stamp, other uint64) bool { return int64(stamp-other) > 0 }

// later returns the later one of two stamps.
func later(stamp, other uint64) uint64 {
	if isAfter(stamp, other) {
		return stamp
	}
	return other
}

// ageEvery is after how many collectives age is called.
const ageEvery = originSpan

// age replaces all stamps that this rank looks at, or may write, and that are too old to matter, by
// one that still seems old after ageEvery more collectives. number is that of this rank's next
// collective or start, from which no other rank is as far as SequenceNumbers.
func (a *area) age(number uint64) {
	old := (number - SequenceNumbers) << roundBits
	for i := range uint64(RoundsAhead) {
		word := a.count(i)
		if v := atomic.LoadUint64(word); isAfter(old<<countBits, v) {
			atomic.CompareAndSwapUint64(word, v, old<<countBits) // or it is used just now
		}
		ageWord(a.done(i), old)
		ageWord(a.published(a.self, i), old)
		a.mine[i].stamp = later(a.mine[i].stamp, old)
		a.counted[i] = later(a.counted[i], old)
	}
	ageWord(a.passed(a.self), old)
	for _, stamp := range []*uint64{&a.newest, &a.known, &a.told, &a.short, &a.last} {
		*stamp = later(*stamp, old)
	}
}

func ageWord(word *uint64, old uint64) {
	if v := atomic.LoadUint64(word); isAfter(old, v) {
		atomic.CompareAndSwapUint64(word, v, old)
	}
}

func (a *area) word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&a.mem[at])) }

// entryOf is the number of the entry of a round.
func entryOf(stamp uint64) int { return int((stamp>>roundBits + stamp&mostRound) % RoundsAhead) }

// count is the word in which ranks are counted that have come to a round.
func (a *area) count(stamp uint64) *uint64 { return a.word(entryOf(stamp) * entryBytes) }

// allCounted is the value of count once all ranks have come to the round.
func (a *area) allCounted(stamp uint64) uint64 { return stamp<<countBits | uint64(a.ranks) }

// done is the word that has the stamp of a round once a rank has done it for all, doneBy that rank.
func (a *area) done(stamp uint64) *uint64   { return a.word(entryOf(stamp)*entryBytes + doneAt) }
func (a *area) doneBy(stamp uint64) *uint64 { return a.word(entryOf(stamp)*entryBytes + doneByAt) }

// resultPlace is where this rank puts the result of a round, which it makes for all.
func (a *area) resultPlace(stamp uint64, bytes int) []byte {
	*a.doneBy(stamp) = uint64(a.self)
	place, _ := a.result(stamp, bytes)
	return place
}

// finish says that this rank has done for all what there is to do in a round.
func (a *area) finish(stamp uint64) { fence.Store(a.done(stamp), stamp) }

// result is the result that a rank has made for all in a round. ok is false if nothing there can be
// right.
func (a *area) result(stamp uint64, bytes int) (result []byte, ok bool) {
	if bytes <= smallResultBytes {
		return a.mem[entryOf(stamp)*entryBytes+smallResultAt:][:bytes:bytes], true
	}
	by := *a.doneBy(stamp)
	if by >= uint64(a.ranks) {
		return nil, false
	}
	return a.at(int(by), stamp, bytes), true
}

// waiting is the number of ranks that wait until others have passed a round.
func (a *area) waiting() *uint64 { return a.word(waitingAt) }

// passed is the word by which a rank says which is the first round that it has not passed.
func (a *area) passed(rank int) *uint64 { return a.word(passedAt + rank*areaLine) }

// slot is the slot of a rank for a round.
func (a *area) slot(rank int, stamp uint64) []byte {
	return a.mem[slotsAt(a.ranks)+(rank*RoundsAhead+entryOf(stamp))*areaLine:][:areaLine:areaLine]
}

// published is the word that has the stamp of a round once a rank has come to it.
func (a *area) published(rank int, stamp uint64) *uint64 {
	return (*uint64)(unsafe.Pointer(&a.slot(rank, stamp)[0]))
}

// cells is the place of a rank's cells.
func (a *area) cells(rank int) []byte { return a.mem[cellsAt(a.ranks)+rank*a.block:][:a.block:a.block] }

// reserve looks for room for so many bytes of this rank in a round. If another rank must pass an
// earlier round first, it returns that rank and that round's stamp, otherwise nobody.
func (a *area) reserve(stamp uint64, bytes int) (rank int, until uint64) {
	if !isAfter(a.newest, a.known) {
		return nobody, 0
	}
	mine := &a.mine[entryOf(stamp)]
	if rank := a.isRead(mine); rank != nobody || bytes <= smallBytes {
		return rank, mine.stamp
	}
	from := a.room(bytes)
	for i := range a.mine {
		if p := &a.mine[i]; p.from < from+bytes && from < p.to {
			if rank := a.isRead(p); rank != nobody {
				return rank, p.stamp
			}
		}
	}
	return nobody, 0
}

// room is where the next so many bytes of this rank are: behind those before, so that a rank that
// still reads those is not waited for. But memory that was used a while ago is in no cache near,
// and pages that were never used have to be made first, so only a part of the cells is used:
// for cellsInTurn contributions, or shortCellBytes.
func (a *area) room(bytes int) (from int) {
	if a.next+bytes > min(a.block, max(cellsInTurn*bytes, shortCellBytes)) {
		return 0
	}
	return a.next
}

// isRead returns the number of a rank that may still read a publication, or nobody.
func (a *area) isRead(p *publication) (rank int) {
	if !isAfter(p.stamp, a.known) {
		return nobody
	}
	least := uint64(math.MaxInt64) // after p.stamp
	for rank := range a.ranks {
		if rank != a.self {
			v := atomic.LoadUint64(a.passed(rank))
			if !isAfter(v, p.stamp) {
				return rank
			}
			least = min(least, v-p.stamp)
		}
	}
	a.known = later(a.known, p.stamp+least-1)
	return nobody
}

// place is where this rank puts so many bytes for a round, for which there is room.
func (a *area) place(stamp uint64, bytes int) []byte {
	p := &a.mine[entryOf(stamp)]
	*p = publication{stamp: stamp}
	a.newest = stamp
	slot := a.slot(a.self, stamp)
	if bytes <= smallBytes {
		return slot[smallAt:][:bytes:bytes]
	}
	p.from = a.room(bytes)
	p.to = p.from + bytes
	a.next = p.from + alignArea(bytes)
	binary.LittleEndian.PutUint64(slot[placeAt:], uint64(p.from))
	return a.cells(a.self)[p.from:p.to:p.to]
}

// isPut reports whether this rank has filled its slot for a round on a short path.
func (a *area) isPut(stamp uint64) bool { return a.short == stamp }

// keep says that what this rank has put into the area for a round is read until a later one, for
// which the rank puts nothing there.
func (a *area) keep(stamp, until uint64) {
	a.mine[entryOf(stamp)].stamp = until
	a.newest = until
	a.mine[entryOf(until)] = publication{stamp: until}
}

// sign puts the signature of this rank's call into its slot.
func (a *area) sign(stamp uint64, sign *Signature) {
	slot := a.slot(a.self, stamp)
	sign.append(slot[signatureAt:signatureAt])
}

// publish says that this rank has come to a round, and that its slot is filled.
func (a *area) publish(stamp uint64) { fence.Store(a.published(a.self, stamp), stamp) }

// at is where a rank has put so many bytes for a round, somewhere in its cells in any case.
func (a *area) at(rank int, stamp uint64, bytes int) []byte {
	slot := a.slot(rank, stamp)
	if bytes <= smallBytes {
		return slot[smallAt:][:bytes:bytes]
	}
	from := min(binary.LittleEndian.Uint64(slot[placeAt:]), uint64(a.block-bytes))
	return a.cells(rank)[from:][:bytes:bytes]
}

// signature is what a rank that has come to a round says of its call.
func (a *area) signature(rank int, stamp uint64) Signature {
	return decodeSignature(a.slot(rank, stamp)[signatureAt:])
}

// hasCome reports whether a rank has come to a round.
func (a *area) hasCome(rank int, stamp uint64) bool {
	return atomic.LoadUint64(a.published(rank, stamp)) == stamp
}

// missing returns the first rank that has not come to a round, or nobody.
func (a *area) missing(stamp uint64) (rank int) {
	for rank = range a.ranks {
		if !a.hasCome(rank, stamp) {
			return rank
		}
	}
	return nobody
}

// arrive counts this rank, which has filled its slot, as one that has come to a round, and
// publishes that: so if any rank is missing in the count, some rank has not published. It reports
// whether this rank is the last one, also if it was counted before. ok is false if the count cannot
// be right.
func (a *area) arrive(stamp uint64) (last, ok bool) {
	word, counted := a.count(stamp), &a.counted[entryOf(stamp)]
	if *counted == stamp {
		return a.last == stamp, true
	}
	for {
		v, n := atomic.LoadUint64(word), uint64(1)
		switch of, now := v&^mostAreaRanks, stamp<<countBits; {
		case of == now:
			n = v&mostAreaRanks + 1
		case isAfter(of, now): // others are in a later round: they have given this collective up
			return false, true
		}
		if n > uint64(a.ranks) {
			return false, false
		}
		if atomic.CompareAndSwapUint64(word, v, stamp<<countBits|n) {
			*counted = stamp
			a.publish(stamp)
			if n < uint64(a.ranks) {
				return false, true
			}
			a.last = stamp
			return true, true
		}
	}
}

// allArrived says that all ranks have come to a round, and so have passed those before.
func (a *area) allArrived(stamp uint64) { a.known = later(a.known, stamp-1) }

// pass says that this rank has passed all rounds before the given one.
func (a *area) pass(stamp uint64) {
	fence.Store(a.passed(a.self), stamp)
	a.told = stamp
}

// needRoom says whether this rank waits until others have passed a round.
func (a *area) needRoom(does bool) {
	if does {
		atomic.AddUint64(a.waiting(), 1)
	} else {
		atomic.AddUint64(a.waiting(), ^uint64(0))
	}
}

// passRounds says that this rank has passed all rounds before the given one, also to ranks that
// sleep.
func (a *area) passRounds(stamp uint64) {
	if a.told == stamp {
		return
	}
	a.pass(stamp)
	if atomic.LoadUint64(a.waiting()) != 0 {
		a.wake()
	}
}

// wake ends the sleep of the other ranks of the area, which may wait for what this rank has just
// stored.
func (a *area) wake() {
	for rank, world := range a.world {
		if rank != a.self {
			a.sharer.WakePeer(world)
		}
	}
}

// Arrived is how many ranks of the area have come to the first round of this rank's blocking
// collective, or of its next one. It is for tests.
func (t *Team) Arrived() int {
	stamp := (t.sequence.count + 1) << roundBits
	if t.blocking != nil {
		stamp = t.blocking.count << roundBits
	}
	n := 0
	for rank := range t.area.ranks {
		if t.area.hasCome(rank, stamp) {
			n++
		}
	}
	return n
}
