package comm

import (
	"context"
	"slices"
	"unsafe"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/trace"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/pml"
)

// hostClocks compares the clocks of hosts, for traces. All ranks of a host have the same clock. So
// one rank of each host, the leader, compares it with the clock of rank 0. It does so at the start
// and at the end of the job, because clocks drift.
type hostClocks struct {
	leaders  []int // one rank of each host, rank 0 first; nil: the job has no launcher
	context  *Comm // a communicator that only the library uses
	compared []trace.Clock
}

// clockRounds is the number of messages to each leader and back. The comparison with the shortest
// round trip counts.
const clockRounds = 40

// leaders returns the first rank of each host.
func leaders(cards []wireup.Card) (list []int) {
	var hosts []string
	for rank, card := range cards {
		if !slices.Contains(hosts, card.Host) {
			hosts = append(hosts, card.Host)
			list = append(list, rank)
		}
	}
	return list
}

// compareClocks compares the clock of this rank's host with that of rank 0, if the rank records a
// trace and the job has several hosts. All ranks call it. If first is true, the job starts and the
// lock is not held; otherwise the caller is Finalize and the lock is held.
func (j *job) compareClocks(first bool) error {
	if j.tracer() == nil || len(j.recording.clocks.leaders) < 2 {
		return nil
	}
	k := &j.recording.clocks
	if first {
		var err error
		if k.context, err = j.world.Dup(); err != nil {
			return err
		}
		j.eng.Lock()
		defer j.eng.Unlock()
	}
	if k.context == nil || !slices.Contains(k.leaders, j.rank) {
		return nil
	}
	if j.rank != k.leaders[0] {
		return k.follow()
	}
	for _, leader := range k.leaders[1:] {
		if err := k.lead(leader); err != nil {
			return err
		}
	}
	return nil
}

// lead compares the clocks of this rank and another leader, and sends the result to it.
func (k *hostClocks) lead(leader int) error {
	var best [2]int64 // how far the leader's clock is ahead, and the round trip
	for i := range clockRounds {
		var theirs [2]int64
		from := calls.Now()
		if err := k.send(leader, &theirs); err != nil {
			return err
		}
		if err := k.recv(leader, &theirs); err != nil {
			return err
		}
		to := calls.Now()
		if i == 0 || to-from < best[1] {
			best = [2]int64{theirs[0] - from - (to-from)/2, to - from}
		}
	}
	return k.send(leader, &best)
}

// follow is the part of another leader in lead.
func (k *hostClocks) follow() error {
	var m [2]int64
	for range clockRounds {
		if err := k.recv(0, &m); err != nil {
			return err
		}
		m[0] = calls.Now()
		if err := k.send(0, &m); err != nil {
			return err
		}
	}
	if err := k.recv(0, &m); err != nil {
		return err
	}
	k.compared = append(k.compared, trace.Clock{At: calls.Now(), Ahead: m[0], Error: (m[1] + 1) / 2})
	return nil
}

// send and recv move two numbers. Unlike the user's calls, they are not recorded, and they work in
// Finalize too. Lock held.
func (k *hostClocks) send(dest int, m *[2]int64) error {
	c := k.context
	if r := c.job.pml.Send(c.p2p, bytesOf(m[:]), dest, 0, pml.Standard, "compare clocks"); r != nil {
		return awaitSend(context.Background(), r)
	}
	return nil
}

func (k *hostClocks) recv(source int, m *[2]int64) error {
	c := k.context
	_, err := awaitRecv(context.Background(), c.job.pml.Irecv(c.p2p, bytesOf(m[:]), int(unsafe.Sizeof(m[0])), source, 0, "compare clocks"))
	return err
}
