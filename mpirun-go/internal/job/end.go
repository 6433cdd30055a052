package job

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// Times that bound the end of a job.
const (
	failureGrace           = 300 * time.Millisecond // from SIGTERM to SIGKILL, after a rank's failure or --timeout
	signalGrace            = 2 * time.Second        // the same, when a signal to the launcher ends the job
	outputGrace            = 300 * time.Millisecond // for what ranks left running to close their outputs
	interruptedOutputGrace = time.Second            // for the reader of our output, once the user wants the end
	readerGrace            = 500 * time.Millisecond // for a job that is about to end well, once the reader of its output is gone
	connectionGrace        = 100 * time.Millisecond // from a rank's exit to the end of its connection
	rootCauseGrace         = 200 * time.Millisecond // to find whose death a rank's failure follows from
	connectionErrorGrace   = 500 * time.Millisecond // for a rank to exit by itself when its wire-up has failed
	killGrace              = 5 * time.Second        // for the kernel to end what was killed
	responseGrace          = 3 * time.Second        // for a host to show that it is there, once the job's end has begun
	repeatedSignalGrace    = 500 * time.Millisecond // the same, when the user insists on the end
)

// Exit statuses that are not a rank's.
const (
	statusTimeout = 124
	statusSignal  = 128 // plus the signal
)

// onExit deals with the end of a rank's process.
func (r *run) onExit(k *rank, exit procs.Exit, place int, err error) {
	k.exited, k.exitOrder, k.exit = true, place, exit
	r.alive--
	k.arrival = len(r.ranks) - r.alive
	defer r.chooseIfReady()
	if k.lost = errors.Is(err, procs.ErrLost); k.lost {
		k.unresponsive = errors.Is(err, procs.ErrUnresponsive)
		return // onLost says why
	}
	how, status := r.describeExit(k, exit, err)
	if status == 0 || k.aborted {
		return
	}
	v := &failure{status: status, line: r.rankName(k) + " " + how, rank: k, priority: exited}
	v.setBarrierError(k.connectionError())
	r.addFailure(v)
}

// judge says in words how a rank ended, and the exit status that follows from it.
func (r *run) describeExit(k *rank, exit procs.Exit, err error) (how string, status int) {
	switch {
	case err != nil:
		return fmt.Sprintf("cannot be waited for: %v", err), 1
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
		return fmt.Sprintf("exited with status 0, but its wire-up failed: %v", err), 1
	}
	return "", 0
}

// brokenBy is what ended the rank's connection, nil if it ended well or goes on.
func (k *rank) connectionError() error {
	select {
	case <-k.served:
		return k.serveErr
	default:
		return nil
	}
}

// describe names a rank in messages.
func (r *run) rankName(k *rank) string {
	return fmt.Sprintf("rank %d (pid %d) on %s", k.Rank, k.PID, r.hostOf(k).Name())
}

// onAbort deals with a rank that asks for the end of the job. Why is in the rank's own last line on its standard error, so it is repeated only if
// that is not where ours is.
func (r *run) onAbort(number, code int, message string) {
	k := r.rank(number)
	k.aborted = true
	line := fmt.Sprintf("%s aborted the job with code %d", r.rankName(k), code)
	if message = oneLine(message); message != "" && r.cfg.Files != nil {
		line += ": " + message
	}
	status := code & 0xff // what the system keeps of it
	if status == 0 {
		status = 1
	}
	r.addFailure(&failure{status: status, line: line, rank: k, priority: aborted})
}

// oneLine makes a message that came from elsewhere fit into a line of ours.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }), " ")
}

// onBroken deals with a rank whose connection failed. As a rule its process ends
// soon and says more; if not, the job ends for this.
func (r *run) onConnectionError(k *rank) {
	if k.exited || k.aborted || r.failed() {
		return
	}
	r.after(connectionErrorGrace, func() {
		if !k.exited {
			v := &failure{status: 1, line: fmt.Sprintf("%s lost its wire-up: %v", r.rankName(k), k.serveErr), rank: k}
			errors.As(k.serveErr, &v.barrierErr)
			r.blameMissingInit(v)
			r.fail(v)
		}
	})
}

func (r *run) onStartError(number int, err error) {
	if errors.Is(err, procs.ErrLost) {
		return // onLost says why
	}
	status := 1
	var failed *procs.StartError
	if errors.As(err, &failed) {
		status = failed.Status()
	}
	r.fail(&failure{status: status, line: fmt.Sprintf("rank %d on %s: %v", number, r.cfg.Hosts[r.cfg.Specs[number].Host].Name(), err)})
}

// onLost deals with the loss of a host, and so of its ranks.
func (r *run) onLost(host int, why error) {
	if !slices.ContainsFunc(r.cfg.Specs, func(s procs.Spec) bool { return s.Host == host }) {
		return // the job does not need it
	}
	ranks := 0
	for _, k := range r.ranks {
		if k.host == host && (k.lost || !k.exited) {
			ranks++
		}
	}
	line := fmt.Sprintf("host %s was lost", r.cfg.Hosts[host].Name())
	switch {
	case ranks == 1:
		line += " with a rank"
	case ranks > 1:
		line += fmt.Sprintf(" with %d ranks", ranks)
	}
	r.addFailure(&failure{status: 1, line: line, cause: why, priority: hostLost})
}

func (r *run) onTimeout() {
	r.fail(&failure{status: statusTimeout, line: fmt.Sprintf("the job has run for --timeout %v (Ctrl-\\ before then shows where ranks of Go wait)", r.cfg.Timeout)})
	r.impatient = true
}

// checkOutputs fails the job if something cannot be written.
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

// closeFiles closes the ranks' output files; some file systems say only then that
// the data has found no room.
func (r *run) closeFiles() {
	for _, f := range r.cfg.Files {
		if err := f.Close(); err != nil {
			r.fail(&failure{status: 1, line: fmt.Sprintf("output directory: %v", err)})
		}
	}
}

// fail ends the job with verdict v, if it has none yet.
func (r *run) fail(v *failure) { r.terminate(v, syscall.SIGTERM, failureGrace) }

func (r *run) terminate(v *failure, sig syscall.Signal, grace time.Duration) {
	if r.failure != nil {
		return
	}
	r.failure, r.pending = v, nil
	close(r.stopStart)
	r.setSilenceLimit(responseGrace)
	for _, k := range r.ranks {
		k.signalled = !k.exited && !k.Exiting()
	}
	r.signalGroups(sig)
	r.signalGroups(syscall.SIGCONT) // what is stopped could not end
	r.after(grace, r.kill)
}

// kill ends what is left of the job.
func (r *run) kill() {
	if r.killed {
		return
	}
	r.killed = true
	r.killAll()
	r.after(killGrace, func() { r.gaveUp = true })
}

// patience is how long a host may say nothing from now on.
func (r *run) setSilenceLimit(d time.Duration) {
	if r.cfg.SetSilenceLimit != nil {
		r.cfg.SetSilenceLimit(d)
	}
}

// signalGroups sends sig to every rank and what it has started, on all hosts.
func (r *run) signalGroups(sig syscall.Signal) {
	for _, h := range r.cfg.Hosts {
		h.SignalGroups(sig)
	}
}

// killAll ends everything of the job, on all hosts.
func (r *run) killAll() {
	for _, h := range r.cfg.Hosts {
		h.Kill()
	}
}

// report says what went wrong, and returns the exit status.
func (r *run) report() int {
	r.chooseFailure()
	r.checkOutputs()
	r.closeFiles()
	v := r.failure
	if v == nil {
		return 0
	}
	r.reportUnresponsive()
	if r.gaveUp {
		for _, k := range r.ranks {
			if !k.exited {
				r.printLine(r.rankName(k) + " does not end, though it was killed")
			}
		}
	}
	if v.line != "" {
		line := v.line
		if v.cause != nil {
			line += ": " + v.cause.Error()
		}
		r.printLine(line + r.othersSummary())
	}
	return v.status
}

// tellCutOff tells of hosts that do not answer what may go on there: a daemon ends it when it has missed the launcher for five minutes.
func (r *run) reportUnresponsive() {
	for host, h := range r.cfg.Hosts {
		var ranks []*rank
		for _, k := range r.ranks {
			if k.host == host && k.unresponsive {
				ranks = append(ranks, k)
			}
		}
		which := fmt.Sprintf("%d ranks", len(ranks))
		switch len(ranks) {
		case 0:
			continue
		case 1:
			which = fmt.Sprintf("rank %d (pid %d)", ranks[0].Rank, ranks[0].PID)
		}
		r.printLine(fmt.Sprintf("host %s does not answer: its %s may still run there, for at most five minutes", h.Name(), which))
	}
}

// say writes a line of the launcher's own. It does not wait for a reader that
// does not read, if the user wants the end.
func (r *run) printLine(line string) {
	done := make(chan struct{})
	go func() {
		r.stderr.Line("mpirun-go: " + line)
		close(done)
	}()
	var limit <-chan time.Time
	if r.impatient {
		limit = time.After(interruptedOutputGrace)
	}
	select {
	case <-done:
	case <-limit:
	}
}

// others tells what became of the ranks that the verdict is not about.
func (r *run) othersSummary() string {
	which, all, ended := "its", 0, 0
	for _, k := range r.ranks {
		if k == r.failure.rank || k.lost {
			which = "the job's other"
			continue
		}
		all++
		if r.terminatedByUs(k) {
			ended++
		}
	}
	switch {
	case ended == 0:
		return ""
	case ended < all:
		return fmt.Sprintf("; %d of %s %d ranks %s ended", ended, which, all, wasOrWere(ended))
	case all == 1:
		return fmt.Sprintf("; %s rank was ended", which)
	}
	return fmt.Sprintf("; %s %d ranks were ended", which, all)
}

func wasOrWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// endedByUs is whether a rank has ended because it was told to. Ranks that fail of one
// cause fail together: one that did so by itself is not counted, be it after our signal.
func (r *run) terminatedByUs(k *rank) bool {
	switch {
	case !k.exited || !k.signalled || k.aborted:
		return false
	case k.exit.Signal != 0:
		return true
	}
	culprit := r.failure.rank
	alike := culprit != nil && k.exit == culprit.exit && !k.exit.OK()
	return !alike && !errors.Is(k.connectionError(), wireup.ErrBarrier)
}
