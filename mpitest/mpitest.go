// Package mpitest runs tests of programs that use package comm. The ranks are goroutines of the
// test, joined by an in-process fabric, so go test needs no launcher.
//
//	func TestShift(t *testing.T) {
//		mpitest.Run(t, 4, func(t testing.TB, world *comm.Comm) {
//			right, left := (world.Rank()+1)%4, (world.Rank()+3)%4
//			got := make([]int, 1)
//			_, err := comm.Sendrecv(world, []int{world.Rank()}, right, 0, got, left, 0)
//			require.NoError(t, err)
//			require.Equal(t, left, got[0])
//		})
//	}
//
// Besides failures that the body reports, these fail the test:
//
//   - An error of a rank: a panic, or a send that does not complete because no rank receives it (a
//     synchronous send, or a message that is too long to be sent before it is received).
//   - A hang: no rank has sent, received or completed anything for 30 seconds ([HangAfter]), or for
//     two seconds if ranks certainly wait for each other in a cycle. The report begins with the
//     likely causes. Then it lists what each rank does: calls that wait, with their lines and
//     operations; operations that no call waits for; messages that are not received; goroutines
//     outside of the library; and stacks. It calls ranks deadlocked if each of their goroutines
//     waits in a call that no rank can end any more. It ignores goroutines that were not started
//     from the body of a rank, or that have set their own pprof labels.
//   - A leak when the body of a rank returns: a request that is still active (started, and neither
//     waited for, nor tested to completion, nor freed), memory from comm.Alloc that was not given
//     back, or a communicator, other than the world, that was not freed.
//   - A leak when all bodies have returned: a message that was sent but not received, or a
//     goroutine that is still in the library.
//
// A failure that no line of the body reports is reported at the line that calls Run.
//
// A test can also cut the network under a program: [Rails] gives the ranks several rails, and
// [CutRail] and [MendRail] cut and mend one while the ranks exchange messages.
package mpitest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/observe"
)

const (
	defaultHangAfter = 30 * time.Second
	// deadlockAfter is the time without progress after which a deadlock is reported if it is
	// certain: no patience makes the ranks go on.
	deadlockAfter = 2 * time.Second
	// After a hang, Run ends all calls. The ranks may then take the same time again to return,
	// within these bounds.
	minEndGrace, maxEndGrace = 2 * time.Second, 5 * time.Second
	// exitGrace is the time that the library's goroutines may take to end after the ranks.
	exitGrace = 5 * time.Second
)

// HangAfter sets the time without progress of any rank after which Run reports a hang: 30 seconds
// if d is not positive. Ranks that certainly wait for each other in a cycle are reported after two
// seconds if d is longer. Only Run uses the option. A report after less than two seconds may call
// ranks deadlocked although their calls would soon end with an error: calls of collectives that do
// not match, and calls that wait for a rank whose body has returned.
func HangAfter(d time.Duration) comm.Option {
	return observed(func(h *observe.Hook) { h.HangAfter = d })
}

// observed is an option that changes the hook of a job.
func observed(change func(*observe.Hook)) comm.Option {
	return observe.NewOption(change).(comm.Option)
}

// Run calls body as the n ranks of a job, each on its own goroutine, and returns when all have
// ended. It fails t on an error, a hang or a leak.
//
// Each body gets its own t. Each line that it logs begins with the rank. Functions that are passed
// to its Cleanup run when the body has returned, while the rank is still in the job. FailNow,
// SkipNow, Fatal, Skip and similar methods may be called from body and from the goroutines that it
// starts. They end the calling goroutine and the calls of all ranks; Run then ends or skips the
// test.
//
// The ranks are in checked mode (docs/checked-mode.md), unless opts have
// comm.WithSetting("check", "false").
//
// opts are options of comm.RunLocal. If a rank stays in its own code after a hang was reported, Run
// returns without it.
func Run(t testing.TB, n int, body func(t testing.TB, world *comm.Comm), opts ...comm.Option) {
	t.Helper()
	r := newRun(t, body)
	opts = append([]comm.Option{comm.WithSetting("check", "true")}, opts...)
	opts = append(opts, observed(func(h *observe.Hook) { h.Attach = r.attach }))

	ended := make(chan error, 1)
	go pprof.Do(context.Background(), pprof.Labels(labelRun, r.id), func(ctx context.Context) {
		r.ctx = ctx
		ended <- comm.RunLocal(n, r.rank, opts...)
	})
	err, back := r.watch(ended)
	if back {
		r.reportError(err)
		if err == nil && !r.stopped.Load() {
			r.reportUnreceived()
		}
		r.reportGoroutines()
	}
	switch {
	case r.failNow.Load():
		t.FailNow()
	case r.skipNow.Load() && !t.Failed():
		t.SkipNow()
	}
}

// run is one call of Run.
type run struct {
	t    testing.TB
	id   string // value of the label that all goroutines of the ranks inherit
	body func(t testing.TB, world *comm.Comm)
	ctx  context.Context // with that label; set before the ranks begin

	// Set by attach, before the ranks begin, and not changed afterwards.
	attached  chan struct{} // closed by attach
	hangAfter time.Duration
	ranks     []observe.Rank
	states    []rankState

	stopped atomic.Bool // the calls of all ranks were ended, so later errors are consequences
	failNow atomic.Bool
	skipNow atomic.Bool
	once    sync.Once // of stop

	mu   sync.RWMutex
	over bool // the test has ended, so t must not be used any more; guarded by mu

	findings findings
}

func newRun(t testing.TB, body func(t testing.TB, world *comm.Comm)) *run {
	r := &run{t: t, body: body, attached: make(chan struct{})}
	r.id = fmt.Sprintf("%p", r)
	r.findings.wake = make(chan struct{}, 1)
	// Goroutines that the body leaves behind may outlive Run, and even the test.
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.over = true
	})
	return r
}

// findings are failures that goroutines of ranks have detected. The goroutine of Run fails the test
// with them, because only its stack has the line that called Run.
type findings struct {
	mu   sync.Mutex
	list []string      // guarded by mu
	wake chan struct{} // holds one element if list may not be empty
}

func (f *findings) add(text string) {
	f.mu.Lock()
	f.list = append(f.list, text)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *findings) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.list
	f.list = nil
	return list
}

// reportFindings fails the test with the findings since the last call.
func (r *run) reportFindings() {
	r.t.Helper()
	for _, text := range r.findings.take() {
		r.t.Error(text)
	}
}

// rankState is the state of a rank's body.
type rankState struct {
	returned atomic.Bool // the body has returned
	progress atomic.Uint64
	sampling atomic.Bool // a goroutine is reading its progress
}

// attach is called by comm.RunLocal before the ranks begin.
func (r *run) attach(hook observe.Hook, ranks []observe.Rank) {
	r.hangAfter = hook.HangAfter
	if r.hangAfter <= 0 {
		r.hangAfter = defaultHangAfter
	}
	r.ranks, r.states = ranks, make([]rankState, len(ranks))
	close(r.attached)
}

// rank is the body of one rank. Its deferred functions run even if FailNow has ended the body.
func (r *run) rank(world *comm.Comm) (err error) {
	rank := world.Rank()
	t := &rankTB{TB: r.t, run: r, prefix: fmt.Sprintf("rank %d: ", rank)}
	pprof.SetGoroutineLabels(pprof.WithLabels(r.ctx, pprof.Labels(labelRank, strconv.Itoa(rank))))
	defer r.states[rank].returned.Store(true)
	defer func() {
		defer t.onPanic(&err)
		t.cleanUp()
		if !r.stopped.Load() {
			t.reportLeaks(r.ranks[rank].Leaks())
		}
	}()
	defer t.onPanic(&err)
	r.body(t, world)
	return nil
}

// onPanic is a deferred function. It makes a panic the rank's error, and ends the calls of all
// ranks.
func (t *rankTB) onPanic(err *error) {
	if p := recover(); p != nil {
		t.report("panic: %v\n\n%s", p, debug.Stack())
		*err = fmt.Errorf("%w: %spanic: %v", comm.ErrProcFailed, t.prefix, p)
		t.run.stop(*err)
	}
}

// stop ends the calls of all ranks. Only the first call has an effect.
func (r *run) stop(cause error) {
	r.once.Do(func() {
		r.stopped.Store(true)
		for _, rank := range r.ranks {
			// On a goroutine, because a rank may hold its lock forever.
			go rank.Stop(cause)
		}
	})
}

// reportError fails the test with the error of comm.RunLocal, unless it follows from a failure that
// was reported before.
func (r *run) reportError(err error) {
	r.t.Helper()
	if err == nil || r.stopped.Load() {
		return
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	// The other ranks were ended because of the first error.
	own := slices.DeleteFunc(slices.Clone(all), func(err error) bool { return errors.Is(err, comm.ErrProcFailed) })
	if len(own) == 0 {
		own = all
	}
	for _, err := range own {
		r.t.Error(err)
	}
}
