package coll

import "slices"

// Several hosts. The ranks of a host work together in the area. The first rank of each host, its
// leader, exchanges messages with the leaders of the other hosts. So fewer bytes go between hosts,
// and fewer ranks wait for messages.
//
// A reduction does so only if that does not change the order in which the contributions are
// combined: otherwise floating-point sums would depend on the placement of ranks. The rule has no
// exception for operations whose order does not matter: ranks may disagree about these, and would
// then choose different schedules.

// hosts says where the ranks of a team are.
type hosts struct {
	local     []int // the ranks of this rank's host, in order
	leaders   []int // the first rank of each host, in order
	hostOf    []int // by rank, the place of its host in leaders
	mostLocal int   // ranks of a host
	// aligned is the number of ranks of each host, if all hosts have the same number, with
	// consecutive ranks, and it and the number of hosts are powers of two. Otherwise it is 0.
	aligned int
}

// hostsOf finds the hosts of n ranks, as one of them.
func hostsOf(n, self int, host func(rank int) int) hosts {
	h := hosts{hostOf: make([]int, n)}
	place := make(map[int]int) // of a host, in leaders
	var members []int          // of each host
	for rank := range n {
		i, known := place[host(rank)]
		if !known {
			i = len(h.leaders)
			place[host(rank)] = i
			h.leaders, members = append(h.leaders, rank), append(members, 0)
		}
		h.hostOf[rank] = i
		members[i]++
		h.mostLocal = max(h.mostLocal, members[i])
		if host(rank) == host(self) {
			h.local = append(h.local, rank)
		}
	}
	h.aligned = h.mostLocal
	for i, leader := range h.leaders {
		for d := range h.mostLocal {
			if leader != i*h.mostLocal || leader+d >= n || h.hostOf[leader+d] != i {
				h.aligned = 0
			}
		}
	}
	if powerBelow(n) != n || powerBelow(h.mostLocal) != h.mostLocal {
		h.aligned = 0
	}
	return h
}

// byHost reports whether a collective with this many bytes of each rank goes through the areas of
// several hosts.
func (s *Schedule) byHost(kind *meetingKind, bytes int) bool {
	t := s.team
	return len(t.leaders) > 1 && s.fitsArea(kind, bytes)
}

// leader is the rank that leads the host with a number, when hosts are counted from the root's. The
// root leads its host.
func (s *Schedule) leader(number, root int) int {
	if number == 0 {
		return root
	}
	t := s.team
	return t.leaders[up(t.hostOf[root], number, len(t.leaders))]
}

// bcastByHost passes the message from leader to leader, piece by piece. A leader puts a piece into
// the area while the next one is under way.
func (s *Schedule) bcastByHost(buf []byte, root int) {
	t := s.team
	n := len(t.leaders)
	v := down(t.hostOf[s.rank], t.hostOf[root], n)
	leader := s.leader(v, root)
	cut := cutInto(s.tuning.HostPieceBytes, len(buf), 1)
	hand := func(i int) { // to the ranks of the host
		m := meet{kind: &meetBcast, root: t.number(leader), out: cut.of(buf, i)}
		if s.rank == leader {
			m.in, m.out = m.out, nil
		}
		s.meet(m)
	}
	if s.rank != leader {
		for i := range cut.pieces {
			hand(i)
		}
		return
	}
	isChain := cut.pieces >= n
	low := lowestBit(v, n)
	parent := v - low
	if isChain {
		parent = v - 1
	}
	pass := func(i int) {
		if isChain && v+1 < n {
			s.send(s.leader(v+1, root), cut.of(buf, i))
		}
		for child := low / 2; child > 0 && !isChain; child /= 2 {
			if v+child < n {
				s.send(s.leader(v+child, root), cut.of(buf, i))
			}
		}
		hand(i)
	}
	for i := range cut.pieces {
		if v > 0 {
			s.recv(s.leader(parent, root), cut.of(buf, i))
		}
		if i > 0 {
			pass(i - 1)
		}
		if v > 0 {
			s.wait()
		}
	}
	pass(cut.pieces - 1)
}

// reduceByHost combines a block at one rank of each host. These ranks then combine their results,
// up a tree. All ranks of a host are next to each other in the tree of reduceTree, so the order is
// the same.
func (s *Schedule) reduceByHost(in, out []byte, root int) {
	t := s.team
	top := treeRoot(root, s.Commutes)
	first := top % t.aligned
	leaders := tree{
		n: len(t.leaders), root: top / t.aligned, self: s.rank / t.aligned, stride: t.aligned, first: first,
	}
	isLeader := s.rank%t.aligned == first
	have := in
	if in == nil {
		have = out
	}
	size, block := len(have), s.blockByHost(len(have))
	isRoot := s.rank == root && s.rank == top
	var result []byte // at this leader
	if isLeader && !isRoot {
		result = s.temp(block) // all the time: meetings take temporary memory behind it
	}
	for at := 0; at < size; at += block {
		to := min(at+block, size)
		used := s.used
		m := meet{kind: &meetReduceLong, in: have[at:to], root: first, order: orderTree}
		if s.isCombinedAtRoot(to - at) {
			m.kind = &meetReduce
		}
		if isRoot {
			m.out = out[at:to]
			if in == nil {
				m.in = nil
			}
		} else if isLeader {
			m.out = result[:to-at]
		}
		s.meet(m)
		switch {
		case s.rank == top:
			s.reduceTree(leaders, nil, m.out)
			if !isRoot {
				s.send(root, m.out)
			}
		case isLeader:
			s.reduceTree(leaders, m.out, nil)
		}
		if s.rank == root && !isRoot {
			s.recv(top, out[at:to])
		}
		s.wait()
		s.untemp(used)
	}
}

// blockByHost is the length of the blocks in which a vector of this length is combined by host.
func (s *Schedule) blockByHost(bytes int) int {
	if room := s.area.Block; bytes > room {
		return room / 2 / s.Elem * s.Elem
	}
	return bytes
}

// allreduceByHost combines a block at the leader of each host, and the leaders combine their
// results. Or each rank does so with a range of the block (allreduceRanges).
func (s *Schedule) allreduceByHost(in, out []byte) {
	byRange := len(out) > s.tuning.LeaderBytes
	if in == nil && !byRange && s.rank != s.team.local[0] {
		in = out
	}
	block := s.blockByHost(len(out))
	for at := 0; at < len(out); at += block {
		to := min(at+block, len(out))
		own, result := in, out[at:to]
		if own != nil {
			own = own[at:to]
		}
		used := s.used
		if byRange {
			s.allreduceRanges(own, result)
		} else {
			s.allreduceByLeaders(own, result)
		}
		s.untemp(used)
	}
}

func (s *Schedule) allreduceByLeaders(in, out []byte) {
	m := meet{kind: &meetReduceLong, in: in, out: out}
	if s.isCombinedAtRoot(len(out)) {
		m.kind = &meetReduce
	}
	if s.rank != s.team.local[0] {
		m.out = nil
		s.meet(m)
		s.meet(meet{kind: &meetBcast, out: out})
		return
	}
	s.meet(m)
	s.allreduceAmongHosts(out)
	s.meet(meet{kind: &meetBcast, in: out})
}

// allreduceRanges makes each rank of a host combine a range of the vector, and exchange it with the
// ranks of other hosts that combine the same range. So all ranks of a host share the work. in is
// nil for in place.
func (s *Schedule) allreduceRanges(in, out []byte) {
	n, number := s.team.aligned, s.rank%s.team.aligned
	from, to := share(len(out), s.Elem, n, number), share(len(out), s.Elem, n, number+1)
	s.meet(meet{kind: &meetReduceScatter, in: in, out: out})
	if from < to {
		s.allreduceAmongHosts(out[from:to])
	}
	s.meet(meet{kind: &meetGatherRanges, out: out})
}

// allreduceAmongHosts combines the results of the ranks that have this rank's number on their
// hosts.
func (s *Schedule) allreduceAmongHosts(inout []byte) {
	t := s.team
	f := foldingOf(len(t.leaders), s.rank/t.aligned)
	f.first, f.stride = s.rank%t.aligned, t.aligned
	if len(inout) <= s.tuning.AllreduceDoublingBytes {
		s.allreduceDoubling(f, nil, inout)
	} else {
		s.allreduceHalving(f, nil, inout)
	}
	s.wait()
}

// barrierByHost has the leaders do a barrier when all ranks of their hosts have come.
func (s *Schedule) barrierByHost() {
	t := s.team
	s.meet(meet{kind: &meetReduce})
	if s.rank == t.local[0] {
		n, place := len(t.leaders), t.hostOf[s.rank]
		for d := 1; d < n; d *= 2 {
			s.send(t.leaders[up(place, d, n)], nil)
			s.recv(t.leaders[down(place, d, n)], nil)
			s.wait()
		}
	}
	s.meet(meet{kind: &meetBcast})
}

// number is the number in the area of a rank of this host.
func (t *Team) number(rank int) int { return slices.Index(t.local, rank) }
