package simhca

import (
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// Config is what a fabric is like.
type Config struct {
	Seed    uint64
	Virtual bool          // time moves only by Advance; else it is the machine's
	Latency time.Duration // of a packet, one way. Virtual: 0 stands for 1 µs; else 0 is at once
	Jitter  time.Duration // up to so much more for each packet, seeded; those from one queue pair stay in order
	Loss    float64       // the share of packets that get lost, seeded
	// MaxMsgBytes is the longest message, where a device does not say otherwise; 0 stands for 1 GiB.
	MaxMsgBytes uint32
	// Trace gets a line for each thing that happens; with Virtual the same ones for the same seed and calls.
	Trace io.Writer
}

// Fabric is a network of simulated devices.
type Fabric struct {
	cfg   Config
	start time.Time

	// mu guards everything of the fabric, its nodes, devices and what was made from them.
	mu     sync.Mutex
	rng    *rand.Rand
	clock  time.Duration
	fresh  bool // real time: clock was read since mu was taken
	agenda agenda
	ready  []*packet // to be delivered at once, in order
	head   int       // of ready
	pool   *packet
	closed bool

	alarm   *time.Timer // real time: for when nobody calls
	alarmAt time.Duration

	notes      []func() // to be called once mu is free
	spareNotes []func()

	nodes   []*Node
	ports   []*port
	byGID   map[verbs.GID]*port
	byLID   map[uint16]*port
	cut     map[lane]struct{} // by Partition
	stale   []*packet         // kept by FaultStale
	lastLID uint16
}

// lane is a pair of ports in one direction.
type lane struct{ from, to *port }

// NewFabric makes an empty network.
func NewFabric(cfg Config) *Fabric {
	if cfg.Virtual && cfg.Latency == 0 {
		cfg.Latency = time.Microsecond
	}
	if cfg.MaxMsgBytes == 0 {
		cfg.MaxMsgBytes = 1 << 30
	}
	return &Fabric{
		cfg: cfg, start: time.Now(), rng: rand.New(rand.NewPCG(cfg.Seed, 0x73696d686361)),
		byGID: map[verbs.GID]*port{}, byLID: map[uint16]*port{}, cut: map[lane]struct{}{},
	}
}

// enter takes the lock, and in real time does what is due.
func (f *Fabric) enter() {
	f.mu.Lock()
	f.fresh = false
	if f.cfg.Virtual {
		return
	}
	for e := f.agenda.first(); e != nil && e.at <= f.now(); e = f.agenda.first() {
		f.happen(e)
	}
}

// leave delivers what is ready, gives the lock back and tells those who asked to be told.
func (f *Fabric) leave() {
	f.pump()
	f.setAlarm()
	if len(f.notes) == 0 {
		f.mu.Unlock()
		return
	}
	notes := f.notes
	f.notes, f.spareNotes = f.spareNotes, nil
	f.mu.Unlock()
	for i, fn := range notes {
		fn()
		notes[i] = nil
	}
	f.mu.Lock()
	if f.spareNotes == nil {
		f.spareNotes = notes[:0]
	}
	f.mu.Unlock()
}

// note has fn called once the lock is free.
func (f *Fabric) note(fn func()) {
	if fn != nil {
		f.notes = append(f.notes, fn)
	}
}

// now is the time; the lock is held.
func (f *Fabric) now() time.Duration {
	if !f.cfg.Virtual && !f.fresh {
		f.clock, f.fresh = time.Since(f.start), true
	}
	return f.clock
}

// Now is the time since the fabric was made.
func (f *Fabric) Now() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fresh = false
	return f.now()
}

// happen does the first thing on the agenda, and all that follows at once.
func (f *Fabric) happen(e *event) {
	f.agenda.cancel(e)
	switch e.kind {
	case evPacket:
		f.arrive(e.pkt)
	case evAck:
		e.qp.ackTimeout()
	case evRNR:
		e.qp.rnrOver()
	case evLate:
		e.qp.releaseHeld()
	}
	f.pump()
}

// pump delivers what is ready until nothing more comes of it.
func (f *Fabric) pump() {
	for f.head < len(f.ready) {
		p := f.ready[f.head]
		f.ready[f.head] = nil
		f.head++
		f.arrive(p)
		// Under a stream that never ends the slice would only grow.
		if f.head >= 1024 && f.head*2 >= len(f.ready) {
			n := copy(f.ready, f.ready[f.head:])
			clear(f.ready[n:])
			f.ready, f.head = f.ready[:n], 0
		}
	}
	f.ready, f.head = f.ready[:0], 0
}

// Advance moves a virtual fabric's time to the next thing that is to happen, and does it. It reports whether there was one.
func (f *Fabric) Advance() bool {
	f.enter()
	defer f.leave()
	e := f.agenda.first()
	if !f.cfg.Virtual || e == nil {
		return false
	}
	f.clock = max(f.clock, e.at)
	f.happen(e)
	return true
}

// AdvanceTo moves a virtual fabric's time to at, if that is in the future, and does all that is to happen until then.
func (f *Fabric) AdvanceTo(at time.Duration) {
	f.enter()
	defer f.leave()
	if !f.cfg.Virtual {
		return
	}
	for e := f.agenda.first(); e != nil && e.at <= at; e = f.agenda.first() {
		f.clock = max(f.clock, e.at)
		f.happen(e)
	}
	f.clock = max(f.clock, at)
}

// SetLatency changes the latency of packets that are sent from now on. Those from one queue pair stay in order.
func (f *Fabric) SetLatency(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cfg.Latency = max(d, 1)
}

// Next is the time of the next thing that is to happen, if there is one.
func (f *Fabric) Next() (at time.Duration, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.agenda.first(); e != nil {
		return e.at, true
	}
	return 0, false
}

// setAlarm sees to it that real time goes on when nobody calls.
func (f *Fabric) setAlarm() {
	e := f.agenda.first()
	if f.cfg.Virtual || e == nil || f.closed || (f.alarmAt != 0 && f.alarmAt <= e.at) {
		return
	}
	f.alarmAt = max(e.at, 1)
	wait := e.at - f.now()
	if f.alarm == nil {
		f.alarm = time.AfterFunc(wait, f.ring)
		return
	}
	f.alarm.Reset(wait)
}

func (f *Fabric) ring() {
	f.enter()
	f.alarmAt = 0
	f.leave()
}

// Close ends the network: nothing is delivered any more, and nothing happens by itself.
func (f *Fabric) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.alarm != nil {
		f.alarm.Stop()
	}
	f.agenda.clear()
	f.stale = nil
}

// Partition loses what goes from the port of one GID to that of another, or also what comes back, until Heal. The ports
// notice nothing: this is how a connection comes to be half open. It reports whether both ports are there.
func (f *Fabric) Partition(a, b verbs.GID, bothWays bool) bool {
	f.enter()
	defer f.leave()
	from, to := f.byGID[a], f.byGID[b]
	if from == nil || to == nil {
		return false
	}
	f.cut[lane{from, to}] = struct{}{}
	if bothWays {
		f.cut[lane{to, from}] = struct{}{}
	}
	return true
}

// Heal ends Partition, both ways.
func (f *Fabric) Heal(a, b verbs.GID) {
	f.enter()
	defer f.leave()
	from, to := f.byGID[a], f.byGID[b]
	delete(f.cut, lane{from, to})
	delete(f.cut, lane{to, from})
}

// tracef writes a line. Callers look at f.cfg.Trace first: the arguments would allocate.
func (f *Fabric) tracef(format string, args ...any) {
	fmt.Fprintf(f.cfg.Trace, "%d ", f.now().Nanoseconds())
	fmt.Fprintf(f.cfg.Trace, format+"\n", args...)
}
