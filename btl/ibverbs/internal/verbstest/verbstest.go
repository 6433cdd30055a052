// Package verbstest is the suite that holds every provider of verbs to the tables and the contract
// of package verbs.
//
// A provider's own test calls [Test] with a function that makes a [Pair]: two devices that reach
// each other. Each row of each table is a case, named by its constants: Transitions/RC/INIT-to-RTR,
// Posting/UD/SQE/send, Statuses/RNR_RETRY_EXC_ERR, Events/PORT_ERR, Sights/WRITE/bad-key.
//
// # Reading the result
//
// A case that passes is a rule that the provider keeps, unless it logs something else: "cannot"
// means that nothing provokes it there and the provider has nothing to inject it with; "differs"
// that the provider is known to do something else, with the reason and what was seen. [Pair] lists
// what is known to differ and how. The suite fails if a listed case passes or fails in another way,
// so that the list stays true. [Result] tells which statuses and events were seen.
//
// No case judges by time. Each wait is for a condition and ends after Patience. That something does
// not happen is shown by something later that does.
package verbstest

import (
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// Pair is two open devices that reach each other, and what a case has to know of them. The suite closes both devices.
type Pair struct {
	A, B         verbs.Device
	PortA, PortB int
	GIDA, GIDB   int // indexes in the ports' tables

	// Provider opened A and B; the suite opens them by name once more.
	Provider verbs.Provider

	// Patience bounds each wait; 0 stands for 20 s.
	Patience time.Duration

	// Step, if not nil, is called when there is nothing to do but wait. A simulation moves its time in it.
	Step func()

	// Injector is what the provider can be made to do that a program cannot provoke.
	Injector Injector

	// Differs lists the cases in which the provider is known not to do what the tables say. The
	// keys are names of cases, or patterns as path.Match knows them; no two may match the same
	// case.
	Differs map[string]Difference

	// Close, if not nil, is called once both devices are closed.
	Close func()
}

// Difference is what a provider is known to do in a case instead of what the tables say.
type Difference struct {
	// Why is what the provider does, for people.
	Why string
	// Seen is how the case fails: a part of the text of its first failed assertion that names the
	// wrong result. Of a device that does now one thing and now another it is several, one of which
	// must come. None may be empty. A wait whose failure one begins with takes a tenth of Patience.
	Seen []string
}

// has says whether a failure is one that is listed.
func (d *Difference) has(f failure) bool {
	return slices.ContainsFunc(d.Seen, func(seen string) bool { return strings.Contains(f.what, seen) })
}

// Injector is what a simulator can do beyond what a program can provoke. What is nil it cannot do.
type Injector struct {
	// Link takes a port down, or up.
	Link func(dev verbs.Device, port int, up bool)
	// Address gives a port another address, and takes it away again.
	Address func(dev verbs.Device, port int)
	// Raise raises an event of a port, the device, or a queue pair.
	Raise func(dev verbs.Device, ev verbs.AsyncEvent)
	// BreakSendCQ, BreakRecvCQ and BreakSRQ break a queue of a queue pair, as the device's own failure would.
	BreakSendCQ, BreakRecvCQ, BreakSRQ func(dev verbs.Device, qp verbs.QP)
	// SendStatus has the next request of the queue pair's send queue complete with a status; if executed, after it
	// was done at the peer, else before anything of it is sent.
	SendStatus func(dev verbs.Device, qp verbs.QP, status verbs.Status, executed bool)
	// RecvStatus has the next receive of the queue pair complete with a status.
	RecvStatus func(dev verbs.Device, qp verbs.QP, status verbs.Status)
	// Mistake has the queue pair, as responder, take the next request for one with a mistake.
	Mistake func(dev verbs.Device, qp verbs.QP, mistake verbs.Mistake)
	// LosePackets loses the first packet of the queue pair's next request, n times.
	LosePackets func(dev verbs.Device, qp verbs.QP, n int)
	// LoseAcks has the queue pair's next request be executed, and no answer to it or to a later one be heard.
	LoseAcks func(dev verbs.Device, qp verbs.QP)
	// Silence has the queue pair's requests neither be sent nor complete, until it is in Error.
	Silence func(dev verbs.Device, qp verbs.QP)
	// Stale has the packets of the queue pair's next request come once more to that queue pair's successor at the peer.
	Stale func(dev verbs.Device, qp verbs.QP)
}

// Maker makes a Pair, afresh for each case.
type Maker func(t testing.TB) *Pair

// Result is which statuses and events came, by the constants' names without prefix.
type Result struct {
	mu       sync.Mutex
	how      map[string]string // "seen", "injected", or why not
	complete bool
}

// kase is a case. Its name has no group.
type kase struct {
	name string
	run  func(c *c)
}

type group struct {
	name  string
	cases []kase
}

func groups() []group {
	return []group{
		{"Transitions", transitionCases()},
		{"Posting", postingCases()},
		{"Statuses", statusCases()},
		{"Events", eventCases()},
		{"Sights", sightCases()},
		{"Data", dataCases()},
		{"Queues", queueCases()},
		{"Completions", completionCases()},
		{"SharedReceive", srqCases()},
		{"Memory", memoryCases()},
		{"Dropped", droppedCases()},
		{"Objects", objectCases()},
	}
}

// Test holds the provider of mk's pairs to the tables.
func Test(t *testing.T, mk Maker) *Result {
	res := &Result{how: map[string]string{}, complete: true}
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
			t.Errorf("Differs: %q does not say why, or what is seen: %+v", pattern, d)
		}
		for _, name := range names {
			if ok, err := path.Match(pattern, name); err != nil {
				t.Errorf("Differs: %q: %v", pattern, err)
			} else if ok {
				n++
			}
		}
		if n == 0 {
			t.Errorf("Differs: %q (%s) is no case", pattern, d.Why)
		}
	}
	return res
}

// runCase runs a case on a pair of its own. It gives the pair's Differs.
func runCase(t *testing.T, name string, k kase, mk Maker, res *Result) map[string]Difference {
	c := &c{t: t, res: res}
	c.Pair = mk(t)
	if c.Patience == 0 {
		c.Patience = 20 * time.Second
	}
	for pattern, d := range c.Differs {
		if ok, _ := path.Match(pattern, name); ok {
			if c.known != nil {
				t.Errorf("listed twice as one that differs: %q is a second pattern", pattern)
			}
			c.known = &d
		}
	}
	done := make(chan struct{})
	go func() { // so that FailNow ends the case and not the test
		defer close(done)
		defer c.release()
		defer c.recover()
		c.a = newEnd(c, "A", c.A, c.PortA, c.GIDA)
		c.b = newEnd(c, "B", c.B, c.PortB, c.GIDB)
		k.run(c)
	}()
	<-done

	switch {
	case c.known != nil && len(c.failures) == 0:
		t.Errorf("listed as one that differs (%s), but it passes, or is skipped: %q", c.known.Why, c.skipped)
	case c.known != nil && !c.known.has(c.failures[0]):
		t.Errorf("listed as one that differs (%s), but it fails in another way\nlisted: %s\nseen: %s", c.known.Why, strings.Join(c.known.Seen, "\nor: "), c.said())
	case c.known != nil:
		t.Logf("differs: %s\nseen: %s", c.known.Why, c.said())
	case len(c.failures) > 0:
		t.Errorf("%s", c.said())
	case c.skipped != "":
		t.Logf("cannot: %s", c.skipped)
	}
	return c.Differs
}

// c is a case as it runs. It is a require.TestingT.
type c struct {
	*Pair
	t        testing.TB
	res      *Result
	a, b     *end
	injected bool        // what comes now was injected
	known    *Difference // nil: none

	failures []failure
	skipped  string
	qps      []*qp          // to destroy first of all
	cleanup  []func() error // then these, the last one first
	serial   uint64         // of work requests
}

// failure is a failed assertion.
type failure struct {
	where string // files and lines of the suite, the innermost first
	what  string // one line: what was expected, what came
}

// said is all failed assertions, one a line.
func (c *c) said() string {
	lines := make([]string, len(c.failures))
	for i, f := range c.failures {
		lines[i] = f.what
		if f.where != "" {
			lines[i] = f.where + ": " + f.what
		}
	}
	return strings.Join(lines, "\n")
}

func (c *c) Errorf(format string, args ...any) {
	c.failures = append(c.failures, failure{callers(), terse(fmt.Sprintf(format, args...))})
}

// callers is where in the cases of the suite this is.
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

// terse makes one line of what require says, without the trace and the name of the test.
func terse(s string) string {
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
			part = "Error" // not of require
		}
		if line != "" && (part == "Error" || part == "Messages") {
			what = append(what, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(what, " ")
}

func (c *c) FailNow() { runtime.Goexit() }

func (c *c) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	c.FailNow()
}

// skip ends the case: the provider cannot be brought to it.
func (c *c) skip(reason string) {
	c.skipped = reason
	runtime.Goexit()
}

func (c *c) recover() {
	if r := recover(); r != nil {
		c.failures = append(c.failures, failure{callers(), fmt.Sprintf("panic: %v\n%s", r, debug.Stack())})
	}
}

// wait steps until done holds. A wait that is known to fail here does so sooner.
func (c *c) wait(what string, done func() bool) {
	what = "waited too long for " + what
	patience := c.Patience
	if c.known != nil && slices.ContainsFunc(c.known.Seen, func(seen string) bool { return strings.HasPrefix(seen, what) }) {
		patience /= 10
	}
	for until := time.Now().Add(patience); !done(); c.step() {
		if time.Now().After(until) {
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

func (c *c) step() {
	if c.Step != nil {
		c.Step()
		return
	}
	time.Sleep(20 * time.Microsecond)
}

// release destroys what the case made. Each must go, unless the case failed already.
func (c *c) release() {
	failed := len(c.failures) > 0
	check := func(what string, do func() error) {
		defer c.recover()
		if err := do(); err != nil && !failed {
			c.Errorf("at the end, %s: %v", what, err)
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

func (c *c) mark(name string) {
	c.res.mu.Lock()
	defer c.res.mu.Unlock()
	if c.res.how[name] == "seen" {
		return
	}
	if c.injected {
		c.res.how[name] = "injected"
	} else {
		c.res.how[name] = "seen"
	}
}
