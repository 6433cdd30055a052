package diagnose

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/atomicfile"
	"github.com/mpigo/mpigo/internal/hangreport"
	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/observe"
)

// WriteDir creates a directory and writes into it report.txt, report.json, and for each rank a file
// rank.N.txt with its operations and stacks. It replaces existing files.
func (r *Report) WriteDir(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	var asJSON bytes.Buffer
	if err := r.JSON(&asJSON); err != nil {
		return err
	}
	files := map[string]string{
		"report.txt":  fmt.Sprintf("job %s: %s\n%s", r.Job.Name, r.Job.Command, r.Text()),
		"report.json": asJSON.String(),
	}
	for _, m := range r.Members {
		files[fmt.Sprintf("rank.%d.txt", m.Rank)] = describe(m)
	}
	for name, text := range files {
		// Only the user can read it, because stacks and messages are the user's.
		err := atomicfile.Write(filepath.Join(dir, name), 0o600, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// describe returns all that is known of a rank, as text.
func describe(m introspect.Member) string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d, pid %d, on %s: %s\n", m.Rank, m.PID, m.Host, m.State)
	if m.Process != "" {
		fmt.Fprintf(&b, "its process: %s\n", m.Process)
	}
	if m.Error != "" {
		fmt.Fprintf(&b, "error: %q\n", m.Error)
	}
	r := m.Report
	if r == nil {
		return b.String()
	}
	if r.Locked {
		b.WriteString("the rank holds its lock, so its operations are unknown\n")
	}
	describeOperations(&b, r.Snapshot)
	section(&b, "messages that have arrived and were not received", len(r.Unreceived))
	for _, msg := range r.Unreceived {
		fmt.Fprintf(&b, "  from rank %d, tag %d, %d bytes, in %s\n", msg.Source, msg.Tag, msg.Bytes, msg.Comm)
	}
	section(&b, "rails that are not up", len(r.Rails))
	for _, rail := range r.Rails {
		fmt.Fprintf(&b, "  %s to rank %d: %s, health %d %s\n", rail.Name, rail.Peer, rail.State, rail.Health, rail.Error)
	}
	b.WriteString("\ngoroutines of the program")
	if r.GoroutinesCut {
		b.WriteString(", some of them")
	}
	b.WriteString(":\n")
	for _, g := range r.Goroutines {
		describeGoroutine(&b, g)
	}
	return b.String()
}

// describeOperations lists the operations under way and the calls that wait for them.
func describeOperations(b *strings.Builder, s observe.Snapshot) {
	section(b, "calls that wait", len(s.Waits))
	for _, w := range s.Waits {
		var ops []observe.Pending
		for _, op := range w.Ops {
			if op >= 0 && op < len(s.Pending) { // the index comes from the rank and is not trusted
				ops = append(ops, s.Pending[op])
			}
		}
		fmt.Fprintf(b, "  %s; it needs %d of:\n", hangreport.Wait(w, ops), w.Need)
		for _, p := range ops {
			fmt.Fprintf(b, "    %s\n", operation(p))
		}
	}
	section(b, "operations under way", len(s.Pending))
	for _, p := range s.Pending {
		fmt.Fprintf(b, "  %s\n", operation(p))
	}
}

func operation(p observe.Pending) string { return hangreport.Operation(p) + " (" + p.Phase + ")" }

// section begins a list, if it has elements.
func section(b *strings.Builder, title string, elements int) {
	if elements > 0 {
		fmt.Fprintf(b, "\n%s:\n", title)
	}
}

// describeGoroutine prints a stack as the Go runtime does.
func describeGoroutine(b *strings.Builder, g introspect.Goroutine) {
	fmt.Fprintf(b, "\ngoroutine %d [%s", g.ID, g.State)
	if g.Minutes > 0 {
		fmt.Fprintf(b, ", %v", time.Duration(g.Minutes)*time.Minute)
	}
	b.WriteString("]:\n")
	for _, f := range g.Frames {
		fmt.Fprintf(b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
	}
}
