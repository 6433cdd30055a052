package rails

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/comm/internal/userlog"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
)

// mustSuffice is why the job cannot go on without the missing transports; nil if the others lead to
// every other rank.
func (r *Rails) mustSuffice(lacking []missing) error {
	if len(lacking) == 0 {
		return nil
	}
	wantsSelf := slices.ContainsFunc(r.allowed, func(t transport.Transport) bool { return t.Reach == transport.Itself })
	size := r.cfg.Env.Size
	if (r.self != nil || !wantsSelf) &&
		(size == 1 || r.isAnyPresent(transport.Anywhere) || r.hasReach(transport.Host) && LocalRanks(r.cfg.Client) == size) {
		return nil
	}
	// A transport that most machines lack is rarely the cause. So it comes last, and only if the
	// user asked for it or there is no other reason.
	var errs, rare []error
	asked := transport.Chosen(r.settings(), "btl") != ""
	for _, m := range lacking {
		if m.transport.Rare {
			rare = append(rare, m.why)
			asked = asked || transport.Chosen(r.settings(), m.transport.Choices...) != ""
			continue
		}
		errs = append(errs, m.why)
	}
	if len(errs) == 0 || asked {
		errs = append(errs, rare...)
	}
	return errors.Join(errs...)
}

// Warn logs each missing transport and device that the user has asked for. Only the first rank of a
// machine logs what several of its ranks miss, and only rank 0 what all machines miss. Warn reads
// only fields fixed at the start, so it needs no lock.
func (r *Rails) Warn() {
	for _, t := range r.allowed {
		if !r.warnsOfLeftOut(t) {
			continue
		}
		for _, why := range r.whyLeftOut(t.Name) {
			r.cfg.Log.Warn("left out: " + why)
		}
	}
	for _, t := range r.allowed {
		if r.cfg.Env.Rank != 0 || t.Nobodys == nil || !r.has(t.Name) {
			continue
		}
		if line := t.Nobodys(r.settings(), r.addressesOf(t.Name)); line != "" {
			r.cfg.Log.Warn(line)
		}
	}
	if _, origin := r.settings().Text("btl"); origin == tunable.FromDefault {
		return
	}
	for _, m := range r.missing {
		if r.isFirstWithout(m.transport.Name) {
			r.cfg.Log.Warn(fmt.Sprintf("without %s (btl=%s): %s", m.transport.Name, r.allowedNames(), userlog.OneLine(m.why)))
		}
	}
}

// addressesOf returns the addresses of a transport's modules, at all ranks.
func (r *Rails) addressesOf(name string) [][]byte {
	_, all := r.modulesOf(name)
	for rank, card := range r.cards {
		if rank != r.cfg.Env.Rank {
			_, theirs := modulesOf(card, name)
			all = append(all, theirs...)
		}
	}
	return all
}

// warnsOfLeftOut reports whether this rank logs which modules of a transport it has left out. With
// verbose, every rank does so in Describe instead.
func (r *Rails) warnsOfLeftOut(t transport.Transport) bool {
	if r.settings().Bool("verbose") || len(r.whyLeftOut(t.Name)) == 0 || !r.isFirstWithAsFew(t.Name) {
		return false
	}
	return !t.Abundant || transport.Chosen(r.settings(), t.Choices[0]) != "" || transport.Chosen(r.settings(), t.Demands...) != ""
}

// isFirstWithout reports whether all lower ranks of this machine have a transport.
func (r *Rails) isFirstWithout(name string) bool { return r.lowerHaveMoreThan(0, name) }

// isFirstWithAsFew reports whether all lower ranks of this machine have more modules of a transport
// than this one, without those that are absent.
func (r *Rails) isFirstWithAsFew(name string) bool {
	present := 0
	for i, l := range r.list {
		if l.transport == name && r.absent(i) == nil {
			present++
		}
	}
	return r.lowerHaveMoreThan(present, name)
}

// lowerHaveMoreThan reports whether all lower ranks of this machine have more than n modules of a
// transport, without those that are absent.
func (r *Rails) lowerHaveMoreThan(n int, name string) bool {
	return !slices.ContainsFunc(r.lowerHere(), func(card wireup.Card) bool {
		numbers, _ := modulesOf(card, name)
		numbers = slices.DeleteFunc(numbers, func(number int) bool { return isAbsent(card, number) })
		return len(numbers) <= n
	})
}

// whyLeftOut says, in a line each, why some devices and addresses of a used transport are not used
// at the start.
func (r *Rails) whyLeftOut(name string) (lines []string) {
	for _, why := range r.leftOut[name] {
		lines = append(lines, userlog.OneLine(why))
	}
	for i, l := range r.list {
		if why := r.absent(i); why != nil && l.transport == name && !r.isFurther(i) {
			lines = append(lines, fmt.Sprintf("rail %s: %s; it joins when it is there", l.module.Attrs().Name, userlog.OneLine(why)))
		}
	}
	return lines
}
