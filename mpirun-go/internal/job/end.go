package job

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// Time limits at the end of a job. The graces after a failure are short, because a user waits for
// them. Each is long compared to the usual duration of the event that it waits for. Graces that
// delay no user are longer, for machines with more work than processors.
const (
	// From SIGTERM to SIGKILL, after a failure or --timeout.
	failureGrace = 300 * time.Millisecond
	// From the first signal to SIGKILL, if a signal to the launcher ends the job, unless
	// Config.KillAfter says otherwise.
	signalGrace = 2 * time.Second
	// For processes that ranks left running to close their outputs.
	outputGrace = time.Second
	// For the reader of the launcher's output, after an interrupt.
	interruptedOutputGrace = time.Second
	// For a job to succeed after the reader of its output is gone.
	readerGrace = 500 * time.Millisecond
	// From a rank's exit to the end of its PMI connection.
	connectionGrace = 500 * time.Millisecond
	// For the exits of other ranks of this machine that may have caused a failure.
	rootCauseGrace = 2 * time.Second
	// From an abort that reports the failure of another rank to that failure. It is shorter than
	// the time for which a rank lives on after it has aborted the job.
	followedGrace = 500 * time.Millisecond
	// For reports about such exits on other hosts. The launcher always waits for these.
	remoteCauseGrace = 500 * time.Millisecond
	// For a rank to exit by itself after its PMI connection has failed.
	connectionErrorGrace = 2 * time.Second
	// For the kernel to end killed processes.
	killGrace = 5 * time.Second
	// For a host to answer, once the job's end has begun.
	responseGrace = 3 * time.Second
	// For a host to answer, after a second signal to the launcher.
	repeatedSignalGrace = 500 * time.Millisecond
)

// Exit statuses that do not come from a rank.
const (
	statusTimeout = 124
	statusSignal  = 128 // plus the signal's number
)

// onExit handles the exit of a rank's process. order is its position in the order of exits on its
// host.
func (r *run) onExit(k *rank, exit procs.Exit, order int, err error) {
	k.exited, k.exitOrder, k.exit = true, order, exit
	r.alive--
	k.arrival = len(r.ranks) - r.alive
	defer r.chooseIfReady()
	if k.lost = errors.Is(err, procs.ErrLost); k.lost {
		k.unresponsive = errors.Is(err, procs.ErrUnresponsive)
		return // onLost reports the reason
	}
	text, status := r.describeExit(k, exit, err)
	if status == 0 || k.aborted {
		return
	}
	f := &failure{status: status, line: r.rankName(k) + " " + text, rank: k, priority: exited}
	f.setBarrierError(k.connectionError())
	r.addFailure(f)
}

// describeExit returns a text about a rank's exit, and the exit status of a job that fails for it.
func (r *run) describeExit(k *rank, exit procs.Exit, err error) (text string, status int) {
	switch {
	case err != nil:
		return fmt.Sprintf("has an unknown exit status: %v", err), 1
	case exit.Signal != 0:
		return fmt.Sprintf("was killed by signal %d (%v)", int(exit.Signal), exit.Signal), exit.Status()
	case exit.Code != 0:
		return fmt.Sprintf("exited with status %d", exit.Code), exit.Code
	}
	switch r.server.State(k.Rank) {
	case wireup.StateInited, wireup.StateInBarrier, wireup.StateGone:
		return "exited with status 0, but without Finalize", 1
	}
	if err := k.connectionError(); err != nil {
		return fmt.Sprintf("exited with status 0, but its PMI connection failed: %v", err), 1
	}
	return "", 0
}

// connectionError returns the error that ended the rank's PMI connection. It is nil if the
// connection is open or ended without an error.
func (k *rank) connectionError() error {
	select {
	case <-k.served:
		return k.serveErr
	default:
		return nil
	}
}

// rankName identifies a rank in messages.
func (r *run) rankName(k *rank) string {
	return fmt.Sprintf("rank %d (pid %d) on %s", k.Rank, k.PID, r.hostOf(k).Name())
}

// onAbort handles a rank's abort.
func (r *run) onAbort(a wireup.Abort) {
	k := r.rank(a.Rank)
	k.aborted = true
	// The kernel keeps 8 bits of an exit status.
	f := &failure{status: a.Code & 0xff, rank: k, priority: aborted}
	if f.status == 0 {
		f.status = 1
	}
	message := oneLine(a.Message)
	switch a.Why {
	case wireup.Returned:
		f.line = "returned an error"
	case wireup.Follows:
		f.line, f.priority = "returned an error", followed
	case wireup.Panicked:
		f.line = "panicked"
	default:
		f.line = fmt.Sprintf("aborted the job with code %d", a.Code)
		if r.cfg.Files == nil {
			message = "" // the program prints its own error on standard error
		}
	}
	f.line = r.rankName(k) + " " + f.line
	if message != "" {
		f.line += ": " + message
	}
	r.addFailure(f)
	if f.priority == followed {
		r.after(followedGrace, r.chooseFailure)
	}
}

// oneLine replaces control characters in a message of a rank, so that it fits into a line of the
// launcher.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }), " ")
}

// onConnectionError handles a failed PMI connection. Usually the process exits soon, and its exit
// says more. Otherwise the job fails for the connection.
func (r *run) onConnectionError(k *rank) {
	if k.exited || k.aborted || r.failed() {
		return
	}
	r.after(connectionErrorGrace, func() {
		if !k.exited {
			f := &failure{status: 1, line: fmt.Sprintf("%s lost its PMI connection: %v", r.rankName(k), k.serveErr), rank: k}
			errors.As(k.serveErr, &f.barrierErr)
			r.blameMissingInit(f)
			r.fail(f)
		}
	})
}

func (r *run) onStartError(number int, err error) {
	if errors.Is(err, procs.ErrLost) {
		return // onLost reports the reason
	}
	status := 1
	var failed *procs.StartError
	if errors.As(err, &failed) {
		status = failed.Status()
	}
	r.fail(&failure{status: status, line: fmt.Sprintf("rank %d on %s: %v", number, r.cfg.Hosts[r.cfg.Specs[number].Host].Name(), err)})
}

// onLost handles the loss of a host and so of its ranks.
func (r *run) onLost(host int, cause error) {
	ranks := 0
	for _, spec := range r.cfg.Specs {
		if spec.Host == host {
			ranks++ // even if its start has not been reported
		}
	}
	if ranks == 0 {
		return // the job has no rank there
	}
	for _, k := range r.ranks {
		if k.host == host && k.exited && !k.lost {
			ranks--
		}
	}
	if r.lostHosts == nil {
		r.lostHosts = map[int]bool{}
	}
	r.lostHosts[host] = true
	line := fmt.Sprintf("host %s was lost", r.cfg.Hosts[host].Name())
	switch {
	case ranks == 1:
		line += " with a rank"
	case ranks > 1:
		line += fmt.Sprintf(" with %d ranks", ranks)
	}
	r.addFailure(&failure{status: 1, line: line, cause: cause, priority: hostLost})
}

// onTimeout prints a report, if there is something to say, and ends the job.
func (r *run) onTimeout() {
	if r.failure != nil {
		return
	}
	line := fmt.Sprintf("the job exceeded --timeout %v", r.cfg.Timeout)
	end := func() {
		f := &failure{status: statusTimeout, line: line}
		if r.cfg.KillAfter > 0 {
			r.terminate(f, syscall.SIGTERM, r.cfg.KillAfter)
		} else {
			r.fail(f)
		}
		r.endNow = true
	}
	if !r.canAsk() {
		end()
		return
	}
	r.reportAndEnd(line+". What the ranks were doing:", end)
}

// checkOutputs fails the job if an output cannot be written.
func (r *run) checkOutputs() {
	for _, s := range r.sinks {
		err := s.Err()
		switch {
		case err == nil:
			continue
		case errors.Is(err, syscall.EPIPE):
			r.fail(readerGone())
		default:
			if path := (*fs.PathError)(nil); errors.As(err, &path) {
				err = path.Err
			}
			r.fail(&failure{status: 1, line: fmt.Sprintf("cannot write %s: %v", s.name, err)})
		}
	}
}

// closeFiles closes the ranks' output files. Some file systems report only at that time that the
// data did not fit.
func (r *run) closeFiles() {
	for _, f := range r.cfg.Files {
		if err := f.Close(); err != nil {
			r.fail(&failure{status: 1, line: fmt.Sprintf("output directory: %v", err)})
		}
	}
}

// fail makes f the job's failure and terminates the job, unless the job has failed already. Ranks
// that record a trace write it at SIGTERM, and get more time for that.
func (r *run) fail(f *failure) {
	grace := failureGrace
	if r.cfg.DumpTrace != nil {
		grace = signalGrace
	}
	r.terminate(f, syscall.SIGTERM, grace)
}

// signalGrace is the time from a signal to the launcher to SIGKILL.
func (r *run) signalGrace() time.Duration {
	if r.cfg.KillAfter > 0 {
		return r.cfg.KillAfter
	}
	return signalGrace
}

// terminate makes f the job's failure, sends sig to the ranks' process groups, and kills them after
// grace. It does nothing if the job has failed already.
func (r *run) terminate(f *failure, sig syscall.Signal, grace time.Duration) {
	if r.failure != nil {
		return
	}
	r.failure, r.pending = f, nil
	close(r.stopStart)
	r.setSilenceLimit(responseGrace)
	for _, k := range r.ranks {
		k.signalled = !k.exited && !k.Exiting()
	}
	r.signalGroups(sig)
	r.signalGroups(syscall.SIGCONT) // a stopped process could not handle sig
	r.after(grace, r.kill)
}

// kill kills all processes of the job.
func (r *run) kill() {
	if r.killed {
		return
	}
	r.killed = true
	r.killAll()
	r.after(killGrace, func() { r.gaveUp = true })
}

// setSilenceLimit makes a host count as lost if it is silent for d from now on.
func (r *run) setSilenceLimit(d time.Duration) {
	if r.cfg.SetSilenceLimit != nil {
		r.cfg.SetSilenceLimit(d)
	}
}

// signalGroups sends sig to the ranks' process groups on all hosts.
func (r *run) signalGroups(sig syscall.Signal) {
	for _, h := range r.cfg.Hosts {
		h.SignalGroups(sig)
	}
}

// killAll kills all processes of the job on all hosts.
func (r *run) killAll() {
	for _, h := range r.cfg.Hosts {
		h.Kill()
	}
}
