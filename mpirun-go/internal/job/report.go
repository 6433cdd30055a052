package job

import (
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/internal/wireup"
)

// report reports the job's failure, if any, and returns the exit status.
func (r *run) report() int {
	r.chooseFailure()
	r.checkOutputs()
	r.closeFiles()
	f := r.failure
	if f == nil {
		return 0
	}
	r.reportUnresponsive()
	if r.gaveUp {
		for _, k := range r.ranks {
			if !k.exited {
				r.printLine(r.rankName(k) + " is still running after SIGKILL")
			}
		}
	}
	if f.line != "" {
		line := f.line
		if f.cause != nil {
			line += ": " + f.cause.Error()
		}
		r.printLine(line + r.othersSummary())
	}
	return f.status
}

// reportUnresponsive names the ranks that may still run on hosts that do not answer. The daemon of
// such a host ends its ranks when the launcher has been silent for five minutes.
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
		r.printLine(fmt.Sprintf("host %s does not answer: its %s may still run there for at most five minutes", h.Name(), which))
	}
}

// printLine writes a line of the launcher.
func (r *run) printLine(line string) { r.stderr.Line("mpirun-go: " + line) }

// othersSummary says how many ranks, apart from the one that failed, the launcher terminated.
func (r *run) othersSummary() string {
	which, all, terminated := "its", 0, 0
	unstarted := r.unstarted()
	if unstarted > 0 {
		which = "the job's" // the line may be about a rank
	}
	for _, k := range r.ranks {
		if k == r.failure.rank || k.lost {
			which = "the job's other"
			continue
		}
		all++
		if r.terminatedByUs(k) {
			terminated++
		}
	}
	all += unstarted
	switch {
	case terminated == 0:
		return ""
	case unstarted > 0:
		return fmt.Sprintf("; %d of %s %d ranks %s ended, %d had not started", terminated, which, all, wasOrWere(terminated), unstarted)
	case terminated < all:
		return fmt.Sprintf("; %d of %s %d ranks %s ended", terminated, which, all, wasOrWere(terminated))
	case all == 1:
		return fmt.Sprintf("; %s rank was ended", which)
	}
	return fmt.Sprintf("; %s %d ranks were ended", which, all)
}

// unstarted returns the number of ranks that have not started, without those of lost hosts: the
// line about a lost host counts its ranks.
func (r *run) unstarted() int {
	n := 0
	for _, spec := range r.cfg.Specs {
		if !r.lostHosts[spec.Host] {
			n++
		}
	}
	for _, k := range r.ranks {
		if !r.lostHosts[k.host] {
			n--
		}
	}
	return n
}

func wasOrWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// terminatedByUs reports whether a rank ended because of the launcher's signal. Ranks often fail
// together for one cause: a rank that failed like the job's failed rank, or because of it in a
// barrier, does not count, even if it ended after the signal.
func (r *run) terminatedByUs(k *rank) bool {
	switch {
	case !k.exited || !k.signalled || k.aborted:
		return false
	case k.exit.Signal != 0:
		return true
	}
	failed := r.failure.rank
	alike := failed != nil && k.exit == failed.exit && !k.exit.OK()
	return !alike && !errors.Is(k.connectionError(), wireup.ErrBarrier)
}
