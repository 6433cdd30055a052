package simulation

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/pml"
)

// ladder draws a run: a column for each rank, and fragments as arrows between them.
type ladder struct {
	w     *world
	lines []string
}

const columnWidth = 46

func (l *ladder) line(s string) {
	l.lines = append(l.lines, fmt.Sprintf("%12d %s", l.w.net.Now(), strings.TrimRight(s, " ")))
}

// column is a line with text in a rank's column, and bars in the others.
func (l *ladder) column(rank int, text string) string {
	var b strings.Builder
	for i := range l.w.plan.setup.ranks {
		switch {
		case i == rank && utf8.RuneCountInString(text) >= columnWidth:
			b.WriteString(text + " ")
		case i == rank:
			fmt.Fprintf(&b, "%-*s", columnWidth, text)
		default:
			fmt.Fprintf(&b, "%-*s", columnWidth, "│")
		}
	}
	return b.String()
}

// event adds a line to the column of a rank, or across all columns if rank is negative.
func (l *ladder) event(rank int, text string) {
	text = strings.ReplaceAll(text, "\n", " ")
	if rank < 0 {
		l.line("== " + text)
		return
	}
	l.line(l.column(rank, "● "+text))
}

// posting is the line for an operation that is about to be posted.
func (l *ladder) posting(e *tapEndpoint, name string, op *btl.Op) string {
	t, peer := e.t, e.peer
	text := fmt.Sprintf("○ %s of %d bytes at %d, to %d by rail %d-%d", name, len(op.Payload), op.RemoteOffset, peer, t.rail, e.remote)
	if name != remoteRead && name != remoteWrite {
		frag := slices.Concat(op.Header(), op.Payload)
		f, err := l.w.ranks[t.rank].p.Look(op.Tag, frag)
		if err != nil {
			return ""
		}
		text = fmt.Sprintf("○ %s%s to %d by rail %d-%d, %s", name, about(f), peer, t.rail, e.remote, l.w.ranks[t.rank].p.StateOf(peer, f, true))
	}
	return l.column(t.rank, text)
}

func about(f pml.Fragment) string {
	s := ""
	if f.Numbered {
		s += fmt.Sprintf(" #%d", f.Number)
	}
	if f.Send != 0 {
		s += fmt.Sprintf(" send %d", uint32(f.Send))
	}
	if f.Recv != 0 {
		s += fmt.Sprintf(" receive %d.%d", uint32(f.Recv), f.Recv>>32)
	}
	if f.AboutRail {
		s += fmt.Sprintf(" of rail %d-%d epoch %d", f.Sender, f.Receiver, f.Epoch)
	}
	return s
}

// arrive draws a fragment that arrives, as an arrow.
func (l *ladder) arrive(t *tap, from int, f pml.Fragment, bytes int) {
	to := t.rank
	q := l.w.ranks[to].p
	label := " " + f.Name + about(f) + fmt.Sprintf(", %d B ", bytes)
	turn := ""
	if f.Numbered {
		turn = [...]string{"again: ", "", "early: "}[q.Turn(from, f.Number)+1]
	}
	state := fmt.Sprintf("by rail %d, %s%s", t.rail, turn, q.StateOf(from, f, false))
	if from == to {
		l.line(l.column(to, "↺"+label+state))
		return
	}
	left, right := min(from, to), max(from, to)
	width := (right-left)*columnWidth - 1
	pad := max(width-1-utf8.RuneCountInString(label), 0)
	body := strings.Repeat("─", pad/2) + label + strings.Repeat("─", pad-pad/2)
	var b strings.Builder
	b.WriteString(strings.Repeat("│"+strings.Repeat(" ", columnWidth-1), left))
	if from < to {
		b.WriteString("├" + body + "▶ " + state)
	} else {
		b.WriteString("◀" + body + "┤ " + state + " at " + fmt.Sprint(to))
	}
	l.line(b.String())
}

// write writes all lines, and the failure if there is one.
func (l *ladder) write(to io.Writer, f *Failure) {
	p := l.w.plan
	fmt.Fprintf(to, "seed %d over %v: %d ranks, %d rails, %v, %s\n", p.seed, p.transport, p.setup.ranks, len(p.setup.rails), p.setup.protocol, p.setup.ending)
	for i, r := range p.setup.rails {
		fmt.Fprintf(to, "  rail %d: %+v\n", i, r)
	}
	head := strings.Repeat(" ", 13)
	for i := range p.setup.ranks {
		head += fmt.Sprintf("%-*s", columnWidth, fmt.Sprintf("rank %d", i))
	}
	fmt.Fprintln(to, strings.TrimRight(head, " "))
	for _, s := range l.lines {
		fmt.Fprintln(to, s)
	}
	for _, r := range l.w.ranks {
		fmt.Fprintf(to, "rank %d: leftovers: %v\n", r.rank, r.p.Leftovers())
	}
	if f != nil {
		fmt.Fprintln(to, "FAILED", f)
	}
}
