package coll

// Barrier makes the schedule of MPI_Barrier: a meeting, or a dissemination by messages. In each
// step a rank tells another rank, twice as far away as in the step before, that all ranks in
// between have arrived, and hears the same from the rank as far on the other side.
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
