// Package verbstest is the conformance suite for providers of package verbs. It tests a provider
// against the tables and the contract of that package.
//
// A provider's own test calls [Test] with a function that makes a [Pair]: two connected devices.
// Each row of each table is a case, named by its constants: Transitions/RC/INIT-to-RTR,
// Posting/UD/SQE/send, Statuses/RNR_RETRY_EXC_ERR, Events/PORT_ERR, Refusals/WRITE/bad-key.
//
// # Reading the result
//
// A case that passes shows that the provider follows a rule, unless the case logs one of these:
//
//   - "cannot": no program can provoke the situation, and the provider has no injector for it.
//   - "differs": the provider is known to behave differently; the log has the reason and the
//     failure.
//
// [Pair] lists the known differences and how their cases fail. The suite fails if a listed case
// passes or fails in another way, so the list stays correct. [Result] says which statuses and
// events occurred.
//
// No case depends on time: each wait is for a condition and is bounded by Patience. A case shows
// that something does not happen by waiting for a later event.
package verbstest

import (
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// Pair holds two open, connected devices and what the cases need to know about them. The suite
// closes both devices.
type Pair struct {
	A, B         verbs.Device
	PortA, PortB int
	GIDA, GIDB   int // indexes in the ports' GID tables

	// LocalRoutes: packets have no global route header. The ports are of one InfiniBand subnet.
	LocalRoutes bool

	// Provider opened A and B. The suite opens them again by name.
	Provider verbs.Provider

	// Patience is the longest duration of each wait. 0: 20 s.
	Patience time.Duration

	// Step, if not nil, is called repeatedly during waits. A simulation advances its time in it.
	Step func()

	// Injector injects faults that a program cannot provoke.
	Injector Injector

	// Differs lists the cases in which the provider is known to differ from the tables. The keys
	// are names of cases or patterns of path.Match. At most one key may match a case.
	Differs map[string]Difference

	// Close, if not nil, is called after both devices are closed.
	Close func()
}

// Difference describes how a provider is known to differ from the tables in a case.
type Difference struct {
	// Why describes what the provider does.
	Why string
	// Seen holds substrings that identify the wrong result in the text of the case's first failed
	// assertion. One of them must match; a device without a fixed behavior has several. None may be
	// empty. If one of them is a failed wait, that wait takes only a tenth of Patience.
	Seen []string

	// MayPass is set if what the device does depends on its timing, so that the case sometimes
	// passes.
	MayPass bool
}

// matches reports whether a failure is the listed one.
func (d *Difference) matches(f failure) bool {
	return slices.ContainsFunc(d.Seen, func(seen string) bool { return strings.Contains(f.what, seen) })
}

// Injector injects faults into a simulated device. The suite skips the cases that need a nil
// function.
type Injector struct {
	// Link takes a port down or up.
	Link func(dev verbs.Device, port int, up bool)
	// ShortMTU reduces the active MTU of a port to 1024 bytes, which must be larger, as a change to
	// the network interface does: the device can no longer send the longer packets of existing
	// connections. restore undoes that.
	ShortMTU func(dev verbs.Device, port int) (restore func())
	// Address adds an address to a port and removes it again.
	Address func(dev verbs.Device, port int)
	// ChangeLID gives a port another LID, as a subnet manager does.
	ChangeLID func(dev verbs.Device, port int)
	// SetPKeys sets the partition key table of a port, as a subnet manager does.
	SetPKeys func(dev verbs.Device, port int, keys ...uint16)
	// Raise raises an event of a port, the device, or a queue pair.
	Raise func(dev verbs.Device, ev verbs.AsyncEvent)
	// BreakSendCQ, BreakRecvCQ and BreakSRQ fail a queue of a queue pair, like a failure of the
	// device.
	BreakSendCQ, BreakRecvCQ, BreakSRQ func(dev verbs.Device, qp verbs.QP)
	// SendStatus makes the next send request of the queue pair complete with a status, either after
	// the peer executed it or, if not executed, before it is sent.
	SendStatus func(dev verbs.Device, qp verbs.QP, status verbs.Status, executed bool)
	// RecvStatus makes the next receive of the queue pair complete with a status.
	RecvStatus func(dev verbs.Device, qp verbs.QP, status verbs.Status)
	// Mistake makes the queue pair, as responder, refuse the next request as if it had the mistake.
	Mistake func(dev verbs.Device, qp verbs.QP, mistake verbs.Mistake)
	// LosePackets drops the first packet of the queue pair's next request n times.
	LosePackets func(dev verbs.Device, qp verbs.QP, n int)
	// LoseAcks drops the responses to the queue pair's next request, which the peer executes, and
	// to all later requests.
	LoseAcks func(dev verbs.Device, qp verbs.QP)
	// Silence keeps the queue pair's requests from being sent and from completing until it is in
	// ERR.
	Silence func(dev verbs.Device, qp verbs.QP)
	// Stale delivers the packets of the queue pair's next request again to the next user of the
	// peer's queue pair number.
	Stale func(dev verbs.Device, qp verbs.QP)
}

// Maker makes a new Pair for each case.
type Maker func(t testing.TB) *Pair

// Result says which statuses and events occurred.
type Result struct {
	outcomes map[string]string // "seen" or "injected", by the constant's name without prefix
	complete bool              // all cases ran and passed
}

// testCase is a case. Its name does not include the group.
type testCase struct {
	name string
	run  func(c *caseRun)
}

// wired returns a case that gets two connected queue pairs with the same options.
func wired(name string, o opts, run func(c *caseRun, w *wire)) testCase {
	return testCase{name, func(c *caseRun) { run(c, c.wire(o)) }}
}

type group struct {
	name  string
	cases []testCase
}

func groups() []group {
	return []group{
		{"Transitions", transitionCases()}, {"Posting", postingCases()},
		{"Statuses", statusCases()}, {"Events", eventCases()}, {"Refusals", refusalCases()},
		{"Data", dataCases()}, {"Queues", queueCases()}, {"Completions", completionCases()},
		{"SharedReceive", srqCases()}, {"Memory", memoryCases()}, {"Dropped", droppedCases()},
		{"Objects", objectCases()},
	}
}

// Test runs the suite on pairs of devices made by mk.
func Test(t *testing.T, mk Maker) *Result {
	res := &Result{outcomes: map[string]string{}, complete: true}
	var names []string
	var differs map[string]Difference
	ran := 0
	for _, g := range groups() {
		for _, k := range g.cases {
			names = append(names, g.name+"/"+k.name)
		}
		t.Run(g.name, func(t *testing.T) {
			for _, k := range g.cases {
				t.Run(k.name, func(t *testing.T) {
					ran++
					differs = runCase(t, g.name+"/"+k.name, k, mk, res)
				})
			}
		})
	}
	res.complete = ran == len(names) && !t.Failed()
	for pattern, d := range differs {
		n := 0
		if d.Why == "" || len(d.Seen) == 0 || slices.Contains(d.Seen, "") {
			t.Errorf("Differs: %q lacks Why or Seen: %+v", pattern, d)
		}
		for _, name := range names {
			if ok, err := path.Match(pattern, name); err != nil {
				t.Errorf("Differs: %q: %v", pattern, err)
			} else if ok {
				n++
			}
		}
		if n == 0 {
			t.Errorf("Differs: %q (%s) matches no case", pattern, d.Why)
		}
	}
	return res
}

// runCase runs a case on a new pair and returns the pair's Differs.
func runCase(t *testing.T, name string, k testCase, mk Maker, res *Result) map[string]Difference {
	c := &caseRun{t: t, res: res}
	c.Pair = mk(t)
	if c.Patience == 0 {
		c.Patience = 20 * time.Second
	}
	for pattern, d := range c.Differs {
		if ok, _ := path.Match(pattern, name); ok {
			if c.known != nil {
				t.Errorf("two patterns of Differs match: %q is the second", pattern)
			}
			c.known = &d
		}
	}
	done := make(chan struct{})
	go func() { // FailNow must end the case, not the test
		defer close(done)
		defer c.release()
		defer c.recover()
		c.a = newEnd(c, "A", c.A, c.PortA, c.GIDA)
		c.b = newEnd(c, "B", c.B, c.PortB, c.GIDB)
		k.run(c)
	}()
	<-done

	switch {
	case c.known != nil && c.known.MayPass && len(c.failures) == 0 && c.skipped == "":
		t.Logf("passes this time; otherwise: %s", c.known.Why)
	case c.known != nil && len(c.failures) == 0:
		t.Errorf("listed in Differs (%s), but passes or is skipped: %q", c.known.Why, c.skipped)
	case c.known != nil && !c.known.matches(c.failures[0]):
		t.Errorf("listed in Differs (%s), but fails in another way\nlisted: %s\nseen: %s", c.known.Why, strings.Join(c.known.Seen, "\nor: "), c.report())
	case c.known != nil:
		t.Logf("differs: %s\nseen: %s", c.known.Why, c.report())
	case len(c.failures) > 0:
		t.Errorf("%s", c.report())
	case c.skipped != "":
		t.Logf("cannot: %s", c.skipped)
	}
	return c.Differs
}

// caseRun is a running case. It implements require.TestingT.
type caseRun struct {
	*Pair
	t        testing.TB
	res      *Result
	a, b     *end
	injected bool        // statuses and events from now on are injected
	known    *Difference // nil: no known difference

	failures []failure
	skipped  string
	qps      []*qp          // destroyed first, in reverse order
	cleanup  []func() error // called next, in reverse order
	serial   uint64         // number of the last work request
}

// failure is a failed assertion.
type failure struct {
	where string // files and lines of the suite, innermost first
	what  string // expected and actual result in a line
}

// report returns all failed assertions, one per line.
func (c *caseRun) report() string {
	lines := make([]string, len(c.failures))
	for i, f := range c.failures {
		lines[i] = f.what
		if f.where != "" {
			lines[i] = f.where + ": " + f.what
		}
	}
	return strings.Join(lines, "\n")
}

func (c *caseRun) Errorf(format string, args ...any) {
	c.failures = append(c.failures, failure{callers(), oneLine(fmt.Sprintf(format, args...))})
}

// callers returns the calling lines in the cases of the suite, innermost first.
func callers() string {
	var where []string
	pcs := make([]uintptr, 50)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		file := path.Base(f.File)
		if strings.Contains(f.Function, "/verbstest.") && file != "verbstest.go" {
			where = append(where, fmt.Sprintf("%s:%d", file, f.Line))
		}
	}
	return strings.Join(where, " < ")
}

// oneLine reduces a message of package require to a line without the trace and the test's name.
func oneLine(s string) string {
	var what []string
	part := ""
	for _, line := range strings.Split(s, "\n") {
		line = strings.TrimSpace(line)
		for _, label := range []string{"Error Trace", "Error", "Test", "Messages", "Diff"} {
			if rest, ok := strings.CutPrefix(line, label+":"); ok {
				part, line = label, strings.TrimSpace(rest)
			}
		}
		if part == "" {
			part = "Error" // not a message of require
		}
		if line != "" && (part == "Error" || part == "Messages") {
			what = append(what, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(what, " ")
}

func (c *caseRun) FailNow() { runtime.Goexit() }

func (c *caseRun) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	c.FailNow()
}

// skip ends the case because the provider cannot be brought into its situation.
func (c *caseRun) skip(reason string) {
	c.skipped = reason
	runtime.Goexit()
}

// skipIf skips the case if the condition is true.
func (c *caseRun) skipIf(condition bool, reason string) {
	if condition {
		c.skip(reason)
	}
}

func (c *caseRun) recover() {
	if r := recover(); r != nil {
		c.failures = append(c.failures, failure{callers(), fmt.Sprintf("panic: %v\n%s", r, debug.Stack())})
	}
}

// leastSteps is the minimum number of steps of a wait before it fails, because this process may
// have stood still while the time passed.
const leastSteps = 1000

// wait steps until done returns true. A wait that is known to fail takes a tenth of the time.
func (c *caseRun) wait(what string, done func() bool) {
	what = "timed out waiting for " + what
	patience := c.Patience
	if c.known != nil && slices.ContainsFunc(c.known.Seen, func(seen string) bool { return strings.HasPrefix(seen, what) }) {
		patience /= 10
	}
	steps := 0
	for until := time.Now().Add(patience); !done(); c.step() {
		if steps++; steps > leastSteps && time.Now().After(until) {
			var states []string
			for _, q := range c.qps {
				attr, err := q.Query()
				state := attr.State.String()
				if err != nil {
					state = err.Error()
				}
				states = append(states, q.e.name+" is "+state)
			}
			c.Fatalf("%s; %s; events of A %v, of B %v", what, strings.Join(states, ", "), c.a.eventNames(), c.b.eventNames())
		}
	}
}

func (c *caseRun) step() {
	if c.Step != nil {
		c.Step()
		return
	}
	time.Sleep(20 * time.Microsecond)
}

// steps gives the devices time.
func (c *caseRun) steps(n int) {
	for range n {
		c.step()
	}
}

// release destroys all objects of the case. Failures to do so count unless the case failed before.
func (c *caseRun) release() {
	failed := len(c.failures) > 0
	check := func(what string, do func() error) {
		defer c.recover()
		if err := do(); err != nil && !failed {
			c.Errorf("after the case, %s: %v", what, err)
		}
	}
	for _, e := range []*end{c.a, c.b} {
		if e != nil {
			check("events of "+e.name, func() error { e.takeEvents(); return nil })
		}
	}
	for _, q := range slices.Backward(c.qps) {
		check("destroy queue pair", q.Destroy)
	}
	for _, f := range slices.Backward(c.cleanup) {
		check("destroy", f)
	}
	check("close A", c.A.Close)
	check("close B", c.B.Close)
	if c.Close != nil {
		c.Close()
	}
}

// record records that a status or event occurred.
func (c *caseRun) record(name string) {
	if !c.injected {
		c.res.outcomes[name] = "seen"
	} else if c.res.outcomes[name] == "" {
		c.res.outcomes[name] = "injected"
	}
}
