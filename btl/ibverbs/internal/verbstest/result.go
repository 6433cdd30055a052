package verbstest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// How is how a status or an event came: "seen", if by what a program or the network did, "injected", or "cannot".
func (r *Result) How(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if how := r.how[name]; how != "" {
		return how
	}
	return "cannot"
}

// Table holds a column of a table in Markdown to the result. A row begins with the constant's whole name; the cell begins
// with what How says, and goes on with a reason if that is "cannot". Of a run of only some cases nothing is checked.
func (r *Result) Table(t testing.TB, file, column string) {
	if !r.complete {
		t.Log("not all cases ran: the table is not checked")
		return
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	cells := map[string]string{}
	at := -1
	for _, line := range strings.Split(string(text), "\n") {
		row := strings.Split(strings.Trim(line, "| "), "|")
		for i := range row {
			row[i] = strings.Trim(row[i], " `")
		}
		if i := slices.Index(row, column); i > 0 {
			at = i
		} else if at > 0 && len(row) > at {
			cells[row[0]] = row[at]
		}
	}
	check := func(native, name string) {
		how := r.How(name)
		cell, ok := cells[native]
		word, reason, _ := strings.Cut(cell, ":")
		switch {
		case !ok:
			t.Errorf("%s has no row %s; %s: %s", file, native, column, how)
		case word != how:
			t.Errorf("%s: %s is %q for %s, but it is %s", file, native, cell, column, how)
		case how == "cannot" && strings.TrimSpace(reason) == "":
			t.Errorf("%s: %s cannot come with %s, but why is not said", file, native, column)
		}
	}
	for _, in := range verbs.Statuses() {
		check(in.Status.Native(), in.Name)
	}
	for _, in := range verbs.EventTypes() {
		check(in.Type.Native(), in.Name)
	}
}

// String is the result as lines of name and how.
func (r *Result) String() string {
	var b strings.Builder
	for _, in := range verbs.Statuses() {
		fmt.Fprintf(&b, "%s %s\n", in.Status.Native(), r.How(in.Name))
	}
	for _, in := range verbs.EventTypes() {
		fmt.Fprintf(&b, "%s %s\n", in.Type.Native(), r.How(in.Name))
	}
	return b.String()
}
