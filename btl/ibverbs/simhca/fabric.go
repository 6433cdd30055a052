package simhca

import (
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// Config configures a fabric.
type Config struct {
	Seed    uint64
	Virtual bool          // time moves only with Advance and AdvanceTo; otherwise it is real time
	Latency time.Duration // of a packet, one way. 0: 1 µs in virtual time, none in real time
	// Largest random addition to Latency; the packets of a queue pair stay in order.
	Jitter time.Duration
	Loss   float64 // share of packets that are lost at random
	// ResolveTime is how long RoCE takes to resolve a path. 0: PD.Resolve ends at once.
	ResolveTime time.Duration
	// Link is the link layer of devices that have none themselves. 0: LinkEthernet, which is RoCE.
	Link verbs.LinkLayer
	// MaxMsgBytes is the longest message of devices that set no limit themselves. 0: 1 GiB.
	MaxMsgBytes uint32
	// Trace receives a line per event. In virtual time, the same seed and calls give the same
	// lines.
	Trace io.Writer
}

// Fabric is a network of simulated devices.
type Fabric struct {
	cfg   Config
	start time.Time

	// mu guards the fabric, its nodes and devices, and all objects made from them.
	mu        sync.Mutex
	rng       *rand.Rand
	clock     time.Duration
	clockRead bool // real time: clock was read since mu was locked
	events    eventQueue
	ready     []*packet // packets to deliver without latency, in order
	head      int       // index of the next packet in ready
	pool      *packet
	closed    bool

	timer   *time.Timer // real time: executes events when no caller does
	timerAt time.Duration

	calls      []func() // called after mu is unlocked
	spareCalls []func()

	nodes       []*Node
	byGID       map[verbs.GID]*port
	subnets     map[int]*subnet       // of InfiniBand, by DeviceConfig.Subnet
	partitioned map[portPair]struct{} // by Partition
	impaired    map[portPair]Impairment
	stale       []*packet // packets kept by FaultStale
}

// portPair is one direction between two ports.
type portPair struct{ from, to *port }

// NewFabric returns an empty network.
func NewFabric(cfg Config) *Fabric {
	if cfg.Virtual && cfg.Latency == 0 {
		cfg.Latency = time.Microsecond
	}
	setDefault(&cfg.MaxMsgBytes, 1<<30)
	setDefault(&cfg.Link, verbs.LinkEthernet)
	return &Fabric{
		cfg: cfg, start: time.Now(), rng: rand.New(rand.NewPCG(cfg.Seed, 0x73696d686361)),
		byGID: map[verbs.GID]*port{}, subnets: map[int]*subnet{}, partitioned: map[portPair]struct{}{}, impaired: map[portPair]Impairment{},
	}
}

// enter locks mu and, in real time, executes the events that are due. It returns f, for calls to
// defer leave.
func (f *Fabric) enter() *Fabric {
	f.mu.Lock()
	f.clockRead = false
	for e := f.events.first(); !f.cfg.Virtual && e != nil && e.at <= f.now(); e = f.events.first() {
		f.fire(e)
	}
	return f
}

// leave delivers the ready packets, unlocks mu and makes the deferred calls.
func (f *Fabric) leave() {
	f.deliverReady()
	f.armTimer()
	if len(f.calls) == 0 {
		f.mu.Unlock()
		return
	}
	calls := f.calls
	f.calls, f.spareCalls = f.spareCalls, nil
	f.mu.Unlock()
	for i, fn := range calls {
		fn()
		calls[i] = nil
	}
	f.mu.Lock()
	if f.spareCalls == nil {
		f.spareCalls = calls[:0]
	}
	f.mu.Unlock()
}

// deferCall makes leave call fn after it unlocks mu. fn may be nil.
func (f *Fabric) deferCall(fn func()) {
	if fn != nil {
		f.calls = append(f.calls, fn)
	}
}

// now returns the time since the fabric was made. The caller holds mu.
func (f *Fabric) now() time.Duration {
	if !f.cfg.Virtual && !f.clockRead {
		f.clock, f.clockRead = time.Since(f.start), true
	}
	return f.clock
}

// Now returns the time since the fabric was made.
func (f *Fabric) Now() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clockRead = false
	return f.now()
}

// fire executes the first event and delivers the packets that follow without latency.
func (f *Fabric) fire(e *event) {
	f.events.cancel(e)
	switch e.kind {
	case evPacket:
		f.arrive(e.pkt)
	case evAck:
		e.qp.ackTimeout()
	case evRNR:
		e.qp.rnrOver()
	case evLate:
		e.qp.deliverLate()
	case evLookup:
		e.path.finish()
	case evLastWQE:
		e.qp.endReceives()
	}
	f.deliverReady()
}

// deliverReady delivers the ready packets and those that their delivery makes ready.
func (f *Fabric) deliverReady() {
	for f.head < len(f.ready) {
		p := f.ready[f.head]
		f.ready[f.head] = nil
		f.head++
		f.arrive(p)
		// An endless stream of packets would otherwise grow the slice without limit.
		if f.head >= 1024 && f.head*2 >= len(f.ready) {
			n := copy(f.ready, f.ready[f.head:])
			clear(f.ready[n:])
			f.ready, f.head = f.ready[:n], 0
		}
	}
	f.ready, f.head = f.ready[:0], 0
}

// Advance moves the time of a virtual fabric to the next event and executes it. It reports whether
// there was an event.
func (f *Fabric) Advance() bool {
	defer f.enter().leave()
	e := f.events.first()
	if !f.cfg.Virtual || e == nil {
		return false
	}
	f.clock = max(f.clock, e.at)
	f.fire(e)
	return true
}

// AdvanceTo moves the time of a virtual fabric to at, unless that is in the past, and executes all
// events until then.
func (f *Fabric) AdvanceTo(at time.Duration) {
	defer f.enter().leave()
	if !f.cfg.Virtual {
		return
	}
	for e := f.events.first(); e != nil && e.at <= at; e = f.events.first() {
		f.clock = max(f.clock, e.at)
		f.fire(e)
	}
	f.clock = max(f.clock, at)
}

// SetLatency changes the latency of packets that are sent from now on. The packets of a queue pair
// stay in order.
func (f *Fabric) SetLatency(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cfg.Latency = max(d, 1)
}

// Next returns the time of the next event. ok is false if there is none.
func (f *Fabric) Next() (at time.Duration, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.events.first(); e != nil {
		return e.at, true
	}
	return 0, false
}

// armTimer sets the timer to the next event in real time.
func (f *Fabric) armTimer() {
	e := f.events.first()
	if f.cfg.Virtual || e == nil || f.closed || (f.timerAt != 0 && f.timerAt <= e.at) {
		return
	}
	f.timerAt = max(e.at, 1)
	wait := e.at - f.now()
	if f.timer != nil {
		f.timer.Reset(wait)
		return
	}
	f.timer = time.AfterFunc(wait, func() {
		defer f.enter().leave()
		f.timerAt = 0
	})
}

// Close stops the network: it delivers no more packets and executes no more events.
func (f *Fabric) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.timer != nil {
		f.timer.Stop()
	}
	f.events.clear()
	f.stale = nil
}

// Partition drops all packets from the port of GID a to the port of GID b until Heal; with
// bothWays, also those from b to a. The ports do not notice, so a connection can become half open.
// Partition reports whether both ports exist.
func (f *Fabric) Partition(a, b verbs.GID, bothWays bool) bool {
	defer f.enter().leave()
	from, to := f.byGID[a], f.byGID[b]
	if from == nil || to == nil {
		return false
	}
	f.partitioned[portPair{from, to}] = struct{}{}
	if bothWays {
		f.partitioned[portPair{to, from}] = struct{}{}
	}
	return true
}

// Heal ends a partition in both directions.
func (f *Fabric) Heal(a, b verbs.GID) {
	defer f.enter().leave()
	from, to := f.byGID[a], f.byGID[b]
	delete(f.partitioned, portPair{from, to})
	delete(f.partitioned, portPair{to, from})
}

// Impairment describes how badly the path between two ports works.
type Impairment struct {
	Latency time.Duration // in addition to the network's
	Loss    float64       // share of packets that are lost, if more than the network's
}

// Impair makes the path between the ports of two GIDs work badly, in both directions. The zero
// Impairment ends that for packets that are sent from then on.
func (f *Fabric) Impair(a, b verbs.GID, i Impairment) {
	defer f.enter().leave()
	from, to := f.byGID[a], f.byGID[b]
	for _, path := range []portPair{{from, to}, {to, from}} {
		if delete(f.impaired, path); i != (Impairment{}) && from != nil && to != nil {
			f.impaired[path] = i
		}
	}
}

// tracef writes a line to Trace. Callers check f.cfg.Trace first because the arguments allocate.
func (f *Fabric) tracef(format string, args ...any) {
	fmt.Fprintf(f.cfg.Trace, "%d ", f.now().Nanoseconds())
	fmt.Fprintf(f.cfg.Trace, format+"\n", args...)
}
