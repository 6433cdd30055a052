package coll

// The arithmetic of meetings: what is put into the area, combined, and copied out of it.

// chunkBytes is the length of the pieces in which contributions are combined, so that a piece of
// the result stays in the processor's first cache.
const chunkBytes = 8 << 10

// combining is a reduction of contributions that are in the area.
type combining struct {
	s    *Schedule
	fold folding
	ring bool // the order is that of Schedule.allreduceRing
	// own is this rank's contribution to the block if the area does not have all of that.
	own []byte
	// at is where the piece that is combined begins in the block, and bytes its length.
	at, bytes int
	temps     []byte // for intermediate results, one after the other
}

// makeCombining prepares the combining of pieces of up to so many bytes.
func (s *Schedule) makeCombining(bytes int) combining {
	c := combining{s: s, fold: s.folding(), ring: s.isRing(len(s.meeting.out))}
	if !c.ring {
		levels := 0
		for d := 1; d < c.fold.power; d *= 2 {
			levels++
		}
		c.temps = s.temp(levels * alignArea(bytes))
	}
	return c
}

// of is the piece of a rank's contribution.
func (c *combining) of(rank int) []byte {
	if rank == c.s.rank && c.own != nil {
		return c.own[c.at:][:c.bytes]
	}
	return c.s.contribution(rank)[c.at:][:c.bytes]
}

// into combines the contributions into dest. part is the part of the vector that dest lies in, for
// a ring.
func (c *combining) into(dest []byte, part int) {
	if c.ring {
		c.round(dest, part)
	} else {
		c.tree(dest, 0, c.fold.power, c.temps)
	}
}

// tree combines the contributions of the ranks with the numbers lo…hi−1 into dest, as pairs of
// ranks do that exchange their results, in each step at twice the distance
// (Schedule.allreduceDoubling).
func (c *combining) tree(dest []byte, lo, hi int, temps []byte) {
	op := c.s.Op
	if hi-lo == 1 {
		rank := c.fold.rank(lo)
		copy(dest, c.of(rank))
		if lo < c.fold.extra {
			op.Combine(c.of(rank-1), dest)
		}
		return
	}
	mid := lo + (hi-lo)/2
	c.tree(dest, mid, hi, temps)
	if mid-lo == 1 && lo >= c.fold.extra {
		op.Combine(c.of(c.fold.rank(lo)), dest)
		return
	}
	left := temps[:c.bytes]
	c.tree(left, lo, mid, temps[alignArea(c.bytes):])
	op.Combine(left, dest)
}

// round combines the contributions of all ranks into dest, in the order in which a part of the
// vector goes round all ranks (Schedule.allreduceRing). The operation commutes.
func (c *combining) round(dest []byte, part int) {
	n := c.s.size
	rank := up(part, 1, n)
	copy(dest, c.of(rank))
	for range n - 1 {
		rank = up(rank, 1, n)
		c.s.Op.Combine(c.of(rank), dest)
	}
}

// contribution is the place of a rank's contribution to the block.
func (s *Schedule) contribution(rank int) []byte {
	m := &s.meeting
	if m.call == meetAllreduceLong {
		return s.team.area.cell(rank, 0, s.blockLen())
	}
	if n := len(m.out); n <= smallBytes {
		return s.team.area.small(rank, n)
	}
	return s.team.area.cell(rank, 0, len(m.out))
}

// shortResult is the place of the result of a short collective.
func (s *Schedule) shortResult() []byte {
	if n := len(s.meeting.out); n <= smallBytes {
		return s.team.area.smallResult(n)
	}
	return s.team.area.result(0, len(s.meeting.out))
}

// combineShort combines all contributions to a short collective, for all ranks.
func (s *Schedule) combineShort() error {
	m := &s.meeting
	c := s.makeCombining(len(m.out))
	return apart(s, combiningPieces.do, combiningPieces{c, 0, len(m.out), len(m.out), s.shortResult()})
}

// combiningPieces combines the bytes from…to−1 of the block, in pieces of up to so many bytes, into
// the user's result, and copies them to result.
type combiningPieces struct {
	combining
	from, to, piece int
	result          []byte
}

func (c combiningPieces) do() {
	s := c.s
	out := s.meeting.out[s.meeting.at:]
	for at := c.from; at < c.to; at += c.bytes {
		part, end := 0, c.to
		if c.ring {
			part, end = s.ringPart(s.meeting.at + at)
			end = min(end-s.meeting.at, c.to)
		}
		c.at, c.bytes = at, min(c.piece, end-at)
		dest := out[at:][:c.bytes]
		c.into(dest, part)
		copy(c.result[at-c.from:], dest)
	}
}

// blockBytes is the length of a block: whole elements.
func (s *Schedule) blockBytes() int { return s.team.area.block / s.Elem * s.Elem }

// blockLen is the length of the present block.
func (s *Schedule) blockLen() int { return min(s.blockBytes(), len(s.meeting.out)-s.meeting.at) }

// rangeOf is the range of the present block that a rank combines.
func (s *Schedule) rangeOf(rank int) (from, to int) {
	n := s.blockLen()
	return share(n, s.Elem, s.size, rank), share(n, s.Elem, s.size, rank+1)
}

// putBlock puts this rank's contribution to a block into the area, except for what the rank
// combines itself.
func (s *Schedule) putBlock() {
	m := &s.meeting
	have, cell := m.have()[m.at:][:s.blockLen()], s.contribution(s.rank)
	if m.in == nil {
		s.doCopy(cell, have) // the result overwrites it
		return
	}
	from, to := s.rangeOf(s.rank)
	s.doCopy(cell[:from], have[:from])
	s.doCopy(cell[to:], have[to:])
}

// combineRange combines this rank's range of a block, puts it into the area, and arrives.
func (s *Schedule) combineRange() error {
	m, a := &s.meeting, s.team.area
	from, to := s.rangeOf(s.rank)
	chunk := max(chunkBytes/s.Elem*s.Elem, s.Elem)
	used := s.used
	c := s.makeCombining(min(chunk, s.blockLen()))
	if m.in != nil {
		c.own = m.in[m.at:][:s.blockLen()]
	}
	err := apart(s, combiningPieces.do, combiningPieces{c, from, to, chunk, a.result(from, to-from)})
	s.untemp(used)
	if err != nil || s.failed() != nil {
		return err
	}
	all, last, ok := a.arrive()
	if !ok {
		return errArrivals
	}
	if last {
		s.team.wake()
	}
	m.word, m.target, m.phase = a.arrived, all, meetingParts
	return nil
}

// ringPart is the part of the vector that a byte of it lies in, of as many parts as there are
// ranks, and where that part ends.
func (s *Schedule) ringPart(at int) (part, end int) {
	n := len(s.meeting.out)
	for part = 0; ; part++ {
		if end = share(n, s.Elem, s.size, part+1); at < end {
			return part, end
		}
	}
}

// copyParts copies the parts of a block that other ranks have combined, and goes on to the next
// block. It reports whether there is none.
func (s *Schedule) copyParts() (done bool) {
	m, a := &s.meeting, s.team.area
	n := s.blockLen()
	from, to := s.rangeOf(s.rank)
	out := m.out[m.at:][:n]
	s.doCopy(out[:from], a.result(0, from))
	s.doCopy(out[to:], a.result(to, n-to))
	m.at += n
	m.phase = meetingArrive
	return m.at == len(m.out)
}
