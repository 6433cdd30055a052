package comm

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm/internal/coll"
)

// For the tests of package comm_test, which may import what imports this package.

// SetTuning makes the collectives of c choose their algorithms by a tuning.
func SetTuning(c *Comm, t *coll.Tuning) { c.team.SetTuning(t) }

// ForEachTuning runs body for each size and tuning, in a communicator that has that tuning.
func ForEachTuning(t *testing.T, body func(w *Comm)) { forEachTuning(t, body) }

// CollTunings are tunings that make each collective take each of its algorithms.
func CollTunings() map[string]*coll.Tuning { return collTunings }

// RootsOf lists the roots to test, and CountsFor the lengths.
func RootsOf(n, count int) []int { return rootsOf(n, count) }
func CountsFor(w *Comm) []int    { return countsFor(w) }

// SharesMemory reports whether the ranks of c share memory.
func SharesMemory(c *Comm) bool { return shares(c) }

// EndedShort reports whether the last collective of c ended on its short path.
func EndedShort(c *Comm) bool {
	c.job.eng.Lock()
	defer c.job.eng.Unlock()
	return c.team.EndedShort()
}

// StartCollectivesAt numbers the collectives of c from count on. All ranks call it, and then wait
// for each other, before the first one.
func StartCollectivesAt(c *Comm, count uint64) {
	c.job.eng.Lock()
	defer c.job.eng.Unlock()
	c.team.StartAt(count)
}

// StartStartsAt numbers the starts of each persistent collective of c from starts on. All ranks
// call it, and then a collective that waits for all of them.
func StartStartsAt(c *Comm, starts uint64) {
	c.job.eng.Lock()
	defer c.job.eng.Unlock()
	for _, s := range c.team.Kept() {
		s.StartAt(starts)
	}
}

// TellChecked makes checked mode pass its warnings to f.
func TellChecked(c *Comm, f func(line string)) {
	c.job.eng.Lock()
	defer c.job.eng.Unlock()
	c.job.check.tell = func(_ *job, what error) { f(what.Error()) }
}

// lines finds the line of the program in the text of an Error.
var lines = regexp.MustCompile(` \(\w+\.go:\d+\)|\w+\.go:\d+, `)

// WithoutLines is the text of errors without the lines of the program, such as (main.go:51).
func WithoutLines(text string) string { return lines.ReplaceAllString(text, "") }

// EqualError is assert.EqualError without the lines of the program.
func EqualError(t assert.TestingT, err error, want string) bool {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	return assert.Error(t, err) && assert.Equal(t, want, WithoutLines(err.Error()))
}
