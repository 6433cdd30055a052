package pml

import "github.com/mpigo/mpigo/btl"

const (
	// pipelineDepth is how many pieces of one message may be under way on one rail.
	pipelineDepth = 8
	// rdmaPieceBytes is the longest piece of a transfer by remote access: long enough that its
	// cost does not count, short enough that rails share what is not very long.
	rdmaPieceBytes = 256 << 10
)

// stripes hands out a range of a message, piece by piece, to the rails of a peer. A piece goes by
// the rail that would be done with it first, by its weight, its latency, and what it has under way
// already. While that one has no room another one gets it only if the rest of the message
// takes longer than that. So of a long message each rail has its share, one that is slower than it
// should be has less, and nothing waits at the end for a slow one.
type stripes struct {
	from, end int64 // the range
	next      int64 // from where on it is not handed out yet
	under     int   // pieces under way
	lanes     [maxRails]lane
}

// lane is a rail's part that is under way.
type lane struct {
	pieces int
	bytes  int64
}

// begin sets the range. No piece is under way.
func (s *stripes) begin(from, to int64) { *s = stripes{from: from, next: from, end: to} }

// take hands out the next piece to one of the rails of a set. It returns its index, or −1 if the
// piece has to wait.
func (s *stripes) take(rails []rail, set railSet, remote bool) (i int, from, to int64) {
	i = s.pick(rails, set, remote)
	if i < 0 {
		return i, 0, 0
	}
	from = s.next
	to = from + s.piece(&rails[i], remote)
	s.next = to
	s.under++
	s.lanes[i].pieces++
	s.lanes[i].bytes += to - from
	return i, from, to
}

// piece is the length of the next piece if it goes by a rail, as a fragment or by remote access.
func (s *stripes) piece(rl *rail, remote bool) int64 {
	most := int64(rdmaPieceBytes)
	if !remote {
		most = int64(rl.sendBytes - fragBytes)
	}
	return min(most, s.end-s.next)
}

func (s *stripes) pick(rails []rail, set railSet, remote bool) int {
	// done is when a rail would be done with the next piece: for remote access, when this rank would
	// know that.
	done := func(i int) int64 {
		rl := &rails[i]
		t := nanos(s.lanes[i].bytes+s.piece(rl, remote), rl.weight) + rl.latencyNanos
		if remote {
			t += rl.latencyNanos
		}
		return t
	}
	best, left, weights := -1, min(s.end-s.next, longRange), int64(0)
	for i := range rails {
		if !set.has(i) {
			continue
		}
		if best < 0 || done(i) < done(best) {
			best = i
		}
		left += s.lanes[i].bytes
		weights += rails[i].weight
	}
	if best < 0 || s.lanes[best].pieces < pipelineDepth {
		return best
	}
	best = -1
	for i := range rails {
		if set.has(i) && s.lanes[i].pieces < pipelineDepth && done(i) <= nanos(left, weights) && (best < 0 || done(i) < done(best)) {
			best = i
		}
	}
	return best
}

// longRange is what takes so long that every rail is worth its while.
const longRange = 1 << 40

// nanos is how long so many bytes take at a weight, which is in 10⁶ bytes a second.
func nanos(bytes, weight int64) int64 { return bytes * 1000 / weight }

// done counts a piece of rail i that is not under way any more.
func (s *stripes) done(i, bytes int) {
	s.under--
	s.lanes[i].pieces--
	s.lanes[i].bytes -= int64(bytes)
}

// railSet is a set of a peer's rails, by index.
type railSet uint8

func (s railSet) has(i int) bool { return s>>i&1 != 0 }

// pieceOp gives an operation for a piece of a transfer of owner's, by the rail with an index.
func (p *PML) pieceOp(owner any, index int, done func(*btl.Op, error)) *btl.Op {
	op := p.getOp()
	op.Owner, op.Done = owner, done
	op.Hdr[opRail] = byte(index)
	return op
}
