package comm

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mpigo/mpigo/internal/calls"
)

// Graph makes a communicator of the same ranks, with the topology of a directed graph (MPI 4.1,
// section 8.5.4, MPI_Dist_graph_create_adjacent). Each rank passes its own neighbours: the ranks
// from which edges lead to it, and those to which edges lead from it. Their order is kept. A rank
// may have no neighbours, be its own neighbour, or have the same neighbour several times. Graph is
// a collective: all ranks of c call it.
//
// Errors: ErrRank for a neighbour that is not in c; ErrCount if the two ends of an edge do not name
// it equally often; ErrComm, ErrFinalized, and those of the peers.
func (c *Comm) Graph(sources, dests []int) (*Comm, error) {
	refused := c.checkNeighbors("source", sources)
	if refused == nil {
		refused = c.checkNeighbors("destination", dests)
	}
	// Each edge counts positive at its source and negative at its destination. So the sum over all
	// ranks is zero if all edges have two ends.
	var me splitMember
	for _, d := range dests {
		me.digest += digestOf(c.Rank(), d)
	}
	for _, s := range sources {
		me.digest -= digestOf(s, c.Rank())
	}
	return c.derive(derivation{
		op: calls.Graph, suffix: "graph", refused: refused, me: me, check: checkEdges, topo: newGraph(sources, dests),
	})
}

func newGraph(sources, dests []int) *topology {
	return &topology{sources: append([]int{}, sources...), dests: append([]int{}, dests...)}
}

func (c *Comm) checkNeighbors(what string, ranks []int) error {
	if c.isNull() {
		return nil // begin reports it
	}
	for i, r := range ranks {
		if uint(r) >= uint(len(c.group)) {
			return fmt.Errorf("%s %d: %w", what, i, c.rankError(ErrRank, r))
		}
	}
	return nil
}

func checkEdges(all []splitMember) error {
	var sum uint64
	for _, m := range all {
		sum += m.digest
	}
	if sum != 0 {
		return fmt.Errorf("%w: the sources and the destinations of the ranks do not match", ErrCount)
	}
	return nil
}

// DistGraph is Graph for ranks that do not know their neighbours (MPI 4.1, section 8.5.4,
// MPI_Dist_graph_create). Each rank passes any edges of the graph, as lists of destinations by
// source. They may be its own edges or those of other ranks, and there may be none. An edge that is
// passed several times is in the graph several times. The neighbours of a rank are in ascending
// order.
//
// Errors: ErrRank for a source or destination that is not in c; ErrComm, ErrFinalized, and those of
// the peers.
func (c *Comm) DistGraph(edges map[int][]int) (*Comm, error) {
	const op = calls.DistGraph
	var own []int64 // pairs
	var refused error
	for _, s := range slices.Sorted(maps.Keys(edges)) {
		if refused == nil {
			refused = c.checkNeighbors("source", []int{s})
		}
		if refused == nil {
			refused = c.checkNeighbors("destination", edges[s])
		}
		for _, d := range edges[s] {
			own = append(own, int64(s), int64(d))
		}
	}
	members, err := c.compare(derivation{op: op, refused: refused, me: splitMember{digest: uint64(len(own))}})
	if err != nil {
		return nil, err
	}
	all, parts, err := partsOf(members)
	if err != nil {
		return nil, c.fail(op, none, none, err)
	}
	if err := c.gatherParts(op, bytesOf(own), parts); err != nil {
		return nil, err
	}
	sources, dests := []int{}, []int{}
	for i := 0; i < len(all); i += 2 {
		from, to := int(all[i]), int(all[i+1])
		if to == c.rank {
			sources = append(sources, from)
		}
		if from == c.rank {
			dests = append(dests, to)
		}
	}
	slices.Sort(sources)
	slices.Sort(dests)
	return c.derive(derivation{op: op, suffix: "graph", topo: newGraph(sources, dests)})
}

// partsOf makes memory for the edges of all ranks, and cuts it into parts by rank. The digest of a
// member is its number of words.
func partsOf(members []splitMember) (all []int64, parts [][]byte, err error) {
	const most = 1 << 31 // more than any graph has
	total := uint64(0)
	for r, m := range members {
		if m.digest > most-total {
			return nil, nil, fmt.Errorf("%w: rank %d passes %d edges", ErrCount, r, m.digest/2)
		}
		total += m.digest
	}
	all = make([]int64, total)
	rest := bytesOf(all)
	for _, m := range members {
		parts = append(parts, rest[:8*m.digest:8*m.digest])
		rest = rest[8*m.digest:]
	}
	return all, parts, nil
}

// Neighbors returns the neighbours of this rank in the topology of the communicator: in
// neighbourhood collectives, it receives from sources and sends to dests. In a Cartesian topology
// both lists have, for each dimension, the rank before and the rank after this one; beyond the end
// of the grid it is ProcNull. Without a topology both lists are nil.
func (c *Comm) Neighbors() (sources, dests []int) {
	if c.isNull() || c.topo == nil {
		return nil, nil
	}
	return append([]int{}, c.topo.sources...), append([]int{}, c.topo.dests...)
}
