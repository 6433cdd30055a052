package tcp

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	mrand "math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/internal/leaks"
)

// descriptors returns the number of open descriptors of this process.
func descriptors(t testing.TB) int {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// leavesNothing checks that the test leaves no descriptors or goroutines behind.
func leavesNothing(t *testing.T) {
	r, w, err := os.Pipe() // the first pipe makes the runtime open its own descriptors for good
	require.NoError(t, err)
	require.NoError(t, errors.Join(r.Close(), w.Close()))
	ignore := goleak.IgnoreCurrent()
	before := descriptors(t)
	t.Cleanup(func() {
		leaks.Verify(t, ignore)
		require.LessOrEqual(t, descriptors(t), before, "descriptors left open")
	})
}

// TestConnectAtOnceMakesOneConnection: both ends repeatedly connect at the same time, in any order
// of progress calls, and always get one connection of one epoch.
func TestConnectAtOnceMakesOneConnection(t *testing.T) {
	leavesNothing(t)
	va, vb := &mate{}, &mate{}
	cfg := Config{Size: 2, Local: loopback4, Secret: secret, Wakeup: btltest.NewPipeWakeup(t)}
	a, b := newAt(t, cfg, 0, va), newAt(t, cfg, 1, vb)
	rng := mrand.New(mrand.NewPCG(1, 1))
	for round := range 1000 {
		ea := connectTo(t, a, 1, b.Address())
		for range rng.IntN(4) {
			a.Progress()
		}
		eb := connectTo(t, b, 0, a.Address())
		gotA, gotB := va.arrived.Load(), vb.arrived.Load()
		fromA, fromB := post(t, ea, []byte{1, 2, 3}), post(t, eb, []byte{1, 2, 3})
		until(t, "both fragments", func() bool {
			for range rng.IntN(3) {
				a.Progress()
			}
			return fromA.done && fromB.done && va.arrived.Load() == gotA+1 && vb.arrived.Load() == gotB+1
		}, a, b)
		require.Equal(t, uint32(round+1), ea.Epoch())
		require.Equal(t, uint32(round+1), eb.Epoch())
		ea.Fail(errors.New("enough"))
		eb.Fail(errors.New("enough"))
		until(t, "the end", func() bool { return ea.State() == btl.Drained && eb.State() == btl.Drained }, a, b)
	}
	require.Equal(t, 1000, va.drained)
	require.Equal(t, 1000, vb.drained)
	require.Empty(t, a.unauthenticated)
	require.Empty(t, a.handshakes)
}

// end is one end of a stream of numbered fragments that survives failures of connections.
type end struct {
	mate
	t    *testing.T
	m    *module
	peer *end
	rank int
	e    btl.Endpoint

	next  uint64 // next to send: all lower ones have arrived, or are in flight
	want  uint64 // next to arrive: all lower ones have
	again uint64 // fragments that came twice, because their first acknowledgement was lost
	ops   [16]btl.Op
	free  []*btl.Op
	retry []uint64
}

// Arrived checks bytes and order. A fragment may come twice, if its sender did not know whether it
// had arrived.
func (x *end) Arrived(_ btl.Module, _ int, _ btl.Tag, frag []byte) {
	n := binary.LittleEndian.Uint64(frag)
	require.LessOrEqual(x.t, n, x.want, "a gap")
	require.Equal(x.t, pattern(n), frag)
	if n == x.want {
		x.want++
	} else {
		x.again++
	}
}

// pattern returns the fragment with a number.
func pattern(n uint64) []byte {
	size := 8 + int(n*2654435761%3000)
	if n%50 == 0 {
		size += 100 << 10
	}
	b := make([]byte, 8, size)
	binary.LittleEndian.PutUint64(b, n)
	for len(b) < size {
		b = append(b, byte(uint64(len(b))*n>>3))
	}
	return b
}

func (x *end) pump() {
	if x.e == nil || x.e.State() == btl.Drained {
		if len(x.free) < len(x.ops) {
			return
		}
		if len(x.retry) > 0 { // the oldest that did not succeed, and all after it
			x.next = x.retry[0]
			for _, n := range x.retry {
				x.next = min(x.next, n)
			}
			x.retry = nil
		}
		x.e = connectTo(x.t, x.m, x.peer.rank, x.peer.m.Address())
	}
	for x.e.State() == btl.Up && len(x.free) > 0 {
		op := x.free[len(x.free)-1]
		n := x.next
		*op = btl.Op{Payload: pattern(n), Done: func(op *btl.Op, err error) {
			if err != nil {
				x.retry = append(x.retry, n)
			}
			x.free = append(x.free, op)
		}}
		if x.e.Send(op) != nil {
			return
		}
		x.free = x.free[:len(x.free)-1]
		x.next++
	}
}

// TestBrokenConnectionsLoseNothing: during traffic in both directions, either end cuts connections
// at any time, as the network would or as the layer above does. Every byte arrives, and nothing is
// left behind.
func TestBrokenConnectionsLoseNothing(t *testing.T) {
	leavesNothing(t)
	cfg := Config{Size: 2, Local: loopback4, Secret: secret, Wakeup: btltest.NewPipeWakeup(t), AsyncProgress: func() {}}
	var x [2]*end
	for i := range x {
		x[i] = &end{t: t, rank: i}
		x[i].m = newAt(t, cfg, i, x[i])
		for j := range x[i].ops {
			x[i].free = append(x[i].free, &x[i].ops[j])
		}
	}
	x[0].peer, x[1].peer = x[1], x[0]
	rng := mrand.New(mrand.NewPCG(2, 2))
	// run continues until each end has received the given number of fragments.
	run := func(goal0, goal1 uint64) {
		deadline := time.Now().Add(20 * time.Second)
		for i := 0; x[0].want < goal0 || x[1].want < goal1; i++ {
			for _, e := range x {
				e.pump()
				e.m.Progress()
			}
			if i%256 == 255 {
				require.True(t, time.Now().Before(deadline), "nothing moves any more")
				time.Sleep(50 * time.Microsecond) // pauses between attempts use the real clock
			}
		}
	}
	for breaks := 0; breaks < 100; {
		run(x[0].want+1+rng.Uint64N(60), x[1].want+1)
		at := x[rng.IntN(2)]
		switch rng.IntN(4) {
		case 0:
			at.e.Fail(errors.New("the layer above has had enough"))
			breaks++
		case 1:
			at.m.Fail(errors.New("the rail was pulled"))
			breaks++
		default:
			if at.m.Break(at.peer.rank) {
				breaks++
			}
		}
	}
	run(x[1].next+20, x[0].next+20)
	t.Logf("%d and %d fragments, of which %d and %d came again", x[0].want, x[1].want, x[0].again, x[1].again)
}

// TestUnauthenticatedPeersReachNothing: ten thousand connections without the secret arrive while
// two ranks exchange fragments. None of their bytes reach Events, and their number is bounded.
func TestUnauthenticatedPeersReachNothing(t *testing.T) {
	leavesNothing(t)
	c := newCouple(t, Config{Wakeup: btltest.NewPipeWakeup(t), AsyncProgress: func() {}})
	address, ok := parseRailAddress(c.b.Address())
	require.True(t, ok)
	known := newCodec(secret)
	other := newCodec([]byte("guessed"))
	hi := hello{from: 0, to: 1, size: 2, epoch: 9, frag: address.frag, fromNonce: c.a.nonce, toNonce: c.b.nonce}
	recorded := known.appendHello(nil, &nonce{1, 2, 3}, &hi) // of another handshake
	garbage := make([]byte, helloBytes)
	_, _ = rand.Read(garbage)
	said := append([][]byte{}, recorded, garbage, garbage[:50], nil, append(recorded[:len(recorded):len(recorded)], 1), make([]byte, 4096))

	rounds, strange, most := 0, 0, 0
	var open []int
	// closeUntil closes the oldest connections with a reset, so that ports do not linger.
	closeUntil := func(left int) {
		for len(open) > left {
			_ = unix.SetsockoptLinger(open[0], unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			_ = unix.Close(open[0])
			open = open[1:]
		}
	}
	pingPong := func() {
		before, op := c.vb.arrived.Load(), post(t, c.ea, []byte{1})
		c.until(t, "a fragment", func() bool { return op.done && c.vb.arrived.Load() == before+1 })
		rounds++
		most = max(most, len(c.b.unauthenticated))
	}
	const total = 10000
	for strange < total {
		for range 50 {
			fd, _, errno := c.a.dial(path{address.addresses[0], address.addresses[0]})
			if errno == unix.EADDRNOTAVAIL {
				break // no port is left: ports of closed connections linger
			}
			require.Zero(t, errno)
			open = append(open, fd)
			strange++
			b := said[strange%len(said)]
			if strange%7 == 0 { // waits for the challenge, and does not know the secret
				var ch nonce
				pingPong()
				if n, _ := recv(fd, ch[:]); n == nonceBytes {
					b = other.appendHello(nil, &ch, &hi)
				}
			}
			if len(b) > 0 {
				_, _ = send(fd, b)
			}
		}
		pingPong()
		closeUntil(200) // some are silent for longer than they may
	}
	closeUntil(0)
	c.until(t, "all to have gone", func() bool { return len(c.b.unauthenticated) == 0 })
	require.LessOrEqual(t, most, defaultUnauthenticated)
	require.EqualValues(t, rounds, c.vb.arrived.Load())
	require.Zero(t, c.va.arrived.Load())
	require.Nil(t, c.va.failed)
	require.Nil(t, c.vb.failed)
	require.Greater(t, c.b.challenged, total/2)
	t.Logf("%d of %d connections challenged, at most %d at a time", c.b.challenged, strange, most)
}

// TestPeerConnectsAmongUnauthenticatedPeers: a crowd that repeatedly fills the table does not keep
// a peer out.
func TestPeerConnectsAmongUnauthenticatedPeers(t *testing.T) {
	cfg := Config{Size: 2, Local: loopback4, Secret: secret, MaxUnauthenticated: 8}
	a, b := newAt(t, cfg, 0, &mate{}), newAt(t, cfg, 1, &mate{})
	address, _ := parseRailAddress(b.Address())
	var open []int
	crowd := func() {
		for range 10 {
			if fd, _, errno := a.dial(path{address.addresses[0], address.addresses[0]}); errno == 0 {
				open = append(open, fd)
			}
		}
		for len(open) > 50 {
			_ = unix.Close(open[0])
			open = open[1:]
		}
	}
	crowd()
	e := connectTo(t, a, 1, b.Address())
	i := 0
	until(t, "a connection", func() bool {
		if i++; i%3 == 0 {
			crowd()
		}
		return e.phase == phaseReady
	}, a, b)
	for _, fd := range open {
		_ = unix.Close(fd)
	}
	require.Equal(t, btl.Up, e.State())
}

// dropAll makes the system drop all packets that arrive at a socket, as if its machine were gone.
func dropAll(t testing.TB, fd int) {
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	require.NoError(t, unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop}))
}

// TestMachineGoneFailsInTime: operations to a machine that is gone fail, although the system would
// keep trying. A sleeping rank, which checks only occasionally, waits for the timeout and little
// longer.
func TestMachineGoneFailsInTime(t *testing.T) {
	clock := fakeClock(time.Second)
	c := newCouple(t, Config{Clock: &clock, Pass: func() { clock += fakeClock(time.Millisecond) }})
	dropAll(t, c.eb.(*endpoint).fd)
	op := post(t, c.ea, []byte{1})
	until(t, "the retransmissions", func() bool { return tcpInfo(t, c.ea).Retransmits > 1 }, c.a)
	begin, limit := clock, c.a.cfg.UserTimeout
	for c.ea.State() == btl.Up {
		clock += fakeClock(99 * time.Millisecond)
		for range maintainEvery {
			c.a.Progress()
		}
		require.LessOrEqual(t, clock-begin, fakeClock(limit*9/8))
	}
	until(t, "the end", func() bool { return op.err != nil && c.va.drained == 1 }, c.a)
	require.GreaterOrEqual(t, clock-begin, fakeClock(limit*7/8))
	require.ErrorIs(t, op.err, unix.ETIMEDOUT)
	require.Equal(t, "ETIMEDOUT", c.va.failed.Native)
	require.Equal(t, btl.ClassPath, c.va.failed.Class)
}

// tcpInfo returns the system's information about an endpoint's connection.
func tcpInfo(t *testing.T, e btl.Endpoint) *unix.TCPInfo {
	v, err := unix.GetsockoptTCPInfo(e.(*endpoint).fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	require.NoError(t, err)
	return v
}

// TestPeerThatComputesDoesNotFail: a peer that does not read for longer than the timeout, so that
// its window is full, is not considered gone.
func TestPeerThatComputesDoesNotFail(t *testing.T) {
	c := newCouple(t, Config{UserTimeout: 200 * time.Millisecond, WindowBytes: 32 << 20})
	buf := make([]byte, 64<<10)
	ops := make([]*sent, 400)
	for i := range ops {
		ops[i] = post(t, c.ea, buf)
	}
	require.True(t, c.ea.(*endpoint).blocked, "the socket takes it all")
	// A probe has been answered, and more than the timeout has passed since.
	start := time.Now()
	until(t, "time", func() bool { return time.Since(start) > 900*time.Millisecond && tcpInfo(t, c.ea).Probes == 0 }, c.a)
	require.Equal(t, btl.Up, c.ea.State())
	c.until(t, "all to arrive", func() bool { return !slices.ContainsFunc(ops, func(s *sent) bool { return !s.done }) })
	require.EqualValues(t, len(ops), c.vb.arrived.Load())
}

// TestProtocolErrorFailsEndpoint: if a peer knows the secret but breaks the protocol, its endpoint
// fails (C8).
func TestProtocolErrorFailsEndpoint(t *testing.T) {
	put := func(h head) []byte {
		b := make([]byte, headBytes)
		h.put(b)
		return b
	}
	random := make([]byte, 100)
	_, _ = rand.Read(random)
	random[15] = 1
	for name, bytes := range map[string][]byte{
		"random":                  random,
		"long":                    put(head{length: defaultFragBytes + 1, epoch: 1, kind: frameFrag}),
		"acknowledges too much":   put(head{ack: 1, epoch: 1, kind: frameAck}),
		"acknowledges the past":   put(head{ack: 1<<32 - 1, epoch: 1, kind: frameAck}),
		"epoch to come":           put(head{epoch: 2, kind: frameAck}),
		"no epoch":                put(head{kind: frameAck}),
		"unknown":                 put(head{epoch: 1, kind: kindEnd}),
		"acknowledgement of size": put(head{length: 1, epoch: 1, kind: frameAck}),
	} {
		c := newCouple(t, Config{})
		_, errno := send(c.ea.(*endpoint).fd, bytes)
		require.Zero(t, errno)
		c.until(t, name, func() bool { return c.vb.drained == 1 })
		require.Equal(t, btl.ClassProtocol, c.vb.failed.Class, name)
		require.Equal(t, btl.SideRemote, c.vb.failed.Side)
		require.Zero(t, c.vb.arrived.Load())
	}
}

// TestCloseDeliversWhatWasSent: fragments sent before Close arrive, and the peer's endpoint fails
// with ClassClosed.
func TestCloseDeliversWhatWasSent(t *testing.T) {
	leavesNothing(t)
	c := newCouple(t, Config{})
	buf := make([]byte, 50<<10)
	var ops [8]*sent // the system keeps them until they are read
	for i := range ops {
		ops[i] = post(t, c.ea, buf)
	}
	post(t, c.eb, buf) // lies unread at the other end
	require.NoError(t, c.a.Close())
	for _, op := range ops {
		require.True(t, op.done || op.err != nil)
	}
	until(t, "the good-bye", func() bool { return c.vb.drained == 1 }, c.b)
	require.EqualValues(t, len(ops), c.vb.arrived.Load())
	require.Equal(t, btl.ClassClosed, c.vb.failed.Class)
	require.Equal(t, btl.SideRemote, c.vb.failed.Side)
}

// TestCloseOfRankThatStandsStillDeliversWhatWasSent: a rank that stands still in Close does not
// give up bytes that its sockets have not taken yet.
func TestCloseOfRankThatStandsStillDeliversWhatWasSent(t *testing.T) {
	clock, pass := fakeClock(time.Second), func() {}
	c := newCouple(t, Config{SendBuffer: 4096, ReceiveBuffer: 4096, Clock: &clock, Pass: func() { pass() }})
	const frags = 16
	for range frags {
		post(t, c.ea, make([]byte, 60000))
	}
	require.True(t, c.ea.(*endpoint).blocked)
	gap := fakeClock(time.Second) // once
	pass = func() {
		clock += gap
		gap = fakeClock(time.Microsecond)
		c.b.Progress()
	}
	require.NoError(t, c.a.Close())
	until(t, "the good-bye", func() bool { return c.vb.drained == 1 }, c.b)
	require.EqualValues(t, frags, c.vb.arrived.Load())
	require.Equal(t, btl.ClassClosed, c.vb.failed.Class)
}

// TestEndOfProcessFailsEndpoint: when a process is killed, the end of its connection is reported,
// but not as ClassPeerGone.
func TestEndOfProcessFailsEndpoint(t *testing.T) {
	c := newCouple(t, Config{})
	for _, breaks := range []func(fd int){
		func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_RDWR) },
		func(fd int) { // the system sends a reset for unread bytes when a process ends
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			require.NoError(t, unix.Dup3(null, fd, unix.O_CLOEXEC))
			require.NoError(t, unix.Close(null))
		},
	} {
		before := c.vb.drained
		breaks(c.ea.(*endpoint).fd)
		until(t, "the end of the other end", func() bool { return c.vb.drained == before+1 }, c.b)
		require.Equal(t, btl.ClassPath, c.vb.failed.Class)
		require.Contains(t, []string{"EOF", "ECONNRESET"}, c.vb.failed.Native)
		require.ErrorContains(t, c.vb.failed, "connection from 127.0.0.1 to 127.0.0.1")
		require.Equal(t, btl.SideRemote, c.vb.failed.Side)
		c.ea.Fail(errors.New("its end"))
		c.until(t, "our end", func() bool { return c.ea.State() == btl.Drained })
		c.connect(t)
	}
}

// TestProcessKilled: a process is killed in the middle of traffic.
func TestProcessKilled(t *testing.T) {
	v := &mate{}
	m := newAt(t, Config{Size: 2, Local: loopback4, Secret: secret}, 0, v)
	c := btltest.Start(t, "echo")
	c.Tell(echoPlan{m.Address(), 8})
	theirs := btltest.Ask[[]byte](c)
	e, err := m.Connect(btl.Path{Peer: 1}, theirs)
	require.NoError(t, err)
	var op btl.Op
	failed, outstanding := error(nil), false
	for round := int64(1); failed == nil; round++ {
		op = btl.Op{Payload: make([]byte, 8), Done: func(_ *btl.Op, err error) { failed, outstanding = err, false }}
		if e.Send(&op) == nil {
			outstanding = true
		}
		until(t, "an answer, or the end", func() bool { return v.failed != nil || v.arrived.Load() == round && !outstanding }, m)
		if v.failed != nil {
			break
		}
		if round == 100 {
			c.Kill()
		}
	}
	until(t, "the end", func() bool { return v.drained == 1 && !outstanding }, m)
	require.Equal(t, btl.ClassPath, v.failed.Class)
	require.Equal(t, btl.SideRemote, v.failed.Side)
	e, err = m.Connect(btl.Path{Peer: 1}, theirs)
	require.NoError(t, err)
	until(t, "the refusal", func() bool { return e.State() == btl.Drained }, m)
	require.Equal(t, "ECONNREFUSED", v.failed.Native)
}
