package coll

import "slices"

// Several hosts. The ranks of a host work together in the area. The first rank of each host, its
// leader, exchanges messages with the leaders of the other hosts. So less goes from host to host,
// and fewer ranks wait for messages.
//
// A reduction does so only if that does not change the order in which the contributions are
// combined: floating-point numbers would have other sums if the ranks were placed otherwise.

// hosts says where the ranks of a team are.
type hosts struct {
	local     []int // the ranks of this rank's host, in order
	leaders   []int // the first rank of each host, in order
	mostLocal int   // ranks of a host
	// aligned is the number of ranks of each host if all hosts have as many, in a row, and both
	// that number and the number of hosts are powers of two. Otherwise it is 0.
	aligned int
}

// hostsOf finds the hosts of n ranks, as one of them.
func hostsOf(n, self int, host func(rank int) int) hosts {
	var h hosts
	members := make(map[int]int) // of a host
	for rank := range n {
		if members[host(rank)] == 0 {
			h.leaders = append(h.leaders, rank)
		}
		if host(rank) == host(self) {
			h.local = append(h.local, rank)
		}
		members[host(rank)]++
		h.mostLocal = max(h.mostLocal, members[host(rank)])
	}
	h.aligned = h.mostLocal
	for i, leader := range h.leaders {
		for d := range h.mostLocal {
			if leader != i*h.mostLocal || leader+d >= n || host(leader+d) != host(leader) {
				h.aligned = 0
			}
		}
	}
	if powerBelow(n) != n || powerBelow(h.mostLocal) != h.mostLocal {
		h.aligned = 0
	}
	return h
}

// byHost reports whether a collective in which each rank has so many bytes goes through the areas
// of several hosts.
func (s *Schedule) byHost(call meetingCall, bytes int) bool {
	t := s.team
	return len(t.leaders) > 1 && s.fitsArea(call, bytes)
}

// leadersFrom are the ranks that lead their hosts, with the one that leads the root's first: the
// root itself. place is that of this rank's leader in it.
func (s *Schedule) leadersFrom(root int) (leaders []int, place int) {
	t := s.team
	leaders = append(s.Ints[:0], root)
	for _, leader := range t.leaders {
		if t.owner.Host(leader) == t.owner.Host(root) {
			continue
		}
		if t.owner.Host(leader) == t.owner.Host(s.rank) {
			place = len(leaders)
		}
		leaders = append(leaders, leader)
	}
	s.Ints = leaders
	return leaders, place
}

// bcastByHost passes the message from leader to leader, piece by piece. A leader puts a piece into
// the area while the next one is under way.
func (s *Schedule) bcastByHost(buf []byte, root int) {
	leaders, place := s.leadersFrom(root)
	n, leader := len(leaders), leaders[place]
	cut := s.cut(len(buf), 1)
	hand := func(i int) { // to the ranks of the host
		m := meet{call: meetBcast, root: s.team.number(leader), out: cut.of(buf, i)}
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
	low := lowestBit(place, n)
	parent := place - low
	if isChain {
		parent = place - 1
	}
	pass := func(i int) {
		if isChain && place+1 < n {
			s.send(leaders[place+1], cut.of(buf, i))
		}
		for child := low / 2; child > 0 && !isChain; child /= 2 {
			if place+child < n {
				s.send(leaders[place+child], cut.of(buf, i))
			}
		}
		hand(i)
	}
	for i := range cut.pieces {
		if place > 0 {
			s.recv(leaders[parent], cut.of(buf, i))
		}
		if i > 0 {
			pass(i - 1)
		}
		if place > 0 {
			s.wait()
		}
	}
	pass(cut.pieces - 1)
}

// allreduceByHost combines a block at the leader of each host. The leaders combine what they have,
// and share the result.
func (s *Schedule) allreduceByHost(in, out []byte) {
	t := s.team
	if in == nil && s.rank != t.local[0] {
		in = out
	}
	block := len(out)
	if room := t.area.block; block > room {
		block = room / 2 / s.Elem * s.Elem
	}
	f := foldingOf(len(t.leaders), s.rank/t.aligned)
	f.stride = t.aligned
	for at := 0; at < len(out); at += block {
		to := min(at+block, len(out))
		own, result := in, out[at:to]
		if own != nil {
			own = own[at:to]
		}
		m := meet{call: meetReduceLong, in: own, out: result}
		if len(result) <= s.tuning.SharedShortBytes {
			m.call = meetReduce
		}
		if s.rank != t.local[0] {
			m.out = nil
			s.meet(m)
			s.meet(meet{call: meetBcast, out: result})
			continue
		}
		s.meet(m)
		used := s.used
		if len(result) <= s.tuning.AllreduceDoublingBytes {
			s.allreduceDoubling(f, nil, result)
		} else {
			s.allreduceHalving(f, nil, result)
		}
		s.wait()
		s.meet(meet{call: meetBcast, in: result})
		s.untemp(used)
	}
}

// barrierByHost has the leaders do a barrier when all ranks of their hosts have come.
func (s *Schedule) barrierByHost() {
	t := s.team
	s.meet(meet{call: meetReduce})
	if s.rank == t.local[0] {
		n, place := len(t.leaders), slices.Index(t.leaders, s.rank)
		for d := 1; d < n; d *= 2 {
			s.send(t.leaders[up(place, d, n)], nil)
			s.recv(t.leaders[down(place, d, n)], nil)
			s.wait()
		}
	}
	s.meet(meet{call: meetBcast})
}

// number is the number in the area of a rank of this host.
func (t *Team) number(rank int) int { return slices.Index(t.local, rank) }
