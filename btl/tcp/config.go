package tcp

import (
	"cmp"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/progress"
)

// Config of a module. A zero field has the default that its comment gives in parentheses.
type Config struct {
	// Rank of this process and Size of the job.
	Rank, Size int
	Events     btl.Events
	// Rail is the module's name ("tcp:" followed by Local).
	Rail string
	// Local is the address to listen on and to connect from.
	Local netip.Addr
	// LocalBits is the length of the network prefix of Local (all bits). The module reaches
	// addresses of the same network directly.
	LocalBits int
	// Others are further addresses of the same interface. The module uses the address that leads to
	// a peer.
	Others []Interface
	// Find, if not nil, returns the addresses that the module may use now. If Local is not set, the
	// module calls Find until there is an address. It also calls Find when addresses of its
	// interface change. Awaits says what is missing if Local is not set. Moved, if not nil, is
	// called when the module has got new addresses.
	Find   func() []Interface
	Awaits string
	Moved  func()
	// Word is the place, from 1, of the user's word that names the address (Interface.Word). It
	// pairs modules that have no address yet with modules of peers.
	Word uint8
	// Connection tells the modules of one interface apart, from 0: each leads only to peers'
	// modules with the same number.
	Connection uint8
	// BandwidthMBps of the address (what its interface reports).
	BandwidthMBps int64
	// The module may listen at ports from FirstPort to LastPort, for machines behind a firewall
	// (any free port).
	FirstPort, LastPort uint16

	// Clock, nil for the system's clock.
	Clock progress.Clock
	// Wakeup wakes this rank's engine when it sleeps. Without it, the engine only naps.
	Wakeup progress.Wakeup
	// AsyncProgress, if not nil, is called from any goroutine when a peer connects or waits for an
	// acknowledgement, and this rank may not be making progress. It must ask for a progress call
	// soon, and must not block. Without it, peers wait until this rank's program makes progress.
	AsyncProgress func()
	// Pass, if not nil, is called while Close waits.
	Pass func()
	// Blocked, if not nil, reports whether connections to a peer are blocked, as if the network did
	// not lead there. It is for tests.
	Blocked func(peer int) bool
	// Secret of the job; nil if SetSecret gives it later. No connection is accepted before that.
	Secret []byte

	// FragBytes is the longest fragment, header and payload (128 KiB and a header). It is the same
	// at all ranks. EagerBytes is the longest fragment of an eager message (64 KiB and a header).
	FragBytes, EagerBytes int
	// WindowFrags and WindowBytes bound the fragments and bytes that are sent to a peer and not
	// acknowledged (1024, 2 MiB).
	WindowFrags, WindowBytes int
	// BufferBytes is the length of a connection's receive buffer (two of the longest fragments).
	BufferBytes int
	// SendBuffer and ReceiveBuffer of the sockets in bytes; 0 leaves them to the system, which
	// adapts them.
	SendBuffer, ReceiveBuffer int

	// ConnectTimeout bounds the time to connect to a peer (10 s).
	ConnectTimeout time.Duration
	// HandshakeTimeout bounds the time until an unauthenticated peer's hello arrives, and until a
	// peer's answer arrives (2 s).
	HandshakeTimeout time.Duration
	// KeepAlive is how long a connection may be idle before the system probes the peer's machine
	// (10 s).
	KeepAlive time.Duration
	// UserTimeout is how long the peer's machine may leave sent bytes unacknowledged (10 s).
	UserTimeout time.Duration
	// MaxUnauthenticated bounds the connections that have not proved the secret yet (64).
	MaxUnauthenticated int
}

const (
	defaultFragBytes       = 128<<10 + btl.MaxHeaderBytes
	maxFragBytes           = 4 << 20
	defaultEagerBytes      = 64<<10 + btl.MaxHeaderBytes
	defaultWindowFrags     = 1024
	maxWindowFrags         = 1 << 20
	defaultWindowBytes     = 2 << 20
	maxWindowBytes         = 1 << 30
	defaultBufferBytes     = 256 << 10
	maxBufferBytes         = 64 << 20
	maxSocketBuffer        = 1 << 30
	defaultUnauthenticated = 64
	maxUnauthenticated     = 1 << 14
	maxTime                = time.Hour
	maxConnections         = 8 // of one interface
)

// fill checks the fields, and sets zero fields to their defaults.
func (c *Config) fill() error {
	c.Local = c.Local.Unmap()
	if c.Find != nil && !c.Local.IsValid() {
		return cmp.Or(base.Check(c.Word != 0, "word", c.Word), base.Check(c.Rail != "", "rail", c.Rail), c.fillRest())
	}
	base.SetDefault(&c.Rail, "tcp:"+c.Local.String())
	base.SetDefault(&c.LocalBits, c.Local.BitLen())
	return cmp.Or(
		base.Check(c.Local.IsValid() && !c.Local.IsUnspecified() && !c.Local.IsMulticast(), "local address", c.Local),
		base.Check(c.LocalBits >= 0 && c.LocalBits <= c.Local.BitLen(), "bits of the local network", c.LocalBits),
		base.Check(len(c.Others) < maxAddresses, "number of local addresses", len(c.Others)+1),
		c.fillRest(),
	)
}

// fillRest does the same as fill for fields that do not concern the local address.
func (c *Config) fillRest() error {
	base.SetDefault(&c.Clock, progress.SystemClock())
	if c.Pass == nil {
		c.Pass = runtime.Gosched
	}
	if c.Blocked == nil {
		c.Blocked = func(int) bool { return false }
	}
	base.SetDefault(&c.FragBytes, defaultFragBytes)
	base.SetDefault(&c.EagerBytes, min(defaultEagerBytes, c.FragBytes))
	base.SetDefault(&c.WindowFrags, defaultWindowFrags)
	base.SetDefault(&c.WindowBytes, max(defaultWindowBytes, 2*c.FragBytes))
	base.SetDefault(&c.BufferBytes, max(defaultBufferBytes, 2*(c.FragBytes+headBytes)))
	base.SetDefault(&c.MaxUnauthenticated, defaultUnauthenticated)
	base.SetDefault(&c.ConnectTimeout, 10*time.Second)
	base.SetDefault(&c.HandshakeTimeout, 2*time.Second)
	base.SetDefault(&c.KeepAlive, 10*time.Second)
	base.SetDefault(&c.UserTimeout, 10*time.Second)
	isTime := func(d time.Duration) bool { return d >= time.Millisecond && d <= maxTime }
	return cmp.Or(
		base.Check(c.Size >= 1 && c.Size <= base.MaxRanks, "size", c.Size),
		base.Check(c.Rank >= 0 && c.Rank < c.Size, "rank", c.Rank),
		base.Check(c.Events != nil, "events", c.Events),
		base.Check(c.Connection < maxConnections, "connection", c.Connection),
		base.Check(c.LastPort == 0 && c.FirstPort == 0 || c.FirstPort > 0 && c.LastPort >= c.FirstPort, "ports", fmt.Sprintf("%d to %d", c.FirstPort, c.LastPort)),
		base.Check(c.FragBytes >= btl.MaxHeaderBytes && c.FragBytes <= maxFragBytes, "fragment bytes", c.FragBytes),
		base.Check(c.EagerBytes >= btl.MaxHeaderBytes && c.EagerBytes <= c.FragBytes, "eager bytes", c.EagerBytes),
		base.Check(c.WindowFrags >= 1 && c.WindowFrags <= maxWindowFrags, "window of fragments", c.WindowFrags),
		base.Check(c.WindowBytes >= c.FragBytes && c.WindowBytes <= maxWindowBytes, "window of bytes", c.WindowBytes),
		base.Check(c.BufferBytes >= c.FragBytes+headBytes && c.BufferBytes <= maxBufferBytes, "buffer bytes", c.BufferBytes),
		base.Check(c.SendBuffer >= 0 && c.SendBuffer <= maxSocketBuffer, "send buffer", c.SendBuffer),
		base.Check(c.ReceiveBuffer >= 0 && c.ReceiveBuffer <= maxSocketBuffer, "receive buffer", c.ReceiveBuffer),
		base.Check(isTime(c.ConnectTimeout), "connect timeout", c.ConnectTimeout),
		base.Check(isTime(c.HandshakeTimeout), "handshake timeout", c.HandshakeTimeout),
		base.Check(c.KeepAlive >= time.Second && c.KeepAlive <= maxTime, "keep-alive", c.KeepAlive),
		base.Check(isTime(c.UserTimeout), "user timeout", c.UserTimeout),
		base.Check(c.MaxUnauthenticated >= 1 && c.MaxUnauthenticated <= maxUnauthenticated, "unauthenticated", c.MaxUnauthenticated),
	)
}
