package coll

import "github.com/mpigo/mpigo/comm/internal/area"

// meetingKind describes one kind of meeting. A new kind is a new row of the table below. For a nil
// function, the comment of its field says what applies.
type meetingKind struct {
	awaits meetingWait
	// isPerRank: a rank's data in the area has a part for each rank.
	isPerRank bool
	// length is how many bytes the meeting moves; nil: a contribution.
	length func(m *meet, ranks int) int
	// block is how much of length should go through the area at a time, in whole units; nil: all.
	// It is cut if the area is too small.
	block func(s *Schedule, length int) int
	unit  func(s *Schedule) int // nil: a byte
	// putBytes is how many bytes this rank puts into the area for a block; nil: a block.
	putBytes func(s *Schedule) int
	put      func(s *Schedule, place []byte)
	// forAll completes the meeting for all ranks, at the last one to come; nil: nothing to do.
	// allHere goes on when all ranks have come, and reports whether the meeting is over. parts does
	// the same after the second round of a block.
	forAll  func(s *Schedule) error
	allHere func(s *Schedule) (done bool, err error)
	parts   func(s *Schedule) (done bool)
}

// meetingWait says which ranks wait in a meeting, and for which.
type meetingWait uint8

const (
	awaitAll   meetingWait = iota // each rank for all
	awaitLast                     // all for the last one to come, which works for all
	rootAwaits                    // the root for all; the others go on
	awaitRoot                     // all for the root, which goes on; no other rank puts anything
)

// The kinds of meetings. Never written.
var (
	meetBarrier = meetingKind{
		awaits: awaitLast, put: (*Schedule).putHave, allHere: allDone,
	}
	meetAllreduce = meetingKind{ // short
		awaits: awaitLast, put: (*Schedule).putHave, forAll: (*Schedule).combineForAll,
		allHere: (*Schedule).combineWhole,
	}
	meetAllreduceLong = meetingKind{
		unit: (*Schedule).elem, put: (*Schedule).putOthersRanges, allHere: (*Schedule).combineRange,
		parts: (*Schedule).copyRanges,
	}
	meetReduce = meetingKind{
		awaits: rootAwaits, block: (*Schedule).reducePiece, putBytes: (*Schedule).putUnlessRoot, put: (*Schedule).putHave,
		allHere: (*Schedule).combineAtRoot,
	}
	meetReduceLong = meetingKind{
		unit: (*Schedule).elem, put: (*Schedule).putOthersRanges, allHere: (*Schedule).combineRangeForRoot,
		parts: (*Schedule).copyRanges,
	}
	meetReduceScatter = meetingKind{put: (*Schedule).putOthersRanges, allHere: (*Schedule).combineOwnRange}
	meetGatherRanges  = meetingKind{
		putBytes: (*Schedule).ownRangeBytes, put: (*Schedule).putOwnRange, allHere: (*Schedule).gatherRanges,
	}
	meetBcast = meetingKind{
		awaits: awaitRoot, length: (*meet).bufferLen, block: (*Schedule).bcastPiece, put: (*Schedule).putBlock,
	}
	meetAllgather = meetingKind{
		length: (*meet).partLen, put: (*Schedule).putPart, allHere: (*Schedule).copyParts,
	}
	meetAlltoall = meetingKind{
		isPerRank: true, length: (*meet).partLen, putBytes: (*Schedule).putForEach, put: (*Schedule).putParts,
		allHere: (*Schedule).copyOwnParts,
	}
)

// allDone: nothing is left to do when all ranks have come.
func allDone(*Schedule) (done bool, err error) { return true, nil }

// Lengths.

func (m *meet) bufferLen(int) int { return len(m.buffer()) }

// partLen is the length of the part of a rank.
func (m *meet) partLen(ranks int) int { return len(m.out) / ranks }

func (s *Schedule) elem() int { return s.Elem }

// bcastPiece is short enough that others copy a piece while the root writes the next one.
func (s *Schedule) bcastPiece(length int) int {
	if length <= area.SmallBytes {
		return length
	}
	room := s.area.Block / area.CellsInTurn
	return max(min(max(length/bcastPieces, s.tuning.SharedPieceBytes), s.tuning.PieceBytes, room), area.SmallBytes)
}

// reducePiece is short enough that the root combines a piece while others write the next one.
func (s *Schedule) reducePiece(length int) int {
	piece := max(length/reducePieces, s.tuning.SharedPieceBytes)
	if piece = piece / max(s.Elem, 1) * s.Elem; piece > 0 {
		length = min(length, piece)
	}
	return length
}

// Functions that put a rank's data into the area.

func (s *Schedule) putForEach() int { return s.area.Ranks * s.blockLen() }

func (s *Schedule) putUnlessRoot() int {
	if m := &s.meeting; s.area.Self == m.root && m.in != nil {
		return 0
	}
	return s.blockLen()
}

func (s *Schedule) ownRangeBytes() int {
	from, to := s.rangeOf(s.area.Self)
	return to - from
}

func (s *Schedule) putHave(place []byte) {
	m := &s.meeting
	s.doCopy(place, m.have()[m.at:][:len(place)])
}

func (s *Schedule) putBlock(place []byte) {
	m := &s.meeting
	s.doCopy(place, m.in[m.at:][:s.blockLen()])
}

func (s *Schedule) putPart(place []byte) {
	m := &s.meeting
	own := m.in
	if own == nil {
		own = m.out[s.area.Self*s.length():]
	}
	s.doCopy(place, own[m.at:][:s.blockLen()])
}

func (s *Schedule) putParts(place []byte) {
	m, n := &s.meeting, s.blockLen()
	for rank := range s.area.Ranks {
		if rank != s.area.Self { // copyOwnParts has its own part
			s.doCopy(place[rank*n:][:n], m.have()[rank*s.length()+m.at:][:n])
		}
	}
}

func (s *Schedule) putOwnRange(place []byte) {
	from, to := s.rangeOf(s.area.Self)
	s.doCopy(place, s.meeting.out[from:to])
}

// putOthersRanges puts the ranges that the other ranks combine.
func (s *Schedule) putOthersRanges(place []byte) {
	m := &s.meeting
	have := m.have()[m.at:][:s.blockLen()]
	if m.in == nil {
		s.doCopy(place, have) // the result overwrites it
		return
	}
	from, to := s.rangeOf(s.area.Self)
	s.doCopy(place[:from], have[:from])
	s.doCopy(place[to:], have[to:])
}

// Functions that copy when all ranks have come.

// copyParts copies a block of the part of each rank.
func (s *Schedule) copyParts() (done bool, err error) {
	m, a := &s.meeting, s.area
	n, length := s.blockLen(), s.length()
	for rank := range a.Ranks {
		to := m.out[rank*length+m.at:][:n]
		if rank != a.Self {
			s.doCopy(to, a.At(rank, m.stamp, n))
		} else if m.in != nil {
			s.doCopy(to, m.in[m.at:][:n])
		}
	}
	return m.advance(n, length), nil
}

// copyOwnParts copies a block of the part that each rank has for this one.
func (s *Schedule) copyOwnParts() (done bool, err error) {
	m, a := &s.meeting, s.area
	n, length := s.blockLen(), s.length()
	for rank := range a.Ranks {
		to := m.out[rank*length+m.at:][:n]
		if rank != a.Self {
			s.doCopy(to, a.At(rank, m.stamp, a.Ranks*n)[a.Self*n:][:n])
		} else if m.in != nil {
			s.doCopy(to, m.in[rank*length+m.at:][:n])
		}
	}
	return m.advance(n, length), nil
}

// Steps of persistent collectives in place of their meeting.

func barrierByMessages(s *Schedule, _ *meet)   { s.Barrier() }
func bcastByMessages(s *Schedule, m *meet)     { s.Bcast(m.buffer(), m.root) }
func reduceByMessages(s *Schedule, m *meet)    { s.Reduce(m.in, m.out, m.root) }
func allreduceByMessages(s *Schedule, m *meet) { s.Allreduce(m.in, m.out) }
func allgatherByMessages(s *Schedule, m *meet) { s.Allgather(m.in, m.out) }
func alltoallByMessages(s *Schedule, m *meet)  { s.Alltoall(m.in, m.out) }
