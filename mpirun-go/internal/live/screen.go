package live

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
)

// Style says how a Screen looks.
type Style struct {
	Color   bool // ranks in trouble are yellow or red
	History bool // rates of the last minute are drawn as small bars
}

// Columns and lines from which a Screen has more parts.
const (
	wideColumns    = 64  // all columns of a rank
	historyColumns = 100 // a history of each rank, with the columns beyond these
	historyLines   = 10  // the history of the job
	leastHistory   = 10  // columns of a rank's history
)

// Colors of a terminal (ECMA-48, Select Graphic Rendition).
const (
	red, yellow, cyan, bold = "\x1b[31m", "\x1b[33m", "\x1b[36m", "\x1b[1m"
	noColor                 = "\x1b[m"
)

// Screen draws a view as at most lines lines of at most columns characters: the job, its worst
// problem, the sums, and a line for each rank that fits.
func Screen(v View, columns, lines int, style Style) []string {
	columns = max(columns, 1)
	paint := func(color, line string) string {
		if !style.Color || color == "" {
			return line
		}
		return color + line + noColor
	}
	hosts := map[string]bool{}
	bad := 0
	for _, r := range v.Ranks {
		hosts[r.Host] = true
		if r.Severity != Fine {
			bad++
		}
	}
	worstColor := ""
	if bad > 0 {
		worstColor = v.Ranks[0].Severity.color()
	}
	age := v.Time.Sub(v.Job.Started).Round(time.Second)
	out := []string{
		paint(bold, cut(fmt.Sprintf("%s: %s, %s, %v: %s", clean(v.Job.Name), slots.Plural(len(v.Ranks), "rank"), slots.Plural(len(hosts), "host"), age, clean(v.Job.Command)), columns)),
		paint(worstColor, cut(worst(v, bad), columns)),
		cut(fmt.Sprintf("together: %sB/s, %s messages/s, %s operations/s", amount(v.OutBytes), amount(v.OutMessages), amount(v.Operations)), columns),
	}
	if style.History && lines >= historyLines {
		const around = len("OPS/s, last 60 s:  up to 99.9k")
		if room := min(columns-around, HistorySeconds); room >= leastHistory {
			shown := v.History[max(len(v.History)-room, 0):]
			most := slices.Max(append([]float64{0}, shown...))
			out = append(out, fmt.Sprintf("OPS/s, last %d s: %s up to %s", room, paint(cyan, bars(shown, room, most)), amount(most)))
		}
	}
	if len(v.RailBytes) > 0 {
		out = append(out, cut("by rail: "+rails(v), columns))
	}
	t := newTable(v, columns, style)
	out = append(out, paint(bold, cut(t.heading(), columns)))
	for _, r := range v.Ranks {
		out = append(out, t.row(r, paint))
	}
	const help = "q quits"
	if room := lines - 1; len(out) > room {
		room = max(room, 0)
		hidden := len(out) - room
		out = append(out[:room], cut(fmt.Sprintf("%s; %d more ranks", help, min(hidden, len(v.Ranks))), columns))
	} else {
		out = append(out, cut(help, columns))
	}
	return out
}

// color returns the color of a rank's line.
func (s Severity) color() string {
	switch s {
	case Gone:
		return red
	case RailDown:
		return yellow
	}
	return ""
}

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
