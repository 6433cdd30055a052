package live

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mpigo/mpigo/internal/introspect"
)

// The formats of a rank's line. The wide one leaves 30 of 80 columns for the rank's current call.
const (
	rankFormat   = "%5s %-8s %6s %7s %6s %5s %6s  %s"
	narrowFormat = "%5s %6s  %s"
	hostColumns  = 8
)

// table draws the lines of ranks.
type table struct {
	columns int
	// history is the width of the ranks' histories, or 0. most is the largest rate in them, so that
	// the ranks can be compared.
	history int
	most    float64
}

func newTable(v View, columns int, style Style) table {
	t := table{columns: columns}
	if room := columns - historyColumns + leastHistory; style.History && room >= leastHistory {
		t.history = min(room, HistorySeconds)
		for _, r := range v.Ranks {
			shown := r.History[max(len(r.History)-t.history, 0):]
			t.most = max(t.most, slices.Max(append([]float64{0}, shown...)))
		}
	}
	return t
}

func (t table) heading() string {
	if t.columns < wideColumns {
		return fmt.Sprintf(narrowFormat, "RANK", "OPS/s", "DOING")
	}
	doing := "DOING"
	if t.history > 0 {
		doing = fmt.Sprintf("%-*s %s", t.history, fmt.Sprintf("LAST %d s", t.history), doing)
	}
	return fmt.Sprintf(rankFormat, "RANK", "HOST", "IN B/s", "OUT B/s", "OPS/s", "RAILS", "HEALTH", doing)
}

// row draws the line of a rank. paint colors a text.
func (t table) row(r Rank, paint func(color, text string) string) string {
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
	color := r.Severity.color()
	if t.columns < wideColumns {
		return paint(color, cut(fmt.Sprintf(narrowFormat, strconv.Itoa(r.Rank), amount(r.Operations), doing), t.columns))
	}
	line := func(doing string) string {
		return fmt.Sprintf(rankFormat, strconv.Itoa(r.Rank), cut(r.Host, hostColumns),
			amount(r.InBytes), amount(r.OutBytes), amount(r.Operations), rails, health, doing)
	}
	if t.history == 0 {
		return paint(color, cut(line(doing), t.columns))
	}
	// Bars have a color of their own.
	before, bars := line(""), bars(r.History, t.history, t.most)
	rest := t.columns - len([]rune(before)) - t.history
	return paint(color, before) + paint(cyan, bars) + paint(color, cut(" "+doing, rest))
}

// bars draws the last rates of a history, the newest at the right end, as bars of eight heights. A
// rate of 0 is a blank, and each other one has a bar. most is the rate of the highest bar.
func bars(history []float64, columns int, most float64) string {
	history = history[max(len(history)-columns, 0):]
	heights := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", columns-len(history)))
	for _, rate := range history {
		if rate <= 0 || most <= 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(heights[min(int(rate/most*float64(len(heights))), len(heights)-1)])
	}
	return b.String()
}
