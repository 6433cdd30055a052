package hangreport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/internal/observe"
)

// kinds lists the kinds of causes by importance. Never written.
var kinds = []Kind{
	KindStopped, KindUnreachable, KindMismatch, KindOrder, KindNearMiss, KindDeadlock, KindFinalized, KindLate, KindMayDeadlock,
	KindNoAnswer, KindComputes, KindUnderWay, KindAwaitsOthers, KindUnknown,
}

// causes lists the causes in the order of importance.
func (v *view) causes() (out []Cause) {
	collectives := v.collectives()
	out = append(out, v.withoutReport()...)
	out = append(out, v.unreachable()...)
	out = append(out, v.mismatches(collectives)...)
	out = append(out, v.nearMisses(true)...)
	out = append(out, v.late(collectives)...)
	out = append(out, v.deadlocks()...)
	out = append(out, v.outsiders(out)...)
	slices.SortStableFunc(out, func(a, b Cause) int {
		return cmp.Or(
			cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)),
			cmp.Compare(len(b.Waiting), len(a.Waiting)),
		)
	})
	return out
}

// wait returns a text about the ranks that wait because of a cause.
func (v *view) wait(waiting []int) string {
	if len(waiting) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s %s for it", named(waiting), verb(waiting, "waits", "wait"))
}

// unreachable returns the pairs of ranks between which no rail is up.
func (v *view) unreachable() (out []Cause) {
	type pair struct{ from, to int }
	var pairs []pair
	why := make(map[pair]string)
	for i := range v.ranks {
		for _, r := range v.railsDown(i) {
			if p := (pair{i, r.Peer}); v.isCut(i, r) {
				if why[p] == "" {
					pairs = append(pairs, p)
				} else {
					why[p] += "; "
				}
				why[p] += railText(r)
			}
		}
	}
	const most = 3
	for i, p := range pairs {
		if i == most {
			out = append(out, Cause{Kind: KindUnreachable, Text: fmt.Sprintf("and %s of ranks without a working rail", count(len(pairs)-most, "more pair", "more pairs"))})
			break
		}
		out = append(out, Cause{
			Kind: KindUnreachable, Ranks: []int{p.from, p.to}, Waiting: []int{p.from},
			Text: fmt.Sprintf("rank %d does not reach rank %d: %s", p.from, p.to, why[p]),
		})
	}
	return out
}

// call is a rank that waits in a collective.
type call struct {
	rank int
	wait observe.Wait
	observe.CollectiveCall
}

// collective is one collective of a communicator, with the calls that wait in it.
type collective struct {
	observe.Collective
	calls  []call
	blamed []int // ranks that others wait for and that have not called it
}

// collectives lists the collectives that ranks wait in, in the order of the first rank in each.
func (v *view) collectives() []*collective {
	var out []*collective
	at := make(map[observe.Collective]*collective)
	awaited := make(map[observe.Collective]map[int]bool) // ranks that some call in it waits for
	for i := range v.ranks {
		for _, w := range v.ranks[i].Waits {
			for _, in := range w.In {
				c := at[in.Collective]
				if c == nil {
					c = &collective{Collective: in.Collective}
					at[in.Collective], awaited[in.Collective] = c, make(map[int]bool)
					out = append(out, c)
				}
				c.calls = append(c.calls, call{i, w, in})
				for _, rank := range in.Awaits {
					awaited[in.Collective][rank] = true
				}
			}
		}
	}
	for _, c := range out {
		c.blamed = v.notReached(slices.Collect(maps.Keys(awaited[c.Collective])), c.Collective)
	}
	return out
}

// mismatches returns the collectives that do not match.
func (v *view) mismatches(list []*collective) (out []Cause) {
	for _, c := range list {
		var kinds []string
		by := make(map[string][]int)
		at := make(map[string]string)
		for _, x := range c.calls {
			name := x.Name
			if x.Root >= 0 {
				name += fmt.Sprintf(" with root %d", x.Root)
			}
			if by[name] == nil {
				kinds = append(kinds, name)
				at[name] = where(v.names, x.wait, v.ranks[x.rank].ops(x.wait))
			}
			by[name] = append(by[name], x.rank)
		}
		if len(kinds) < 2 {
			continue
		}
		var parts []string
		var ranks []int
		for _, name := range kinds {
			ranks = append(ranks, by[name]...)
			parts = append(parts, fmt.Sprintf("%s %s (%s)", named(by[name]), verb(by[name], "calls "+name, "call "+name), at[name]))
		}
		out = append(out, Cause{
			Kind: KindMismatch, Ranks: ranks,
			Text: fmt.Sprintf("collectives in different order in %s: %s", c.calls[0].CommName, strings.Join(parts, ", ")),
		})
	}
	for i, a := range list {
		for _, b := range list[i+1:] {
			x, y := lateFor(a, b), lateFor(b, a)
			if x == nil || y == nil {
				continue
			}
			out = append(out, Cause{
				Kind: KindOrder, Ranks: slices.Sorted(slices.Values([]int{x.rank, y.rank})), Waiting: v.waitingFor([]int{x.rank, y.rank}),
				Text: fmt.Sprintf("collectives in different order: rank %d is in %s of %s (%s), rank %d in %s of %s (%s)",
					y.rank, y.Name, y.CommName, v.at(y), x.rank, x.Name, x.CommName, v.at(x)),
			})
		}
	}
	return out
}

// lateFor returns the first call in b of a rank that is late for a. It returns nil if a is a start
// of a persistent collective, because starts have no order.
func lateFor(a, b *collective) *call {
	for i, x := range b.calls {
		if slices.Contains(a.blamed, x.rank) && a.Comm != b.Comm && a.Start == 0 {
			return &b.calls[i]
		}
	}
	return nil
}

// at returns the source line at which a call waits.
func (v *view) at(c *call) string { return where(v.names, c.wait, v.ranks[c.rank].ops(c.wait)) }

// late returns a cause for the ranks that have not called a collective in which others wait. A call
// that waits for several starts of one line may produce the same cause several times; the cause
// then has their number.
func (v *view) late(list []*collective) (out []Cause) {
	times := make(map[string]int)
	for _, c := range list {
		if len(c.blamed) == 0 {
			continue
		}
		var in []int
		for _, x := range c.calls {
			in = append(in, x.rank)
		}
		first := &c.calls[0]
		text := fmt.Sprintf("%s %s not %s: %s %s for %s at %s",
			named(c.blamed), verb(c.blamed, "has", "have"), v.called(c),
			named(in), verb(in, "waits", "wait"), verb(c.blamed, "it", "them"), v.at(first))
		if now := v.now(c.blamed[0]); now != "" {
			text += fmt.Sprintf("; rank %d: %s", c.blamed[0], now)
		}
		if times[text]++; times[text] == 1 {
			out = append(out, Cause{Kind: KindLate, Ranks: c.blamed, Waiting: in, Text: text})
		}
	}
	for i, c := range out {
		if n := times[c.Text]; n > 1 {
			out[i].Text += fmt.Sprintf(" (%d times)", n)
		}
	}
	return out
}

// called returns the call that late ranks have not made: "called allreduce in world".
func (v *view) called(c *collective) string {
	in := c.calls[0].CollectiveCall
	if in.Start == 0 {
		return fmt.Sprintf("called %s in %s", in.Name, in.CommName)
	}
	text := fmt.Sprintf("started the %s in %s", nameOf(v.names, in), in.CommName)
	isAgain := true
	for _, rank := range c.blamed {
		isAgain = isAgain && v.ranks[rank].starts[placeOf(in.Collective)] > 0
	}
	if isAgain {
		text += " again"
	}
	return text
}

// now describes the current activity of a rank in a few words.
func (v *view) now(rank int) string {
	r := &v.ranks[rank]
	lines := v.lines(rank)
	switch {
	case r.left:
		return "it has " + leftWord(r)
	case len(lines) == 0:
		return ""
	}
	return lines[0].text(rank, len(v.ranks))
}

func leftWord(r *rankView) string {
	switch {
	case r.Missing == Exited:
		return "exited"
	case r.Left && !r.Ended:
		return "returned"
	}
	return "finalized"
}

// deadlocks returns the ranks that cannot be released.
func (v *view) deadlocks() (out []Cause) {
	d := v.certain
	kind, begin := KindDeadlock, "deadlock: nothing can release "
	if len(d.Ranks) == 0 {
		d = v.possible
		kind, begin = KindMayDeadlock, "this may be a deadlock: only a goroutine outside of the library could release "
	}
	if len(d.Ranks) == 0 {
		return nil
	}
	text := begin + named(d.Ranks)
	if len(d.Cycle) > 0 {
		text += "; " + v.cycle(d.Cycle) + v.reliesOnBuffering(d.Cycle)
	} else if c, ok := v.endsByError(d.Ranks); ok {
		return []Cause{c}
	} else if gone := v.leftAwaited(d.Ranks); len(gone) > 0 {
		if kind == KindDeadlock {
			kind = KindFinalized
		}
		text += fmt.Sprintf(", which %s for %s", verb(d.Ranks, "waits", "wait"), v.awaitedName(d.Ranks, gone))
	}
	return []Cause{{Kind: kind, Ranks: d.Ranks, Cycle: d.Cycle, Text: text}}
}

// reliesOnBuffering says that a cycle exists only because checked mode has made sends synchronous,
// or returns "".
func (v *view) reliesOnBuffering(cycle []int) string {
	for _, rank := range cycle {
		for _, w := range v.ranks[rank].Waits {
			for _, p := range v.ranks[rank].ops(w) {
				if p.MadeSynchronous != "" {
					return fmt.Sprintf("; the program relies on buffering (MPI 4.1, section 3.5): checked mode (%s) has made its sends synchronous",
						p.MadeSynchronous)
				}
			}
		}
	}
	return ""
}

// endsByError returns the cause for ranks some of which wait for a finalized rank. Their calls end
// with ErrProcFailed once the library has noticed. A receive from any source continues to wait.
func (v *view) endsByError(ranks []int) (c Cause, ok bool) {
	var ending, gone, others []int
	for _, rank := range ranks {
		list := v.goneFor(rank)
		if len(list) == 0 {
			others = append(others, rank)
			continue
		}
		ending, gone = append(ending, rank), append(gone, list...)
	}
	if len(ending) == 0 {
		return c, false
	}
	slices.Sort(gone)
	gone = slices.Compact(gone)
	text := fmt.Sprintf("%s %s for %s, which %s %s: the %s with ErrProcFailed after about a second", named(ending), verb(ending, "waits", "wait"),
		named(gone), verb(gone, "has", "have"), leftWord(&v.ranks[gone[0]]), verb(ending, "call ends", "calls end"))
	return Cause{Kind: KindFinalized, Ranks: ending, Waiting: others, Text: text + v.wait(others)}, true
}

// receives reports whether a rank has active receives. They may match even after the rank has
// finalized.
func (v *view) receives(rank int) bool {
	return rank >= 0 && rank < len(v.ranks) && slices.ContainsFunc(v.ranks[rank].Pending, isRecv)
}

// goneFor returns the finalized ranks for which a call of a rank ends with an error.
func (v *view) goneFor(rank int) (out []int) {
	r := &v.ranks[rank]
	for _, w := range r.Waits {
		var list []int
		if w.Shared {
			list = v.lateInShared(r, w)
		} else if w.Collective != nil {
			list = v.notReached(w.Members, *w.Collective)
		}
		for _, p := range r.ops(w) {
			if !w.Shared && !(isSend(p) && v.receives(p.Peer)) {
				list = append(list, p.Peer)
			}
		}
		for _, other := range list {
			if other >= 0 && other < len(v.ranks) && other != rank && v.ranks[other].left {
				out = append(out, other)
			}
		}
	}
	return out
}

// cycle describes a cycle of waiting ranks.
func (v *view) cycle(cycle []int) string {
	const most = 5
	var b strings.Builder
	if len(cycle) == 1 {
		return fmt.Sprintf("rank %d waits for itself", cycle[0])
	}
	fmt.Fprintf(&b, "rank %d waits for", cycle[0])
	for i, rank := range append(slices.Clone(cycle[1:]), cycle[0]) {
		if i == most && len(cycle) > most+1 {
			fmt.Fprintf(&b, " …, and so on (a cycle of %d ranks)", len(cycle))
			break
		}
		if i > 0 {
			b.WriteString(", which waits for")
		}
		fmt.Fprintf(&b, " rank %d", rank)
	}
	return b.String()
}

// leftAwaited returns the finalized ranks that some of the given ranks wait for.
func (v *view) leftAwaited(ranks []int) (out []int) {
	for _, rank := range ranks {
		for _, other := range v.awaited(rank) {
			if v.ranks[other].left {
				out = append(out, other)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// awaitedName names the finalized ranks for which the given ranks wait.
func (v *view) awaitedName(ranks, gone []int) string {
	end := fmt.Sprintf(" %s %s", verb(gone, "has", "have"), leftWord(&v.ranks[gone[0]]))
	for _, rank := range ranks {
		for _, w := range v.ranks[rank].Waits {
			for _, p := range v.ranks[rank].ops(w) {
				if p.Peer < 0 {
					return "a message from any rank; " + named(gone) + end
				}
			}
		}
	}
	return named(gone) + ";" + map[bool]string{true: " it", false: " they"}[len(gone) == 1] + end
}

// outsiders returns the ranks that others wait for and that are not in a waiting call. It leaves
// out ranks that causes already names as late.
func (v *view) outsiders(causes []Cause) (out []Cause) {
	for i := range v.ranks {
		r := &v.ranks[i]
		if r.Report == nil || r.left || slices.ContainsFunc(causes, func(c Cause) bool { return c.Kind == KindLate && slices.Contains(c.Ranks, i) }) {
			continue
		}
		isWaiting := len(r.Waits) > 0
		if isWaiting && !r.Report.Locked {
			continue
		}
		waiting := v.waitingFor([]int{i})
		if len(waiting) == 0 && (isWaiting || v.anybodyWaits()) {
			continue
		}
		c := Cause{Kind: KindComputes, Ranks: []int{i}, Waiting: waiting}
		switch {
		case r.Report.Locked:
			c.Text = fmt.Sprintf("rank %d: it holds its lock: it is in an operation of a reduction, or in the library", i)
		case len(r.returning) > 0:
			c.Text = fmt.Sprintf("rank %d: in a call that goes on: %s", i, doing(v.names, r.returning[0]))
		case len(r.outside) == 0:
			c.Kind, c.Text = KindAwaitsOthers, fmt.Sprintf("rank %d: no goroutine of the program was found", i)
		default:
			c.Text = fmt.Sprintf("rank %d: in no call that waits: %s", i, doing(v.names, r.outside[0]))
			if !r.hasActive() {
				c.Kind = KindAwaitsOthers
			}
		}
		c.Text += v.wait(waiting)
		out = append(out, c)
	}
	out = fold(out)
	return append(out, v.fragmentsUnderWay()...)
}

// hasActive reports whether a goroutine outside of the library runs.
func (r *rankView) hasActive() bool {
	for _, g := range r.outside {
		if g.InCall || isActive(g.State) {
			return true
		}
	}
	return false
}

// anybodyWaits reports whether any rank waits.
func (v *view) anybodyWaits() bool {
	return slices.ContainsFunc(v.ranks, func(r rankView) bool { return len(r.Waits) > 0 })
}

// fold merges causes that differ only in the rank.
func fold(causes []Cause) (out []Cause) {
	for _, c := range causes {
		_, text, _ := strings.Cut(c.Text, ": ")
		at := slices.IndexFunc(out, func(o Cause) bool {
			_, other, _ := strings.Cut(o.Text, ": ")
			return o.Kind == c.Kind && other == text
		})
		if at < 0 {
			out = append(out, c)
			continue
		}
		out[at].Ranks = append(out[at].Ranks, c.Ranks...)
	}
	for i := range out {
		if _, text, ok := strings.Cut(out[i].Text, ": "); ok {
			out[i].Text = named(out[i].Ranks) + ": " + text
		}
	}
	return out
}

// fragmentsUnderWay returns causes for fragments that were sent but have not arrived.
func (v *view) fragmentsUnderWay() (out []Cause) {
	for i := range v.ranks {
		for _, c := range v.ranks[i].Channels {
			n := v.underWay(i, c)
			// A rank that runs the program's own code handles no fragments.
			if n == 0 || len(v.ranks[c.Peer].Waits) == 0 || v.ranks[i].hasMoved() || v.ranks[c.Peer].hasMoved() || v.ranks[c.Peer].left {
				continue
			}
			out = append(out, Cause{
				Kind: KindUnderWay, Ranks: []int{i, c.Peer},
				Text: fmt.Sprintf("%s from rank %d to rank %d %s not arrived", count(int(n), "fragment", "fragments"), i, c.Peer, map[bool]string{true: "has", false: "have"}[n == 1]),
			})
		}
	}
	return out
}
