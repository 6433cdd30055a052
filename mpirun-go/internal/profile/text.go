package profile

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/calls"
)

// mostSites is the largest number of lines in the tables of call sites.
const mostSites = 20

// ruleChars is the length of the lines between the sections.
const ruleChars = 78

// Text writes the report as mpiP does, so that its readers find the same columns.
func (j *Job) Text(to io.Writer) error {
	w := &writer{to: to}
	j.header(w)
	times := j.Times()
	sum := sumOf(times)

	w.section("MPI Time (seconds)")
	w.line("%-5s %11s %11s %8s %11s %11s", "Task", "AppTime", "MPITime", "MPI%", "Waiting", "Moving")
	row := func(task string, t Times) {
		n := marker(t.Estimated)
		w.line("%-5s %11.4g %11s %8s %11s %11s", task, t.App/1e9, n("%.4g", t.Calls/1e9), n("%.2f", share(t.Calls, t.App)),
			n("%.4g", t.Waiting/1e9), n("%.4g", t.Moving/1e9))
	}
	for _, t := range times {
		row(fmt.Sprint(t.Rank), t)
	}
	row("*", sum)

	sites := j.Sites()
	w.section(fmt.Sprintf("Callsites: %d", len(sites)))
	w.line("%3s %-28s %5s %-28s %s", "ID", "File", "Line", "Function", "Call")
	for _, s := range sites {
		file, _, _ := strings.Cut(s.Where(), ":")
		w.line("%3d %-28s %5d %-28s %s", s.ID, file, s.Line, s.Function, calls.GoName(s.Call))
	}

	w.section("Aggregate Time (top twenty, descending, milliseconds)")
	w.line("%-20s %4s %11s %7s %7s %11s %6s %9s", "Call", "Site", "Time", "App%", "MPI%", "Count", "COV", "Wait%")
	for _, s := range first(byTime(sites), mostSites) {
		t := s.Total
		n, ofAll := marker(t.Estimated), marker(sum.Estimated)
		w.line("%-20s %4d %11s %7s %7s %11s %6s %9s", calls.GoName(s.Call), s.ID, n("%.4g", t.Nanos/1e6),
			n("%.2f", share(t.Nanos, sum.App)), ofAll("%.2f", share(t.Nanos, sum.Calls)), n("%.0f", t.Calls), n("%.2f", s.COV),
			n("%.2f", share(t.Waiting, t.Nanos)))
	}

	w.section("Aggregate Sent Message Size (top twenty, descending, bytes)")
	w.line("%-20s %4s %11s %11s %11s %7s", "Call", "Site", "Count", "Total", "Avrg", "Sent%")
	senders := slices.DeleteFunc(slices.Clone(sites), func(s *Site) bool { return !s.Sends })
	slices.SortStableFunc(senders, func(a, b *Site) int { return -cmp.Compare(a.Total.Bytes, b.Total.Bytes) })
	all, isEstimated := 0.0, false
	for _, s := range senders {
		all += s.Total.Bytes
		isEstimated = isEstimated || s.Total.Estimated
	}
	for _, s := range first(senders, mostSites) {
		t := s.Total
		n, ofAll := marker(t.Estimated), marker(isEstimated)
		w.line("%-20s %4d %11s %11s %11s %7s", calls.GoName(s.Call), s.ID, n("%.0f", t.Calls), n("%.4g", t.Bytes),
			n("%.4g", t.Bytes/max(t.Calls, 1)), ofAll("%.2f", share(t.Bytes, all)))
	}

	w.section("Wait States (seconds)")
	w.line("%-18s %11s %7s  %s", "State", "Time", "MPI%", "Most of it at")
	for _, st := range j.States(sites) {
		w.line("%-18s %11s %7s  %s, %s, rank %d", st.Name, marker(st.Estimated)("%.4g", st.Nanos/1e9),
			marker(sum.Estimated)("%.2f", share(st.Nanos, sum.Calls)), st.Worst.Where(), calls.GoName(st.Worst.Call), st.Rank)
	}

	j.sizes(w, "Collective Data Size (calls)", calls.ID.IsCollective)
	j.sizes(w, "Point-To-Point Message Size (calls)", calls.ID.SendsAtOnce)

	w.section("Messages Sent, By Peer (collectives included)")
	w.line("%5s %5s %12s %14s", "From", "To", "Messages", "Bytes")
	for _, f := range j.Files {
		for _, t := range f.Sent {
			w.line("%5d %5d %12d %14d", f.Rank, t.Peer, t.Messages, t.Bytes)
		}
	}

	w.section("Protocols And Failures (all ranks)")
	for _, p := range j.Protocols() {
		w.line("%-20s %14d", p.Name, p.Count)
	}

	w.section("Rails (all ranks, bytes with headers)")
	w.line("%-30s %-8s %9s %16s %8s", "Rail", "State", "To peers", "Bytes", "Errors")
	for _, r := range j.railRows() {
		w.line("%-30s %-8s %9d %16.0f %8d", r.Name, r.State, r.Rails, r.Bytes, r.Errors)
	}

	w.section(fmt.Sprintf("Callsite Time Statistics (all, milliseconds): %d", len(sites)))
	w.line("%-20s %4s %5s %10s %10s %10s %10s %7s %7s", "Name", "Site", "Rank", "Count", "Max", "Mean", "Min", "App%", "MPI%")
	for _, s := range sites {
		for _, r := range s.ByRank {
			of := times[slices.IndexFunc(times, func(t Times) bool { return t.Rank == r.Rank })]
			n, ofAll := marker(r.Estimated), marker(of.Estimated)
			w.line("%-20s %4d %5d %10s %10s %10s %10s %7s %7s", calls.GoName(s.Call), s.ID, r.Rank, n("%.0f", r.Calls),
				n("%.4g", float64(r.Max)/1e6), n("%.4g", r.Nanos/max(r.Calls, 1)/1e6), n("%.4g", float64(r.Min)/1e6),
				n("%.2f", share(r.Nanos, of.App)), ofAll("%.2f", share(r.Nanos, of.Calls)))
		}
	}
	w.rule()
	w.line("@--- End of Report " + strings.Repeat("-", ruleChars-len("@--- End of Report ")))
	w.rule()
	return w.err
}

func (j *Job) header(w *writer) {
	f := j.Files[0]
	w.line("@ mpigo profile")
	w.line("@ Command    : %s", strings.Join(f.Command, " "))
	w.line("@ Started    : %s", time.Unix(f.Started, 0).Format(time.RFC3339))
	w.line("@ Ranks      : %d", j.Size)
	if len(j.Missing) > 0 {
		w.line("@ Missing    : %s", ranges(j.Missing))
	}
	for _, why := range j.Why {
		w.line("@ Unreadable : %s", why)
	}
	for _, f := range j.Files {
		if f.Error != "" {
			w.line("@ Failed     : rank %d: %s", f.Rank, f.Error)
		}
	}
	for _, f := range j.Files {
		w.line("@ Task       : %d %s, pid %d", f.Rank, f.Host, f.PID)
	}
	w.line("@ ≈: an estimate, from samples of short calls, and from all long waits.")
	w.line("@ All other numbers are exact.")
	w.line("@ Transfers through memory that ranks share are not counted as messages.")
}

// marker returns a function that formats numbers, with a mark if they are estimates.
func marker(isEstimated bool) func(format string, v float64) string {
	return func(format string, v float64) string { return approximate(isEstimated, fmt.Sprintf(format, v)) }
}

// sizes writes a histogram of lengths.
func (j *Job) sizes(w *writer, title string, has func(calls.ID) bool) {
	w.section(title)
	w.line("%-20s %21s %12s", "Call", "Length", "Calls")
	for _, k := range j.Kinds() {
		if !has(calls.Named(k.Name)) {
			continue
		}
		for bits, n := range k.Sizes {
			if n > 0 {
				w.line("%-20s %21s %12d", calls.GoName(k.Name), lengthClass(bits), n)
			}
		}
	}
}

// lengthClass names the class of lengths that have the given number of bits.
func lengthClass(bits int) string {
	switch bits {
	case 0:
		return "0"
	case 1:
		return "1"
	}
	least := float64(uint64(1) << (bits - 1))
	if bits <= 10 {
		return fmt.Sprintf("%.0f - %.0f B", least, 2*least-1)
	}
	return fmt.Sprintf("%s - %s", bytesText(least), bytesText(2*least)) // without the upper one
}

// ranges writes a sorted list of ranks: 0-3, 7.
func ranges(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		k := i
		for k+1 < len(list) && list[k+1] == list[k]+1 {
			k++
		}
		if k == i {
			parts = append(parts, fmt.Sprint(list[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[k]))
		}
		i = k + 1
	}
	return strings.Join(parts, ", ")
}

func first[T any](list []T, n int) []T { return list[:min(n, len(list))] }

// writer keeps the first error.
type writer struct {
	to  io.Writer
	err error
}

func (w *writer) line(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.to, format+"\n", args...)
	}
}

func (w *writer) rule() { w.line("%s", strings.Repeat("-", ruleChars)) }

func (w *writer) section(title string) {
	w.line("")
	w.rule()
	title = "@--- " + title + " "
	w.line("%s%s", title, strings.Repeat("-", max(ruleChars-len(title), 0)))
	w.rule()
}
