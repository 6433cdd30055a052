package job

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/mpirun-go/internal/output"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
	"github.com/mpigo/mpigo/mpirun-go/internal/stdin"
)

// sink is a destination of output, with its name for messages.
type sink struct {
	*output.Sink
	name string
}

// addSink makes an error of a sink fail the job.
func (r *run) addSink(name string, to *output.Sink) sink {
	to.OnError(func() { r.post(r.checkOutputs) })
	s := sink{to, name}
	r.sinks = append(r.sinks, s)
	return s
}

// watchStdout ends the job soon after the reader of the standard output has closed it, if the ranks
// write there. Otherwise the job would end only at the next write, which may never come.
func (r *run) watchStdout() (stop func()) {
	f, isFile := r.cfg.Stdout.(*os.File)
	if !isFile || r.cfg.Files != nil {
		return func() {}
	}
	return output.OnClosed(f, r.onStdoutClosed)
}

// onStdoutClosed may be called by any goroutine.
func (r *run) onStdoutClosed() {
	r.after(readerGrace, func() {
		if r.alive > 0 {
			r.fail(readerGone())
		}
	})
}

// readerGone returns the failure for an output without a reader. The launcher prints nothing, and
// exits as if killed by SIGPIPE, as other programs do.
func readerGone() *failure { return &failure{status: statusSignal + int(syscall.SIGPIPE)} }

// copyOutput copies one stream of a rank until it ends. If another process keeps the stream open,
// finishOutput sets a deadline, and the copy ends with the data in the pipe at that time.
func (r *run) copyOutput(from procs.Output, to *output.Stream) {
	r.outputs.Go(func() {
		defer from.Close()
		err := to.Copy(from)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = to.Copy(procs.Drain(from))
		}
		to.Close()
	})
}

// forwardNotices prints lines that agents have written.
func (r *run) forwardNotices() {
	go func() {
		for {
			select {
			case line := <-r.cfg.Notices:
				r.stderr.Line(line)
			case <-r.done:
				return
			}
		}
	}()
}

// forwardStdin copies the launcher's input to the ranks that have a pipe for it.
func (r *run) forwardStdin() {
	var targets []io.WriteCloser
	for _, k := range r.ranks {
		if k.Stdin != nil {
			targets = append(targets, k.Stdin)
		}
	}
	if len(targets) > 0 {
		// The copy ends at the latest when the launcher exits.
		go func() { _ = stdin.Copy(r.cfg.Input, targets) }()
	}
}

// finishOutput delivers the remaining output and ends the processes that the ranks left running.
// Run calls it when all ranks have exited.
//
// After a successful job, such processes have outputGrace to finish their output. If one still
// holds an output open, all processes of the job are killed; otherwise only the ranks' process
// groups are killed. After a failed job, all processes are killed at once.
func (r *run) finishOutput() {
	closed := !r.failed() && r.awaitOutput(outputGrace)
	if closed {
		for _, h := range r.cfg.Hosts {
			h.KillGroups()
		}
		return
	}
	r.killAll()
	r.setSilenceLimit(responseGrace) // outputs of an unreachable host must end too
	if !r.awaitOutput(outputGrace) {
		for _, k := range r.ranks {
			_ = k.Stdout.SetReadDeadline(time.Unix(1, 0))
			_ = k.Stderr.SetReadDeadline(time.Unix(1, 0))
		}
		r.awaitOutput(forever)
	}
}

const forever = time.Duration(1<<63 - 1)

// awaitOutput waits for at most d until all streams have ended, and reports whether they have. If
// the user has interrupted the job, it waits for at most interruptedOutputGrace.
func (r *run) awaitOutput(d time.Duration) bool {
	limit := time.After(d)
	shortened := false
	for {
		if r.endNow && !shortened {
			shortened = true
			limit = time.After(min(d, interruptedOutputGrace))
		}
		select {
		case <-r.outputDone:
			return true
		case <-limit:
			return false
		case f := <-r.calls:
			f()
		case sig := <-r.cfg.Signals:
			r.onSignal(sig)
		}
	}
}
