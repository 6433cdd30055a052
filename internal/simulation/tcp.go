package simulation

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/tcp"
)

// tcpNet is btl/tcp over the loopback interface. Time is virtual, but the kernel decides when bytes
// arrive. So two runs of a seed may differ. A connection is a stream without packets, so it cannot
// be narrow. Fragments are late only if a rank polls late.
type tcpNet struct {
	noFaults
	setup   *setup
	now     int64
	rails   [][]tcpModule   // by rail, then rank
	blocked map[[3]int]bool // rail, rank and peer between which no connection can be made
	own     ownFabrics
	breaks  int
}

// tcpModule is a module of btl/tcp with its methods for tests.
type tcpModule interface {
	btl.Module
	Break(rank int) bool
}

func newTCPNet(seed uint64, s *setup) (network, error) {
	n := &tcpNet{setup: s, rails: make([][]tcpModule, len(s.rails)), blocked: map[[3]int]bool{}}
	for i := range n.rails {
		n.rails[i] = make([]tcpModule, s.ranks)
	}
	var err error
	n.own, err = newOwnFabrics(seed, s)
	return n, err
}

func (n *tcpNet) Now() int64 { return n.now }

func (n *tcpNet) Next() (at int64, ok bool) { return n.own.next() }

// waitNanos: time that advances by so much yields to the kernel once, which may deliver bytes.
const waitNanos = 1_000_000

func (n *tcpNet) AdvanceTo(at int64) {
	if at-n.now >= waitNanos {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
	n.now = max(n.now, at)
	n.own.advanceTo(n.now)
}

// pass lets time pass while a module waits in Close.
func (n *tcpNet) pass() { n.AdvanceTo(n.now + waitNanos) }

func (n *tcpNet) module(rank, rail int, ev btl.Events) (btl.Module, error) {
	if rail == len(n.rails) {
		return n.own.module(n, rank, ev)
	}
	s := n.setup
	return faulty(n, ev, func(ev btl.Events) (btl.Module, error) {
		m, err := tcp.New(tcp.Config{
			Rank: rank, Size: s.ranks, Events: ev, Rail: "tcp" + string(rune('0'+rail)), Local: netip.MustParseAddr("127.0.0.1"),
			Clock: n, Pass: n.pass, Secret: []byte("the simulation's secret"),
			FragBytes: s.fragBytes, EagerBytes: s.fragBytes / 2, WindowFrags: s.slots, WindowBytes: max(4096, s.fragBytes*s.slots),
			ConnectTimeout: time.Second,
			Blocked:        func(peer int) bool { return n.blocked[[3]int{rail, rank, peer}] },
		})
		if err != nil {
			return nil, err
		}
		n.rails[rail][rank] = m.(tcpModule)
		return m, nil
	})
}

func (n *tcpNet) ownRail() (rail int, ok bool) { return len(n.rails), true }

// block ends the connection of a rank to a peer, and keeps it from being made again, or no longer.
func (n *tcpNet) block(rail, rank, peer int, blocked bool) {
	n.blocked[[3]int{rail, rank, peer}] = blocked
	if blocked {
		n.rails[rail][rank].Break(peer)
	}
}

// cut closes the connection of two ranks, and keeps a new one from being made. Both ends see the
// close.
func (n *tcpNet) cut(a, b, rail, fate int, _ bool) {
	if fate&1 != 0 {
		a, b = b, a
	}
	n.block(rail, a, b, true)
	if fate&2 != 0 {
		n.block(rail, b, a, true)
	}
}

func (n *tcpNet) mend(a, b, rail int) {
	n.block(rail, a, b, false)
	n.block(rail, b, a, false)
}

func (n *tcpNet) port(rank, rail int, up bool, _ int) {
	for other := range n.rails[rail] {
		if other != rank {
			n.block(rail, other, rank, !up)
			n.block(rail, rank, other, !up)
		}
	}
}

var errInjected = errors.New("failure injected by the simulation")

// device closes one connection of a rank, or all of them, or fails the rail.
func (n *tcpNet) device(rank, rail, what, after int) {
	m := n.rails[rail][rank]
	switch what % 3 {
	case 0:
		if m.Break((rank + 1 + after%(n.setup.ranks-1)) % n.setup.ranks) {
			n.breaks++
		}
	case 1:
		for other := range n.setup.ranks {
			if other != rank && m.Break(other) {
				n.breaks++
			}
		}
	case 2:
		m.Fail(errInjected)
		n.breaks++
	}
}

func (n *tcpNet) fired() int { return n.breaks }
