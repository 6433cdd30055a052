package railsim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/internal/network"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// link describes the network below a rail: each port has a link to the others, which all its
// connections share. Rates are in bytes a second, times in nanoseconds.
type link struct {
	rate      func(now int64) float64
	delay     func(now int64) int64 // one way
	loss      func(now int64) float64
	silent    func(now int64) bool
	isDirect  bool  // lossless, as verbs; else TCP
	promised  int64 // by the interface, in 10⁶ bytes a second
	foreign   int   // flows of other programs from each port
	isForeign func(now int64) bool
}

// tcpLink returns a TCP network like an interface of 10 Gbit/s that the kernel's token bucket
// filter shapes.
func tcpLink(mbit float64) link {
	return link{
		rate: network.Steady(network.Mbit(mbit)), delay: network.Steady(100 * network.Microsecond), loss: network.Steady(0.0),
		silent: network.Steady(false), promised: 1250, isForeign: network.Steady(false),
	}
}

// directLink returns a lossless network with the rate that its interface promises, in 10⁶ bytes a
// second.
func directLink(mbps int64) link {
	l := tcpLink(0)
	l.rate, l.delay, l.isDirect, l.promised = network.Steady(float64(mbps)*1e6), network.Steady(network.Microsecond), true, mbps
	return l
}

// share returns the rate that foreign flows leave.
func (l *link) share(now int64) float64 {
	switch {
	case l.silent(now):
		return 0
	case l.foreign > 0 && l.isForeign(now):
		return l.rate(now) / float64(l.foreign+1)
	}
	return l.rate(now)
}

const (
	// queueSeconds and burstBytes are the parameters of the token bucket filters: latency 50ms
	// burst 32k.
	queueSeconds = 0.05
	burstBytes   = 32 << 10
)

// open makes the link of a port.
func (l *link) open(clock network.Clock, rng *rand.Rand) *network.Link {
	n := network.NewLink(clock, rng, l.rate, 0)
	n.Delay, n.Loss, n.Silent = l.delay, l.loss, l.silent
	if !l.isDirect {
		n.QueueSeconds, n.BurstBytes = queueSeconds, burstBytes
	}
	return n
}

// job is a job of ranks that make progress all the time, and of rails over simulated networks.
// It is the production code from package pml down to the transport's endpoints.
type job struct {
	cfg      config
	fabric   *loop.Fabric
	ranks    []*rank
	rails    []*rail
	isWoken  bool
	ticked   int64     // when the ranks last ran their timers
	failures []failure // that OnRail has reported
	illegal  []string
	messages []*message
	posted   int // number of messages so far
	flows    []*running
}

// failure is the failure of a rail at one end.
type failure struct {
	at   int64
	rail int
	what string
}

type config struct {
	ranks     int // 0: 2
	rails     []link
	protocol  pml.Protocol
	fragBytes int // 0: 128 KiB
	seed      uint64
	grace     int64 // 0: 10 s
	// away returns for how long a rank makes no progress from now on; nil: all ranks always make
	// progress.
	away func(rank int, now int64) int64
	// keepsBuffers: the buffers of complete receives are checked at the end, too.
	keepsBuffers bool
}

const (
	// windowBytes is btl/tcp's window, and slots more fragments than fit there.
	windowBytes, slots = 2 << 20, 1024
	// silenceNanos is the time after which a silent endpoint fails by itself.
	silenceNanos = 10 * network.Second
	// tick is the interval at which sleeping ranks run their timers.
	tick = network.Millisecond
	// turnsOfTimers is the number of turns after which an engine has checked its timers.
	turnsOfTimers = 8
)

// rail counts the traffic of a rail, over all ranks.
type rail struct {
	carried   int64 // bytes of pieces of long messages that endpoints accepted
	delivered int64 // of those that completed without an error
	again     int64 // of those that endpoints had accepted before
	failed    int64 // of those that ended with an error
	under     int   // pieces under way
	idleSince int64 // when under became 0; 0: not since startPause
	pause     int64 // the longest time without a piece between two pieces
}

type rank struct {
	j       *job
	rank    int
	eng     *progress.Engine
	p       *pml.PML
	ctx     *pml.Context
	modules []*module
}

func newJob(cfg config) (*job, error) {
	if cfg.ranks == 0 {
		cfg.ranks = 2
	}
	if cfg.fragBytes == 0 {
		cfg.fragBytes = 128<<10 + btl.MaxHeaderBytes
	}
	if cfg.grace == 0 {
		cfg.grace = 10 * network.Second
	}
	j := &job{cfg: cfg}
	fc := loop.Config{Ranks: cfg.ranks, Rails: len(cfg.rails), Slots: slots, Seed: cfg.seed, Virtual: true}
	for i := range cfg.rails {
		l := &cfg.rails[i]
		rc := loop.RailConfig{LatencyNanos: l.delay(0), JitterNanos: -1, BandwidthMBps: l.promised, MaxSendBytes: cfg.fragBytes, EagerBytes: cfg.fragBytes / 2}
		if cfg.protocol == pml.Copy {
			rc.Without = btl.CapPut | btl.CapGet
		}
		fc.Rail = append(fc.Rail, rc)
		j.rails = append(j.rails, &rail{})
	}
	var err error
	if j.fabric, err = loop.NewFabric(fc); err != nil {
		return nil, err
	}
	if err := j.wire(); err != nil {
		return nil, err
	}
	members := make([]int, cfg.ranks)
	for i := range members {
		members[i] = i
	}
	group := pml.NewGroup(members)
	for i := range cfg.ranks {
		r := &rank{j: j, rank: i}
		r.eng = progress.New(progress.Config{Clock: j.fabric})
		r.p = pml.New(pml.Config{
			Rank: i, Size: cfg.ranks, Engine: r.eng, Protocol: cfg.protocol, GraceNanos: cfg.grace, Resolve: r.resolve,
			OnIllegal: func(what string) { j.illegal = append(j.illegal, what) },
			OnRail: func(e pml.RailEvent) {
				if !e.Up {
					j.failures = append(j.failures, failure{j.now(), j.railNamed(e.Rail), fmt.Sprintf("rank %d: %v", i, e.Cause)})
				}
			},
		})
		r.eng.Lock()
		for rail := range cfg.rails {
			m := &module{r: r, rail: rail}
			if m.Module, err = j.fabric.Module(i, rail, m, wakeup{j}); err != nil {
				return nil, err
			}
			r.modules = append(r.modules, m)
			r.eng.AddPoller(m.Module)
		}
		r.eng.AddPoller(r.p)
		r.ctx = r.p.AddContext(0, group, i, describer{})
		r.eng.Unlock()
		j.ranks = append(j.ranks, r)
	}
	return j, nil
}

// wire makes the links of all ports, and the foreign flows over them.
func (j *job) wire() error {
	rng := rand.New(rand.NewPCG(j.cfg.seed, 0x77697265))
	links := map[loop.Port]*network.Link{}
	for rail := range j.cfg.rails {
		l := &j.cfg.rails[rail]
		for rank := range j.cfg.ranks {
			links[loop.Port{Rank: rank, Rail: rail}] = l.open(j.fabric, rng)
		}
		for rank := range j.cfg.ranks {
			for range l.foreign {
				out, back := links[loop.Port{Rank: rank, Rail: rail}], links[loop.Port{Rank: (rank + 1) % j.cfg.ranks, Rail: rail}]
				network.Foreign(j.fabric, out, back, l.isForeign)
			}
		}
	}
	w := loop.Wires{WindowBytes: windowBytes, SilenceNanos: silenceNanos, AcksTaken: !j.cfg.rails[0].isDirect}
	w.Dial = func(a, b loop.Port) (to, fro loop.Wire) {
		switch {
		case a.Rank == b.Rank:
			return nil, nil
		case j.cfg.rails[a.Rail].isDirect:
			return network.Direct{Out: links[a]}, network.Direct{Out: links[b]}
		}
		return network.NewTCP(j.fabric, links[a], links[b]), network.NewTCP(j.fabric, links[b], links[a])
	}
	return j.fabric.SetWires(w)
}

const (
	guard     = 8 // bytes behind a buffer that must not be written
	untouched = 0xEE
)

// describer adds the operation to an error, as comm does.
type describer struct{}

func (describer) Describe(op string, peer, tag int, err error) error {
	return fmt.Errorf("%s with rank %d tag %d: %w", op, peer, tag, err)
}

func (j *job) railNamed(name string) int {
	return slices.IndexFunc(j.ranks[0].modules, func(m *module) bool { return m.Attrs().Name == name })
}

// wakeup records that an event has arrived at a rank.
type wakeup struct{ j *job }

func (w wakeup) Wake()            { w.j.isWoken = true }
func (w wakeup) Sleep(int64) bool { return true }
func (w wakeup) Close() error     { return nil }

func (r *rank) resolve(peer int) (routes []pml.Route, err error) {
	for rail, m := range r.modules {
		open := func() (btl.Endpoint, error) { return m.connect(peer) }
		route := pml.Route{Module: m, Local: rail, Remote: rail, Reopen: open}
		if ep, err := open(); err == nil {
			route.Endpoint = ep
		}
		routes = append(routes, route)
	}
	return routes, nil
}

// call calls f with the rank's PML and the lock held.
func (r *rank) call(f func(p *pml.PML)) {
	r.eng.Lock()
	defer r.eng.Unlock()
	f(r.p)
}

func (j *job) now() int64 { return j.fabric.Now() }

func (j *job) away(r *rank) int64 {
	if j.cfg.away == nil {
		return 0
	}
	return j.cfg.away(r.rank, j.now())
}

// turn makes all ranks progress until none has work left.
func (j *job) turn() {
	withTimers := j.now()-j.ticked >= tick
	if withTimers {
		j.ticked = j.now()
	}
	for again := true; again; {
		again = false
		for _, r := range j.ranks {
			if j.away(r) > 0 {
				continue
			}
			r.eng.Lock()
			for n := 0; r.eng.Turn() > 0 || withTimers && n < turnsOfTimers; n++ {
				again = true
			}
			r.eng.Unlock()
		}
		withTimers = false
	}
}

// sleep lets time pass until an event arrives at a rank, or until the next tick.
func (j *job) sleep() {
	j.isWoken = false
	end := j.ticked + tick
	for _, r := range j.ranks {
		if nanos := j.away(r); nanos > 0 {
			end = min(end, j.now()+nanos)
			continue
		}
		for _, m := range r.modules {
			if !m.Module.(progress.Idler).Arm() {
				j.isWoken = true
			}
		}
	}
	for !j.isWoken && j.now() < end {
		if at, ok := j.fabric.Next(); !ok || at > end {
			j.fabric.AdvanceTo(end)
		} else {
			j.fabric.AdvanceTo(at)
		}
	}
	for _, r := range j.ranks {
		for _, m := range r.modules {
			m.Module.(progress.Idler).Disarm()
		}
	}
}

// run lets the ranks work until isDone holds, or until a time. It reports whether isDone holds.
func (j *job) run(until int64, isDone func() bool) bool {
	for {
		j.turn()
		j.observe()
		if isDone() {
			return true
		}
		if j.now() >= until {
			return false
		}
		j.sleep()
	}
}

// message is a message from one rank to another one.
type message struct {
	from, to, id  int
	postedAt      int64
	sentAt, gotAt int64 // when its two sides completed; 0: not yet
	err           error
	send          *pml.SendRequest
	recv          *pml.RecvRequest
	out, in       []byte // in has a guard behind the message
	accepted      ledger
	isChecked     bool
}

func (m *message) isDone() bool { return m.err != nil || m.sentAt > 0 && m.gotAt > 0 }

// fill writes the content of the message. Each word is unique among all messages.
func (m *message) fill(b []byte) {
	word := uint64(m.id) << 40
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, word*0x9e3779b97f4a7c15)
		word++
	}
	for i := range b {
		b[i] = byte(m.id + i)
	}
}

// post starts a message and its receive.
func (j *job) post(from, to, size int) *message {
	m := &message{from: from, to: to, id: j.posted, postedAt: j.now(), out: make([]byte, size), in: make([]byte, size+guard)}
	j.posted++
	j.messages = append(j.messages, m)
	m.fill(m.out)
	for i := size; i < len(m.in); i++ {
		m.in[i] = untouched
	}
	tag := m.id
	j.ranks[to].call(func(p *pml.PML) { m.recv = p.Irecv(j.ranks[to].ctx, m.in[:size:size], 1, from, tag, "irecv") })
	j.ranks[from].call(func(p *pml.PML) { m.send = p.Isend(j.ranks[from].ctx, m.out, to, tag, pml.Standard, "isend") })
	return m
}

// observe checks the messages that are complete.
func (j *job) observe() {
	for _, m := range j.messages {
		if m.sentAt == 0 && m.send != nil && m.send.State() == request.Complete {
			_, _, err := m.send.Handle().Test()
			m.send, m.sentAt = nil, j.now()
			m.end(err)
		}
		if m.gotAt == 0 && m.recv != nil && m.recv.State() == request.Complete {
			_, _, err := m.recv.Handle().Test()
			m.recv, m.gotAt = nil, j.now()
			m.end(err)
		}
		if !m.isChecked && m.isDone() && m.err == nil {
			m.isChecked = true
			m.check()
			m.reuse()
		}
	}
	if !j.cfg.keepsBuffers {
		j.messages = slices.DeleteFunc(j.messages, (*message).isDone)
	}
}

func (m *message) end(err error) {
	if err != nil && m.err == nil {
		m.err = err
	}
}

// check checks the bytes of a complete message.
func (m *message) check() {
	size := len(m.out)
	m.fill(m.out)
	switch {
	case !bytes.Equal(m.out, m.in[:size]):
		m.err = fmt.Errorf("message %d of %d bytes has other bytes", m.id, size)
	case slices.ContainsFunc(m.in[size:], func(b byte) bool { return b != untouched }):
		m.err = fmt.Errorf("something was written behind message %d", m.id)
	}
}

// reuse writes to the buffers of a complete message, as their owners may.
func (m *message) reuse() {
	for i := range m.out {
		m.out[i] = untouched
	}
	for i := range m.in {
		m.in[i] = untouched
	}
}

// checkReused checks that nothing was written to the buffer of a complete receive.
func (m *message) checkReused() error {
	if m.isChecked && slices.ContainsFunc(m.in, func(b byte) bool { return b != untouched }) {
		return fmt.Errorf("the buffer of message %d was written after the message was complete", m.id)
	}
	return nil
}

// startPause starts to measure the longest pause of each rail.
func (j *job) startPause() {
	for _, x := range j.rails {
		x.pause, x.idleSince = 0, 0
	}
}

// sum adds up a counter of all rails.
func (j *job) sum(of func(x *rail) int64) (n int64) {
	for _, x := range j.rails {
		n += of(x)
	}
	return n
}

// count adds up a counter of all ranks.
func (j *job) count(of func(s pml.Stats) uint64) (n uint64) {
	for _, r := range j.ranks {
		n += of(r.p.Stats())
	}
	return n
}

// ideal returns the time of the fluid model for a number of bytes, over all rails or over one.
func (j *job) ideal(from int64, size float64, rails ...int) int64 {
	var rates []func(now int64) float64
	step := 100 * network.Microsecond
	for i := range j.cfg.rails {
		if len(rails) == 0 || slices.Contains(rails, i) {
			rates = append(rates, j.cfg.rails[i].share)
		}
		if j.cfg.rails[i].isDirect {
			step = network.Microsecond
		}
	}
	return network.Fluid(rates, from, size, step, 1000*network.Second)
}

func (j *job) close() {
	for _, r := range j.ranks {
		for _, m := range r.modules {
			_ = m.Close()
		}
	}
}
