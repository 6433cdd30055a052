package rating

import (
	"math/rand/v2"
	"slices"

	"github.com/mpigo/mpigo/internal/network"
)

// The tests run a Judge in a model of the library above simulated networks: fragments that the peer
// acknowledges, acknowledgements that wait behind data, progress only while a side is not away.
// Ratios are the time divided by that of the fluid model, which moves bytes at the sum of the rates
// that foreign flows leave.

// rail describes a rail of the world.
type rail struct {
	rate      func(now int64) float64 // bytes a second
	delay     func(now int64) int64
	loss      func(now int64) float64
	silent    func(now int64) bool
	isDirect  bool
	promised  float64 // bytes a second
	foreign   int     // flows of others
	isForeign func(now int64) bool
}

// tcpDelay is the one-way delay of the table.
const tcpDelay = 100 * network.Microsecond

func tcp(mbit float64) rail {
	return rail{
		rate: network.Steady(network.Mbit(mbit)), delay: network.Steady(tcpDelay), loss: network.Steady(0.0),
		silent: network.Steady(false), promised: network.Mbit(10_000), isForeign: network.Steady(false),
	}
}

// direct is a rail of remote access, in bytes a second.
func direct(rate float64) rail {
	r := tcp(0)
	r.rate, r.delay, r.isDirect, r.promised = network.Steady(rate), network.Steady(network.Microsecond), true, rate
	return r
}

// share is the rate that foreign flows leave.
func (r *rail) share(now int64) float64 {
	switch {
	case r.silent(now):
		return 0
	case r.foreign > 0 && r.isForeign(now):
		return r.rate(now) / float64(r.foreign+1)
	}
	return r.rate(now)
}

// ideal is how long the fluid model takes for bytes that begin at a time.
func ideal(rails []rail, from int64, bytes float64) int64 {
	step := 100 * network.Microsecond
	if rails[0].isDirect {
		step = network.Microsecond
	}
	for t := from; ; t += step {
		rate := 0.0
		for i := range rails {
			rate += rails[i].share(t)
		}
		moved := rate * float64(step) / 1e9
		if moved >= bytes {
			return t + int64(float64(step)*bytes/moved) - from
		}
		bytes -= moved
	}
}

// world has the networks of rails, and connections over them between pairs of processes.
type world struct {
	*network.Queue
	rails []rail
	links [][2]*network.Link
	away  func(side int, now int64) int64 // how long a side makes no progress from now on
}

func newWorld(seed uint64, rails ...rail) *world {
	w := &world{Queue: new(network.Queue), rails: rails, away: func(int, int64) int64 { return 0 }}
	rng := rand.New(rand.NewPCG(seed, 7))
	for i := range rails {
		r := &rails[i]
		var pair [2]*network.Link
		for k := range pair {
			l := network.NewLink(w, rng, r.rate, 0)
			l.Delay, l.Loss, l.Silent = r.delay, r.loss, r.silent
			if !r.isDirect {
				l.QueueSeconds, l.BurstBytes = 0.05, 32<<10
			}
			pair[k] = l
		}
		for range r.foreign {
			network.Foreign(w, pair[0], pair[1], r.isForeign)
		}
		w.links = append(w.links, pair)
	}
	return w
}

// wire is a rail between two processes. Side 0 and 1 write to the Conn of that number.
type wire struct {
	w        *world
	rail     *rail
	links    [2]*network.Link
	conns    [2]network.Conn
	acks     [2]acks
	freeAt   [2]int64 // when the processor of a side can post the next fragment
	postCost int64
	longest  int64
}

// acks are acknowledgements that a side has yet to send.
type acks struct {
	waiting []func()
	bytes   int64
	last    int64
}

const (
	headBytes = 48
	ackBytes  = 16
	// A lone acknowledgement goes when no fragment has come for ackQuiet, or ackMost bytes have.
	ackQuiet      = 30 * network.Microsecond
	ackMost       = 512 << 10
	longestTCP    = 128 << 10
	longestDirect = 1 << 20
	costTCP       = 3 * network.Microsecond
	costDirect    = network.Microsecond / 2
	tick          = network.Millisecond
)

func (w *world) wires() (list []*wire) {
	for i := range w.rails {
		l := w.links[i]
		x := &wire{w: w, rail: &w.rails[i], links: l, postCost: costTCP, longest: longestTCP}
		if x.rail.isDirect {
			x.conns = [2]network.Conn{network.Direct{Out: l[0]}, network.Direct{Out: l[1]}}
			x.postCost, x.longest = costDirect, longestDirect
		} else {
			x.conns = [2]network.Conn{network.NewTCP(w, l[0], l[1]), network.NewTCP(w, l[1], l[0])}
		}
		list = append(list, x)
	}
	return list
}

// post sends a fragment. arrived is called at the other side, delivered here when the
// acknowledgement is back.
func (x *wire) post(side int, bytes int64, arrived, delivered func()) {
	start := max(x.freeAt[side], x.w.Now()) + x.postCost
	x.freeAt[side] = start
	x.w.After(start-x.w.Now(), func() {
		x.conns[side].Write(int(bytes)+headBytes, func() {
			x.present(1-side, func() {
				arrived()
				x.acknowledge(1-side, bytes, func() { x.present(side, delivered) })
			})
		})
	})
}

// present runs f when a side makes progress.
func (x *wire) present(side int, f func()) {
	if nanos := x.w.away(side, x.w.Now()); nanos > 0 {
		x.w.After(nanos, f)
		return
	}
	f()
}

func (x *wire) acknowledge(side int, bytes int64, delivered func()) {
	if x.rail.isDirect {
		x.w.After(x.links[side].Delay(x.w.Now()), delivered)
		return
	}
	a := &x.acks[side]
	a.waiting = append(a.waiting, delivered)
	a.bytes += bytes
	a.last = x.w.Now()
	if a.bytes >= ackMost {
		x.sendAcks(side)
		return
	}
	x.w.After(ackQuiet, func() {
		if len(a.waiting) > 0 && x.w.Now()-a.last >= ackQuiet {
			x.sendAcks(side)
		}
	})
}

func (x *wire) sendAcks(side int) {
	a := &x.acks[side]
	list := a.waiting
	a.waiting, a.bytes = nil, 0
	x.conns[side].Write(ackBytes, func() {
		for _, delivered := range list {
			delivered()
		}
	})
}

// peer is one direction between two processes, as the library drives a Judge.
type peer struct {
	w         *world
	j         *Judge
	wires     []*wire
	side      int
	isPulled  bool  // a tick is asked for
	deadline  int64 // after which a silent rail fails; 0: none does
	alive     Set
	under     [][]*op // of each rail, in order
	lastAt    []int64 // when each rail delivered last, or became busy
	messages  []*message
	turn      int
	moved     int64   // bytes of messages that are there
	twice     int64   // bytes that Again has sent again
	resent    int64   // bytes that were sent again because a rail failed
	delivered []int64 // bytes of each rail

	rail     int // of short messages
	shorts   int
	sent     int64
	expected int64
	early    map[int64]func()
}

type op struct {
	p     *piece // nil: a trial or a short message
	bytes int64
	mark  Mark
	gone  bool
}

type piece struct {
	m       *message
	bytes   int64
	isThere bool
	by      Set
}

type message struct {
	size, next, there int64
	open              []*piece
	lost              []*piece // to be sent again
	done              func()
}

func (w *world) peer(side int, wires []*wire) *peer {
	p := &peer{w: w, wires: wires, side: side, early: map[int64]func(){}}
	var promised []float64
	for i, x := range wires {
		promised = append(promised, x.rail.promised/1e9)
		p.alive |= 1 << i
	}
	p.j = New(promised, w.Now())
	p.under, p.lastAt, p.delivered = make([][]*op, len(wires)), make([]int64, len(wires)), make([]int64, len(wires))
	return p
}

// long sends a long message. done is called when the sender knows that all of it is there.
func (p *peer) long(size int64, done func()) {
	p.messages = append(p.messages, &message{size: size, done: done})
	p.pull()
}

// pull hands out what rails have room for.
func (p *peer) pull() {
	for p.giveNext() {
	}
	for p.giveAgain() {
	}
	if !p.isPulled && len(p.messages) > 0 {
		p.isPulled = true
		p.w.After(tick, func() { p.isPulled = false; p.tick(); p.pull() })
	}
}

func (p *peer) tick() {
	now := p.w.Now()
	for i := range p.wires {
		if p.j.Stale(p.alive, now).Has(i) {
			p.post(i, &op{bytes: LeastPiece})
		}
		if p.alive.Has(i) && p.j.Under(i) > 0 && p.deadline > 0 && now-p.lastAt[i] > p.deadline {
			p.kill(i)
		}
	}
}

// kill takes a silent rail out, and has its pieces sent again.
func (p *peer) kill(i int) {
	p.alive &^= 1 << i
	for _, o := range p.under[i] {
		o.gone = true
		p.j.Dropped(i, o.bytes)
		if o.p == nil || o.p.isThere {
			continue
		}
		if o.p.by &^= 1 << i; o.p.by == 0 {
			p.resent += o.bytes
			o.p.m.lost = append(o.p.m.lost, o.p)
		}
	}
	p.under[i] = nil
}

func (p *peer) giveNext() bool {
	d := Demand{}
	for _, m := range p.messages {
		if left := m.left(); left > 0 {
			d.Messages++
			d.All += left
		}
	}
	for range p.messages {
		p.turn = (p.turn + 1) % len(p.messages)
		m := p.messages[p.turn]
		if d.Left = m.left(); d.Left == 0 {
			continue
		}
		if len(m.lost) > 0 {
			d.Left = m.lost[0].bytes
		}
		i, n := p.j.Next(p.alive, d, func(i int) int64 { return p.wires[i].longest }, p.w.Now())
		if i < 0 {
			continue
		}
		x := &piece{m: m, bytes: n}
		if len(m.lost) > 0 {
			x, m.lost = m.lost[0], m.lost[1:]
		} else {
			m.next += n
			m.open = append(m.open, x)
		}
		x.by |= 1 << i
		p.post(i, &op{p: x, bytes: x.bytes})
		return true
	}
	return false
}

// left is the number of bytes not handed out yet.
func (m *message) left() int64 {
	left := m.size - m.next
	for _, x := range m.lost {
		left += x.bytes
	}
	return left
}

// giveAgain sends a piece again that is due late.
func (p *peer) giveAgain() bool {
	now := p.w.Now()
	for _, m := range p.messages {
		if m.left() > 0 {
			continue
		}
		var late *piece
		latest := 0.0
		for i := range p.wires {
			for _, o := range p.under[i] {
				if o.p == nil || o.p.m != m || o.p.isThere || o.p.by != 1<<i {
					continue
				}
				if due := p.j.Due(i, o.mark, now); due > latest {
					late, latest = o.p, due
				}
			}
		}
		if late == nil {
			continue
		}
		if i := p.j.Again(p.alive&^late.by, late.bytes, latest, now); i >= 0 {
			p.twice += late.bytes
			late.by |= 1 << i
			p.post(i, &op{p: late, bytes: late.bytes})
			return true
		}
	}
	return false
}

func (p *peer) post(i int, o *op) { p.postShort(i, o, func() {}, func() {}) }

func (p *peer) postShort(i int, o *op, arrived, delivered func()) {
	now := p.w.Now()
	if p.j.Under(i) == 0 {
		p.lastAt[i] = now
	}
	o.mark = p.j.Posted(i, o.bytes, now)
	p.under[i] = append(p.under[i], o)
	p.wires[i].post(p.side, o.bytes, arrived, func() { delivered(); p.ended(i, o) })
}

func (p *peer) ended(i int, o *op) {
	if o.gone {
		return
	}
	now := p.w.Now()
	p.under[i] = slices.DeleteFunc(p.under[i], func(x *op) bool { return x == o })
	p.j.Delivered(i, o.bytes, o.mark, now)
	p.lastAt[i] = now
	p.delivered[i] += o.bytes
	if x := o.p; x != nil && !x.isThere {
		x.isThere = true
		m := x.m
		m.there += o.bytes
		p.moved += o.bytes
		m.open = slices.DeleteFunc(m.open, func(y *piece) bool { return y == x })
		if m.there == m.size {
			p.messages = slices.DeleteFunc(p.messages, func(y *message) bool { return y == m })
			m.done()
		}
	}
	p.pull()
}

// short sends a short message by the rail that Short chooses. arrived is called when it and all
// before it have arrived.
func (p *peer) short(n int64, arrived func()) {
	if p.shorts == 0 {
		p.rail = p.j.Short(p.alive, p.rail, n, p.w.Now())
	}
	p.shorts++
	number := p.sent
	p.sent++
	p.postShort(p.rail, &op{bytes: n}, func() {
		p.early[number] = arrived
		for f, ok := p.early[p.expected]; ok; f, ok = p.early[p.expected] {
			delete(p.early, p.expected)
			p.expected++
			f()
		}
	}, func() { p.shorts-- })
}
