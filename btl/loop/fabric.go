// Package loop is a fabric inside one process: n ranks joined by k rails. Each rail of each rank is
// a [btl.Module]. It carries the ranks of a job that runs in one process, the messages of a rank to
// itself, and every simulation of the layers above.
//
// # Free-running
//
// Each rank is driven by its own goroutine under its own engine's lock. A fragment crosses in a
// ring of slots between one sending and one receiving rank (a lane). It is delivered once its slot
// is published: from then on the receiver hands it up, whatever happens. Therefore Send completes
// at once, and nothing is ever in flight.
//
// # Virtual
//
// With Config.Virtual one goroutine drives all ranks, and the fabric has its own time:
// [Fabric.Advance] moves it to the next event. Latency, bandwidth and seeded jitter decide when a
// fragment is delivered; its completion comes one latency later. The same seed and the same calls
// give the same trace.
//
// With [Fabric.SetWires] the fragments of a virtual fabric cross networks that the caller
// simulates, such as those of package network: rates, delays and losses that change, and ports that
// several peers share.
//
// # Incarnations
//
// A link joins the modules of two ranks on one rail, or with Config.Switched on any rails. Both
// ends agree on the epoch of its incarnation. An end joins the current incarnation if neither end
// of it has failed. Otherwise it begins the next one. An end that learns of a newer incarnation
// than its own fails. Between the failure of an end and its Drained, the end still hands up what
// was delivered before.
//
// As with an InfiniBand queue pair, an end that fails does not notify the other end. The other end
// fails when it next sends, or when the next incarnation begins. Only a module that closes notifies
// its peers.
package loop

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/progress"
)

const (
	maxRanks = 1 << 16
	maxRails = 1 << 8
	maxSlots = 1 << 16
	// maxFragBytes is the longest fragment whose length fits into a slot's word.
	maxFragBytes = 1 << 30
)

// ErrConfig is wrapped by the errors of NewFabric and Module for impossible arguments.
var ErrConfig = errors.New("bad fabric configuration")

// Config of a fabric. A field that is zero has its default.
type Config struct {
	// Ranks and Rails default to 1: the transport of a rank to itself.
	Ranks, Rails int
	// Rail describes the rails in order. Rails beyond the list are like its last one.
	Rail []RailConfig
	// Slots is how many fragments may be in flight from one rank to another on one rail, rounded up
	// to a power of two. The default shrinks as Ranks grows.
	Slots int
	// Seed of the jitter and of every other choice of a virtual fabric.
	Seed uint64
	// Virtual makes the fabric single-threaded, with its own time.
	Virtual bool
	// Switched makes all rails one network: each module of a rank leads to all modules of every
	// rank. Otherwise a module leads only to modules of its own rail.
	Switched bool
}

// RailConfig describes a rail. A field that is zero has its default.
type RailConfig struct {
	// Name defaults to "loop" followed by the rail's number.
	Name string
	// LatencyNanos is the one-way latency. A free-running fabric only reports it.
	LatencyNanos int64
	// JitterNanos bounds the jitter that a virtual fabric adds to the latency of each fragment. A
	// negative value means none.
	JitterNanos int64
	// RetryNanos is how long a virtual rail tries before it reports that a peer does not answer.
	RetryNanos int64
	// BandwidthMBps is the bandwidth of each lane. A free-running fabric only reports it.
	BandwidthMBps int64
	// EagerBytes, MaxSendBytes and InlineBytes are as in btl.Attrs.
	EagerBytes, MaxSendBytes, InlineBytes int
	// Without names capabilities that the rail does not have. It has all by default, except that a
	// virtual rail never has CapInline, which means delivered on return.
	Without btl.Caps
}

// Fabric joins ranks. Any goroutine may call Module, and may make a free-running fabric fail. A
// virtual fabric belongs to one goroutine.
type Fabric struct {
	cfg   Config
	id    uint64 // distinguishes its addresses and keys from those of other fabrics
	attrs []btl.Attrs
	ports [][]*port // by rail, then rank
	clock progress.Clock
	sim   *simulator // nil if free-running
	wires *Wires     // nil: there are none; only of a virtual fabric

	mu    sync.Mutex
	links map[[2]Port]*link // by ports, in the order of a link; guarded by mu
	// Shared memory that is not hidden, and the number of shared regions ever made. Guarded by mu.
	shared     map[btl.Key][]byte
	sharedMade uint64
}

// NewFabric makes a fabric.
func NewFabric(cfg Config) (*Fabric, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	f := &Fabric{
		cfg: cfg, id: rand.Uint64(), clock: progress.SystemClock(), links: map[[2]Port]*link{}, shared: map[btl.Key][]byte{},
		attrs: make([]btl.Attrs, cfg.Rails), ports: make([][]*port, cfg.Rails),
	}
	if cfg.Virtual {
		f.sim = newSimulator(cfg.Seed)
		f.clock = f.sim
	}
	for rail := range cfg.Rails {
		rc := &cfg.Rail[rail]
		f.attrs[rail] = btl.Attrs{
			Name: rc.Name, LatencyNanos: rc.LatencyNanos, BandwidthMBps: rc.BandwidthMBps,
			EagerBytes: rc.EagerBytes, MaxSendBytes: rc.MaxSendBytes, InlineBytes: rc.InlineBytes,
			Caps: (btl.CapPut | btl.CapGet | btl.CapInline) &^ rc.Without,
		}
		f.ports[rail] = make([]*port, cfg.Ranks)
		for rank := range cfg.Ranks {
			f.ports[rail][rank] = newPort(f, rank, rail)
		}
	}
	return f, nil
}

// complete checks the configuration and sets the defaults.
func (c *Config) complete() error {
	base.SetDefault(&c.Ranks, 1)
	base.SetDefault(&c.Rails, 1)
	if c.Ranks < 1 || c.Ranks > maxRanks {
		return fmt.Errorf("%w: %d ranks", ErrConfig, c.Ranks)
	}
	if c.Rails < 1 || c.Rails > maxRails {
		return fmt.Errorf("%w: %d rails", ErrConfig, c.Rails)
	}
	if len(c.Rail) > c.Rails {
		return fmt.Errorf("%w: %d rails are described, there are %d", ErrConfig, len(c.Rail), c.Rails)
	}
	// n ranks may make n² lanes. This bounds the memory of all lanes.
	base.SetDefault(&c.Slots, min(64, max(16, 2048/c.Ranks)))
	if c.Slots < 1 || c.Slots > maxSlots {
		return fmt.Errorf("%w: %d slots", ErrConfig, c.Slots)
	}
	for c.Slots&(c.Slots-1) != 0 {
		c.Slots++
	}
	rails := make([]RailConfig, c.Rails)
	for i := range rails {
		switch {
		case i < len(c.Rail):
			rails[i] = c.Rail[i]
		case len(c.Rail) > 0:
			rails[i] = c.Rail[len(c.Rail)-1]
			rails[i].Name = ""
		}
		if err := rails[i].complete(i, c.Virtual); err != nil {
			return err
		}
		for _, r := range rails[:i] {
			if r.Name == rails[i].Name {
				return fmt.Errorf("%w: two rails are named %q", ErrConfig, r.Name)
			}
		}
	}
	c.Rail = rails
	return nil
}

func (r *RailConfig) complete(rail int, virtual bool) error {
	if r.Name == "" {
		r.Name = "loop" + strconv.Itoa(rail)
	}
	base.SetDefault(&r.LatencyNanos, 200)
	base.SetDefault(&r.JitterNanos, r.LatencyNanos/2)
	base.SetDefault(&r.RetryNanos, 20*r.LatencyNanos)
	base.SetDefault(&r.BandwidthMBps, 8000)
	base.SetDefault(&r.MaxSendBytes, 64<<10)
	base.SetDefault(&r.EagerBytes, min(8<<10, r.MaxSendBytes))
	if virtual {
		r.Without |= btl.CapInline
	}
	if r.Without&btl.CapInline != 0 {
		r.InlineBytes = 0
	} else {
		base.SetDefault(&r.InlineBytes, min(slotBytes, r.MaxSendBytes))
	}
	switch {
	case r.LatencyNanos < 0 || r.RetryNanos < 0 || r.BandwidthMBps < 0:
		return fmt.Errorf("%w: rail %s: negative time or bandwidth", ErrConfig, r.Name)
	case r.MaxSendBytes < btl.MaxHeaderBytes || r.MaxSendBytes > maxFragBytes:
		return fmt.Errorf("%w: rail %s: MaxSendBytes %d", ErrConfig, r.Name, r.MaxSendBytes)
	case r.EagerBytes < 0 || r.EagerBytes > r.MaxSendBytes:
		return fmt.Errorf("%w: rail %s: EagerBytes %d", ErrConfig, r.Name, r.EagerBytes)
	case r.InlineBytes < 0 || r.InlineBytes > r.MaxSendBytes:
		return fmt.Errorf("%w: rail %s: InlineBytes %d", ErrConfig, r.Name, r.InlineBytes)
	}
	return nil
}

// Ranks is the number of ranks.
func (f *Fabric) Ranks() int { return f.cfg.Ranks }

// Rails is the number of rails.
func (f *Fabric) Rails() int { return f.cfg.Rails }

// Module makes one rank's module of one rail, once. The module reports to ev. wakeup, which may be
// nil, wakes the rank if something arrives while the module is armed.
func (f *Fabric) Module(rank, rail int, ev btl.Events, wakeup progress.Wakeup) (btl.Module, error) {
	switch {
	case rank < 0 || rank >= f.cfg.Ranks:
		return nil, fmt.Errorf("%w: rank %d of %d", ErrConfig, rank, f.cfg.Ranks)
	case rail < 0 || rail >= f.cfg.Rails:
		return nil, fmt.Errorf("%w: rail %d of %d", ErrConfig, rail, f.cfg.Rails)
	case ev == nil:
		return nil, fmt.Errorf("%w: no events to report to", ErrConfig)
	}
	p := f.ports[rail][rank]
	if !p.open(wakeup) {
		return nil, fmt.Errorf("%w: rank %d has its module of rail %d already", ErrConfig, rank, rail)
	}
	return newModule(p, ev), nil
}

// Now is the fabric's time: virtual, or the system's.
func (f *Fabric) Now() int64 { return f.clock.Now() }

// Trace makes a virtual fabric write one line for every post, delivery, completion and failure. nil
// ends the trace. A free-running fabric writes nothing.
func (f *Fabric) Trace(w io.Writer) {
	if f.sim != nil {
		f.sim.trace = w
	}
}

func (f *Fabric) tracef(format string, args ...any) {
	if f.sim == nil || f.sim.trace == nil {
		return
	}
	fmt.Fprintf(f.sim.trace, "%d ", f.sim.now)
	fmt.Fprintf(f.sim.trace, format, args...)
	fmt.Fprintln(f.sim.trace)
}
