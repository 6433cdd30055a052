package btltest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

const (
	// defaultPatience bounds the waits of the suite.
	defaultPatience = 30 * time.Second
	// idleTurns: after its time is over, a wait ends only after this many turns without an event,
	// because this process may have stood still meanwhile. After mostTurns it ends in any case.
	idleTurns = 300
	mostTurns = 1 << 20
)

// harness drives a pair and checks what it does.
type harness struct {
	t    testing.TB
	pair *Pair
	a, b *side
	idle int // turns without an event in a row

	mu         sync.Mutex
	violations []string // guarded by mu
	lastGen    int      // of the newest connection, guarded by mu
}

func newHarness(t testing.TB, mk Maker) *harness {
	h := &harness{t: t}
	h.a = &side{h: h, name: "A", outstanding: map[*tracked]bool{}}
	h.b = &side{h: h, name: "B", outstanding: map[*tracked]bool{}}
	h.a.other, h.b.other = h.b, h.a
	h.a.sent.name, h.b.sent.name = "A to B", "B to A"
	p := mk(t, h.a, h.b)
	require.NotNil(t, p, "no pair")
	require.NotNil(t, p.A, "no module A")
	require.NotNil(t, p.B, "no module B")
	require.NotEqual(t, p.RankA, p.RankB, "ranks")
	h.pair = p
	if p.Patience == 0 {
		p.Patience = defaultPatience
	}
	h.a.m, h.a.rank, h.a.peer = p.A, p.RankA, p.RankB
	h.b.m, h.b.rank, h.b.peer = p.B, p.RankB, p.RankA
	noise := makeNoise(3 * max(p.A.Attrs().MaxSendBytes, p.B.Attrs().MaxSendBytes))
	h.a.sent.noise, h.b.sent.noise = noise, noise
	t.Cleanup(h.release)
	return h
}

// release closes everything, even after a failure.
func (h *harness) release() {
	for _, s := range []*side{h.a, h.b} {
		h.halt(s)
		s.close()
		if err := s.lent.giveBack(); err != nil {
			h.violation("%s: memory after Close: %v", s.name, err)
		}
	}
	if h.pair.Close != nil {
		h.pair.Close()
	}
	if !h.t.Failed() {
		h.check()
	}
}

// finish ends a test that has passed: all fragments have arrived, and nothing is left.
func (h *harness) finish() {
	h.t.Helper()
	h.settle()
	for _, s := range []*side{h.a, h.b} {
		require.NoError(h.t, s.close(), "close %s", s.name)
		h.mu.Lock()
		require.Empty(h.t, s.outstanding, "%s: operations outstanding after Close", s.name)
		h.mu.Unlock()
	}
	h.check()
}

// guarded returns a condition that holds if cond does under the harness's mu.
func (h *harness) guarded(cond func() bool) func() bool {
	return func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return cond()
	}
}

// settle drives until every operation is called back and all successful fragments have arrived.
func (h *harness) settle() {
	h.t.Helper()
	isSettled := func(s *side) bool {
		return len(s.outstanding) == 0 && s.sent.missing() < 0 && !s.failing && !s.railFailing
	}
	h.until("all operations to end, and all fragments that succeeded to arrive",
		h.guarded(func() bool { return isSettled(h.a) && isSettled(h.b) }))
}

func (h *harness) violation(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violationLocked(format, args...)
}

func (h *harness) violationLocked(format string, args ...any) {
	if len(h.violations) < 10 {
		h.violations = append(h.violations, fmt.Sprintf(format, args...))
	}
}

// check ends the test if the contract was broken.
func (h *harness) check() {
	h.t.Helper()
	h.mu.Lock()
	v := h.violations
	h.mu.Unlock()
	if len(v) > 0 {
		h.t.Fatal("contract: " + strings.Join(v, "\ncontract: "))
	}
}

// turn drives every side that has no goroutine of its own.
func (h *harness) turn() {
	h.t.Helper()
	n := 0
	for _, s := range []*side{h.a, h.b} {
		if s.driver == nil {
			n += s.progress()
		}
	}
	h.check()
	h.rest(n)
}

// rest gives way to other goroutines if there was nothing to do.
func (h *harness) rest(events int) {
	switch h.idle++; {
	case events > 0:
		h.idle = 0
	case h.pair.Idle != nil:
		h.pair.Idle()
	case h.idle < 100:
		runtime.Gosched()
	default:
		time.Sleep(20 * time.Microsecond)
	}
}

// patience begins a wait. isOver, called after each turn, reports whether it has taken too long.
func (h *harness) patience() (isOver func() bool) {
	deadline, turns, idle := time.Now().Add(h.pair.Patience), 0, h.idle
	return func() bool {
		if turns++; h.idle == 0 {
			idle = 0
		}
		return turns%64 == 0 && (h.idle-idle >= idleTurns || turns >= mostTurns) && time.Now().After(deadline)
	}
}

// until drives until cond holds.
func (h *harness) until(what string, cond func() bool) {
	h.t.Helper()
	isOver := h.patience()
	for !cond() {
		h.turn()
		if isOver() {
			h.t.Fatalf("waited too long for %s\n%s", what, h.describe())
		}
	}
	h.check()
}

// turns drives n times.
func (h *harness) turns(n int) {
	h.t.Helper()
	for range n {
		h.turn()
	}
}

func (h *harness) describe() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := ""
	for _, s := range []*side{h.a, h.b} {
		text += fmt.Sprintf("%s: sent %d, of which arrived %d, first missing %d; outstanding %d; Failed %d, for the rail %d, Drained %d; last error: %v\n",
			s.name, len(s.sent.entries), s.sent.arrived, s.sent.missing(), len(s.outstanding), s.failures, s.railFailures, s.drains, s.lastErr)
	}
	return text
}

// drive gives a side a goroutine of its own.
func (h *harness) drive(s *side) {
	s.stop.Store(false)
	s.driver = make(chan struct{})
	go func() {
		defer close(s.driver)
		for !s.stop.Load() {
			if s.progress() == 0 || s.mu.wanted.Load() > 0 {
				runtime.Gosched()
			}
		}
	}()
}

// halt stops the side's goroutine.
func (h *harness) halt(s *side) {
	if s.driver != nil {
		s.stop.Store(true)
		<-s.driver
		s.driver = nil
	}
}

// connect makes a new connection of both sides.
func (h *harness) connect() {
	h.t.Helper()
	h.connectSide(h.a, h.newGeneration())
	h.connectSide(h.b, h.lastGen)
}

func (h *harness) newGeneration() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastGen++
	return h.lastGen
}

// connectSide connects one side as part of a new connection.
func (h *harness) connectSide(s *side, generation int) {
	h.t.Helper()
	address := s.other.address()
	s.mu.Lock()
	defer s.mu.Unlock()
	var old uint32
	if s.ep != nil {
		old = s.ep.Epoch()
	}
	before := s.ep
	ep, err := s.m.Connect(s.path(), address)
	require.NoError(h.t, err, "connect %s", s.name)
	require.NotNil(h.t, ep)
	require.False(h.t, ep == before, "the old endpoint again")
	require.Equal(h.t, s.path(), ep.Path())
	require.Greater(h.t, ep.Epoch(), old, "epoch of the new incarnation of %s", s.name)
	require.Equal(h.t, btl.Up, ep.State())
	h.mu.Lock()
	s.ep, s.generation = ep, generation
	h.mu.Unlock()
}

// reconnect waits until both sides are drained and connects them again.
func (h *harness) reconnect() {
	h.t.Helper()
	h.untilDrained(h.a, h.b)
	h.connect()
}

// recover fails s, whose peer has already failed, and connects both sides again.
func (h *harness) recover(s *side) {
	h.t.Helper()
	s.fail(errTest)
	h.reconnect()
}

// exchange sends a fragment each way and waits until both have arrived.
func (h *harness) exchange() {
	h.t.Helper()
	h.mustSend(h.a, 8, 16)
	h.mustSend(h.b, 8, 16)
	h.settle()
}

// untilDrained drives until the endpoints of these sides are Drained, and that was reported.
func (h *harness) untilDrained(sides ...*side) {
	h.t.Helper()
	for _, s := range sides {
		h.until(s.name+" to be drained", func() bool {
			isReported := h.guarded(func() bool { return s.drained == s.generation && !s.failing && !s.railFailing })
			return s.state() == btl.Drained && isReported()
		})
	}
}

// mustSend sends a fragment, waiting for resources as long as it takes.
func (h *harness) mustSend(s *side, hdr, size int) *tracked {
	h.t.Helper()
	tr := s.newSend(hdr, size)
	h.until(fmt.Sprintf("%s to take a fragment of %d bytes", s.name, size), func() bool {
		err := s.send(tr)
		if err != nil {
			require.Equal(h.t, btl.ErrResource, err, "%s: send of %d bytes", s.name, size)
		}
		return err == nil
	})
	return tr
}

// ended reports whether the operation was called back.
func (h *harness) ended(tr *tracked) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return tr.done > 0
}

// result waits for an operation's end and returns its error.
func (h *harness) result(tr *tracked) error {
	h.t.Helper()
	h.until("a "+tr.verb+" to end", func() bool { return h.ended(tr) })
	h.mu.Lock()
	defer h.mu.Unlock()
	return tr.err
}

// warmUp sends a fragment each way, so that a small one after it is taken at once, and resets the
// counts.
func (h *harness) warmUp() {
	h.t.Helper()
	h.exchange()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.a.sent.arrived, h.b.sent.arrived = 0, 0
}

// arrived is the number of fragments that have arrived from s.
func (h *harness) arrived(s *side) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return s.sent.arrived
}
