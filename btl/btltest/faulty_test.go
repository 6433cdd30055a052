package btltest_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/progress"
)

// A faulty module breaks one rule of the contract, and the suite must detect that. Each runs in its
// own process, because the suite fails there.

// envFaulty says which rule TestFaulty's module breaks; none if it is not set.
const envFaulty = "BTLTEST_FAULTY"

var faultyRules = []struct {
	rule string
	test string // the test below TestFaulty that must fail
	says string // what its output must contain
}{
	{"done twice", "Traffic/sizes", "Done called 2 times"},
	{"done never", "Traffic/sizes", "waited too long"},
	{"done after refusal", "Traffic/back-pressure", "Done was called"},
	{"success without delivery", "Traffic/sizes", "waited too long"},
	{"error in send", "Inject/error-lost", "Done with an error called from inside"},
	{"arrival in send", "Traffic/sizes", "Arrived called from inside"},
	{"plain error", "Fail/endpoint-with-outstanding", `not a \*btl.Error`},
	{"error before failed", "Fail/endpoint-with-outstanding", "before Failed"},
	{"arrival twice", "Traffic/sizes", "arrives twice or out of order"},
	{"order", "Traffic/order", "not sent|out of order"},
	{"damage", "Traffic/sizes", "that was not sent"},
	{"header alone", "Traffic/sizes", "that was not sent"},
	{"other peer", "Traffic/sizes", "Arrived from rank"},
	{"refused but sent", "Traffic/back-pressure", "arrives twice or out of order"},
	{"never full", "Traffic/back-pressure", "although the other end does not poll"},
	{"too long taken", "Traffic/too-long", "fragment too long"},
	{"buffer used after done", "Traffic/sizes", "that was not sent"},
	{"allocates", "Traffic/allocations", "Send allocates"},
	{"owner changed", "Traffic/sizes", "Owner of an operation was changed"},
	{"another endpoint", "Connect/again", "another endpoint while it is Up"},
	{"address unchecked", "Connect/bad-addresses", "expected"},
	{"address panics", "Connect/damaged-addresses", "panic"},
	{"epoch stays", "Fail/reconnect", "epoch of the new incarnation"},
	{"failed twice", "Fail/endpoint", "Failed twice"},
	{"failed never", "Fail/endpoint", "waited too long|Drained for .* without"},
	{"drained never", "Fail/endpoint", "waited too long"},
	{"drained before done", "Inject/silence", "outstanding"},
	{"drained per peer", "Fail/rail", "without a Failed before it"},
	{"failed for another rail", "Fail/endpoint", "with an error for peer"},
	{"takes when failed", "Fail/endpoint", "accepted by an endpoint that is|expected"},
	{"arrival after drained", "Fail/endpoint-with-outstanding", "after that was drained|not sent|twice"},
	{"events after close", "Close/failed", "called from inside"},
	{"second close", "Close/fresh", "second Close"},
	{"connects when closed", "Close/fresh", "Connect after Close"},
	{"release without effect", "Remote/released-key", "error"},
	{"put elsewhere", "Remote/put", "memory after a Put"},
	{"usage as path", "Remote/bounds", "before Failed"},
	{"no wakeup", "Idle/woken-by-fragment", "slept on"},
	{"no wakeup for room", "Idle/woken-by-room", "slept on"},
	{"rebind without effect", "Rebind/before-contact", "unexpected fault address|that was not sent"},
	{"rebind fails", "Rebind/before-contact", "Rebind of a Send of .* fails"},
	{"rebind keeps payload", "Rebind/before-contact", "leaves another payload"},
	{"stale taken", "Inject/stale", "arrives twice or out of order"},
}

// faultyPair makes a pair whose modules break a rule; without a rule they only pass calls on.
func faultyPair(rule string) btltest.Maker {
	return func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
		f, err := loop.NewFabric(loop.Config{Ranks: 2})
		require.NoError(t, err)
		p := btltest.Pairs(0, 1, func(rank int, ev btl.Events, pipe *progress.PipeWakeup) (btl.Module, error) {
			m := &faulty{rule: rule, ev: ev, peer: 1 - rank}
			wakeup := progress.Wakeup(pipe)
			if rule == "no wakeup" || rule == "no wakeup for room" {
				wakeup = mute{}
			}
			m.Module, err = f.Module(rank, 0, m, wakeup)
			return m, err
		})(t, evA, evB)
		for _, b := range faultyRules {
			if b.rule == rule && (strings.Contains(b.says, "waited too long") || strings.Contains(b.says, "slept on")) {
				p.Patience = 500 * time.Millisecond
			}
		}
		return p
	}
}

// mute is a wakeup that does not wake.
type mute struct{}

func (mute) Wake()            {}
func (mute) Sleep(int64) bool { return false }
func (mute) Close() error     { return nil }

// faulty passes calls to a module of package loop, and that module's events to the suite. It breaks
// one rule.
type faulty struct {
	btl.Module
	rule   string
	ev     btl.Events
	peer   int
	closed bool

	held    []byte // "order": a fragment that is kept back
	heldAs  btl.Tag
	last    []byte // "arrival after drained", "stale taken"
	lastAs  btl.Tag
	late    []func() // "done ...": calls that are made later
	refuse  int
	kept    *btl.Op // "rebind ...": an operation that is sent after it was rebound
	rebound bool
}

var errFaulty = errors.New("faulty")

// Arrived implements btl.Events.
func (m *faulty) Arrived(_ btl.Module, peer int, tag btl.Tag, frag []byte) {
	pass := func() { m.ev.Arrived(m, peer, tag, frag) }
	switch m.rule {
	case "arrival twice":
		pass()
		pass()
	case "order":
		if m.held == nil {
			m.held, m.heldAs = bytes.Clone(frag), tag
			return
		}
		pass()
		m.ev.Arrived(m, peer, m.heldAs, m.held)
		m.held = nil
	case "damage":
		frag = bytes.Clone(frag)
		if len(frag) > 0 {
			frag[len(frag)-1] ^= 1
		}
		pass()
	case "header alone":
		if len(frag) > 24 {
			m.ev.Arrived(m, peer, tag, frag[:24])
			frag = frag[24:]
		}
		pass()
	case "other peer":
		m.ev.Arrived(m, peer+5, tag, frag)
	case "arrival after drained", "stale taken":
		m.last, m.lastAs = bytes.Clone(frag), tag
		pass()
	default:
		pass()
	}
}

// Failed implements btl.Events.
func (m *faulty) Failed(_ btl.Module, to btl.Path, err *btl.Error) {
	switch m.rule {
	case "failed never":
		return
	case "failed twice":
		m.ev.Failed(m, to, err)
	case "failed for another rail":
		other := *err
		other.Rail = "elsewhere"
		err = &other
	case "drained before done":
		m.ev.Failed(m, to, err)
		m.ev.Drained(m, to)
		return
	case "error before failed":
		m.endKept(err)
	}
	m.ev.Failed(m, to, err)
	if m.rule == "plain error" {
		m.endKept(errFaulty)
	}
}

// endKept calls back the operation that was kept, if there is one.
func (m *faulty) endKept(err error) {
	if op := m.kept; op != nil {
		m.kept = nil
		op.Done(op, err)
	}
}

// Drained implements btl.Events.
func (m *faulty) Drained(_ btl.Module, to btl.Path) {
	switch m.rule {
	case "drained never", "drained before done":
		return
	case "drained per peer":
		to = btl.Path{Peer: m.peer}
	}
	m.ev.Drained(m, to)
	if m.rule == "arrival after drained" && m.last != nil {
		m.ev.Arrived(m, m.peer, m.lastAs, m.last)
	}
}

// Connect implements btl.Module.
func (m *faulty) Connect(to btl.Path, address []byte) (btl.Endpoint, error) {
	ep, err := m.Module.Connect(to, address)
	switch {
	case m.rule == "address panics" && err != nil:
		panic("bad address")
	case m.rule == "address unchecked" && err != nil:
		return &faultyEndpoint{m: m}, nil
	case m.rule == "connects when closed" && m.closed:
		return &faultyEndpoint{m: m}, nil
	case err != nil:
		return nil, err
	case m.rule == "another endpoint":
		return &faultyEndpoint{ep.(loopEndpoint), m, time.Now().Nanosecond()}, nil
	case m.rule == "stale taken" && ep.Epoch() > 1 && m.last != nil:
		m.late = append(m.late, func() { m.ev.Arrived(m, m.peer, m.lastAs, m.last) })
	}
	return faultyEndpoint{loopEndpoint: ep.(loopEndpoint), m: m}, nil
}

// Progress implements btl.Module.
func (m *faulty) Progress() int {
	n := m.Module.Progress()
	for _, f := range m.late {
		f()
		n++
	}
	m.late = nil
	return n
}

// Close implements btl.Module.
func (m *faulty) Close() error {
	if m.closed && m.rule == "second close" {
		return btl.ErrClosed
	}
	if !m.closed && m.rule == "events after close" {
		m.ev.Drained(m, btl.Path{Peer: m.peer})
	}
	m.closed = true
	return m.Module.Close()
}

// Arm and Disarm implement progress.Idler.
func (m *faulty) Arm() bool { return m.Module.(progress.Idler).Arm() }
func (m *faulty) Disarm()   { m.Module.(progress.Idler).Disarm() }

// Register implements btl.Registrar.
func (m *faulty) Register(mem []byte, access btl.Access) (btl.Region, error) {
	r, err := m.Module.(btl.Registrar).Register(mem, access)
	if m.rule == "release without effect" && err == nil {
		return faultyRegion{r}, nil
	}
	return r, err
}

// faultyRegion cannot be released.
type faultyRegion struct{ btl.Region }

func (faultyRegion) Release() error { return nil }

// faultyEndpoint is an endpoint of a faulty module.
type faultyEndpoint struct {
	loopEndpoint
	m   *faulty
	nth int
}

// loopEndpoint is the interface of an endpoint of package loop.
type loopEndpoint interface {
	btl.Endpoint
	btl.Inliner
	btl.Putter
	btl.Getter
	btl.StaleSender
}

// Epoch implements btl.Endpoint.
func (e faultyEndpoint) Epoch() uint32 {
	if e.m.rule == "epoch stays" {
		return 1
	}
	return e.loopEndpoint.Epoch()
}

// Send implements btl.Endpoint.
func (e faultyEndpoint) Send(op *btl.Op) error {
	m, done := e.m, op.Done
	up := e.State() == btl.Up
	fits := op.Len() <= m.Attrs().MaxSendBytes
	switch m.rule {
	case "done twice":
		op.Done = func(op *btl.Op, err error) { done(op, err); done(op, err) }
	case "done never":
		op.Done = func(*btl.Op, error) {}
	case "success without delivery":
		if up && fits {
			done(op, nil)
			return nil
		}
	case "error in send":
		if op.Tag > 3 {
			done(op, &btl.Error{Rail: m.Attrs().Name, Peer: m.peer, Err: btl.ErrInjected})
			return nil
		}
	case "arrival in send":
		m.ev.Arrived(m, m.peer, 0, nil)
	case "plain error", "error before failed":
		if up && fits && m.kept == nil {
			m.kept = op
			return nil
		}
	case "takes when failed":
		if !up {
			done(op, nil)
			return nil
		}
	case "too long taken":
		if !fits {
			done(op, nil)
			return nil
		}
	case "never full", "done after refusal", "refused but sent":
		if m.rule == "refused but sent" {
			m.refuse++
			if m.refuse%5 == 0 {
				op.Done = func(*btl.Op, error) {}
			}
		}
		err := e.loopEndpoint.Send(op)
		switch {
		case err == btl.ErrResource && m.rule == "never full":
			m.late = append(m.late, func() { done(op, nil) })
			return nil
		case err == btl.ErrResource && m.rule == "done after refusal":
			done(op, nil)
		case err == nil && m.rule == "refused but sent" && m.refuse%5 == 0:
			return btl.ErrResource
		}
		return err
	case "buffer used after done":
		if up && fits {
			early := *op
			early.Done = func(*btl.Op, error) {}
			done(op, nil)
			return e.loopEndpoint.Send(&early)
		}
	case "rebind without effect", "rebind fails", "rebind keeps payload":
		if m.rebound {
			return e.loopEndpoint.Send(op)
		}
		if up && fits && m.kept == nil {
			kept := *op
			kept.Done = func(*btl.Op, error) { done(op, nil) }
			m.kept = &kept
			return nil
		}
		return btl.ErrResource
	case "allocates":
		m.last = make([]byte, 64)
	case "owner changed":
		op.Owner = m
	}
	return e.loopEndpoint.Send(op)
}

// Rebind implements btl.Endpoint.
func (e faultyEndpoint) Rebind(op *btl.Op, payload []byte) bool {
	m := e.m
	m.rebound = true
	switch m.rule {
	case "rebind without effect":
		op.Payload = payload
		m.late = append(m.late, func() { _ = e.loopEndpoint.Send(m.kept) })
		return true
	case "rebind fails":
		return false
	case "rebind keeps payload":
		return true
	}
	return e.loopEndpoint.Rebind(op, payload)
}

// Put implements btl.Putter.
func (e faultyEndpoint) Put(op *btl.Op) error {
	if e.m.rule == "put elsewhere" && op.RemoteOffset > 0 {
		op.RemoteOffset--
	}
	return e.remote(op, e.loopEndpoint.Put)
}

// Get implements btl.Getter.
func (e faultyEndpoint) Get(op *btl.Op) error { return e.remote(op, e.loopEndpoint.Get) }

func (e faultyEndpoint) remote(op *btl.Op, post func(*btl.Op) error) error {
	if r, ok := op.Local.(faultyRegion); ok {
		op.Local = r.Region
	}
	if e.m.rule == "usage as path" {
		done := op.Done
		op.Done = func(op *btl.Op, err error) {
			var be *btl.Error
			if errors.As(err, &be) {
				other := *be
				other.Class = btl.ClassPath
				err = &other
			}
			done(op, err)
		}
	}
	return post(op)
}

// TestFaulty runs the suite on a module that breaks the rule named in the environment. By default
// it breaks none.
func TestFaulty(t *testing.T) {
	btltest.TestBTL(t, faultyPair(os.Getenv(envFaulty)))
}

// TestSuiteNotices: the suite fails for every broken rule, for the right reason.
func TestSuiteNotices(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for _, b := range faultyRules {
		t.Run(b.rule, func(t *testing.T) {
			cmd := exec.Command(self, "-test.run=^TestFaulty$/^"+strings.ReplaceAll(b.test, "/", "$/^")+"$", "-test.timeout=300s")
			cmd.Env = append(os.Environ(), envFaulty+"="+b.rule)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "%s passes", b.test)
			require.Regexp(t, b.says, string(out))
		})
	}
}
