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
	deathGrace     = 300 * time.Millisecond // from SIGTERM to SIGKILL, after a rank's failure or --timeout
	signalGrace    = 2 * time.Second        // the same, when a signal to the launcher ends the job
	outputGrace    = 300 * time.Millisecond // for what ranks left running to close their outputs
	interruptGrace = time.Second            // for the reader of our output, once the user wants the end
	readerGrace    = 500 * time.Millisecond // for a job that is about to end well, once the reader of its output is gone
	servedGrace    = 100 * time.Millisecond // from a rank's exit to the end of its connection
	culpritGrace   = 200 * time.Millisecond // to find whose death a rank's failure follows from
	brokenGrace    = 500 * time.Millisecond // for a rank to exit by itself when its wire-up has failed
	abandonGrace   = 5 * time.Second        // for the kernel to end what was killed
	answerGrace    = 3 * time.Second        // for a host to show that it is there, once the job's end has begun
	insistGrace    = 500 * time.Millisecond // the same, when the user insists on the end
)

// Exit statuses that are not a rank's.
const (
	statusTimeout = 124
	statusSignal  = 128 // plus the signal
)

// onExit deals with the end of a rank's process.
func (r *run) onExit(k *rank, exit procs.Exit, place int, err error) {
	k.ended, k.place, k.exit = true, place, exit
	r.alive--
	k.seen = len(r.ranks) - r.alive
	defer r.settle()
	if k.lost = errors.Is(err, procs.ErrLost); k.lost {
		k.silent = errors.Is(err, procs.ErrSilent)
		return // onLost says why
	}
	how, status := r.judge(k, exit, err)
	if status == 0 || k.aborted {
		return
	}
	v := &verdict{status: status, line: r.describe(k) + " " + how, rank: k, weight: death}
	v.waiting(k.brokenBy())
	r.blame(v)
}

// judge says in words how a rank ended, and the exit status that follows from it.
func (r *run) judge(k *rank, exit procs.Exit, err error) (how string, status int) {
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
	if err := k.brokenBy(); err != nil {
		return fmt.Sprintf("exited with status 0, but its wire-up failed: %v", err), 1
	}
	return "", 0
}

// brokenBy is what ended the rank's connection, nil if it ended well or goes on.
func (k *rank) brokenBy() error {
	select {
	case <-k.served:
		return k.serveErr
	default:
		return nil
	}
}

// describe names a rank in messages.
func (r *run) describe(k *rank) string {
	return fmt.Sprintf("rank %d (pid %d) on %s", k.Rank, k.PID, r.host(k).Name())
}

// onAbort deals with a rank that asks for the end of the job. Why is in the rank's own last line on its standard error, so it is repeated only if
// that is not where ours is.
func (r *run) onAbort(number, code int, message string) {
	k := r.rank(number)
	k.aborted = true
	line := fmt.Sprintf("%s aborted the job with code %d", r.describe(k), code)
	if message = oneLine(message); message != "" && r.cfg.Files != nil {
		line += ": " + message
	}
	status := code & 0xff // what the system keeps of it
	if status == 0 {
		status = 1
	}
	r.blame(&verdict{status: status, line: line, rank: k, weight: abort})
}

// oneLine makes a message that came from elsewhere fit into a line of ours.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }), " ")
}

// onBroken deals with a rank whose connection failed. As a rule its process ends
// soon and says more; if not, the job ends for this.
func (r *run) onBroken(k *rank) {
	if k.ended || k.aborted || r.failed() {
		return
	}
	r.after(brokenGrace, func() {
		if !k.ended {
			v := &verdict{status: 1, line: fmt.Sprintf("%s lost its wire-up: %v", r.describe(k), k.serveErr), rank: k}
			errors.As(k.serveErr, &v.left)
			r.passOn(v)
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
	r.fail(&verdict{status: status, line: fmt.Sprintf("rank %d on %s: %v", number, r.cfg.Hosts[r.cfg.Specs[number].Host].Name(), err)})
}

// onLost deals with the loss of a host, and so of its ranks.
func (r *run) onLost(host int, why error) {
	if !slices.ContainsFunc(r.cfg.Specs, func(s procs.Spec) bool { return s.Host == host }) {
		return // the job does not need it
	}
	ranks := 0
	for _, k := range r.ranks {
		if k.node == host && (k.lost || !k.ended) {
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
	r.blame(&verdict{status: 1, line: line, why: why, weight: hostLost})
}

func (r *run) onTimeout() {
	r.fail(&verdict{status: statusTimeout, line: fmt.Sprintf("the job has run for --timeout %v (Ctrl-\\ before then shows where ranks of Go wait)", r.cfg.Timeout)})
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
			r.fail(&verdict{status: 1, line: fmt.Sprintf("cannot write %s: %v", s.name, err)})
		}
	}
}

// closeFiles closes the ranks' output files; some file systems say only then that
// the data has found no room.
func (r *run) closeFiles() {
	for _, f := range r.cfg.Files {
		if err := f.Close(); err != nil {
			r.fail(&verdict{status: 1, line: fmt.Sprintf("output directory: %v", err)})
		}
	}
}

// fail ends the job with verdict v, if it has none yet.
func (r *run) fail(v *verdict) { r.endWith(v, syscall.SIGTERM, deathGrace) }

func (r *run) endWith(v *verdict, sig syscall.Signal, grace time.Duration) {
	if r.verdict != nil {
		return
	}
	r.verdict, r.held = v, nil
	close(r.noMore)
	r.patience(answerGrace)
	for _, k := range r.ranks {
		k.signalled = !k.ended && !k.Ending()
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
	r.after(abandonGrace, func() { r.gaveUp = true })
}

// patience is how long a host may say nothing from now on.
func (r *run) patience(d time.Duration) {
	if r.cfg.Patience != nil {
		r.cfg.Patience(d)
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
	r.choose()
	r.checkOutputs()
	r.closeFiles()
	v := r.verdict
	if v == nil {
		return 0
	}
	r.tellCutOff()
	if r.gaveUp {
		for _, k := range r.ranks {
			if !k.ended {
				r.say(r.describe(k) + " does not end, though it was killed")
			}
		}
	}
	if v.line != "" {
		line := v.line
		if v.why != nil {
			line += ": " + v.why.Error()
		}
		r.say(line + r.others())
	}
	return v.status
}

// tellCutOff tells of hosts that do not answer what may go on there: a daemon ends it when it has missed the launcher for five minutes.
func (r *run) tellCutOff() {
	for host, h := range r.cfg.Hosts {
		var left []*rank
		for _, k := range r.ranks {
			if k.node == host && k.silent {
				left = append(left, k)
			}
		}
		which := fmt.Sprintf("%d ranks", len(left))
		switch len(left) {
		case 0:
			continue
		case 1:
			which = fmt.Sprintf("rank %d (pid %d)", left[0].Rank, left[0].PID)
		}
		r.say(fmt.Sprintf("host %s does not answer: its %s may still run there, for at most five minutes", h.Name(), which))
	}
}

// say writes a line of the launcher's own. It does not wait for a reader that
// does not read, if the user wants the end.
func (r *run) say(line string) {
	said := make(chan struct{})
	go func() {
		r.stderr.Line("mpirun-go: " + line)
		close(said)
	}()
	var limit <-chan time.Time
	if r.impatient {
		limit = time.After(interruptGrace)
	}
	select {
	case <-said:
	case <-limit:
	}
}

// others tells what became of the ranks that the verdict is not about.
func (r *run) others() string {
	which, all, ended := "its", 0, 0
	for _, k := range r.ranks {
		if k == r.verdict.rank || k.lost {
			which = "the job's other"
			continue
		}
		all++
		if r.endedByUs(k) {
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
func (r *run) endedByUs(k *rank) bool {
	switch {
	case !k.ended || !k.signalled || k.aborted:
		return false
	case k.exit.Signal != 0:
		return true
	}
	culprit := r.verdict.rank
	alike := culprit != nil && k.exit == culprit.exit && !k.exit.OK()
	return !alike && !errors.Is(k.brokenBy(), wireup.ErrBarrier)
}
