package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tables returns the results as Markdown.
func tables(r *results) string {
	var b strings.Builder
	writeMachine(&b, r)
	writeMarks(&b, r)
	writeLimits(&b, r)
	for _, g := range groups(r) {
		writeExperiment(&b, r, g)
	}
	writeMethod(&b, r)
	return b.String()
}

func writeMachine(b *strings.Builder, r *results) {
	m := r.Machine
	fmt.Fprintf(b, "# Measurements of %s\n\n", r.Begun.Format(time.DateOnly))
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "| %s | %s |\n", name, value)
		}
	}
	b.WriteString("| | |\n| --- | --- |\n")
	row("processor", fmt.Sprintf("%s, %d cores, cache %s", m.CPU, m.Cores, m.Cache))
	row("kernel", m.Kernel)
	row("mpigo", strings.TrimSpace(m.Mpigo+", "+m.Go))
	row("Open MPI", m.OpenMPI)
	row("MPICH", m.MPICH)
	row("rounds", fmt.Sprintf("%d, interleaved, in %v", r.Rounds, r.Ended.Sub(r.Begun)))
	row("load", fmt.Sprintf("%s before, %s after", m.LoadAtStart, m.LoadAtEnd))
	if m.OthersBefore != "" {
		row("used by others", fmt.Sprintf("%s of the cores' time before, %s in the rounds",
			m.OthersBefore, strings.Join(m.OthersDuring, ", ")))
	}
	for _, p := range r.Problems {
		row("problem", strings.ReplaceAll(p, "|", "/"))
	}
}

func writeMarks(b *strings.Builder, r *results) {
	out := judge(r, targets())
	if len(out) == 0 {
		return
	}
	reached := 0
	for _, o := range out {
		if o.reached {
			reached++
		}
	}
	fmt.Fprintf(b, "\n## Targets\n\n%d of %d reached. Values are medians, and in brackets the best of all rounds. "+
		"The ratio is mpigo's\nvalue to the other's. The column round by round has the median of the ratios of "+
		"each round,\nwhich is what counts.\n\n", reached, len(out))
	b.WriteString("| benchmark | mpigo | other | other is | ratio | round by round | target | |\n" +
		"| --- | ---: | ---: | --- | ---: | ---: | ---: | --- |\n")
	for _, o := range out {
		relation, result := "≤", "**no**"
		if o.target.at.higherIsBetter() {
			relation = "≥"
		}
		if o.reached {
			result = "yes"
		}
		paired := ""
		if o.paired > 0 {
			paired = fmt.Sprintf("%.2f", o.paired)
		}
		fmt.Fprintf(b, "| %s | %s %s | %s %s | %s | %.2f (%.2f) | %s | %s %g | %s |\n", o.name,
			both(o.ours), o.target.at.Unit, both(o.others), o.target.at.Unit, o.other, o.ratio, o.best, paired, relation, o.limit, result)
	}
}

func writeLimits(b *strings.Builder, r *results) {
	first := true
	for _, s := range r.Series {
		if s.Experiment != limitsName {
			continue
		}
		if first {
			b.WriteString("\n## Limits of the machine, measured in the same rounds\n\n" +
				"| what | median | best |\n| --- | ---: | ---: |\n")
			first = false
		}
		sum := summarize(s)
		fmt.Fprintf(b, "| %s | %s %s | %s %s |\n", s.Contender, number(sum.median), s.Unit, number(sum.best), s.Unit)
	}
}

// group identifies a table.
type group struct {
	experiment string
	ranks      int
	unit       string
}

// groups returns the tables in the order of measurement.
func groups(r *results) []group {
	var all []group
	for _, s := range r.Series {
		g := group{s.Experiment, s.Ranks, s.Unit}
		if s.Experiment != limitsName && !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	return all
}

// writeExperiment writes a table with a line for each size and a column for each contender.
func writeExperiment(b *strings.Builder, r *results, g group) {
	var names []string
	for _, s := range r.Series {
		if (group{s.Experiment, s.Ranks, s.Unit}) == g && !slices.Contains(names, s.Contender) {
			names = append(names, s.Contender)
		}
	}
	slices.SortFunc(names, func(x, y string) int { return order(x) - order(y) })
	fmt.Fprintf(b, "\n## %s, %d ranks (%s)\n\n| size |", g.experiment, g.ranks, g.unit)
	for _, name := range names {
		fmt.Fprintf(b, " %s |", name)
	}
	ratios := slices.ContainsFunc(names, isPeer) && slices.ContainsFunc(names, isOurs)
	if ratios {
		b.WriteString(" mpigo to best peer |")
	}
	b.WriteString("\n| ---: |" + strings.Repeat(" ---: |", len(names)))
	if ratios {
		b.WriteString(" ---: |")
	}
	b.WriteByte('\n')
	for _, p := range r.points(g.experiment, g.ranks) {
		if p.Unit != g.unit {
			continue
		}
		size := sizeName(p.Size)
		if p.Size == 0 {
			size = "–"
		}
		fmt.Fprintf(b, "| %s |", size)
		for _, name := range names {
			if s, ok := r.at(p, name); ok {
				fmt.Fprintf(b, " %s |", both(s))
			} else {
				b.WriteString(" |")
			}
		}
		if ratios {
			b.WriteString(ratioCell(r, p))
		}
		b.WriteByte('\n')
	}
}

// ratioCell returns mpigo's ratio to the best peer, with buffers from the heap and from Alloc.
func ratioCell(r *results, p point) string {
	peer, ok := r.bestOf(p, peers)
	var parts []string
	for _, name := range []string{ours, oursAlloc, oursTCP} {
		if mine, known := r.at(p, name); ok && known {
			parts = append(parts, fmt.Sprintf("%.2f (%.2f)", mine.median/peer.median, mine.best/peer.best))
		}
	}
	return " " + strings.Join(parts, ", Alloc ") + " |"
}

// order returns the position of a contender's column.
func order(name string) int {
	return slices.Index([]string{ours, oursAlloc, oursTCP,
		openMPISingle, openMPITwo, openMPITCP, mpichSingle, mpichTwo, mpichTCP, channel}, name)
}

func writeMethod(b *strings.Builder, r *results) {
	b.WriteString(`
## Method

The programs measure as the OSU micro-benchmarks do:

- Latency is half of the time of a blocking ping-pong.
- Bandwidth is that of windows of 64 messages, each answered once.
- The time of a collective is that of a call, with a barrier between calls, as the mean of all
  ranks. Of a nonblocking one it is that of the call and of Wait, of a persistent one that of Start
  and of Wait. mpigo's persistent calls take turns with nonblocking ones in the same job.
- The overlap is the share of a nonblocking call's time that a computation of the same length hides,
  in which the program does not call the library.
- Each size has a warm-up, and larger sizes have fewer iterations.

mpigo's program is in Go, that of the peers in C, with the same loops and iterations. In each
round every contender runs every experiment once, one after the other. Tables have the median of
the rounds, and in brackets the best. The best peer is the better of both, in the better of its
configurations, at that size. Over TCP all use the loopback interface.

`)
	if r.Bind == bindCore {
		b.WriteString("With a core for each rank, every launcher binds the ranks to cores.\n")
	} else {
		b.WriteString("Every launcher binds the ranks as it does by default.\n")
	}
	fmt.Fprintf(b, `With more ranks than cores, no rank is bound, Open MPI yields when idle, and
%d iterations follow a warm-up of %d. MPICH does not yield: %d follow %d.

`, crowdedIterations, crowdedWarmUp, spinningIterations, spinningWarmUp)
	b.WriteString("| contender | for example |\n| --- | --- |\n")
	for _, c := range r.Contenders {
		fmt.Fprintf(b, "| %s | `%s` |\n", c.Name, c.Example)
	}
}

// both returns a median with the best value.
func both(s summary) string { return fmt.Sprintf("%s (%s)", number(s.median), number(s.best)) }

// number returns a value with about three digits.
func number(x float64) string {
	switch {
	case x >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case x >= 1:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return strconv.FormatFloat(x, 'f', 3, 64)
}

// sizeName returns a size with its unit.
func sizeName(bytes int) string {
	switch {
	case bytes >= 1<<20 && bytes%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10 && bytes%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}
