package live

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
)

// minColumns is the smallest width of the lines.
const minColumns = 40

// Screen draws a view as at most lines lines of at most columns characters: the job, its worst
// problem, the sums, and a line for each rank that fits. With color, lines of ranks in trouble are
// red.
func Screen(v View, columns, lines int, color bool) []string {
	columns = max(columns, minColumns)
	hosts := map[string]bool{}
	bad := 0
	for _, r := range v.Ranks {
		hosts[r.Host] = true
		if r.Severity != Fine {
			bad++
		}
	}
	age := v.Time.Sub(v.Job.Started).Round(time.Second)
	out := []string{
		cut(fmt.Sprintf("%s: %s, %s, %v: %s", clean(v.Job.Name), slots.Plural(len(v.Ranks), "rank"), slots.Plural(len(hosts), "host"), age, clean(v.Job.Command)), columns),
		cut(worst(v, bad), columns),
		cut(fmt.Sprintf("together: %sB/s, %s messages/s, %s operations/s", amount(v.OutBytes), amount(v.OutMessages), amount(v.Operations)), columns),
	}
	if len(v.RailBytes) > 0 {
		out = append(out, cut("by rail: "+rails(v), columns))
	}
	out = append(out, cut(fmt.Sprintf(rankFormat, "RANK", "HOST", "IN B/s", "OUT B/s", "OPS/s", "RAILS", "HEALTH", "DOING"), columns))
	for _, r := range v.Ranks {
		line := cut(rankLine(r), columns)
		if color && r.Severity != Fine {
			line = "\x1b[31m" + line + "\x1b[m"
		}
		out = append(out, line)
	}
	const help = "q quits"
	if room := lines - 1; len(out) > room {
		room = max(room, 0)
		hidden := len(out) - room
		out = append(out[:room], cut(fmt.Sprintf("%s; %d more ranks", help, min(hidden, len(v.Ranks))), columns))
	} else {
		out = append(out, help)
	}
	return out
}

// rankFormat leaves 30 of 80 columns for the rank's current call.
const (
	rankFormat  = "%5s %-8s %6s %7s %6s %5s %6s  %s"
	hostColumns = 8
)

// worst returns the line about the rank in the worst state.
func worst(v View, bad int) string {
	if bad == 0 {
		return "all rails are up; " + answering(v)
	}
	r := v.Ranks[0]
	text := fmt.Sprintf("worst: rank %d on %s: %s", r.Rank, r.Host, r.Trouble)
	if bad > 1 {
		text = fmt.Sprintf("worst of %d: rank %d on %s: %s", bad, r.Rank, r.Host, r.Trouble)
	}
	return text
}

// rails returns the line about the traffic of the rails, the busiest first.
func rails(v View) string {
	names := slices.SortedFunc(maps.Keys(v.RailBytes), func(a, b string) int {
		return cmp.Or(cmp.Compare(v.RailBytes[b], v.RailBytes[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %sB/s", clean(name), amount(v.RailBytes[name]))
	}
	return strings.Join(names, ", ")
}

// answering returns a text about the ranks that answer, for a job without trouble.
func answering(v View) string {
	var states []string
	ranks := map[string]int{}
	for _, r := range v.Ranks {
		if r.State == string(introspect.StateAnswered) {
			continue
		}
		if ranks[r.State] == 0 {
			states = append(states, r.State)
		}
		ranks[r.State]++
	}
	if len(states) == 0 {
		return "all ranks answer"
	}
	for i, s := range states {
		states[i] = fmt.Sprintf("%s: %s", slots.Plural(ranks[s], "rank"), s)
	}
	return strings.Join(states, ", ")
}

func rankLine(r Rank) string {
	rails, health, doing := "", "", r.Doing
	if r.Rails > 0 {
		rails, health = fmt.Sprintf("%d/%d", r.RailsUp, r.Rails), fmt.Sprintf("%d%%", r.Health/10)
	}
	switch {
	case r.Severity == Gone:
		doing = r.Trouble
	case doing == "" && r.State != string(introspect.StateAnswered):
		doing = r.State
	}
	return fmt.Sprintf(rankFormat, strconv.Itoa(r.Rank), cut(r.Host, hostColumns),
		amount(r.InBytes), amount(r.OutBytes), amount(r.Operations), rails, health, doing)
}

// amount writes a number with three digits and a power of ten: 1.23M.
func amount(n float64) string {
	prefixes := []string{"", "k", "M", "G", "T", "P"}
	i := 0
	for n >= 999.5 && i+1 < len(prefixes) {
		n /= 1000
		i++
	}
	digits := 0
	switch {
	case i == 0 || n >= 99.95:
	case n >= 9.995:
		digits = 1
	default:
		digits = 2
	}
	return fmt.Sprintf("%.*f%s", digits, n, prefixes[i])
}

// cut cuts a text to a number of characters.
func cut(text string, columns int) string {
	if utf8.RuneCountInString(text) <= columns {
		return text
	}
	return string([]rune(text)[:columns-1]) + "…"
}
