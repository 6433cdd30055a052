package comm

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
)

// missing is a transport that is allowed and could not be made.
type missing struct {
	name string
	why  error
}

// mustSuffice is why the job cannot go on without what is missing; nil if what is there leads to every other rank, as far as that is known
// before their cards are.
func (r *rails) mustSuffice() error {
	if len(r.missing) == 0 {
		return nil
	}
	self := r.self != nil || !slices.Contains(r.allowed, "self")
	if self && (r.job.size == 1 || r.has("ibverbs") || r.has("tcp") || r.has("sm") && localRanks(r.client) == r.job.size) {
		return nil
	}
	var errs []error
	var verbs error // last, and only if they were asked for: most machines have none, and the cause is another one
	for _, m := range r.missing {
		if m.name == "ibverbs" {
			verbs = m.why
			continue
		}
		errs = append(errs, m.why)
	}
	if len(errs) == 0 || chosen(r.job.settings, "btl", "ibverbs.devices") != "" {
		errs = append(errs, verbs)
	}
	return errors.Join(errs...)
}

// warn says on standard error what is missing that the user has asked for, in a line for each transport or address, at one rank of a machine: the first of those
// that miss it.
func (r *rails) warn() {
	for _, transport := range r.allowed {
		if !r.warnsOfRefused(transport) {
			continue
		}
		for _, why := range r.refused[transport] {
			fmt.Fprintf(os.Stderr, "mpigo: rank %d: warning: left out: %s\n", r.job.rank, oneLine(why))
		}
	}
	if _, origin := r.job.settings.Text("btl"); origin == tunable.FromDefault {
		return
	}
	for _, m := range r.missing {
		if r.firstWithout(m.name) {
			fmt.Fprintf(os.Stderr, "mpigo: rank %d: warning: without %s (btl=%s): %s\n", r.job.rank, m.name, strings.Join(r.allowed, ","), oneLine(m.why))
		}
	}
}

// warnsOfRefused reports whether this rank says which rails of a transport it has left out. With
// verbose every rank does, as part of what it tells then. Of addresses that the user has not named
// nothing is said: a machine has many of no use. RDMA ports that are up are few, and one that
// cannot be used is a fault.
func (r *rails) warnsOfRefused(transport string) bool {
	if r.job.settings.Bool("verbose") || len(r.refused[transport]) == 0 || !r.firstWithAsFew(transport) {
		return false
	}
	if transport == "tcp" {
		_, origin := r.job.settings.Text("tcp.include")
		return origin != tunable.FromDefault
	}
	return true
}

// leaveOut notes why rails of a transport, of which there are others, were not made.
func (r *rails) leaveOut(transport string, why []error) {
	if len(why) == 0 {
		return
	}
	if r.refused == nil {
		r.refused = map[string][]error{}
	}
	r.refused[transport] = why
}

// firstHere reports whether no lower rank is on this machine.
func (r *rails) firstHere() bool {
	return !slices.ContainsFunc(r.cards[:r.job.rank], func(card wireup.Card) bool { return card.Host == r.host })
}

// firstWithout reports whether all lower ranks of this machine have a transport.
func (r *rails) firstWithout(transport string) bool {
	return !slices.ContainsFunc(r.cards[:r.job.rank], func(card wireup.Card) bool {
		_, has := railOf(card, transport, 0)
		return card.Host == r.host && !has
	})
}

// firstWithAsFew reports whether all lower ranks of this machine have more rails of a transport.
func (r *rails) firstWithAsFew(transport string) bool {
	own := 0
	for _, l := range r.list {
		if l.name == transport {
			own++
		}
	}
	return !slices.ContainsFunc(r.cards[:r.job.rank], func(card wireup.Card) bool {
		_, more := railOf(card, transport, own)
		return card.Host == r.host && !more
	})
}

// has reports whether a transport is among the rank's rails.
func (r *rails) has(transport string) bool {
	return slices.ContainsFunc(r.list, func(l rail) bool { return l.name == transport })
}
