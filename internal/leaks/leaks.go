// Package leaks finds goroutines that outlive tests. It is package goleak with a longer wait:
// goleak waits for less than half a second, and on a busy machine a goroutine that is about to end
// may not run for longer.
package leaks

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end.
const patience = 10 * time.Second

// Main is a TestMain. It fails if a goroutine outlives the tests. It waits for goroutines that an
// option ignores, too.
func Main(m *testing.M, options ...goleak.Option) {
	goleak.VerifyTestMain(tests{m}, options...)
}

// tests runs tests, and waits for a limited time until their last goroutines have ended.
type tests struct{ m *testing.M }

func (t tests) Run() int {
	status := t.m.Run()
	if status == 0 {
		await(patience)
	}
	return status
}

// Verify fails the test if there are goroutines that the options do not name.
func Verify(t testing.TB, options ...goleak.Option) {
	t.Helper()
	verify(t, patience, options...)
}

func verify(t testing.TB, patience time.Duration, options ...goleak.Option) {
	t.Helper()
	await(patience, options...)
	goleak.VerifyNone(t, options...)
}

// await waits until no goroutine is left.
func await(patience time.Duration, options ...goleak.Option) {
	for end := time.Now().Add(patience); goleak.Find(options...) != nil && time.Now().Before(end); {
	}
}
