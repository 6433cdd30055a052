package coll

// NoRank as a neighbour: nothing is sent or received, and its part of the result does not change.
const NoRank = -2

// Neighbors makes the schedule of the neighbourhood collectives (MPI 4.1, section 8.6): part i of
// in goes to dests[i], and part i of out comes from sources[i].
//
// The k-th part that one rank sends to another is the k-th that the other one receives from it. In
// a Cartesian topology the neighbours are pairs: a part sent to the lower neighbour is received
// from the upper one, and vice versa. In a dimension of one or two places both neighbours are the
// same rank, so its messages arrive in the opposite order. So each pair is received in reverse.
func (s *Schedule) Neighbors(in, out [][]byte, sources, dests []int, pairs bool) {
	for i := range sources {
		if pairs {
			i ^= 1
		}
		if sources[i] != NoRank {
			s.recv(sources[i], out[i])
		}
	}
	for i, dest := range dests {
		if dest != NoRank {
			s.send(dest, in[i])
		}
	}
}
