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

// sink is a place that output goes to, with its name for messages.
type sink struct {
	*output.Sink
	name string
}

func (r *run) newSink(name string, w io.Writer) sink {
	// Not posted by the goroutine that writes: that may be Run's own.
	failed := func() { go r.post(r.checkOutputs) }
	s := sink{output.NewSink(w, failed), name}
	r.sinks = append(r.sinks, s)
	return s
}

// watchReader ends the job soon after the reader of the standard output has gone, if the
// ranks write there, rather than at the next write, which may never come.
func (r *run) watchStdout() (stop func()) {
	f, isFile := r.cfg.Stdout.(*os.File)
	if !isFile || r.cfg.Files != nil {
		return func() {}
	}
	return output.OnClosed(f, func() {
		r.after(readerGrace, func() {
			if r.alive > 0 {
				r.fail(readerGone())
			}
		})
	})
}

// readerGone is the verdict when nobody reads what the ranks write: the reader has seen
// enough. It ends as other programs do.
func readerGone() *failure { return &failure{status: statusSignal + int(syscall.SIGPIPE)} }

// copyOut passes on one stream of a rank until it ends. One that somebody keeps
// open ends when finishOutput gives it a deadline, with what it holds by then.
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

// passNotices writes lines that others have for the user.
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

// feed passes the launcher's input on to the ranks that have a pipe for it.
func (r *run) forwardStdin() {
	var targets []io.WriteCloser
	for _, k := range r.ranks {
		if k.Stdin != nil {
			targets = append(targets, k.Stdin)
		}
	}
	if len(targets) > 0 {
		go func() { _ = stdin.Copy(r.cfg.Input, targets) }() // ends with the launcher at the latest
	}
}

// finishOutput sees to it that what the ranks wrote arrives, and ends what they
// left running. It is called when all ranks have ended.
//
// In a job that went well, what ranks left running may finish what it writes, for
// a moment; if it then still holds an output open it is ended, wherever it is, else
// only what is left in the ranks' process groups. In a job that failed all is ended
// at once.
func (r *run) finishOutput() {
	closed := !r.failed() && r.awaitOutput(outputGrace)
	if closed {
		for _, h := range r.cfg.Hosts {
			h.KillGroups()
		}
		return
	}
	r.killAll()
	r.setSilenceLimit(responseGrace) // or an output of a host that is cut off would not end
	if !r.awaitOutput(outputGrace) {
		for _, k := range r.ranks {
			_ = k.Stdout.SetReadDeadline(time.Unix(1, 0))
			_ = k.Stderr.SetReadDeadline(time.Unix(1, 0))
		}
		r.awaitOutput(forever)
	}
}

const forever = time.Duration(1<<63 - 1)

// awaitOutput waits until all streams have ended, for up to d, or as long as an
// impatient user may be made to wait. It reports whether they have.
func (r *run) awaitOutput(d time.Duration) bool {
	limit := time.After(d)
	hurried := false
	for {
		if r.impatient && !hurried {
			hurried = true
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
