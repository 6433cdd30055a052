package coll

import (
	"math"

	"github.com/mpigo/mpigo/comm/internal/area"
)

// Tuning says which algorithm a collective takes. All ranks must have the same one.
type Tuning struct {
	// BcastTreeBytes is the longest buffer that goes down a tree whole.
	BcastTreeBytes int
	// ReduceTreeBytes is the longest vector that is combined up a tree whole.
	ReduceTreeBytes int
	// AllreduceDoublingBytes is the longest vector that pairs of ranks exchange whole.
	AllreduceDoublingBytes int
	// ReduceScatterHalvingBytes is the longest vector that is combined and scattered in log p
	// steps, if the operation commutes. The parts of a longer one go directly to their ranks.
	ReduceScatterHalvingBytes int
	// FlatRanks and FlatBytes bound the ranks, and the bytes of all ranks together, for which every
	// rank sends to rank 0 and rank 0 to every rank.
	FlatRanks, FlatBytes int
	// ScanDoublingBytes is the longest vector that is scanned in log p steps. A longer one goes
	// from rank to rank, in pieces.
	ScanDoublingBytes int
	// GatherTreeBytes is the longest part of a rank that goes along a tree.
	GatherTreeBytes int
	// GatherTreeRanks is the least number of ranks for a tree.
	GatherTreeRanks int
	// AllgatherBruckBytes is the most bytes of all ranks together that Bruck's algorithm gathers,
	// for each step that it saves. More bytes take the ring.
	AllgatherBruckBytes int
	// AlltoallBruckBytes is the longest part for one rank that Bruck's algorithm moves. A longer
	// one goes directly to its rank.
	AlltoallBruckBytes int
	// AlltoallBruckRanks is the least number of ranks for Bruck's algorithm.
	AlltoallBruckRanks int
	// AlltoallFlightBytes is about how many bytes of one rank are under way at a time.
	AlltoallFlightBytes int
	// SharedBytes is the longest vector of a rank that goes through shared memory; 0: no memory is
	// set up.
	SharedBytes int
	// SharedBlockBytes is the least block length for a vector of several blocks in shared memory.
	// For each block all ranks wait for each other, twice.
	SharedBlockBytes int
	// SharedShortBytes is the longest vector that the last rank to arrive combines for all. If the
	// ranks are few, each combines it for itself.
	SharedShortBytes int
	// SharedReduceBytes is the longest vector that the root of a reduce combines alone, if all
	// vectors on its host have at most SharedReduceAllBytes together. It always combines vectors of
	// up to SharedShortBytes alone.
	SharedReduceBytes, SharedReduceAllBytes int
	// SharedFewRanks is the most ranks of a host that read each other's slots in shared memory.
	// More ranks are counted, and the last one to come works for all. Short paths (short.go) always
	// use the default, 2.
	SharedFewRanks int
	// SharedPieceBytes is the least length of the pieces in which a bcast goes through shared
	// memory. The other ranks copy one while the root puts the next one there.
	SharedPieceBytes int
	// LeaderBytes is the longest vector that the leaders of hosts exchange whole in an allreduce.
	// With a longer one, each rank of a host exchanges a range.
	LeaderBytes int
	// HostPieceBytes is the length of the pieces in which a bcast goes from host to host.
	HostPieceBytes int
	// SharedAfter is how many collectives a team makes before it sets up shared memory.
	SharedAfter int
	// PieceBytes is the length of the pieces in which long vectors are combined or passed on.
	PieceBytes int
}

var defaultTuning = Tuning{ // never written
	BcastTreeBytes:            32 << 10,
	ReduceTreeBytes:           32 << 10,
	AllreduceDoublingBytes:    8 << 10,
	ReduceScatterHalvingBytes: 512 << 10,
	ScanDoublingBytes:         32 << 10,
	GatherTreeBytes:           2 << 10,
	GatherTreeRanks:           5,
	AllgatherBruckBytes:       10 << 10,
	AlltoallBruckBytes:        256,
	AlltoallBruckRanks:        8,
	AlltoallFlightBytes:       1 << 20,
	SharedBytes:               math.MaxInt,
	SharedBlockBytes:          256 << 10,
	SharedShortBytes:          4 << 10,
	SharedReduceBytes:         128 << 10,
	SharedReduceAllBytes:      1 << 20, // eight ranks are the most that were measured
	SharedFewRanks:            2,
	SharedPieceBytes:          16 << 10,
	LeaderBytes:               32 << 10,
	HostPieceBytes:            128 << 10,
	SharedAfter:               2,
	PieceBytes:                128 << 10, // fits the caches
}

// crowdedTuning is for ranks that share processor cores. Such ranks take turns, and a rank that
// waits goes on only when it gets a core. So the cost is how often each rank has to run, and not
// the number of consecutive messages.
var crowdedTuning = func() Tuning { // never written
	t := defaultTuning
	t.FlatRanks, t.FlatBytes = 64, 8<<10
	t.HostPieceBytes = 512 << 10
	return t
}()

// DefaultTuning is the tuning of a team for which SetTuning was not called.
func DefaultTuning(crowded bool) *Tuning {
	if crowded {
		return &crowdedTuning
	}
	return &defaultTuning
}

// SetTuning sets the tuning of the collectives that begin later. nil stands for the default.
func (t *Team) SetTuning(tuning *Tuning) { t.tuning = tuning }

// Tuning is the tuning of the next collective.
func (t *Team) Tuning() *Tuning {
	if t.tuning != nil {
		return t.tuning
	}
	return DefaultTuning(t.owner.Crowded())
}

// meetsInArea reports whether a collective goes through an area. bytes is a rank's length, or that
// of its part for each rank. For a persistent call it plans the area. A nonblocking call has none:
// the team's area holds one collective at a time.
func (s *Schedule) meetsInArea(kind *meetingKind, bytes int) bool {
	if s.how == Persistent {
		s.planArea(kind, bytes)
	}
	return len(s.team.leaders) == 1 && s.fitsArea(kind, bytes)
}

// isCombinedAtRoot reports whether the root of a reduce combines vectors of this length alone.
func (s *Schedule) isCombinedAtRoot(bytes int) bool {
	t, a := s.tuning, s.area
	return bytes <= a.Block &&
		(bytes <= t.SharedShortBytes || bytes <= t.SharedReduceBytes && bytes*a.Ranks <= t.SharedReduceAllBytes)
}

// fitsArea reports whether there is an area, and this many bytes may go through it.
func (s *Schedule) fitsArea(kind *meetingKind, bytes int) bool {
	t, a := s.tuning, s.area
	if a == nil || bytes > t.SharedBytes {
		return false
	}
	fits, unit := bytes <= a.Block, max(s.Elem, 1)
	if kind.isPerRank {
		fits, unit = s.size*bytes <= a.Block, 2*s.size
	}
	if !fits && (a.Block < t.SharedBlockBytes || 2*unit > a.Block) {
		return false
	}
	if fits && kind.awaits != awaitRoot {
		return true // one block, or reducePieces of them
	}
	// For a block, allreduceByHost takes two rounds for the reduction, and up to bcastPieces+1 for
	// the pieces of the bcast.
	return bytes/max(s.blockBytes(kind, bytes), 1) < area.MostRound/(2*bcastPieces)
}
