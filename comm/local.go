package comm

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/comm/internal/rails"
	"github.com/mpigo/mpigo/comm/internal/userlog"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// RunLocal runs body as the n ranks of a job of their own. The ranks are goroutines of this
// process, joined by rails in memory ([WithRails]). RunLocal returns when all have ended. Its error
// has the errors of all ranks, each with its rank.
//
// A panic in body becomes an error with its stack. When one rank fails, the calls of the others end
// with an error that Is ErrProcFailed. RunLocal finalizes a rank whose body returns nil.
//
// RunLocal is independent of a job that this process itself belongs to. If n < 1, the error is
// ErrCount.
func RunLocal(n int, body func(world *Comm) error, opts ...Option) error {
	if n < 1 {
		return fmt.Errorf("run local: %w: %d ranks", ErrCount, n)
	}
	l, err := newLocal(n, opts)
	if err != nil {
		return fmt.Errorf("run local: %w", err)
	}
	errs := make([]error, n)
	var running sync.WaitGroup
	for rank, j := range l.jobs {
		running.Go(func() {
			guard(j.world, body, func(err error) { errs[rank] = l.done(j, err) })
		})
	}
	running.Wait()
	return errors.Join(append(l.inOrder(errs), l.close())...)
}

// local is a job whose ranks are goroutines.
type local struct {
	jobs    []*job
	crowded bool // there are more ranks than processors

	mu      sync.Mutex
	arrived int           // at the barrier; guarded by mu
	gate    chan struct{} // closed when all have arrived, then replaced; guarded by mu
	failed  int           // the rank that failed first, −1 if none has; guarded by mu
	cause   error         // the error of the other ranks' calls; guarded by mu, set once
	broken  chan struct{} // closed once cause is set
	aborts  []error       // of each rank; guarded by mu
}

func newLocal(n int, opts []Option) (*local, error) {
	o, settings, err := makeOptions(opts)
	if err != nil {
		return nil, err
	}
	if o.badRails != nil {
		return nil, o.badRails
	}
	if o.fabric.Virtual {
		return nil, fmt.Errorf("%w: a virtual fabric, because nothing would advance its time", ErrNotSupported)
	}
	o.fabric.Ranks = n
	fabric, err := loop.NewFabric(o.fabric)
	if err != nil {
		return nil, err
	}
	l := &local{
		jobs:    make([]*job, n),
		gate:    make(chan struct{}),
		failed:  -1,
		crowded: n > runtime.GOMAXPROCS(0),
		broken:  make(chan struct{}),
		aborts:  make([]error, n),
	}
	id := ownJobID()
	// All ranks need the addresses of all modules before the first rank sends.
	for rank := range n {
		if l.jobs[rank], err = l.newRank(rank, id, fabric, settings, o.log); err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	attach(o.hook, l.jobs)
	if o.onFabric != nil {
		o.onFabric(fabric)
	}
	return l, nil
}

func (l *local) newRank(rank int, id string, fabric *loop.Fabric, settings tunable.Set, log *slog.Logger) (*job, error) {
	wakeup := progress.NewChanWakeup()
	engine := idlePolicy(settings, len(l.jobs), runtime.GOMAXPROCS(0), crowdedLocalYieldNanos)
	engine.Wakeup = wakeup
	j := newJob(rank, len(l.jobs), settings, engine, "local", log)
	j.others, j.id, j.fabric = localRank{l, rank}, id, fabric
	j.crowded = l.crowded
	if err := j.startRecording(true); err != nil {
		return nil, err
	}
	j.makePML(func(peer int) ([]pml.Route, error) { return l.resolve(rank, peer) })
	j.eng.Lock()
	defer j.eng.Unlock()
	for rail := range fabric.Rails() {
		m, err := fabric.Module(rank, rail, j.pml, wakeup)
		if err != nil {
			return nil, errors.Join(err, j.close(ErrFinalized))
		}
		j.addModule(m)
	}
	j.eng.AddPoller(j.pml)
	j.makeWorld()
	return j, nil
}

// resolve finds the rails between two ranks: all that the fabric has.
func (l *local) resolve(rank, peer int) ([]pml.Route, error) {
	var all rails.Routes
	for rail, m := range l.jobs[rank].modules {
		card := l.jobs[peer].modules[rail].Address()
		all.Add(pml.Route{Module: m, Local: rail, Remote: rail}, true, func() (btl.Endpoint, error) { return m.Connect(btl.Path{Peer: peer, Module: uint8(rail)}, card) })
	}
	if len(all.List) == 0 {
		return nil, errors.Join(append(all.Refused, fmt.Errorf("no rail leads from rank %d to rank %d", rank, peer))...)
	}
	return all.List, nil
}

// done finishes a rank whose body ended with err, and returns the rank's error.
func (l *local) done(j *job, err error) error {
	if err == nil {
		err = j.world.finalizeOnce()
	}
	l.mu.Lock()
	if aborted := l.aborts[j.rank]; aborted != nil && errors.Is(err, errGoexit) {
		err = aborted
	}
	l.mu.Unlock()
	if err == nil {
		return nil
	}
	j.writeRecordsSoon(fmt.Sprintf("rank %d: %s", j.rank, userlog.OneLine(err)))
	l.fail(j.rank, err)
	var p *PanicError
	if errors.As(err, &p) {
		return fmt.Errorf("rank %d: %w\n%s", j.rank, err, p.Stack)
	}
	return fmt.Errorf("rank %d: %w", j.rank, err)
}

// fail ends the calls of all ranks because one has failed. Only the first failure has an effect.
func (l *local) fail(rank int, err error) {
	l.mu.Lock()
	if l.cause != nil {
		l.mu.Unlock()
		return
	}
	l.failed = rank
	l.cause = fmt.Errorf("%w: rank %d: %s", ErrProcFailed, rank, userlog.OneLine(err))
	close(l.broken)
	l.mu.Unlock()
	for _, j := range l.jobs {
		if j.rank != rank {
			j.eng.Lock()
			j.events.rankFailed(rank, err)
			j.eng.Unlock()
		}
		j.stop(l.cause)
	}
}

// inOrder moves the error of the rank that failed first to the front, because the other errors may
// follow from it.
func (l *local) inOrder(errs []error) []error {
	if l.failed < 0 {
		return errs
	}
	out := append([]error{errs[l.failed]}, errs[:l.failed]...)
	return append(out, errs[l.failed+1:]...)
}

// close closes the ranks that have not called Finalize.
func (l *local) close() error {
	var errs []error
	for _, j := range l.jobs {
		if j != nil {
			j.eng.Lock()
			errs = append(errs, j.close(ErrFinalized))
			j.eng.Unlock()
		}
	}
	return errors.Join(errs...)
}

// localRank implements others for a rank of RunLocal.
type localRank struct {
	*local
	rank int
}

func (l localRank) barrier() error {
	l.mu.Lock()
	gate := l.gate
	if l.arrived++; l.arrived == len(l.jobs) {
		l.arrived = 0
		l.gate = make(chan struct{})
		close(gate)
	}
	l.mu.Unlock()
	select {
	case <-gate:
		return nil
	case <-l.broken:
		return l.cause
	}
}

func (l localRank) leave() error { return nil }

func (l localRank) abort(a wireup.Abort) {
	err := fmt.Errorf("aborted with exit code %d", a.Code)
	l.mu.Lock()
	if l.aborts[l.rank] == nil {
		l.aborts[l.rank] = err
	}
	l.mu.Unlock()
	l.fail(l.rank, err)
	runtime.Goexit()
}
