package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// target is a goal at a point: a limit for the ratio of mpigo's value to that of others.
type target struct {
	name string
	at   point
	ours string // the contender of mpigo
	others
	limit float64 // the highest ratio of a time, the lowest of a rate
}

// others describes the contenders with which mpigo is compared.
type others struct {
	label      string   // in the table; empty for the name of the best contender
	contenders []string // the best one counts
	at         *point   // nil: at the same point
	fixed      float64  // if not 0, the value itself: there are no contenders
}

// peers lists the contenders of other libraries. Never written.
var peers = []string{openMPISingle, openMPITwo, openMPITCP, mpichSingle, mpichTwo, mpichTCP}

// targets lists all targets.
func targets() []target {
	anyPeer := others{contenders: peers}
	yielding := others{contenders: []string{openMPISingle, openMPITwo}}
	var all []target
	add := func(experiment string, ranks int, unit, ours string, vs others, limit float64, sizes ...int) {
		for _, size := range sizes {
			name := experiment
			if size > 0 {
				name += " " + sizeName(size)
			}
			if ranks != 2 || isCollective(experiment) || experiment == startName {
				name += fmt.Sprintf(", %d ranks", ranks)
			}
			if ours == oursAlloc {
				name += ", Alloc memory"
			}
			all = append(all, target{name, point{experiment, ranks, size, unit}, ours, vs, limit})
		}
	}
	const k, m = 1 << 10, 1 << 20
	add("latency", 2, "us", ours, anyPeer, 0.55, 8)
	add("latency", 2, "us", ours, anyPeer, 0.6, 64)
	add("latency", 2, "us", ours, anyPeer, 0.7, k)
	add("latency", 2, "us", ours, anyPeer, 0.9, 8*k, 64*k, m, 4*m)
	add("latency", 2, "us", oursAlloc, anyPeer, 0.6, 64*k, m, 4*m)
	add("platency", 2, "us", ours, anyPeer, 0.5, 8)
	add("platency", 2, "us", ours, others{"mpigo's Send and Recv", []string{ours}, &point{"latency", 2, 8, "us"}, 0}, 0.9, 8)
	add("bw", 2, "MB/s", ours, anyPeer, 1.3, 8)
	add("bw", 2, "MB/s", ours, anyPeer, 1.0, 8*k, 64*k, m, 4*m)
	add("bw", 2, "MB/s", oursAlloc, anyPeer, 1.3, 64*k, m, 4*m)
	add(latencyTCP, 2, "us", oursTCP, anyPeer, 0.9, 8, k, 16*k, 64*k, m)
	add(bwTCP, 2, "MB/s", oursTCP, anyPeer, 1.0, 64*k, m, 4*m)
	add(latencyBusy, 2, "us", ours, anyPeer, 1.5, 8)
	add(bwBusy, 2, "MB/s", ours, anyPeer, 0.67, 64*k)
	for _, ranks := range []int{4, 8} {
		add("barrier", ranks, "us", ours, yielding, 0.8, 0)
		add("allreduce", ranks, "us", ours, yielding, 0.8, 8)
	}
	add("barrier", 2, "us", ours, anyPeer, 0.9, 0)
	add("allreduce", 2, "us", ours, anyPeer, 0.9, 8)
	for _, ranks := range []int{2, 4, 8} {
		add("allreduce", ranks, "us", ours, anyPeer, 0.9, k, 64*k, m)
		for _, name := range []string{"bcast", "reduce", "allgather", "alltoall"} {
			add(name, ranks, "us", ours, anyPeer, 0.9, 8, k, 64*k, m)
		}
		for _, name := range collectives {
			sizes := []int{8, k}
			if name == "barrier" {
				sizes = []int{0}
			}
			for _, size := range sizes {
				own := others{label: "mpigo's nonblocking call", fixed: 1}
				add(persistent(name), ranks, toNonblocking, ours, own, 0.9, size)
			}
		}
	}
	add(overlapTCP, 2, "%", oursTCP, others{label: "the whole call", fixed: 100}, 0.8, m)
	for _, ranks := range []int{2, 8} {
		add(startName, ranks, "ms", ours, others{contenders: []string{mpichSingle, mpichTwo}}, 0.5, 0)
	}
	add(goroutinesName, 2, "us", ours, others{contenders: []string{channel}}, 1.0, 8)
	return all
}

// isTarget reports whether a target is about one of the sizes of an experiment, or compares with
// it.
func isTarget(e experiment) bool {
	sizes := strings.Split(e.sizes, ",")
	covers := func(at point) bool {
		return at.Experiment == e.name && at.Ranks == e.ranks && (at.Size == 0 || slices.Contains(sizes, sizeOption(at.Size)))
	}
	return slices.ContainsFunc(targets(), func(t target) bool {
		return covers(t.at) || t.others.at != nil && covers(*t.others.at)
	})
}

// sizeOption writes a number of bytes as the sizes of an experiment have it: 64K.
func sizeOption(bytes int) string {
	return strings.NewReplacer(" KiB", "K", " MiB", "M", " B", "").Replace(sizeName(bytes))
}

// outcome is a target with the measured values.
type outcome struct {
	target
	ours, others summary
	other        string  // its name
	ratio, best  float64 // of medians, and of the best values
	paired       float64 // the median of the ratios of each round; 0 if there is none
	reached      bool    // by paired, or without it by ratio
}

// judged returns the ratio that is compared with the limit. The host may move virtual cores, which
// changes the latency of a cache line by up to a factor of five. The turns of one round are close
// together in time, so their ratio varies less than the ratio of two medians.
func (o *outcome) judged() float64 {
	if o.paired > 0 {
		return o.paired
	}
	return o.ratio
}

// judge compares results with targets. It leaves out targets that were not measured.
func judge(r *results, all []target) []outcome {
	var out []outcome
	for _, m := range all {
		at := m.at
		if m.others.at != nil {
			at = *m.others.at
		}
		mine, ok := r.at(m.at, m.ours)
		theirs, known := r.bestOf(at, m.contenders)
		if m.fixed > 0 {
			theirs, known = best{summary: summary{m.fixed, m.fixed}}, true
		}
		if !ok || !known {
			continue
		}
		o := outcome{target: m, ours: mine, others: theirs.summary, other: m.label,
			ratio: mine.median / theirs.median, best: mine.best / theirs.best, paired: r.paired(m.at, m.ours, at, theirs.contender)}
		if o.other == "" {
			o.other = theirs.contender
		}
		o.reached = o.judged() <= m.limit
		if m.at.higherIsBetter() {
			o.reached = o.judged() >= m.limit
		}
		out = append(out, o)
	}
	return out
}

// missed returns an error if a target was not reached, or if there is none.
func missed(all []outcome) error {
	if len(all) == 0 {
		return errors.New("no target was measured: is a peer installed, and does -contenders permit it?")
	}
	var names []string
	for _, o := range all {
		if !o.reached {
			names = append(names, fmt.Sprintf("%s: %.2f, target %g", o.name, o.judged(), o.limit))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d targets missed: %s", len(names), len(all), strings.Join(names, "; "))
}

// isOurs reports whether a contender is mpigo in an experiment with peers.
func isOurs(name string) bool { return name == ours || name == oursTCP }

// isPeer reports whether a contender is another library.
func isPeer(name string) bool { return slices.Contains(peers, name) }
