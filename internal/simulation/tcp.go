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

// waitNanos: whenever time advances by this much, the simulation yields once to the kernel, which
// may deliver bytes.
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

// block closes the connection of a rank to a peer and blocks new ones, or unblocks them.
func (n *tcpNet) block(rail, rank, peer int, blocked bool) {
	n.blocked[[3]int{rail, rank, peer}] = blocked
	if blocked {
		n.rails[rail][rank].Break(peer)
	}
}

// cut closes the connection of two ranks and blocks new ones. Both ends see the close.
//
// On a switched network, all links of a port to the rank are cut.
func (n *tcpNet) cut(l link, fate int, _ bool) {
	if fate&1 != 0 {
		l = l.reversed()
	}
	n.block(l[0].rail, l[0].rank, l[1].rank, true)
	if fate&2 != 0 {
		n.block(l[1].rail, l[1].rank, l[0].rank, true)
	}
}

func (n *tcpNet) mend(l link) {
	n.block(l[0].rail, l[0].rank, l[1].rank, false)
	n.block(l[1].rail, l[1].rank, l[0].rank, false)
}

func (n *tcpNet) port(p port, up bool, _ int) {
	for other := range n.rails[p.rail] {
		if other == p.rank {
			continue
		}
		if !n.setup.switched {
			n.block(p.rail, other, p.rank, !up)
		}
		n.block(p.rail, p.rank, other, !up)
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
