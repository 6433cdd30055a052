// Package userlog writes a rank's messages to the user: as lines of text on standard error, or as
// records of the program's slog.Logger.
package userlog

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// Logger writes messages to the user. The zero value is that of rank 0 on standard error.
// Goroutines may share it.
type Logger struct {
	Rank int          // NoRank: none yet
	To   *slog.Logger // nil: text on standard error
}

// NoRank is the rank of a process before it knows its own.
const NoRank = -1

// Warn logs a problem that the user should solve.
func (l Logger) Warn(text string) {
	if l.To == nil {
		text = "warning: " + text
	}
	l.Log(slog.LevelWarn, text)
}

// Log logs one line. Text on standard error omits its level and attributes. A record also has the
// rank as an attribute.
func (l Logger) Log(level slog.Level, line string, attrs ...slog.Attr) {
	switch {
	case l.To == nil && l.Rank == NoRank:
		fmt.Fprintf(os.Stderr, "mpigo: %s\n", line)
		return
	case l.To == nil:
		fmt.Fprintf(os.Stderr, "mpigo: rank %d: %s\n", l.Rank, line)
		return
	case l.Rank != NoRank:
		attrs = append(attrs, slog.Int("rank", l.Rank))
	}
	l.To.LogAttrs(context.Background(), level, line, attrs...)
}

// OneLine is the text of an error without line ends.
func OneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(c rune) bool { return c == '\n' || c == '\r' }), "; ")
}
