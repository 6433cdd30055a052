package comm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/comm/internal/rails"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// run runs body at n ranks and fails the test on an error.
func run(t testing.TB, n int, body func(w *Comm), opts ...Option) {
	t.Helper()
	require.NoError(t, RunLocal(n, func(w *Comm) error { body(w); return nil }, opts...))
}

// runUnchecked is run without checked mode, regardless of the environment. It is for bodies that
// checked mode does not support, or reports differently.
func runUnchecked(t testing.TB, n int, body func(w *Comm), opts ...Option) {
	t.Helper()
	run(t, n, body, append(opts, WithSetting("check", "false"))...)
}

// check panics on an error. At a rank, this ends the job with that error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// must is check for a call that returns a value.
func must[T any](v T, err error) T {
	check(err)
	return v
}

// failf ends the job of the rank that calls it.
func failf(format string, args ...any) { panic(fmt.Errorf(format, args...)) }

// locked calls f under the lock of the engine of w.
func locked[T any](w *Comm, f func() T) T {
	w.job.eng.Lock()
	defer w.job.eng.Unlock()
	return f()
}

// localWorld makes ranks of this process. open makes the modules of each rank; the nth modules of
// all ranks are connected.
func localWorld(tb testing.TB, ranks int, open func(j *job, wakeup *progress.PipeWakeup) []btl.Module, opts ...Option) []*Comm {
	tb.Helper()
	return localWorldOf(tb, ranks, open, unchanged, opts...)
}

// localWorldOf is localWorld with each endpoint as wrap makes it.
func localWorldOf(tb testing.TB, ranks int, open func(j *job, wakeup *progress.PipeWakeup) []btl.Module, wrap func(btl.Endpoint) btl.Endpoint, opts ...Option) []*Comm {
	tb.Helper()
	wrapAny := func(ep btl.Endpoint, _, _ int) btl.Endpoint { return wrap(ep) }
	return localWorldBy(tb, ranks, open, wrapAny, func(local, remote int) int {
		if local == remote {
			return 1
		}
		return 0
	}, opts...)
}

// localWorldBy is localWorldOf with rails between modules as leads says (transport.Transport). wrap
// is also told the rank and its module.
func localWorldBy(tb testing.TB, ranks int, open func(j *job, wakeup *progress.PipeWakeup) []btl.Module, wrap func(ep btl.Endpoint, rank, module int) btl.Endpoint,
	leads func(local, remote int) int, opts ...Option) []*Comm {
	tb.Helper()
	_, settings, err := makeOptions(opts)
	require.NoError(tb, err)
	worlds := make([]*Comm, ranks)
	for rank := range worlds {
		wakeup, err := progress.NewPipeWakeup()
		require.NoError(tb, err)
		tb.Cleanup(func() { require.NoError(tb, wakeup.Close()) })
		idle := idlePolicy(settings, ranks, 2, crowdedLocalYieldNanos)
		idle.Wakeup = wakeup
		j := newJob(rank, ranks, settings, idle, "here", nil)
		j.others = localRank{nil, rank}
		j.makePML(func(peer int) ([]pml.Route, error) {
			var all rails.Routes
			theirs := worlds[peer].job.modules
			for _, p := range transport.Pairs(len(j.modules), len(theirs), leads, rank < peer) {
				m, address := j.modules[p.Local], theirs[p.Remote].Address()
				route := pml.Route{Module: m, Local: p.Local, Remote: p.Remote, Extra: p.Extra, Alternate: p.Alternate}
				all.Add(route, !p.Alternate && !p.Extra, func() (btl.Endpoint, error) {
					ep, err := m.Connect(btl.Path{Peer: peer, Module: uint8(p.Remote)}, address)
					if err != nil {
						return nil, err
					}
					return wrap(ep, rank, p.Local), nil
				})
			}
			if len(all.List) == 0 {
				return nil, errors.Join(append(all.Refused, ErrUnreachable)...)
			}
			return all.List, nil
		})
		modules := open(j, wakeup)
		j.eng.Lock() // a turn of the asynchronous progress takes this lock
		for _, m := range modules {
			j.addModule(m)
		}
		j.eng.AddPoller(j.pml)
		j.makeWorld()
		j.eng.Unlock()
		worlds[rank] = j.world
		tb.Cleanup(func() { require.NoError(tb, locked(j.world, func() error { return j.close(ErrFinalized) })) })
	}
	return worlds
}

// awaitPending returns when the rank of w waits, or when ctx ends.
func awaitPending(ctx context.Context, w *Comm) {
	for ctx.Err() == nil && locked(w, func() bool { return len(w.job.pml.Pending()) == 0 }) {
		runtime.Gosched()
	}
}

// awaitRunning returns when this rank is in a collective of c.
func awaitRunning(c *Comm) {
	for !locked(c, func() bool { return c.team.Blocking() != nil }) {
		runtime.Gosched()
	}
}

// awaitTrue makes progress until isSo returns true.
func awaitTrue(w *Comm, isSo func() bool) {
	for !isSo() {
		_, _, err := w.Iprobe(AnySource, tagUB)
		check(err)
	}
}

// same returns an error unless got equals want.
func same[T comparable](what string, want, got []T) error {
	if slices.Equal(want, got) {
		return nil
	}
	if len(want) != len(got) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range want {
		if want[i] != got[i] {
			return fmt.Errorf("%s: element %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
	return nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// WaitingCall is a call that waits for another rank. Those that only poll are repeated until they
// return an error.
type WaitingCall struct {
	Name string
	Call func(w *Comm, peer int) error
}

// WaitingCalls lists the point-to-point calls that wait for a peer.
func WaitingCalls() []WaitingCall {
	wait := func(r request.Request, err error) error {
		if err == nil {
			_, err = r.Wait()
		}
		return err
	}
	waitAll := func(r request.Request, err error) error {
		if err == nil {
			err = request.WaitAll(r)
		}
		return err
	}
	twice := func(r request.Request, err error) error { // the second start is after the failure
		first, second := wait(r, errors.Join(err, r.Start())), wait(r, r.Start())
		if first == nil || errors.Is(second, ErrRequest) { // still active, as the job has ended
			return first
		}
		for _, of := range []error{ErrUnreachable, ErrProcFailed} {
			if errors.Is(first, of) != errors.Is(second, of) {
				return fmt.Errorf("two waits end differently: %v, and %v", first, second)
			}
		}
		return errors.Join(second, r.Free())
	}
	long := func() []byte { return make([]byte, 1<<20) }
	b := func() []byte { return make([]byte, 1) }
	return []WaitingCall{
		{"iprobe", func(w *Comm, peer int) error {
			for {
				if _, _, err := w.Iprobe(peer, 0); err != nil {
					return err
				}
			}
		}},
		{"improbe", func(w *Comm, peer int) error {
			for {
				if _, _, _, err := w.Improbe(peer, 0); err != nil {
					return err
				}
			}
		}},
		{"test", func(w *Comm, peer int) error {
			r, err := Irecv(w, b(), peer, 0)
			for err == nil {
				_, _, err = r.Test()
			}
			return err
		}},
		{"probe", func(w *Comm, peer int) error { _, err := w.Probe(peer, 0); return err }},
		{"mprobe", func(w *Comm, peer int) error { _, _, err := w.Mprobe(peer, 0); return err }},
		{"recv", func(w *Comm, peer int) error { _, err := Recv(w, b(), peer, 0); return err }},
		{"recv of any tag", func(w *Comm, peer int) error { _, err := Recv(w, b(), peer, AnyTag); return err }},
		{"recv value", func(w *Comm, peer int) error { _, _, err := RecvValue[int](w, peer, 0); return err }},
		{"irecv", func(w *Comm, peer int) error { return wait(Irecv(w, b(), peer, 0)) }},
		{"wait all", func(w *Comm, peer int) error { return waitAll(Irecv(w, b(), peer, 0)) }},
		{"recv init", func(w *Comm, peer int) error { return twice(RecvInit(w, b(), peer, 0)) }},
		{"send", func(w *Comm, peer int) error { return Send(w, long(), peer, 0) }},
		{"ssend", func(w *Comm, peer int) error { return Ssend(w, b(), peer, 0) }},
		{"isend", func(w *Comm, peer int) error { return wait(Isend(w, long(), peer, 0)) }},
		{"issend", func(w *Comm, peer int) error { return wait(Issend(w, b(), peer, 0)) }},
		{"send init", func(w *Comm, peer int) error { return twice(SendInit(w, long(), peer, 0)) }},
		{"sendrecv", func(w *Comm, peer int) error {
			_, err := Sendrecv(w, long(), peer, 0, b(), peer, 0)
			return err
		}},
		{"sendrecv replace", func(w *Comm, peer int) error {
			_, err := SendrecvReplace(w, b(), peer, 0, peer, 0)
			return err
		}},
		{"recv with a context", func(w *Comm, peer int) error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			_, err := Recv(w.WithContext(ctx), b(), peer, 0)
			return err
		}},
	}
}
