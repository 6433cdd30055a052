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

// outcome returns how a status or event occurred: "seen" if the program or the network caused it,
// "injected", or "cannot" if it did not occur.
func (r *Result) outcome(name string) string {
	if outcome := r.outcomes[name]; outcome != "" {
		return outcome
	}
	return "cannot"
}

// Table compares a column of a Markdown table with the result. A row begins with the C constant;
// its cell begins with the outcome, followed by a reason if that is "cannot". Table checks nothing
// unless all cases ran and passed.
func (r *Result) Table(t testing.TB, file, column string) {
	if !r.complete {
		t.Log("not all cases ran and passed: skipping the table")
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
		outcome := r.outcome(name)
		cell, ok := cells[native]
		word, reason, _ := strings.Cut(cell, ":")
		switch {
		case !ok:
			t.Errorf("%s has no row %s; %s: %s", file, native, column, outcome)
		case word != outcome:
			t.Errorf("%s: %s is %q for %s, want %s", file, native, cell, column, outcome)
		case outcome == "cannot" && strings.TrimSpace(reason) == "":
			t.Errorf("%s: %s has no reason for \"cannot\" with %s", file, native, column)
		}
	}
	for _, in := range verbs.Statuses() {
		check(in.Status.Native(), in.Name)
	}
	for _, in := range verbs.EventTypes() {
		check(in.Type.Native(), in.Name)
	}
}

// String returns a line with constant and outcome for each status and event.
func (r *Result) String() string {
	var b strings.Builder
	for _, in := range verbs.Statuses() {
		fmt.Fprintf(&b, "%s %s\n", in.Status.Native(), r.outcome(in.Name))
	}
	for _, in := range verbs.EventTypes() {
		fmt.Fprintf(&b, "%s %s\n", in.Type.Native(), r.outcome(in.Name))
	}
	return b.String()
}
