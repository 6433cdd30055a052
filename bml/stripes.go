package bml

const (
	// pipelineDepth is how many pieces of one message may be under way on one rail.
	pipelineDepth = 8
	// remotePieceBytes is the longest piece of remote access: long enough that its cost does not
	// count, short enough that rails share a message that is not very long.
	remotePieceBytes = 256 << 10
)

// stripes hands out a range of a message, piece by piece, to the rails of a peer. A piece goes by
// the rail that would be done with it first, by its weight, its latency, and what it has under way
// already. While that rail has no room, another one gets the piece only if the rest of the message
// takes longer than that. So each rail has its share of a long message, a rail that is slower than
// it should be has less, and nothing waits at the end for a slow rail.
type stripes struct {
	from, end int64 // the range
	next      int64 // the first byte that is not handed out
	under     int   // pieces under way
	loads     [maxRails]load
}

// load is what a rail has under way.
type load struct {
	pieces int
	bytes  int64
}

// begin sets the range.
func (s *stripes) begin(from, to int64) { *s = stripes{from: from, next: from, end: to} }

// take hands out the next piece to one of the rails of a set, which is not empty. It returns the
// rail's index, −1 if the piece has to wait.
func (s *stripes) take(rails []Rail, set RailSet, by Access, headerBytes int) (i int, from, to int64) {
	i = s.pick(rails, set, by, headerBytes)
	if i < 0 {
		return i, 0, 0
	}
	from = s.next
	to = from + s.piece(&rails[i], by, headerBytes)
	s.next = to
	s.under++
	s.loads[i].pieces++
	s.loads[i].bytes += to - from
	return i, from, to
}

// piece is the length of the next piece if it goes by a rail.
func (s *stripes) piece(rl *Rail, by Access, headerBytes int) int64 {
	most := int64(remotePieceBytes)
	if by == Fragments {
		most = int64(rl.pieceBytes - headerBytes)
	}
	return min(most, s.end-s.next)
}

func (s *stripes) pick(rails []Rail, set RailSet, by Access, headerBytes int) int {
	// done is when a rail would be done with the next piece: for remote access, when this rank
	// would know it.
	// Other messages to the peer may have more under way than this one.
	load := func(i int) int64 { return max(s.loads[i].bytes, rails[i].meter.bytes) }
	done := func(i int) int64 {
		rl := &rails[i]
		t := nanos(load(i)+s.piece(rl, by, headerBytes), rl.weight) + rl.latencyNanos
		if by != Fragments {
			t += rl.latencyNanos
		}
		return t
	}
	best, left, weights := -1, s.end-s.next, int64(0)
	for i := range rails {
		if !set.Has(i) {
			continue
		}
		if best < 0 || done(i) < done(best) {
			best = i
		}
		left += load(i)
		weights += rails[i].weight
	}
	if s.loads[best].pieces < pipelineDepth {
		return best
	}
	best = -1
	for i := range rails {
		if set.Has(i) && s.loads[i].pieces < pipelineDepth && done(i) <= nanos(left, weights) && (best < 0 || done(i) < done(best)) {
			best = i
		}
	}
	return best
}

// nanos is how long so many bytes take at a weight, in 10⁶ bytes a second.
func nanos(bytes, weight int64) int64 { return bytes * 1000 / weight }

// done counts a piece of rail i that is no longer under way.
func (s *stripes) done(i, bytes int) {
	s.under--
	s.loads[i].pieces--
	s.loads[i].bytes -= int64(bytes)
}

// move counts a piece of one rail as one of another rail.
func (s *stripes) move(from, to, bytes int) {
	s.done(from, bytes)
	s.under++
	s.loads[to].pieces++
	s.loads[to].bytes += int64(bytes)
}
