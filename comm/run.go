package comm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/mpigo/mpigo/comm/internal/userlog"
)

// Run is a whole program: Init with opts, body, Finalize. If body returns an error or panics, or if
// Init or Finalize fails, Run prints one line with the rank and the error on standard error, and
// ends the whole job with exit status 1. It does not return then. Before the line of a panic, it
// prints the stack. After an error of ParseFlags, which rank 0 has printed, and after any
// flag.ErrHelp, it calls Finalize, and ends the process without such a line.
func Run(body func(world *Comm) error, opts ...Option) {
	world, err := Init(opts...)
	if err != nil {
		userlog.Logger{Rank: userlog.NoRank, To: applied(opts).log}.Log(slog.LevelError, userlog.OneLine(err))
		os.Exit(1)
	}
	guard(world, body, func(err error) {
		status, isOfFlags := statusOfFlags(err)
		if err == nil || isOfFlags {
			err = world.finalizeOnce()
		}
		if err != nil {
			world.job.fail(err)
		}
		if isOfFlags {
			os.Exit(status)
		}
	})
}

// RunContext is Run for a program that continues afterwards: it returns the error, and never ends
// the process.
//
// The context of body ends with ctx, when the job ends the calls of this rank, and when RunContext
// returns; context.Cause says why. If ctx ends, every call of this rank that is under way, and
// every later one, ends with an error that Is context.Cause(ctx). Buffers of such calls may still
// change until RunContext returns.
//
// If body returns an error or panics, or if ctx ends before body returns, this rank leaves the job
// without Finalize. Calls of other ranks that need it end with ErrProcFailed, and the launcher
// treats the end of this process as a failure. The error of a panic is a *PanicError.
func RunContext(ctx context.Context, body func(ctx context.Context, world *Comm) error, opts ...Option) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	world, err := Init(opts...)
	if err != nil {
		return err
	}
	j := world.job
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(ErrFinalized)
	j.eng.Lock()
	j.onStop = cancel
	j.eng.Unlock()
	stopWatching := context.AfterFunc(ctx, func() {
		j.stop(fmt.Errorf("the context of RunContext has ended: %w", context.Cause(ctx)))
	})
	defer stopWatching()
	guard(world, func(world *Comm) error { return body(inner, world) }, func(e error) { err = e })
	if err == nil {
		err = world.finalizeOnce()
	}
	if err == nil {
		return nil
	}
	j.writeRecordsSoon(fmt.Sprintf("rank %d: %s", j.rank, userlog.OneLine(err)))
	j.eng.Lock()
	defer j.eng.Unlock()
	return fmt.Errorf("rank %d: %w", j.rank, errors.Join(err, j.close(ErrFinalized)))
}

// finalizeOnce calls Finalize unless it was called before.
func (c *Comm) finalizeOnce() error {
	if err := c.Finalize(); !errors.Is(err, ErrFinalized) {
		return err
	}
	return nil
}

// guard calls body and passes its result to done: its error, its panic as an error, or an error
// that says that body has ended its goroutine.
func guard(world *Comm, body func(world *Comm) error, done func(error)) {
	returned := false
	var err error
	defer func() {
		if !returned {
			if p := recover(); p != nil {
				err = newRankPanic(p)
			} else {
				err = errGoexit
			}
		}
		done(err)
	}()
	err = body(world)
	returned = true
}

var errGoexit = errors.New("the goroutine of the rank ended itself (runtime.Goexit): in a test, it has called FailNow, Fatal or Skip")
