package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/progress"
)

// Config of a module. Zero means the default where one is given.
type Config struct {
	// Rank of this process and Size of the job.
	Rank, Size int
	Events     btl.Events
	// Rail is the module's name ("tcp:" and Local).
	Rail string
	// Local is the address to listen on and to connect from: one module for each is one rail.
	Local netip.Addr
	// LocalBits of it are its network's (all): who is in the same network is reached by it.
	LocalBits int
	// FirstPort to LastPort are where the module may listen, for machines behind a firewall (any port that is free).
	FirstPort, LastPort uint16

	// Clock, nil for the system's.
	Clock progress.Clock
	// Bell is what this rank's engine sleeps on. Without one it only naps.
	Bell progress.Bell
	// Wakeup, if not nil, is called from any goroutine when a peer asks for a connection or waits for an acknowledgement,
	// and perhaps nobody makes progress: it should have a turn of progress made soon, and not block. Without it those have to wait until somebody does.
	Wakeup func()
	// Pass, if not nil, is called in what little waiting Close does.
	Pass func()
	// Blocked, if not nil, reports whether no connection with a peer is to be made, as if the network
	// did not lead there. It is for tests.
	Blocked func(peer int) bool
	// Secret of the job; nil if SetSecret is to give it. Nobody is let in before that.
	Secret []byte

	// FragBytes is the longest fragment, header and payload (128 KiB and a header), the same in all ranks. EagerBytes is the
	// longest that is best sent without asking (64 KiB and a header).
	FragBytes, EagerBytes int
	// WindowFrags and WindowBytes bound what a peer may have been sent without its having acknowledged that (1024, 2 MiB).
	WindowFrags, WindowBytes int
	// BufferBytes is the memory into which a connection is read (two of the longest fragments).
	BufferBytes int
	// SendBuffer and ReceiveBuffer of the sockets; 0 leaves them to the system, which adapts them.
	SendBuffer, ReceiveBuffer int
	// BandwidthMBps is the weight for striping (what the interface says).
	BandwidthMBps int64

	// ConnectTimeout is how long it may take until there is a connection to a peer (10 s).
	ConnectTimeout time.Duration
	// HandshakeTimeout is how long a stranger may take to prove that it is none, and a peer to answer (2 s).
	HandshakeTimeout time.Duration
	// KeepAlive is how long a connection may be silent before the system asks whether the peer's machine is there (10 s).
	KeepAlive time.Duration
	// UserTimeout is how long the peer's machine may leave unacknowledged what was sent to it (10 s).
	UserTimeout time.Duration
	// Strangers is how many connections may be open that have not proved anything yet (64).
	Strangers int
}

const (
	defaultFragBytes   = 128<<10 + btl.MaxHeaderBytes
	mostFragBytes      = 4 << 20
	defaultEagerBytes  = 64<<10 + btl.MaxHeaderBytes
	defaultWindowFrags = 1024
	mostWindowFrags    = 1 << 20
	defaultWindowBytes = 2 << 20
	mostWindowBytes    = 1 << 30
	defaultBufferBytes = 256 << 10
	mostBufferBytes    = 64 << 20
	mostSocketBuffer   = 1 << 30
	defaultStrangers   = 64
	mostStrangers      = 1 << 14
	mostRanks          = 1 << 20
	mostTime           = time.Hour
)

var errConfig = errors.New("bad configuration")

// fill checks, and sets what was left at zero.
func (c *Config) fill() error {
	c.Local = c.Local.Unmap()
	if c.LocalBits == 0 {
		c.LocalBits = c.Local.BitLen()
	}
	if c.Rail == "" {
		c.Rail = "tcp:" + c.Local.String()
	}
	if c.Clock == nil {
		c.Clock = progress.SystemClock()
	}
	base.SetDefault(&c.LocalBits, c.Local.BitLen())
	if c.Pass == nil {
		c.Pass = runtime.Gosched
	}
	if c.Blocked == nil {
		c.Blocked = func(int) bool { return false }
	}
	for _, d := range []struct {
		field *int
		value int
	}{
		{&c.FragBytes, defaultFragBytes},
		{&c.WindowFrags, defaultWindowFrags},
		{&c.WindowBytes, max(defaultWindowBytes, 2*c.FragBytes)},
		{&c.BufferBytes, max(defaultBufferBytes, 2*(c.FragBytes+headBytes))},
		{&c.Strangers, defaultStrangers},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.EagerBytes == 0 {
		c.EagerBytes = min(defaultEagerBytes, c.FragBytes)
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.ConnectTimeout, 10 * time.Second},
		{&c.HandshakeTimeout, 2 * time.Second},
		{&c.KeepAlive, 10 * time.Second},
		{&c.UserTimeout, 10 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	isTime := func(d time.Duration) bool { return d >= time.Millisecond && d <= mostTime }
	for _, check := range []struct {
		ok   bool
		what string
		got  any
	}{
		{c.Size >= 1 && c.Size <= mostRanks, "size", c.Size},
		{c.Rank >= 0 && c.Rank < c.Size, "rank", c.Rank},
		{c.Events != nil, "events", c.Events},
		{c.Local.IsValid() && !c.Local.IsUnspecified() && !c.Local.IsMulticast(), "local address", c.Local},
		{c.LocalBits >= 0 && c.LocalBits <= c.Local.BitLen(), "bits of the local network", c.LocalBits},
		{c.LastPort == 0 && c.FirstPort == 0 || c.FirstPort > 0 && c.LastPort >= c.FirstPort, "ports", fmt.Sprintf("%d to %d", c.FirstPort, c.LastPort)},
		{c.FragBytes >= btl.MaxHeaderBytes && c.FragBytes <= mostFragBytes, "fragment bytes", c.FragBytes},
		{c.EagerBytes >= btl.MaxHeaderBytes && c.EagerBytes <= c.FragBytes, "eager bytes", c.EagerBytes},
		{c.WindowFrags >= 1 && c.WindowFrags <= mostWindowFrags, "window of fragments", c.WindowFrags},
		{c.WindowBytes >= c.FragBytes && c.WindowBytes <= mostWindowBytes, "window of bytes", c.WindowBytes},
		{c.BufferBytes >= c.FragBytes+headBytes && c.BufferBytes <= mostBufferBytes, "buffer bytes", c.BufferBytes},
		{c.SendBuffer >= 0 && c.SendBuffer <= mostSocketBuffer, "send buffer", c.SendBuffer},
		{c.ReceiveBuffer >= 0 && c.ReceiveBuffer <= mostSocketBuffer, "receive buffer", c.ReceiveBuffer},
		{c.BandwidthMBps >= 0, "bandwidth", c.BandwidthMBps},
		{isTime(c.ConnectTimeout), "connect timeout", c.ConnectTimeout},
		{isTime(c.HandshakeTimeout), "handshake timeout", c.HandshakeTimeout},
		{c.KeepAlive >= time.Second && c.KeepAlive <= mostTime, "keep-alive", c.KeepAlive},
		{isTime(c.UserTimeout), "user timeout", c.UserTimeout},
		{c.Strangers >= 1 && c.Strangers <= mostStrangers, "strangers", c.Strangers},
	} {
		if !check.ok {
			return fmt.Errorf("%w: %s %v", errConfig, check.what, check.got)
		}
	}
	return nil
}
