package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// mismatch makes the mistake that its argument names, and prints the error of each rank on one
// line. It fails at a rank without an error.
func mismatch(world *comm.Comm, args []string) error {
	mistakes := map[string]func(world *comm.Comm) error{
		"types": byRank(
			func(w *comm.Comm) error { return comm.Allreduce(w, []float64{1}, make([]float64, 1), comm.Sum) },
			func(w *comm.Comm) error { return comm.Allreduce(w, []int64{1}, make([]int64, 1), comm.Sum) }),
		"operations": byRank(
			func(w *comm.Comm) error { return comm.Allreduce(w, []int{1}, make([]int, 1), comm.Sum) },
			func(w *comm.Comm) error { return comm.Allreduce(w, []int{1}, make([]int, 1), comm.Max) }),
		"roots": func(w *comm.Comm) error { return comm.Bcast(w, make([]int, 4), w.Rank()%2) },
		"calls": byRank(
			func(w *comm.Comm) error { return w.Barrier() },
			func(w *comm.Comm) error { return comm.Bcast(w, make([]int, 4), 0) }),
		"forms": byRank(
			func(w *comm.Comm) error { return waited(comm.Ibcast(w, make([]int, 4), 0)) },
			func(w *comm.Comm) error { return comm.Bcast(w, make([]int, 4), 0) }),
		"lengths": func(w *comm.Comm) error { return comm.Bcast(w, make([]int, 3+w.Rank()), 0) },
		"parts": byRank(
			func(w *comm.Comm) error {
				return comm.Gatherv(w, []int{1}, make([]int, 3), []int{1, 1, 1}, nil, 0)
			},
			func(w *comm.Comm) error { return comm.Gatherv(w, []int{1, 2}, nil, nil, nil, 0) }),
		"message": toNext(func(w *comm.Comm, next, before int) error {
			_, err := comm.Sendrecv(w, []int64{1}, next, 0, make([]float64, 1), before, 0)
			return err
		}),
		"long message": toNext(func(w *comm.Comm, next, before int) error {
			_, err := comm.Sendrecv(w, make([]int64, 1<<17), next, 0, make([]float64, 1<<17), before, 0)
			return err
		}),
		"send buffer":    toNext(writeToSend),
		"receive buffer": toNext(writeToReceive),
		"lost request":   toNext(loseRequest),
	}
	if len(args) != 1 || mistakes[args[0]] == nil {
		return fmt.Errorf("no such mistake: %q", args)
	}
	err := mistakes[args[0]](world)
	if err == nil {
		return errors.New("no error")
	}
	_, err = fmt.Printf("rank %d: %v\n", world.Rank(), err)
	return err
}

// byRank calls first at rank 0, and others at the other ranks.
func byRank(first, others func(w *comm.Comm) error) func(w *comm.Comm) error {
	return func(w *comm.Comm) error {
		if w.Rank() == 0 {
			return first(w)
		}
		return others(w)
	}
}

// toNext calls f with the next rank and the previous rank.
func toNext(f func(w *comm.Comm, next, before int) error) func(w *comm.Comm) error {
	return func(w *comm.Comm) error {
		n := w.Size()
		return f(w, (w.Rank()+1)%n, (w.Rank()+n-1)%n)
	}
}

func waited(r request.Request, err error) error {
	if err == nil {
		_, err = r.Wait()
	}
	return err
}

// writeToSend writes to the buffer of a send that is under way.
func writeToSend(w *comm.Comm, next, before int) error {
	buf := make([]int, 1<<16)
	r, err := comm.Isend(w, buf, next, 0)
	if err != nil {
		return err
	}
	buf[7]++
	if _, err := comm.Recv(w, make([]int, len(buf)), before, 0); err != nil {
		return err
	}
	_, err = r.Wait()
	return err
}

// writeToReceive writes to the buffer of a receive that has not matched.
func writeToReceive(w *comm.Comm, next, before int) error {
	buf := make([]int, 1<<16)
	r, err := comm.Irecv(w, buf, before, 0)
	if err != nil {
		return err
	}
	buf[7]++
	if err := w.Barrier(); err != nil {
		return err
	}
	if err := comm.Send(w, make([]int, len(buf)), next, 0); err != nil {
		return err
	}
	_, err = r.Wait()
	return err
}

// loseRequest drops the request of a receive, and waits until checked mode has had the time to
// detect it. The returned error does not concern the lost request.
func loseRequest(w *comm.Comm, next, before int) error {
	if _, err := comm.Irecv(w, make([]int, 1), before, 0); err != nil {
		return err
	}
	for range 20 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	if err := comm.Send(w, []int{1}, next, 0); err != nil {
		return err
	}
	if err := w.Barrier(); err != nil {
		return err
	}
	return fmt.Errorf("see standard error of process %d", os.Getpid())
}
