package tcp

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

// connectTo connects a module to an address of a rank.
func connectTo(t testing.TB, m *module, rank int, address []byte) *endpoint {
	t.Helper()
	e, err := m.Connect(btl.Path{Peer: rank}, address)
	require.NoError(t, err)
	return e.(*endpoint)
}

// sent is a fragment that was posted. done is set when it is delivered.
type sent struct {
	op   btl.Op
	done bool
	err  error
}

// post sends a fragment.
func post(t testing.TB, e btl.Endpoint, payload []byte) *sent {
	t.Helper()
	s := &sent{}
	s.op = btl.Op{Payload: payload, Done: func(_ *btl.Op, err error) { s.done, s.err = err == nil, err }}
	require.NoError(t, e.Send(&s.op))
	return s
}

func TestNewWithBadConfigFails(t *testing.T) {
	good := Config{Size: 2, Local: loopback4, Events: &mate{}}
	for name, change := range map[string]func(*Config){
		"size":            func(c *Config) { c.Size = 0 },
		"rank":            func(c *Config) { c.Rank = 2 },
		"negative rank":   func(c *Config) { c.Rank = -1 },
		"events":          func(c *Config) { c.Events = nil },
		"no address":      func(c *Config) { c.Local = netip.Addr{} },
		"any address":     func(c *Config) { c.Local = netip.IPv4Unspecified() },
		"multicast":       func(c *Config) { c.Local = netip.MustParseAddr("224.0.0.1") },
		"ports":           func(c *Config) { c.FirstPort, c.LastPort = 20, 10 },
		"first port":      func(c *Config) { c.LastPort = 10 },
		"fragment":        func(c *Config) { c.FragBytes = btl.MaxHeaderBytes - 1 },
		"long fragment":   func(c *Config) { c.FragBytes = maxFragBytes + 1 },
		"eager":           func(c *Config) { c.EagerBytes = maxFragBytes },
		"window":          func(c *Config) { c.WindowFrags = -1 },
		"window's bytes":  func(c *Config) { c.WindowBytes = 10 },
		"buffer":          func(c *Config) { c.BufferBytes = c.FragBytes + 10 },
		"send buffer":     func(c *Config) { c.SendBuffer = -1 },
		"receive buffer":  func(c *Config) { c.ReceiveBuffer = -1 },
		"connect":         func(c *Config) { c.ConnectTimeout = -time.Second },
		"handshake":       func(c *Config) { c.HandshakeTimeout = time.Microsecond },
		"keep-alive":      func(c *Config) { c.KeepAlive = time.Millisecond },
		"user timeout":    func(c *Config) { c.UserTimeout = 2 * maxTime },
		"unauthenticated": func(c *Config) { c.MaxUnauthenticated = -1 },
	} {
		c := good
		change(&c)
		_, err := New(c)
		require.ErrorIs(t, err, base.ErrConfig, name)
	}
	m, err := New(good)
	require.NoError(t, err)
	require.NoError(t, m.Close())
}

func TestNewAtAddressOfAnotherMachineFails(t *testing.T) {
	_, err := New(Config{Size: 2, Local: netip.MustParseAddr("203.0.113.77"), Events: &mate{}})
	require.ErrorIs(t, err, unix.EADDRNOTAVAIL)
	require.ErrorContains(t, err, "rail tcp:203.0.113.77: listen on 203.0.113.77: this machine has no such address")
}

// TestNewListensAtPortOfRange: a module listens at a port of its range, and reports if no port is
// free.
func TestNewListensAtPortOfRange(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	taken := uint16(l.Addr().(*net.TCPAddr).Port)
	_, err = New(Config{Size: 2, Local: loopback4, Events: &mate{}, FirstPort: taken, LastPort: taken})
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.ErrorContains(t, err, "is free")
	m := newAt(t, Config{Size: 2, Local: loopback4, FirstPort: taken, LastPort: taken + 50}, 0, &mate{})
	require.Greater(t, m.locals[0].port, taken)
	require.LessOrEqual(t, m.locals[0].port, taken+50)
}

func TestConnectToBadAddressFails(t *testing.T) {
	m := newAt(t, Config{Size: 2, Local: loopback4, Secret: secret}, 0, &mate{})
	c := railAddress{rank: 1, size: 2, host: m.host, addresses: []netAddress{{netip.MustParseAddrPort("127.0.0.1:9"), 8}}, frag: uint32(m.cfg.FragBytes)}
	for name, change := range map[string]func(*railAddress){
		"family":       func(c *railAddress) { c.addresses = []netAddress{{netip.MustParseAddrPort("[::1]:9"), 8}} },
		"no loopback":  func(c *railAddress) { c.addresses = []netAddress{{netip.MustParseAddrPort("192.0.2.1:9"), 8}} },
		"another host": func(c *railAddress) { c.host[0]++ },
	} {
		d := c
		change(&d)
		_, err := m.Connect(btl.Path{Peer: 1}, d.encode())
		require.ErrorIs(t, err, btl.ErrUnreachable, name)
	}
	for want, change := range map[string]func(*railAddress){
		"a job of 3 ranks there, of 2 here": func(c *railAddress) { c.size = 3 },
		"tcp.frag.bytes is 128K at rank 0 and 64K at rank 1: set it to the same value for all ranks, by mpirun-go --set": func(c *railAddress) {
			c.frag -= 64 << 10
		},
	} {
		d := c
		change(&d)
		_, err := m.Connect(btl.Path{Peer: 1}, d.encode())
		var be *btl.Error
		require.ErrorAs(t, err, &be, want)
		require.Equal(t, btl.ClassUsage, be.Class)
		require.ErrorContains(t, err, want)
	}
}

// TestNoConnectionWithoutSecret: without the job's secret, no connection is accepted or made.
func TestNoConnectionWithoutSecret(t *testing.T) {
	va := &mate{}
	a := newAt(t, Config{Size: 2, Local: loopback4}, 0, va)
	b := newAt(t, Config{Size: 2, Local: loopback4, Secret: secret}, 1, &mate{})
	_, err := a.Connect(btl.Path{Peer: 1}, b.Address())
	require.ErrorIs(t, err, base.ErrNoSecret)
	e := connectTo(t, b, 0, a.Address())
	for range 200 {
		a.Progress()
		b.Progress()
	}
	require.Zero(t, a.challenged)
	a.SetSecret(secret)
	op := post(t, e, []byte("hello"))
	until(t, "the fragment", func() bool { return va.arrived.Load() == 1 && op.done }, a, b)
}

// TestConnectWithoutPeerFails: either no process listens at the peer's address, or one that does
// not answer. The error mentions a firewall if there never was a connection to that machine.
func TestConnectWithoutPeerFails(t *testing.T) {
	const hint = " (no connection was ever made: a firewall? tcp.ports limits the ports that ranks listen at)"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	silent := netip.MustParseAddrPort(l.Addr().String())
	defer l.Close()
	for _, c := range []struct {
		native                  string
		onOtherMachine, reached bool
		want                    bool
	}{
		{"ETIMEDOUT", true, false, true},
		{"ETIMEDOUT", false, false, false},
		{"ETIMEDOUT", true, true, false},
		{"ECONNREFUSED", true, false, true},
		{"ECONNREFUSED", false, false, false},
		{"ECONNREFUSED", true, true, false},
	} {
		va := &mate{}
		cfg := Config{Size: 2, Local: loopback4, Secret: secret}
		a, b := newAt(t, cfg, 0, va), newAt(t, cfg, 1, &mate{})
		if c.reached {
			e := connectTo(t, a, 1, b.Address())
			until(t, "a connection", func() bool { return e.phase == phaseReady }, a, b)
			e.Fail(errors.New("again"))
			until(t, "the end", func() bool { return e.State() == btl.Drained }, a, b)
		}
		require.NoError(t, b.Close())
		a.cfg.ConnectTimeout, a.cfg.HandshakeTimeout = 100*time.Millisecond, 20*time.Millisecond
		theirs, ok := parseRailAddress(b.Address())
		require.True(t, ok)
		if c.native == "ETIMEDOUT" {
			theirs.addresses = []netAddress{{silent, 8}}
		}
		e := connectTo(t, a, 1, theirs.encode())
		e.p.onOtherMachine = c.onOtherMachine
		until(t, "the end", func() bool { return e.State() == btl.Drained }, a)
		require.Equal(t, btl.ClassPath, va.failed.Class)
		require.Equal(t, c.native, va.failed.Native)
		require.Equal(t, map[string]btl.Side{"ETIMEDOUT": btl.SideBoth, "ECONNREFUSED": btl.SideRemote}[c.native], va.failed.Side)
		require.Equal(t, c.want, strings.HasSuffix(va.failed.Error(), hint), "%v", va.failed)
	}
}

// TestAddressGoneFailsRail: without its address the whole rail fails.
func TestAddressGoneFailsRail(t *testing.T) {
	va := &mate{}
	a := newAt(t, Config{Size: 2, Local: loopback4, Secret: secret}, 0, va)
	a.locals[0].Address = netip.MustParseAddr("203.0.113.77") // as if it had been taken away
	c := railAddress{rank: 1, size: 2, addresses: []netAddress{{netip.MustParseAddrPort("203.0.113.78:9"), 24}}, frag: uint32(a.cfg.FragBytes)}
	e := connectTo(t, a, 1, c.encode())
	until(t, "the end of the rail", func() bool { return va.drained == 1 }, a)
	require.Equal(t, btl.Drained, e.State())
	require.Equal(t, btl.AllPeers, va.failed.Peer)
	require.Equal(t, btl.SideLocal, va.failed.Side)
	require.Equal(t, "EADDRNOTAVAIL", va.failed.Native)
}

// fakeClock stands still until it is advanced.
type fakeClock int64

func (c *fakeClock) Now() int64 { return int64(*c) }

// TestTimeWithoutProgressExtendsDeadlines: a rank that computes for long does not mistake its own
// absence for its peers'.
func TestTimeWithoutProgressExtendsDeadlines(t *testing.T) {
	clock := fakeClock(1)
	minute := fakeClock(time.Minute)
	va := &mate{}
	cfg := Config{Size: 2, Local: loopback4, Secret: secret, Clock: &clock}
	a, b := newAt(t, cfg, 0, va), newAt(t, cfg, 1, &mate{})
	a.Progress()
	clock += minute
	e := connectTo(t, a, 1, b.Address())
	a.Progress()
	// Time before the first attempt does not count either.
	require.EqualValues(t, int64(clock)+int64(a.cfg.ConnectTimeout), e.pause.deadline)
	clock += minute
	until(t, "a connection", func() bool { return e.phase == phaseReady }, a, b)
	require.Equal(t, btl.Up, e.State())

	e.Fail(errors.New("again"))
	until(t, "the end", func() bool { return e.State() == btl.Drained }, a, b)
	e = connectTo(t, a, 1, b.Address())
	for i := 0; e.State() != btl.Drained; i++ { // b makes no progress calls, a makes many
		require.Less(t, i, 1000)
		clock += fakeClock(100 * time.Millisecond)
		a.Progress()
	}
	require.Equal(t, "ETIMEDOUT", va.failed.Native)
}

// TestListenerBreaksFailsRail: the whole rail fails, and can come back at the same port.
func TestListenerBreaksFailsRail(t *testing.T) {
	c := newCouple(t, Config{})
	require.NoError(t, unix.Shutdown(c.a.locals[0].listener, unix.SHUT_RD)) // which ends listening
	c.a.Fail(errors.New("to see"))
	require.Equal(t, -1, c.a.locals[0].listener)
	c.until(t, "the rail to be drained", func() bool { return c.va.drained == 1 && c.eb.State() == btl.Drained })
	require.Equal(t, btl.AllPeers, c.va.failed.Peer)
	c.connect(t)
	require.GreaterOrEqual(t, c.a.locals[0].listener, 0)
	require.Equal(t, c.ea.Epoch(), c.eb.Epoch())
}

// TestBusyRankAcceptsAcknowledgesAndSends: although its program computes, a rank accepts a peer,
// acknowledges fragments that it has taken, and sends fragments that it has posted.
func TestBusyRankAcceptsAcknowledgesAndSends(t *testing.T) {
	r, vb := newBusy(t, Config{}), &mate{}
	b := newAt(t, Config{Size: 2, Local: loopback4, Secret: secret}, 1, vb)
	e := connectTo(t, b, 0, r.m.Address())
	until(t, "rank 0 to let rank 1 in", func() bool { return e.phase == phaseReady }, b)

	// Its program takes a fragment, to which it would usually reply, and then does something else.
	r.Lock()
	back := r.m.peers.Of(1)[0].ep
	back.piggybacks = true
	op := post(t, e, []byte("hello"))
	for r.v.arrived.Load() == 0 {
		r.m.Progress()
	}
	pending := len(r.m.pendingAcks)
	r.Unlock()
	require.Equal(t, 1, pending)
	until(t, "the acknowledgement", func() bool { return op.done }, b)

	// It posts many fragments, some of which wait for the next progress call, and then does
	// something else.
	for _, c := range []struct{ posts, bytes, wait int }{
		{20, 1, 20 - promptPosts},
		{maxBatch + promptPosts + 1, 1, 1},
		{promptPosts + 3, gatherBytes/4 + 1, 3},
		{promptPosts + 5, gatherBytes/4 + 1, 1}, // enough bytes together are sent at once
	} {
		before := vb.arrived.Load()
		r.Lock()
		for range c.posts {
			post(t, back, make([]byte, c.bytes))
		}
		waiting := back.unsent.Len()
		r.Unlock()
		require.Equal(t, c.wait, waiting, "of %d of %d bytes", c.posts, c.bytes)
		until(t, "all of them", func() bool { return vb.arrived.Load() == before+int64(c.posts) }, b)
	}
}

// TestAcknowledgementsPiggyback: while two ranks reply to each other, there is no lone
// acknowledgement.
func TestAcknowledgementsPiggyback(t *testing.T) {
	c := newCouple(t, Config{})
	ends := []struct {
		e *endpoint
		v *mate
	}{{c.ea.(*endpoint), c.vb}, {c.eb.(*endpoint), c.va}}
	var lone [2]uint64
	for round := range 100 {
		for _, end := range ends {
			before := end.v.arrived.Load()
			post(t, end.e, make([]byte, 8))
			c.until(t, "the fragment", func() bool { return end.v.arrived.Load() > before })
		}
		for i, end := range ends {
			if round <= 10 {
				lone[i] = end.e.loneAckTurn
			}
			require.Equal(t, lone[i], end.e.loneAckTurn, "an acknowledgement of its own")
		}
	}
}

func TestAddresses(t *testing.T) {
	all, err := Addresses(nil, nil)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	again, err := Addresses(nil, nil)
	require.NoError(t, err)
	require.Equal(t, all, again)
	lo, err := Addresses([]string{"127.0.0.0/8"}, nil)
	require.NoError(t, err)
	require.Equal(t, loopback4, lo[0].Address)

	ip := netip.MustParseAddr
	found := []candidate{
		{3, "docker0", ip("172.17.0.1"), 16, true, false, ""},
		{2, "eth0", ip("fe80::1"), 64, true, false, ""},
		{2, "eth0", ip("2001:db8::2"), 64, true, false, ""},
		{2, "eth0", ip("10.0.0.2"), 16, true, false, ""},
		{1, "lo", ip("::1"), 128, true, true, ""},
		{1, "lo", ip("127.0.0.1"), 8, true, true, ""},
		{4, "eth1", ip("10.1.0.2"), 16, false, false, ""},
		{5, "ib0", ip("10.2.0.2"), 16, true, false, ""},
		{6, "six", ip("2001:db8:6::2"), 64, true, false, ""},
	}
	none := unknownAmong(found, []string{"eth0", "etho", "10.0.0.0/8", "11.0.0.0/8", "127.0.0.9", "10.0.0.2/32", "10.0.0.3"})
	require.Equal(t, []string{"etho", "11.0.0.0/8", "10.0.0.3"}, none)
	for _, c := range []struct {
		include, exclude []string
		want             []string
		err              string
	}{
		{nil, nil, []string{"10.0.0.2", "2001:db8::2", "10.2.0.2", "2001:db8:6::2"}, ""},
		{nil, []string{"eth0", "ib0", "six"}, []string{"127.0.0.1"}, ""},
		{nil, []string{"10.2.0.0/16", "eth1", "six", "there is none"}, []string{"10.0.0.2", "2001:db8::2"}, ""},
		{nil, []string{"10.0.0.2", "10.2.0.0/16", "six"}, []string{"2001:db8::2"}, ""},
		{[]string{"eth0"}, nil, []string{"10.0.0.2", "2001:db8::2"}, ""},
		{[]string{"eth0", "2001:db8::2", "ens7"}, nil, []string{"10.0.0.2", "2001:db8::2"}, ""},
		{[]string{"10.0.0.0/8"}, nil, []string{"10.0.0.2", "10.1.0.2", "10.2.0.2"}, ""},
		{[]string{"eth1"}, nil, []string{"10.1.0.2"}, ""},
		{[]string{"docker0", "lo"}, []string{"127.0.0.1"}, []string{"::1", "172.17.0.1"}, ""},
		{[]string{"lo"}, nil, []string{"127.0.0.1"}, ""},
		{[]string{"fe80::/10", "eth0"}, nil, []string{"10.0.0.2", "2001:db8::2", "fe80::1%eth0"}, ""},
		{[]string{"[fe80::1]"}, nil, []string{"fe80::1%eth0"}, ""},
		{[]string{"127.0.0.1", "127.0.0.2/32", "127.1.2.3"}, nil, []string{"127.0.0.1", "127.0.0.2", "127.1.2.3"}, ""},
		{[]string{"eht0"}, nil, nil, "no such interface or address on n2, which has lo 127.0.0.1, lo ::1, eth0 10.0.0.2,"},
		{nil, []string{"0.0.0.0/0", "::/0"}, nil, "no address is left on n2 that ranks could use: it has lo 127.0.0.1, "},
		{[]string{"lo"}, []string{"127.0.0.1", "::1"}, nil, "no address is left on n2 that ranks could use: it has lo 127.0.0.1, "},
	} {
		got, err := choose("n2", found, c.include, c.exclude)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		var names []string
		for _, i := range got {
			names = append(names, i.Address.String())
		}
		require.Equal(t, c.want, names, "include %v, exclude %v", c.include, c.exclude)
	}
}

// TestConnectionsOnThisMachineAreNotPaced: whatever the system's congestion control is, connections
// between ranks of one machine use an algorithm that does not pace.
func TestConnectionsOnThisMachineAreNotPaced(t *testing.T) {
	c := newCouple(t, Config{})
	for _, e := range []btl.Endpoint{c.ea, c.eb} {
		name, err := unix.GetsockoptString(e.(*endpoint).fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		require.NoError(t, err)
		require.Equal(t, "reno", strings.TrimRight(name, "\x00"))
	}
}
