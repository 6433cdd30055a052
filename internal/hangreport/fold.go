package hangreport

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/internal/shortpath"
)

// line describes one activity of a rank. Ranks whose lines have equal keys are folded, so the key
// contains neither the peers nor the ages. The parts of a key are quoted. So lines with equal keys
// have the same number of operations, for any names in the reports.
type line struct {
	key   string
	head  string // before the operations
	ops   []observe.Pending
	tail  string // after the operations
	nanos int64
}

const (
	// mostOps bounds the operations of a call that are listed, and mostOthers the operations and
	// messages of a rank that no call waits for.
	mostOps, mostOthers = 3, 2
	// mostOutside bounds the goroutines of a rank outside of the library that are listed.
	mostOutside = 3
)

// lines lists the activities of a rank.
func (v *view) lines(rank int) (out []line) {
	r := &v.ranks[rank]
	add := func(l line) {
		l.key = strconv.Quote(l.head + l.tail)
		for _, p := range l.ops {
			p.Peer, p.By = 0, nil
			l.key += "|" + strconv.Quote(Operation(p))
		}
		out = append(out, l)
	}
	switch {
	case r.Report == nil && r.left:
		add(line{head: leftWord(r)})
		return out
	case r.Report == nil:
		why := r.Missing
		if why == "" {
			why = NoAnswer
		}
		add(line{head: string(why)})
		return out
	case r.left && r.Left && !r.Ended:
		add(line{head: "returned"})
	case r.left:
		add(line{head: "in Finalize"})
	}
	waited := make(map[int]bool)
	for _, w := range r.Waits {
		for _, op := range w.Ops {
			waited[op] = true
		}
		add(v.lineOf(r, w))
	}
	for i, g := range slices.Concat(r.returning, r.outside) {
		if i == mostOutside {
			add(line{head: fmt.Sprintf("and %s", count(len(r.returning)+len(r.outside)-i, "more goroutine", "more goroutines"))})
			break
		}
		if !r.left {
			add(line{head: doing(v.names, g)})
		}
	}
	if r.Report.Locked {
		add(line{head: "holds its lock, so its operations are unknown"})
	}
	list := func(head string, ops []observe.Pending) {
		l := line{head: head, ops: ops}
		if n := len(ops) - mostOthers; n > 0 {
			l.ops, l.tail = ops[:mostOthers], fmt.Sprintf(", and %d more", n)
		}
		if len(ops) > 0 {
			add(l)
		}
	}
	var others, sent, called []observe.Pending
	for i, p := range r.Pending {
		switch {
		case waited[i]:
		case p.Abandoned && isSend(p):
			sent = append(sent, p)
		case !p.Abandoned && isBlocking(p.Op):
			called = append(called, p)
		default:
			others = append(others, p)
		}
	}
	if len(out) == 0 {
		list("in a call that goes on: ", called)
	}
	list("sent, but not delivered yet: ", sent)
	list("no call waits for: ", others)
	if messages := r.Report.Unreceived; len(messages) > 0 {
		l := line{head: "not received: "}
		for i, m := range messages {
			if i == mostOthers {
				l.tail = fmt.Sprintf(", and %s", count(len(messages)-i, "more message", "more messages"))
				break
			}
			l.ops = append(l.ops, observe.Pending{Op: "message", Peer: m.Source, Tag: m.Tag, Bytes: m.Bytes, Comm: m.Comm})
		}
		add(l)
	}
	return out
}

// lineOf returns the line of a waiting call.
func (v *view) lineOf(r *rankView, w observe.Wait) line {
	ops := r.ops(w)
	l := line{head: where(v.names, w, ops) + " ", nanos: w.Nanos}
	switch {
	case len(w.In) > 0:
		ops = slices.DeleteFunc(ops, func(p observe.Pending) bool { return p.Collective })
		isAlone := len(w.In)+len(ops) == 1
		for i, in := range w.In {
			if i == mostOps {
				l.head += fmt.Sprintf(", and %d more", len(w.In)-i)
				break
			}
			if i > 0 {
				l.head += ", "
			}
			l.head += collectiveText(v.names, w, in)
			called := "called"
			if in.Start > 0 {
				called = "started"
			}
			switch late := v.notReached(w.Members, in.Collective); {
			case len(late) > 0 && isAlone:
				l.head += fmt.Sprintf(", not %s by %s", called, Ranks(late))
			case len(late) > 0:
				l.head += fmt.Sprintf(" (not %s by %s)", called, Ranks(late))
			}
		}
		if len(ops) == 0 {
			return l
		}
		l.head += ", and: "
	case len(ops) > 1 && w.Need <= 1:
		l.head = strings.TrimSpace(l.head) + ", any of: "
	case len(ops) > 1 && w.Need < len(ops):
		l.head = fmt.Sprintf("%s, %d of: ", strings.TrimSpace(l.head), w.Need)
	case len(ops) > 1:
		l.head = strings.TrimSpace(l.head) + ", all of: "
	}
	l.ops = ops
	if n := len(ops) - mostOps; n > 0 {
		l.ops, l.tail = ops[:mostOps], fmt.Sprintf(", and %d more", n)
	}
	return l
}

// collectiveText names a collective that a call waits for. The line of a blocking call already has
// the name.
func collectiveText(names shortpath.Names, w observe.Wait, in observe.CollectiveCall) string {
	text := "in " + in.CommName
	if w.Call != "" && w.Call != calls.GoName(in.Name) {
		text = "for " + nameOf(names, in) + " " + text
	}
	if in.Root >= 0 {
		text += fmt.Sprintf(" with root %d", in.Root)
	}
	return text
}

// nameOf names a collective. For a start of a persistent collective it adds the line of the Init
// call.
func nameOf(names shortpath.Names, in observe.CollectiveCall) string {
	if in.Init == nil {
		return in.Name
	}
	return in.Name + " of " + place(names, in.Init.File, in.Init.Line)
}

// text returns the line of one rank.
func (l line) text(rank, size int) string { return render([]int{rank}, []line{l}, size) }

// render returns the common line of several ranks, whose lines have equal keys.
func render(ranks []int, lines []line, size int) string {
	first := lines[0]
	var b strings.Builder
	b.WriteString(first.head)
	for i, p := range first.ops {
		if i > 0 {
			b.WriteString("; ")
		}
		text := operation(p, peersOf(ranks, lines, i, size))
		if strings.HasSuffix(first.head, ": ") {
			text = p.Op + " " + text
		}
		b.WriteString(text)
	}
	b.WriteString(first.tail)
	least, most := first.nanos, first.nanos
	for _, l := range lines {
		least, most = min(least, l.nanos), max(most, l.nanos)
	}
	switch from, to := age(least), age(most); {
	case to == "":
	case from == to:
		b.WriteString(", for " + to)
	case from == "":
		b.WriteString(", for up to " + to)
	default:
		fmt.Fprintf(&b, ", for %s to %s", from, to)
	}
	return b.String()
}

// peersOf names the peers of the i-th operation of several ranks.
func peersOf(ranks []int, lines []line, i, size int) string {
	offset := func(n int) int { return ((lines[n].ops[i].Peer-ranks[n])%size + size) % size }
	isSame, isShift, isPair := true, true, len(lines) > 2
	for n := range lines {
		peer := lines[n].ops[i].Peer
		isSame = isSame && peer == lines[0].ops[i].Peer
		isPair = isPair && peer == ranks[n]^1
		isShift = isShift && peer >= 0 && offset(n) == offset(0)
	}
	switch {
	case isSame:
		return peerName(lines[0].ops[i].Peer)
	case isShift && offset(0) <= size/2:
		return fmt.Sprintf("rank+%d", offset(0))
	case isShift:
		return fmt.Sprintf("rank-%d", size-offset(0))
	}
	if isPair {
		return "rank^1"
	}
	return "other ranks"
}

// groups folds ranks with equal lines.
func (v *view) groups() []Group {
	type folded struct {
		ranks []int
		lines [][]line // of each rank
	}
	var list []*folded
	at := make(map[string]*folded)
	for rank := range v.ranks {
		lines := v.lines(rank)
		if len(lines) == 0 {
			lines = []line{{key: "?", head: "does nothing that is known"}}
		}
		key := strconv.Itoa(len(lines))
		for _, l := range lines {
			key += "\n" + l.key
		}
		f := at[key]
		if f == nil {
			f = new(folded)
			at[key] = f
			list = append(list, f)
		}
		f.ranks = append(f.ranks, rank)
		f.lines = append(f.lines, lines)
	}
	var out []Group
	for _, f := range list {
		g := Group{Ranks: f.ranks}
		for i := range f.lines[0] {
			var same []line
			for _, lines := range f.lines {
				same = append(same, lines[i])
			}
			g.Lines = append(g.Lines, render(f.ranks, same, len(v.ranks)))
		}
		out = append(out, g)
	}
	return out
}

// railsDown lists the rails of a rank that are down.
func (v *view) railsDown(rank int) (out []introspect.Rail) {
	if v.ranks[rank].Report == nil {
		return nil
	}
	for _, r := range v.ranks[rank].Report.Rails {
		if r.State != "up" && r.State != "closed" {
			out = append(out, r)
		}
	}
	return out
}

// railText describes the state of a rail.
func railText(r introspect.Rail) string {
	if strings.HasPrefix(r.Error, "rail "+r.Name) {
		return fmt.Sprintf("%s (%s)", r.Error, r.State)
	}
	return strings.TrimSuffix(fmt.Sprintf("rail %s to rank %d is %s: %s", r.Name, r.Peer, r.State, r.Error), ": ")
}

// isCut reports whether operations of a rank wait for a rail that is down. If another rail to the
// peer is up, they use that rail.
func (v *view) isCut(rank int, r introspect.Rail) bool {
	return !r.PeerUp && slices.ContainsFunc(v.ranks[rank].Pending, func(p observe.Pending) bool {
		return p.Peer == r.Peer && r.Peer != rank && len(p.By) == 0
	})
}

// notes returns the near misses that may not be causes, and the rails that are down. It folds them.
func (v *view) notes() (out []string) {
	for _, c := range v.nearMisses(false) {
		out = append(out, c.Text)
	}
	const most = 4
	var order []string
	from := make(map[string][]int)
	for i := range v.ranks {
		for _, r := range v.railsDown(i) {
			if v.isCut(i, r) {
				continue // it is a cause
			}
			k := railText(r)
			if from[k] == nil {
				order = append(order, k)
			}
			from[k] = append(from[k], i)
		}
	}
	for i, k := range order {
		if i == most {
			out = append(out, fmt.Sprintf("and %s", count(len(order)-most, "more rail that is not up", "more rails that are not up")))
			break
		}
		out = append(out, fmt.Sprintf("at %s: %s", named(slices.Compact(from[k])), k))
	}
	return out
}
