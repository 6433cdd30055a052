package coll

import "github.com/mpigo/mpigo/comm/internal/area"

// The arithmetic of meetings: copying into the area, combining, and copying out of it.

// order is the order in which contributions are combined, the same as in a schedule with messages.
type order uint8

const (
	orderDoubling order = iota // Schedule.allreduceDoubling, and allreduceHalving
	orderRing                  // Schedule.allreduceRing
	orderTree                  // Schedule.reduceTree
	orderChain                 // Schedule.reduceChain
)

// bcastPieces is the number of pieces in which a bcast goes through the area, unless they are too
// short or too long.
const bcastPieces = 8

// reducePieces is the same for a reduce that the root combines alone. All of them are in the area
// at a time.
const reducePieces = area.CellsInTurn

// chunkBytes is the length of the pieces in which contributions are combined, so that a piece of
// the result stays in the processor's first cache.
const chunkBytes = 8 << 10

// length is how many bytes a meeting moves: a vector, or the part of a rank.
func (s *Schedule) length() int {
	m := &s.meeting
	if m.kind.length != nil {
		return m.kind.length(&m.meet, s.area.Ranks)
	}
	return len(m.have())
}

// blockBytes is how many bytes of length go through the area at a time. If the area is too small
// for all, it holds two blocks, or area.CellsInTurn blocks of a bcast, so that a rank need not wait
// for room at each block.
func (s *Schedule) blockBytes(kind *meetingKind, length int) int {
	room, unit := s.area.Block, 1
	if kind.block != nil {
		length = kind.block(s, length)
	}
	if kind.unit != nil {
		unit = kind.unit(s)
	}
	if kind.isPerRank {
		room /= s.area.Ranks
	}
	if length > room {
		length = max(room/2/unit*unit, unit)
	}
	return length
}

// blockLen is the length of the present block.
func (s *Schedule) blockLen() int {
	m := &s.meeting
	length := s.length()
	return min(s.blockBytes(m.kind, length), length-m.at)
}

// have is this rank's contribution to a reduction.
func (m *meeting) have() []byte {
	if m.in == nil {
		return m.out
	}
	return m.in
}

// combining is a reduction of contributions that are in the area.
type combining struct {
	a        *area.Area
	stamp    uint64
	block    int // bytes of a contribution
	order    order
	op       Combiner
	commutes bool
	root     int // of a reduce
	// own is this rank's contribution to the block, if the area has only a part of it.
	own []byte
	// at is the offset in the block of the piece being combined, and bytes its length.
	at, bytes int
	temps     []byte // for intermediate results, one after the other
}

// tempsOf is the memory for intermediate results of pieces of up to this length.
func (o order) tempsOf(ranks, bytes int) int {
	levels := 0
	switch o {
	case orderDoubling, orderTree:
		for d := 1; d < ranks; d *= 2 {
			levels++
		}
	case orderChain:
		levels = 2
	}
	return levels * area.Align(bytes)
}

// makeCombining prepares to combine pieces of up to this length.
func (s *Schedule) makeCombining(bytes int) combining {
	m, a := &s.meeting, s.area
	c := combining{
		a: a, stamp: m.stamp, block: s.blockLen(), order: m.order, op: s.Op, commutes: s.Commutes, root: m.root,
		temps: s.temp(m.order.tempsOf(a.Ranks, bytes)),
	}
	if m.in != nil {
		c.own = m.in[m.at:]
	}
	return c
}

// of is the piece of a rank's contribution.
func (c *combining) of(rank int) []byte {
	if rank != c.a.Self || c.own == nil {
		return c.a.At(rank, c.stamp, c.block)[c.at:][:c.bytes]
	}
	return c.own[c.at:][:c.bytes]
}

// into combines the contributions into dest. part is the part of the vector that dest lies in, for
// a ring.
func (c *combining) into(dest []byte, part int) {
	switch c.order {
	case orderDoubling:
		fold := foldingOf(c.a.Ranks, c.a.Self)
		c.doubling(dest, &fold, 0, fold.power, c.temps)
	case orderRing:
		c.ring(dest, part)
	case orderTree:
		c.tree(dest, 0, c.temps)
	case orderChain:
		c.chain(dest)
	}
}

// spare takes the place of a piece from the temporary memory.
func (c *combining) spare(temps []byte) (place, rest []byte) {
	return temps[:c.bytes], temps[area.Align(c.bytes):]
}

// doubling combines the contributions of the ranks with the numbers lo…hi−1 into dest, in the order
// of Schedule.allreduceDoubling.
func (c *combining) doubling(dest []byte, fold *folding, lo, hi int, temps []byte) {
	op := c.op
	if hi-lo == 1 {
		rank := fold.rank(lo)
		copy(dest, c.of(rank))
		if lo < fold.extra {
			op.Combine(c.of(rank-1), dest)
		}
		return
	}
	mid := lo + (hi-lo)/2
	c.doubling(dest, fold, mid, hi, temps)
	if mid-lo == 1 && lo >= fold.extra {
		op.Combine(c.of(fold.rank(lo)), dest)
		return
	}
	left, rest := c.spare(temps)
	c.doubling(left, fold, lo, mid, rest)
	op.Combine(left, dest)
}

// ring combines the contributions of all ranks into dest, in the order in which a part of the
// vector goes round all ranks (Schedule.allreduceRing). The operation commutes.
func (c *combining) ring(dest []byte, part int) {
	rank := up(part, 1, c.a.Ranks)
	copy(dest, c.of(rank))
	for range c.a.Ranks - 1 {
		rank = up(rank, 1, c.a.Ranks)
		c.op.Combine(c.of(rank), dest)
	}
}

// tree combines the contributions of the ranks below v in the tree of Schedule.reduceTree into
// dest.
func (c *combining) tree(dest []byte, v int, temps []byte) {
	acc, low, children := c.of(treePlace(v, treeRoot(c.root, c.commutes), c.a.Ranks)), lowestBit(v, c.a.Ranks), 0
	for d := 1; d < low && v+d < c.a.Ranks; d *= 2 {
		children++
	}
	if children == 0 {
		copy(dest, acc)
		return
	}
	other, rest := c.spare(temps)
	if children%2 == 0 { // the two places take turns, so that the last one is dest
		dest, other = other, dest
	}
	for d := 1; d < low && v+d < c.a.Ranks; d *= 2 {
		c.tree(dest, v+d, rest)
		c.op.Combine(acc, dest)
		acc = dest
		dest, other = other, dest
	}
}

// chain combines the contributions of all ranks into dest as Schedule.reduceChain does.
func (c *combining) chain(dest []byte) {
	op, root := c.op, c.root
	above, below := root+1 < c.a.Ranks, root > 0
	next, temps := c.spare(c.temps)
	other, _ := c.spare(temps)
	if below {
		copy(next, c.of(0))
		for rank := 1; rank < root; rank++ {
			if c.commutes {
				op.Combine(c.of(rank), next)
				continue
			}
			copy(other, c.of(rank))
			op.Combine(next, other)
			next, other = other, next
		}
	}
	switch {
	case above:
		copy(dest, c.of(c.a.Ranks-1))
		for rank := c.a.Ranks - 2; rank >= root; rank-- {
			op.Combine(c.of(rank), dest)
		}
	case c.commutes:
		copy(dest, next)
		op.Combine(c.of(root), dest)
		return
	default:
		copy(dest, c.of(root))
	}
	if below {
		op.Combine(next, dest)
	}
}

// combineForAll combines all contributions to a short allreduce, for all ranks.
func (s *Schedule) combineForAll() error {
	m, a := &s.meeting, s.area
	n := len(m.out)
	return s.combinePieces(0, n, n, m.out, a.ResultPlace(m.stamp, n))
}

// combineWhole combines all contributions to a short allreduce, for this rank.
func (s *Schedule) combineWhole() (done bool, err error) {
	n := len(s.meeting.out)
	return true, s.combinePieces(0, n, n, s.meeting.out, nil)
}

// combineAtRoot combines all contributions to a block of a reduce. It reports whether it was the
// last one.
func (s *Schedule) combineAtRoot() (done bool, err error) {
	m := &s.meeting
	if len(m.out) == 0 { // a barrier: keep the lock
		return true, nil
	}
	n := s.blockLen()
	if err := s.combinePieces(0, n, min(s.chunk(), n), m.out[m.at:][:n], nil); err != nil || s.failed() != nil {
		return false, err
	}
	return m.advance(n, s.length()), nil
}

// combinePieces combines the bytes from…to−1 of the block, in pieces of up to the given length,
// into dest, and copies them to result, unless it is nil.
func (s *Schedule) combinePieces(from, to, piece int, dest, result []byte) error {
	used := s.used
	err := apart(s, combiningPieces.do, combiningPieces{s.makeCombining(piece), s, from, to, piece, dest, result})
	s.untemp(used)
	return err
}

type combiningPieces struct {
	combining
	s               *Schedule
	from, to, piece int
	dest, result    []byte
}

func (c combiningPieces) do() {
	s := c.s
	for at := c.from; at < c.to; at += c.bytes {
		part, end := 0, c.to
		if s.meeting.order == orderRing {
			part, end = s.ringPart(s.meeting.at + at)
			end = min(end-s.meeting.at, c.to)
		}
		c.at, c.bytes = at, min(c.piece, end-at)
		dest := c.dest[at-c.from:][:c.bytes]
		c.into(dest, part)
		if c.result != nil {
			copy(c.result[at-c.from:], dest)
		}
	}
}

// rangeOf is the range of the present block that a rank combines.
func (s *Schedule) rangeOf(rank int) (from, to int) {
	n, ranks := s.blockLen(), s.area.Ranks
	return share(n, s.Elem, ranks, rank), share(n, s.Elem, ranks, rank+1)
}

// combineRange is combineRangeFor for every rank, which then copies the other ranges.
func (s *Schedule) combineRange() (done bool, err error) { return s.combineRangeFor(everyRank) }

// combineRangeForRoot is combineRangeFor for the root, which then copies the other ranges.
func (s *Schedule) combineRangeForRoot() (done bool, err error) {
	return s.combineRangeFor(s.meeting.root)
}

// everyRank stands for all ranks.
const everyRank = -1

// combineRangeFor combines this rank's range of a block, writes the result over its contribution in
// the area, and comes to the second round.
func (s *Schedule) combineRangeFor(rank int) (done bool, err error) {
	m, a := &s.meeting, s.area
	n := s.blockLen()
	from, to := s.rangeOf(a.Self)
	dest, result := a.At(a.Self, m.stamp, n)[from:to], []byte(nil)
	switch rank {
	case everyRank:
		dest, result = m.out[m.at:][from:to], dest
	case a.Self:
		dest = m.out[m.at:][from:to]
	}
	if err := s.combinePieces(from, to, min(s.chunk(), n), dest, result); err != nil || s.failed() != nil {
		return false, err
	}
	second := m.stamp + 1
	m.rounds++
	a.Keep(m.stamp, second)
	if s.isFew() {
		s.publishAmongFew(second)
		m.phase = meetingParts
	} else {
		last, ok := a.Arrive(second)
		if !ok {
			return false, errAreaWrong
		}
		if last {
			s.area.Wake()
		}
	}
	if rank != everyRank && rank != a.Self {
		return m.advance(n, s.length()), nil
	}
	if s.isFew() {
		return false, nil
	}
	m.await(meetingParts, a.Count(second), a.AllCounted(second), anyRank)
	return false, nil
}

// chunk is the length of the pieces in which a long contribution is combined.
func (s *Schedule) chunk() int { return max(chunkBytes/s.Elem*s.Elem, s.Elem) }

// combineOwnRange combines this rank's range of all contributions.
func (s *Schedule) combineOwnRange() (done bool, err error) {
	m := &s.meeting
	from, to := s.rangeOf(s.area.Self)
	if err := s.combinePieces(from, to, min(s.chunk(), s.blockLen()), m.out[from:to], nil); err != nil || s.failed() != nil {
		return false, err
	}
	s.area.PassRounds(m.stamp + 1) // others may wait for room while this rank exchanges messages
	return true, nil
}

// gatherRanges copies the ranges of the other ranks.
func (s *Schedule) gatherRanges() (done bool, err error) {
	m, a := &s.meeting, s.area
	for rank := range a.Ranks {
		if from, to := s.rangeOf(rank); rank != a.Self {
			s.doCopy(m.out[from:to], a.At(rank, m.stamp, to-from))
		}
	}
	return true, nil
}

// ringPart is the part of the vector that has the byte at, and the end of that part. There are as
// many parts as ranks.
func (s *Schedule) ringPart(at int) (part, end int) {
	n := len(s.meeting.out)
	for part = 0; ; part++ {
		if end = share(n, s.Elem, s.size, part+1); at < end {
			return part, end
		}
	}
}

// copyRanges copies the ranges of a block that other ranks have combined, and goes on to the next
// block. It reports whether that was the last one.
func (s *Schedule) copyRanges() (done bool) {
	m, a := &s.meeting, s.area
	a.AllArrived(m.stamp + 1)
	n := s.blockLen()
	out := m.out[m.at:][:n]
	for rank := range a.Ranks {
		if from, to := s.rangeOf(rank); rank != a.Self {
			s.doCopy(out[from:to], a.At(rank, m.stamp, n)[from:to])
		}
	}
	return m.advance(n, s.length())
}
