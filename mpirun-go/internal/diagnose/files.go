package diagnose

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/hangreport"
	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/observe"
)

// WriteDir writes report.txt, report.json and a file rank.N.txt for each rank, with its operations
// and stacks, into a directory, which it makes. Existing files are replaced.
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
		if err := writeFile(dir, name, text); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file that only the user can read, because stacks and messages are the user's.
// Another user may have put a symbolic link or a FIFO into the directory. So no existing file is
// opened: a new one takes its place.
func writeFile(dir, name, text string) (err error) {
	f, err := os.CreateTemp(dir, name+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}

// describe is all that is known of a rank, as text.
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
			if op >= 0 && op < len(s.Pending) { // the rank says so, perhaps wrongly
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
