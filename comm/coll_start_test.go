package comm

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/request"
)

// hasProbed reports whether this rank has probed for a start that is under way.
func hasProbed(c *Comm) bool {
	return locked(c, func() bool {
		return slices.ContainsFunc(c.team.Active(), func(s *coll.Schedule) bool {
			return reflect.ValueOf(s).Elem().FieldByName("probed").Len() > 0
		})
	})
}

// TestInitsOfOtherLengthsAreErrCount: this includes a rank that was probed before its call.
func TestInitsOfOtherLengthsAreErrCount(t *testing.T) {
	runUnchecked(t, 2, func(w *Comm) {
		defer hurry(w)()
		length := 10
		if w.Rank() == 1 {
			length = 20
			for !locked(w, func() bool { return reflect.ValueOf(w.team).Elem().FieldByName("probes").Len() > 0 }) {
				_, _, err := w.Iprobe(0, 0) // makes progress
				check(err)
			}
		}
		_, err := AllreduceInit(w, nil, make([]int, length), Sum)
		assert.ErrorIs(t, err, ErrCount)
		assert.ErrorIs(t, err, ErrComm)
	})
}

func startAndWait(r request.Request) error {
	if err := r.Start(); err != nil {
		return err
	}
	_, err := r.Wait()
	return err
}

// freedScene describes what a rank does while the others start a persistent collective.
type freedScene struct {
	late     bool // it starts the collective too, but only when all others have probed or are done
	freeComm bool // it frees the communicator too
	probed   bool // it frees the request only when all others have probed or are done
	starts   int  // that all ranks make before
}

// CheckFreedRequests frees the request of each persistent collective at one rank. The others then
// start it. In shorter tests, each scene has a third of the collectives.
func CheckFreedRequests(w *Comm) {
	defer hurry(w)()
	for nth, scene := range []freedScene{
		{}, {probed: true}, {freeComm: true}, {freeComm: true, probed: true, starts: 2}, {starts: 1}, {late: true, starts: 1},
	} {
		ordinary := revocables(blocking)
		for i, c := range revocables(persistent) {
			if !race.All() && (i/w.Size()+nth)%3 != 0 { // so that each scene has all roots
				continue
			}
			c.needs = ordinary[i].needs // of a start, and not of the Init call
			scene.check(w, c, i%w.Size(), i/2%w.Size())
		}
	}
}

// check makes a collective in a new communicator. freer is the rank that frees its request.
func (f freedScene) check(w *Comm, c revocable, root, freer int) {
	d := must(w.Dup())
	r := must(c.begin(newArgs(d, 5, root)))
	for range f.starts {
		check(startAndWait(r))
	}
	check(w.Barrier()) // so that no rank's Init call fails because of a start
	var err error
	switch others := w.Size() - 1; {
	case w.Rank() != freer:
		if !f.late && !f.probed {
			must(Recv(w, []byte{0}, freer, 1))
		}
		check(r.Start())
		done := make(chan error, 1)
		go func() {
			_, err := r.Wait()
			done <- err
		}()
		for len(done) == 0 && !hasProbed(d) {
			time.Sleep(100 * time.Microsecond) // leaves the core to the other ranks
		}
		check(Send(w, []byte{0}, freer, 2))
		err = <-done
	default:
		if f.late || f.probed {
			for range others {
				must(Recv(w, []byte{0}, AnySource, 2))
			}
		}
		if f.late {
			err = startAndWait(r)
			break
		}
		check(r.Free())
		if f.freeComm {
			check(d.Free())
		}
		for rank := range w.Size() {
			if rank != freer && !f.probed {
				check(Send(w, []byte{0}, rank, 1))
				must(Recv(w, []byte{0}, rank, 2))
			}
		}
	}
	isRoot := root == freer && c.id.Flow() == calls.FromRoot
	isDue := !f.late && w.Rank() != freer && (c.needs || isRoot)
	switch {
	case err == nil && isDue:
		failf("%+v: %s with root %d does not notice that rank %d has freed its request", f, c.name, root, freer)
	case err == nil:
	case !strings.HasPrefix(err.Error(), *d.name.Load()+": persistent "):
		failf("%+v: the error of a start of %s does not say that it is one: %w", f, c.name, err)
	case f.late || !errors.Is(err, ErrComm) || !f.freeComm && !strings.Contains(err.Error(), "freed"):
		failf("%+v: %s with root %d, rank %d: %w", f, c.name, root, freer, err)
	}
	if err != nil { // and all later starts fail at once
		if err := startAndWait(r); !errors.Is(err, ErrComm) {
			failf("%+v: %s again: %w", f, c.name, err)
		}
	}
	check(w.Barrier())
	if !f.freeComm {
		check(d.Barrier()) // the communicator can be used
	}
	if w.Rank() != freer || f.late {
		check(r.Free())
	}
	if !f.freeComm || w.Rank() != freer {
		check(d.Free())
	}
}

// TestStartWithoutRankThatHasFreedRequestFails: no rank waits forever, and a late rank makes no
// call fail.
func TestStartWithoutRankThatHasFreedRequestFails(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		run(t, n, CheckFreedRequests)
	}
}

// TestErrorSaysWhetherInitOrStartHasFailed: errors of the Init call have its name; errors of the
// request have another name.
func TestErrorSaysWhetherInitOrStartHasFailed(t *testing.T) {
	runUnchecked(t, 2, func(w *Comm) {
		out := []int{0}
		_, err := AllreduceInit(w, []int{1}, out, nil)
		EqualError(t, err, "world: allreduce init: invalid operation: it is nil")
		_, err = AllreduceInit(w, make([]int, 1+w.Rank()), make([]int, 1+w.Rank()), Sum)
		assert.ErrorContains(t, err, "world: allreduce init (coll_start_test.go:")
		r := must(AllreduceInit(w, []int{1}, out, Sum))
		EqualError(t, r.Cancel(), "world: persistent allreduce: cancel: invalid request: the request is inactive")
		check(w.Barrier())
		if w.Rank() == 1 {
			check(r.Free())
			must(Recv(w, out, 0, 0))
			return
		}
		check(r.Start())
		const name = "world: persistent allreduce: "
		EqualError(t, r.Start(), name+"start: invalid request: the request is active")
		for range 2 {
			_, err = r.Wait()
			EqualError(t, err, name+"rank 1 has freed its request of this persistent allreduce, and starts it no more")
			check(r.Start())
		}
		_, err = r.Wait()
		assert.Error(t, err)
		check(Send(w, out, 1, 0))
		check(r.Free())
	})
}

// TestStartsInAnotherOrderSucceedAfterProbes: ranks start persistent collectives in different
// orders. Each has probed the others for the one that it starts first before any rank starts its
// second one.
func TestStartsInAnotherOrderSucceedAfterProbes(t *testing.T) {
	run(t, 3, func(w *Comm) {
		defer hurry(w)()
		n := w.Size()
		reqs := make([]request.Request, n)
		sums := make([][]int, n)
		for i := range reqs {
			sums[i] = []int{0}
			reqs[i] = must(AllreduceInit(w, []int{i}, sums[i], Sum))
		}
		for range 5 {
			slices.Reverse(reqs)
			own := w.Rank() % n
			check(reqs[own].Start())
			done := make(chan error, 1)
			go func() {
				_, err := reqs[own].Wait()
				done <- err
			}()
			for !hasProbed(w) {
				time.Sleep(100 * time.Microsecond)
			}
			check(w.Barrier())
			for i := range reqs {
				if i != own {
					check(reqs[i].Start())
				}
			}
			check(<-done)
			check(request.WaitAll(reqs...))
			for i, sum := range sums {
				check(same("sum", []int{i * n}, sum))
			}
		}
		for _, r := range reqs {
			check(r.Free())
		}
	})
}
