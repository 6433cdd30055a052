package coll

// Barrier makes the schedule of MPI_Barrier: a meeting, or a dissemination by messages. In each
// step the distance between partners doubles. A rank sends to the rank at that distance, and
// receives from the rank at that distance on the other side: all ranks in between have arrived.
func (s *Schedule) Barrier() {
	if s.meetsInArea(&meetBarrier, 0) {
		s.meet(meet{kind: &meetBarrier, byMessages: barrierByMessages})
		return
	}
	if s.byHost(&meetBarrier, 0) {
		s.barrierByHost()
		return
	}
	s.barrierByMessages()
}

func (s *Schedule) barrierByMessages() {
	n := s.size
	if s.isFlat(0) {
		s.barrierFlat()
		return
	}
	for d := 1; d < n; d *= 2 {
		s.send(up(s.rank, d, n), nil)
		s.recv(down(s.rank, d, n), nil)
		s.wait()
	}
}
