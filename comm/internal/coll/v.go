package coll

// Gatherv makes the schedule of MPI_Gatherv: each rank sends its part directly to the root. Only
// the root has parts, by rank. in is nil at the root for in place.
func (s *Schedule) Gatherv(in []byte, parts [][]byte, root int) {
	if s.rank != root {
		s.send(root, in)
		return
	}
	for d := 1; d < s.size; d++ {
		r := up(root, d, s.size)
		s.recv(r, parts[r])
	}
	if in != nil {
		s.copy(parts[root], in)
	}
}

// Scatterv makes the schedule of MPI_Scatterv: the root sends each rank its part. Only the root has
// parts, by rank. out is nil at the root for in place.
func (s *Schedule) Scatterv(parts [][]byte, out []byte, root int) {
	if s.rank != root {
		s.recv(root, out)
		return
	}
	for d := 1; d < s.size; d++ {
		r := up(root, d, s.size)
		s.send(r, parts[r])
	}
	if out != nil {
		s.copy(out, parts[root])
	}
}

// Allgatherv makes the schedule of MPI_Allgatherv. parts are by rank. in is nil for in place.
func (s *Schedule) Allgatherv(in []byte, parts [][]byte) {
	n, total := s.size, 0
	for _, p := range parts {
		total += len(p)
	}
	s.agreed = total
	if in != nil {
		s.copy(parts[s.rank], in)
	}
	if total > s.tuning.AllgatherBruckBytes {
		s.ring(s.rank, func(i int) []byte { return parts[i] })
		return
	}
	for d := 1; d < n; d++ {
		to, from := up(s.rank, d, n), down(s.rank, d, n)
		s.send(to, parts[s.rank])
		s.recv(from, parts[from])
	}
}

// Alltoallv makes the schedule of MPI_Alltoallv. in and out are by rank.
func (s *Schedule) Alltoallv(in, out [][]byte) { s.alltoallPairs(in, out) }

// AlltoallvInPlace makes the schedule of MPI_Alltoallv in place. parts are by rank.
func (s *Schedule) AlltoallvInPlace(parts [][]byte) {
	s.inPlace = true // also at a rank whose parts are all empty, because others may have elements
	s.alltoallInPlace(parts)
}
