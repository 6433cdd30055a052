package hangreport

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/goroutines"
	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/internal/shortpath"
)

// Ranks returns a list of ranks as text, with runs folded: "0-3, 7".
func Ranks(ranks []int) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(ranks)))
	var parts []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		switch {
		case j > i+1:
			parts = append(parts, fmt.Sprintf("%d-%d", sorted[i], sorted[j]))
		case j == i+1:
			parts = append(parts, strconv.Itoa(sorted[i]), strconv.Itoa(sorted[j]))
		default:
			parts = append(parts, strconv.Itoa(sorted[i]))
		}
		i = j + 1
	}
	const most = 12
	if len(parts) > most {
		return strings.Join(parts[:most-1], ", ") + ", …"
	}
	return strings.Join(parts, ", ")
}

// named is Ranks with the noun.
func named(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + Ranks(ranks)
	}
	return "ranks " + Ranks(ranks)
}

// verb returns one of two forms of a verb for a number of ranks.
func verb(ranks []int, one, many string) string {
	if len(ranks) == 1 {
		return one
	}
	return many
}

// count returns a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// age is the time of a wait as text, "" if it is not known.
func age(nanos int64) string {
	switch d := time.Duration(nanos); {
	case d < time.Millisecond:
		return ""
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 995*time.Millisecond:
		// Rounded, so that ranks share a line.
		return fmt.Sprintf("%d ms", d.Round(10*time.Millisecond).Milliseconds())
	case d < 3*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 3*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	default:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
}

// place is a line of the program as text.
func place(names shortpath.Names, file string, line int) string {
	return fmt.Sprintf("%s:%d", names.Name(file), line)
}

// filesOf lists the source files of the lines that a report may name.
func filesOf(r *introspect.Report) (files []string) {
	for _, w := range r.Snapshot.Waits {
		if w.Site != nil {
			files = append(files, w.Site.File)
		}
		for _, in := range w.In {
			if in.Init != nil {
				files = append(files, in.Init.File)
			}
		}
	}
	for _, g := range r.Goroutines {
		if f, ok := goroutines.Site(g.Frames); ok {
			files = append(files, f.File)
		}
	}
	return files
}

// isSend reports whether an operation sends a user's message.
func isSend(p observe.Pending) bool { return !p.Collective && p.Sends }

// isRecv reports whether an operation waits for a user's message.
func isRecv(p observe.Pending) bool { return !p.Collective && !p.Sends }

// isBlocking reports whether an operation belongs to a call that does not return before it is
// complete. Such a call waits for one operation at a time: Sendrecv for the receive, and then for
// the send. A call that has not begun to wait, or is about to return, reports no wait.
func isBlocking(op string) bool {
	return calls.Named(op).Form() == calls.Blocking
}

// Operation describes an operation without its name: "from 3, tag 7".
func operation(p observe.Pending, peer string) string {
	var b strings.Builder
	switch {
	case p.Collective:
		b.WriteString("with ")
	case isSend(p):
		b.WriteString("to ")
	default:
		b.WriteString("from ")
	}
	b.WriteString(peer)
	switch {
	case p.Collective:
	case p.Tag < 0:
		b.WriteString(", any tag")
	default:
		fmt.Fprintf(&b, ", tag %d", p.Tag)
	}
	if p.Bytes > 0 && isSend(p) {
		fmt.Fprintf(&b, ", %s", count(int(p.Bytes), "byte", "bytes"))
	}
	if p.MadeSynchronous != "" {
		b.WriteString(", made synchronous")
	}
	if p.Comm != "world" && p.Comm != "" {
		fmt.Fprintf(&b, ", in %s", p.Comm)
	}
	return b.String()
}

// peerName returns the peer of an operation as text.
func peerName(peer int) string {
	if peer < 0 {
		return "any rank"
	}
	return strconv.Itoa(peer)
}

// Operation describes an operation in full: "irecv from 3, tag 7".
func Operation(p observe.Pending) string { return p.Op + " " + operation(p, peerName(p.Peer)) }

// where returns the line at which a call waits: "main.go:51 Recv", or the name of the operation.
func where(names shortpath.Names, w observe.Wait, ops []observe.Pending) string {
	call := w.Call
	if call == "" {
		switch {
		case len(w.In) > 0:
			call = w.In[0].Name
		case len(ops) == 1:
			call = ops[0].Op
		default:
			call = "a call"
		}
	}
	if w.Site != nil {
		return place(names, w.Site.File, w.Site.Line) + " " + call
	}
	return call
}

// Wait describes a call that waits: "main.go:51 Recv, for 61 s". ops are the operations that it
// waits for.
func Wait(w observe.Wait, ops []observe.Pending) string {
	text := where(nil, w, ops)
	for i, in := range w.In {
		if i > 0 {
			text += ","
		}
		text += " " + collectiveText(nil, w, in)
	}
	if time := age(w.Nanos); time != "" {
		text += ", for " + time
	}
	return text
}

// doing describes a goroutine that is not in a waiting call.
func doing(names shortpath.Names, g introspect.Goroutine) string {
	f, ok := goroutines.Site(g.Frames)
	if !ok {
		return "a goroutine" + inState(g)
	}
	if call := goroutines.CallName(g.Frames); g.InCall && call != "" {
		return fmt.Sprintf("%s %s%s", place(names, f.File, f.Line), call, inState(g))
	}
	return fmt.Sprintf("%s in %s%s", place(names, f.File, f.Line), filepath.Base(f.Function), inState(g))
}

// inState is the state of a goroutine, and how long the goroutine has been in it.
func inState(g introspect.Goroutine) string {
	switch {
	case g.State == "":
		return ""
	case g.Minutes > 0:
		return fmt.Sprintf(" (%s for %d min)", g.State, g.Minutes)
	}
	return fmt.Sprintf(" (%s)", g.State)
}
