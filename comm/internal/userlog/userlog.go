// Package userlog tells the user what a rank notices by itself: as a line of text on standard
// error, or as a record of the program's slog.Logger.
package userlog

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// Logger is where a rank tells the user something. The zero value is that of rank 0 on standard
// error. Goroutines may share it.
type Logger struct {
	Rank int          // NoRank: none yet
	To   *slog.Logger // nil: text on standard error
}

// NoRank is the rank of a process before it knows its own.
const NoRank = -1

// Warn tells of something that the user should mend.
func (l Logger) Warn(text string) {
	if l.To == nil {
		text = "warning: " + text
	}
	l.Log(slog.LevelWarn, text)
}

// Log tells of something else, in one line. Its level and attributes are left out of text on
// standard error. A record has the rank as an attribute too.
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
