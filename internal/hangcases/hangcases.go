// Package hangcases has programs that hang, one for each kind of cause. Tests and the program
// scripts/hangs run them to see whether the report of the hang names the cause.
package hangcases

import (
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

// Env has functions that the process provides for a case.
type Env struct {
	// Stop stops the rank, as SIGSTOP stops a process. It returns when the rank may continue.
	Stop func()
	// CutRail makes the only rail between ranks 0 and 1 fail, without the peer counting as lost.
	CutRail func()
	// Compute runs for ever, or until the test has ended.
	Compute func()
}

// Case is a program that hangs.
type Case struct {
	Name string
	// Body of a rank. Its error is the error of the call that hung.
	Body func(w *comm.Comm, env Env) error
	// Want returns regular expressions. The first three lines of the report together must match all
	// of them. n is the number of ranks, which is even.
	Want func(n int) []string
}

func next(w *comm.Comm) int { return (w.Rank() + 1) % w.Size() }

func isLast(w *comm.Comm) bool { return w.Rank() == w.Size()-1 }

// wants are constant expressions.
func wants(list ...string) func(int) []string { return func(int) []string { return list } }

// receive receives one byte.
func receive(w *comm.Comm, source, tag int) error {
	_, err := comm.Recv(w, make([]byte, 1), source, tag)
	return err
}

// Cases lists the programs.
func Cases() []Case {
	return []Case{
		{"cyclic-recv", cyclicRecv, wants(`deadlock: nothing can release ranks 0.*rank 0 waits for rank 1`)},
		{"unmatched-tag", unmatchedTag, wants(`rank 1: hangcases.go:\d+ Recv from 0, tag 8, but the message from 0, tag 7 .*another tag`)},
		{"missing-rank", missingRank, func(n int) []string {
			return []string{fmt.Sprintf(`rank %d has not called barrier in world: .*hangcases.go:\d+ Barrier; rank %d: hangcases.go:\d+ Recv from 0, tag 5`, n-1, n-1)}
		}},
		{"late-start", lateStart, func(n int) []string {
			return []string{fmt.Sprintf(`rank %d has not started the persistent allreduce of hangcases.go:\d+ in world again: `+
				`.* at hangcases.go:\d+ Wait; rank %d: hangcases.go:\d+ Recv from 0, tag 5`, n-1, n-1)}
		}},
		{"collective-order", collectiveOrder, wants(`collectives in different order: rank \d+ is in barrier of [ab] \(hangcases.go:\d+ Barrier\), rank \d+ in barrier of [ab]`)},
		{"wait-any", waitAny, wants(`deadlock: nothing can release ranks 0.*1`)},
		{"any-source", anySource, wants(`deadlock: nothing can release rank 0, which waits for a message from any rank; ranks? 1.* ha(s|ve) finalized`)},
		{"ssend-pair", ssendPair, wants(`deadlock: nothing can release ranks 0.*rank 0 waits for rank 1, which waits for rank 0`)},
		{"stopped", stopped, func(n int) []string { return []string{fmt.Sprintf(`rank %d: its process is stopped by a signal`, n-1)} }},
		{"dead-rail", deadRail, wants(`rank [01] does not reach rank [01]: rail \S+ .*(down|failing|probing)`)},
		{"endless-loop", endlessLoop, func(n int) []string {
			return []string{fmt.Sprintf(`rank %d has not called barrier|rank %d: in no call that waits: .*`, n-1, n-1)}
		}},
		{"large-sends", largeSends, wants(`deadlock: nothing can release ranks 0.*rank 0 waits for rank 1, which waits for rank 0`)},
		{"probe", probe, wants(`rank 1: hangcases.go:\d+ Probe from 0, tag 3, but the message from 0, tag 4 .*another tag`)},
	}
}

// cyclicRecv: each rank receives from the next one before it sends.
func cyclicRecv(w *comm.Comm, _ Env) error {
	if err := receive(w, next(w), 1); err != nil {
		return err
	}
	return comm.Send(w, []byte{1}, next(w), 1)
}

// unmatchedTag: rank 0 sends with another tag than rank 1 receives with.
func unmatchedTag(w *comm.Comm, _ Env) error {
	switch w.Rank() {
	case 0:
		if err := comm.Send(w, []byte{1}, 1, 7); err != nil {
			return err
		}
	case 1:
		if err := receive(w, 0, 8); err != nil {
			return err
		}
	}
	return w.Barrier()
}

// missingRank: the last rank does not call the barrier.
func missingRank(w *comm.Comm, _ Env) error {
	if isLast(w) {
		return receive(w, 0, 5)
	}
	return w.Barrier()
}

// lateStart: the last rank does not start a persistent allreduce as often as the others.
func lateStart(w *comm.Comm, _ Env) error {
	r, err := comm.AllreduceInit(w, []int{1}, []int{0}, comm.Sum)
	if err != nil {
		return err
	}
	for range 2 {
		if err := r.Start(); err != nil {
			return err
		}
		if _, err := r.Wait(); err != nil {
			return err
		}
		if isLast(w) {
			return receive(w, 0, 5)
		}
	}
	return nil
}

// collectiveOrder: half of the ranks call the barriers of two communicators in the opposite order.
func collectiveOrder(w *comm.Comm, _ Env) error {
	a, err := w.Dup()
	if err != nil {
		return err
	}
	a.SetName("a")
	b, err := w.Dup()
	if err != nil {
		return err
	}
	b.SetName("b")
	if w.Rank() >= w.Size()/2 {
		a, b = b, a
	}
	if err := a.Barrier(); err != nil {
		return err
	}
	return b.Barrier()
}

// waitAny: each rank waits for a message of any of two ranks, and none sends.
func waitAny(w *comm.Comm, _ Env) error {
	previous := (w.Rank() + w.Size() - 1) % w.Size()
	var reqs []comm.Request
	for tag, source := range []int{next(w), previous} {
		r, err := comm.Irecv(w, make([]byte, 1), source, tag)
		if err != nil {
			return err
		}
		reqs = append(reqs, r)
	}
	_, _, err := comm.WaitAny(reqs...)
	return err
}

// anySource: rank 0 waits for a message from any rank, and all others have ended.
func anySource(w *comm.Comm, _ Env) error {
	if w.Rank() > 0 {
		return nil
	}
	return receive(w, comm.AnySource, comm.AnyTag)
}

// ssendPair: two ranks send synchronously to each other before they receive.
func ssendPair(w *comm.Comm, _ Env) error {
	other := w.Rank() ^ 1
	if err := comm.Ssend(w, []byte{1}, other, 2); err != nil {
		return err
	}
	return receive(w, other, 2)
}

// stopped: the process of the last rank is stopped.
func stopped(w *comm.Comm, env Env) error {
	if isLast(w) {
		env.Stop()
	}
	return w.Barrier()
}

// deadRail: the only rail between ranks 0 and 1 fails while rank 0 has a message for rank 1.
func deadRail(w *comm.Comm, env Env) error {
	if err := w.Barrier(); err != nil {
		return err
	}
	switch w.Rank() {
	case 0:
		env.CutRail()
		return comm.Ssend(w, make([]byte, 1<<20), 1, 3)
	case 1:
		_, err := comm.Recv(w, make([]byte, 1<<20), 0, 3)
		return err
	}
	return w.Barrier()
}

// endlessLoop: the last rank computes.
func endlessLoop(w *comm.Comm, env Env) error {
	if isLast(w) {
		env.Compute()
	}
	return w.Barrier()
}

// largeSends: two ranks send long messages to each other before they receive.
func largeSends(w *comm.Comm, _ Env) error {
	other := w.Rank() ^ 1
	buf := make([]byte, 4<<20)
	if err := comm.Send(w, buf, other, 6); err != nil {
		return err
	}
	_, err := comm.Recv(w, buf, other, 6)
	return err
}

// probe: rank 1 waits for a message with another tag than rank 0 sends with.
func probe(w *comm.Comm, _ Env) error {
	switch w.Rank() {
	case 0:
		if err := comm.Send(w, []byte{1}, 1, 4); err != nil {
			return err
		}
	case 1:
		if _, err := w.Probe(0, 3); err != nil {
			return err
		}
	}
	return w.Barrier()
}
