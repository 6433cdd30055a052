// Mpinames writes docs/mpi.md: every name of MPI 4.1, and what mpigo has instead. The names are in
// names.txt, which also says where the list is from. Run it by "go generate ./scripts/mpinames".
//
// Usage: mpinames ROOT, the root of the module
package main

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/internal/calls"
)

//go:generate go run . ../..

//go:embed names.txt
var namesFile string

//go:embed head.txt
var head string

// answers are what a row may have instead of Go names or code.
var answers = []string{"no", "not yet", "not needed"}

var commName = regexp.MustCompile(`\bcomm\.(\w+)`)

// section is a section of the page, with one table.
type section struct {
	title, text string
	rows        []row
}

// row is a line of a table.
type row struct {
	mpi    []string
	ours   []string // Go names
	answer string   // instead of them: one of answers, or code
	note   string
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mpinames ROOT")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "mpinames:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	exported, err := readExports(root)
	if err != nil {
		return err
	}
	page, err := generate(namesFile, exported)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "docs", "mpi.md"), []byte(page), 0o644)
}

// generate makes the page from the text of names.txt. Its error lists everything in which the text
// differs from the table of calls and from what the packages export.
func generate(names string, exported exports) (string, error) {
	sections := parse(names)
	known := callsByMPI()
	if err := check(sections, known, exported); err != nil {
		return "", err
	}
	for _, s := range sections {
		for i := range s.rows {
			r := &s.rows[i]
			r.ours = append(r.inTable(known), r.ours...)
		}
	}
	return page(sections, exported), nil
}

// check compares the rows with the calls that MPI has too, and with what the packages export.
func check(sections []section, known map[string]string, exported exports) error {
	var bad []error
	complain := func(format string, args ...any) { bad = append(bad, fmt.Errorf(format, args...)) }
	listed, shown := map[string]bool{}, map[string]bool{}
	for _, s := range sections {
		for _, r := range s.rows {
			for _, name := range r.mpi {
				if listed[name] {
					complain("%s is in names.txt twice", name)
				}
				listed[name] = true
			}
			inTable := r.inTable(known)
			hasGo := len(inTable)+len(r.ours) > 0
			switch {
			case hasGo && r.answer != "":
				complain("%v: is it %s or %v?", r.mpi, r.answer, append(inTable, r.ours...))
			case !hasGo && r.answer == "":
				complain("%v has neither a Go name nor another answer", r.mpi)
			case slices.Contains(answers, r.answer) && r.note == "":
				complain("%v has no note that says why, or what to do instead", r.mpi)
			}
			for _, name := range r.ours {
				if slices.Contains(inTable, name) {
					complain("%v: the table of calls has %s already", r.mpi, name)
				}
			}
			for _, name := range slices.Concat(inTable, r.ours, r.inNote()) {
				shown[name] = true
				if exported.packageOf(name) == "" {
					complain("%v: no package exports %s", r.mpi, name)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if !listed[name] {
			complain("names.txt lacks %s, which internal/calls/table.go has", name)
		}
	}
	for _, name := range exported.toShow() {
		if !shown[name] {
			complain("names.txt lacks %s: add it to the row of its counterpart, or to What MPI does not have", name)
		}
	}
	return errors.Join(bad...)
}

// inTable returns the Go names of the row's calls that the table of calls has.
func (r row) inTable(known map[string]string) (names []string) {
	for _, name := range r.mpi {
		if known[name] != "" {
			names = append(names, known[name])
		}
	}
	return names
}

// inNote returns the names of package comm that the code in the note has.
func (r row) inNote() (names []string) {
	for _, m := range commName.FindAllStringSubmatch(r.note, -1) {
		names = append(names, m[1])
	}
	return names
}

// callsByMPI returns the Go names of the calls that MPI has too.
func callsByMPI() map[string]string {
	byMPI := map[string]string{}
	for _, id := range calls.All() {
		if id.MPI() != "" {
			byMPI[id.MPI()] = id.Symbol()
		}
	}
	return byMPI
}

// parse reads the text of names.txt, which describes its form.
func parse(text string) (sections []section) {
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\n ", " "), "\n") {
		if title, isTitle := strings.CutPrefix(line, "== "); isTitle {
			sections = append(sections, section{title: title})
			continue
		}
		if len(sections) == 0 || line == "" {
			continue
		}
		s := &sections[len(sections)-1]
		cells := strings.SplitN(line, "|", 3)
		if len(cells) == 1 && !strings.HasPrefix(line, "MPI_") {
			s.text += line + "\n"
			continue
		}
		cells = append(cells, "", "")
		ours := strings.TrimSpace(cells[1])
		r := row{note: strings.TrimSpace(cells[2])}
		if names := strings.Fields(cells[0]); names[0] != "-" {
			r.mpi = names
		}
		if slices.Contains(answers, ours) || strings.HasPrefix(ours, "`") {
			r.answer = ours
		} else {
			r.ours = strings.Fields(ours)
		}
		s.rows = append(s.rows, r)
	}
	return sections
}

// page writes the sections in Markdown.
func page(sections []section, exported exports) string {
	var out strings.Builder
	counts := map[string]int{} // of names, by answer
	total := 0
	for _, s := range sections {
		fmt.Fprintf(&out, "\n## %s\n\n", s.title)
		if s.text != "" {
			out.WriteString(s.text + "\n")
		}
		out.WriteString("| MPI | mpigo | note |\n|---|---|---|\n")
		for _, r := range s.rows {
			counts[r.answer] += len(r.mpi)
			total += len(r.mpi)
			ours := r.answer
			if ours == "" {
				ours = exported.links(r.ours)
			}
			fmt.Fprintf(&out, "| %s | %s | %s |\n", strings.Join(r.mpi, ", "), ours, r.note)
		}
	}
	found := total
	for _, answer := range answers {
		found -= counts[answer]
	}
	return fmt.Sprintf(head, total, found, counts["not needed"], counts["not yet"], counts["no"]) + out.String()
}
