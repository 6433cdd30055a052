package ibverbs

import (
	"cmp"
	"crypto/rand"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/progress"
)

// Config configures a module. A zero field has the default that its comment gives in parentheses.
type Config struct {
	// Rank of this process and Size of the job.
	Rank, Size int
	Events     btl.Events
	// Rail is the module's name ("ibverbs").
	Rail string

	// Provider opens Device, a name. Port is the port of the device, counted from 1 (1).
	Provider verbs.Provider
	Device   string
	Port     int
	// GIDIndex is an index of the port's GID table. nil chooses one: for RoCE an entry of version
	// 2, with an IPv4 address if there is one.
	GIDIndex *int

	// GIDNetwork, if it is valid, permits only GIDs that are addresses of this network.
	GIDNetwork netip.Prefix
	// GlobalRoute: connections over InfiniBand have a global route, by LID and GID, even within a
	// subnet.
	GlobalRoute bool
	// PKey is a partition key. Its highest bit is ignored. 0 selects the first key of the port's
	// table.
	PKey uint16
	// ServiceLevel (0 to 15) of all packets; TrafficClass and HopLimit (64) of packets with a
	// global route, which all packets of RoCE have.
	ServiceLevel, TrafficClass, HopLimit uint8

	// Clock is the module's clock (the system's).
	Clock progress.Clock
	// Wakeup wakes this rank's engine when it sleeps. Without it, the engine sleeps only for short
	// times.
	Wakeup progress.Wakeup
	// AsyncProgress, if not nil, is called from any goroutine when a peer asks for a connection or
	// the device has events, and this rank may not be making progress. It must ask for a progress
	// call soon, and must not block.
	AsyncProgress func()
	// Pass, if not nil, is called while Close waits. A simulation advances its time in it.
	Pass func()
	// Secret is the job's secret, nil if SetSecret gives it later. No message of a peer is handled
	// before that.
	Secret []byte
	// Siblings are the modules of this rank (only this one).
	Siblings *Siblings
	// MayCome: New does not fail if the device is missing, or its port is down or has no address.
	// The module is then absent until the port is up.
	MayCome bool
	// Moved, if not nil, is called when the module has got an address, or a new one.
	Moved func()
	// Random is the source of packet sequence numbers and nonces (crypto/rand).
	Random io.Reader

	// FragBytes is the longest fragment, header and payload (8 KiB and a header).
	FragBytes int
	// RecvDepth is the number of fragments that a peer may send before this rank takes them (64).
	// SendDepth is the number of operations to a peer that can be in flight (128).
	RecvDepth, SendDepth int
	// Shared says whether all queue pairs share their receives (SharedAuto), and SharedDepth is the
	// number of shared receives (4096).
	Shared      Shared
	SharedDepth int
	// EagerPeers is the number of peers that may write small fragments into memory of this rank
	// (0). A peer may do so after it has sent EagerAfter fragments (16).
	EagerPeers, EagerAfter int
	// Reads says whether this rank reads its peers' memory (ReadsAuto).
	Reads Reads
	// AckTimeout and RetryCount: the device waits 4.096 µs · 2^AckTimeout (14) for an
	// acknowledgement, and repeats RetryCount times (6).
	AckTimeout, RetryCount uint8
	// ConnectTimeout is how long a peer may take to answer a request for a connection (10 s).
	ConnectTimeout time.Duration
	// Deadline is how long operations to a peer may be in flight without any completion (10 s).
	Deadline time.Duration
	// KeepAlive is the idle time before the connection is probed (2 s); a negative value disables
	// probing.
	KeepAlive time.Duration
	// PortGrace is how long a port may be down before its connections fail (20 ms).
	PortGrace time.Duration
}

// Reads is a rule for remote reads, a value of the tunable ibverbs.reads.
type Reads string

const (
	// ReadsAuto uses reads on all devices but soft-RoCE. soft-RoCE sometimes reports a read as
	// complete although its last packets were lost, if the peer's device could not send them.
	ReadsAuto Reads = "auto"
	ReadsOn   Reads = "on"
	ReadsOff  Reads = "off"
)

// on reports whether a rank uses remote reads on a device.
func (r Reads) on(attr verbs.DeviceAttr) bool {
	return r == ReadsOn || r == ReadsAuto && attr.VendorID != verbs.VendorSoftRoCE
}

const (
	maxFragBytes = 1 << 20
	minRecvDepth = 8 // so that credits can come back while others are used
	maxDepth     = 4096
)

// fill checks the fields, and sets zero fields to their defaults.
func (c *Config) fill() error {
	base.SetDefault(&c.Rail, "ibverbs")
	base.SetDefault(&c.Port, 1)
	base.SetDefault(&c.Clock, progress.SystemClock())
	if c.Pass == nil {
		c.Pass = runtime.Gosched
	}
	if c.Siblings == nil {
		c.Siblings = new(Siblings)
	}
	base.SetDefault(&c.Random, rand.Reader)
	base.SetDefault(&c.HopLimit, 64)
	base.SetDefault(&c.FragBytes, 8<<10+btl.MaxHeaderBytes)
	base.SetDefault(&c.RecvDepth, 64)
	base.SetDefault(&c.SendDepth, 128)
	base.SetDefault(&c.Shared, SharedAuto)
	base.SetDefault(&c.SharedDepth, 4096)
	base.SetDefault(&c.EagerAfter, 16)
	base.SetDefault(&c.Reads, ReadsAuto)
	base.SetDefault(&c.AckTimeout, 14)
	base.SetDefault(&c.RetryCount, 6)
	base.SetDefault(&c.ConnectTimeout, 10*time.Second)
	base.SetDefault(&c.Deadline, 10*time.Second)
	base.SetDefault(&c.KeepAlive, 2*time.Second)
	base.SetDefault(&c.PortGrace, 20*time.Millisecond)
	gid := 0
	if c.GIDIndex != nil {
		gid = *c.GIDIndex
	}
	return cmp.Or(
		base.Check(c.Size >= 1 && c.Size <= base.MaxRanks, "size", c.Size),
		base.Check(c.Rank >= 0 && c.Rank < c.Size, "rank", c.Rank),
		base.Check(c.Events != nil, "events", c.Events),
		base.Check(c.Provider != nil, "provider", c.Provider),
		base.Check(c.Port >= 1 && c.Port <= 255, "port", c.Port),
		base.Check(gid >= 0 && gid <= 255, "GID index", gid),
		base.Check(c.PKey == 0 || pkey(c.PKey).partition() != 0, "partition key", c.PKey),
		base.Check(c.ServiceLevel <= 15, "service level", c.ServiceLevel),
		base.Check(c.FragBytes >= btl.MaxHeaderBytes && c.FragBytes <= maxFragBytes, "fragment bytes", c.FragBytes),
		base.Check(c.RecvDepth >= minRecvDepth && c.RecvDepth <= maxDepth, "receive depth", c.RecvDepth),
		base.Check(c.SendDepth >= minSendDepth && c.SendDepth <= maxDepth, "send depth", c.SendDepth),
		base.Check(slices.Contains([]Shared{SharedAuto, SharedOn, SharedOff}, c.Shared), "shared receives", c.Shared),
		base.Check(c.SharedDepth >= leastShared && c.SharedDepth <= maxSharedDepth, "depth of shared receives", c.SharedDepth),
		base.Check(c.EagerPeers >= 0, "peers with rings", c.EagerPeers),
		base.Check(c.EagerAfter >= 1, "fragments before a ring", c.EagerAfter),
		base.Check(slices.Contains([]Reads{ReadsAuto, ReadsOn, ReadsOff}, c.Reads), "reads", c.Reads),
		base.Check(c.AckTimeout <= 31, "acknowledgement timeout", c.AckTimeout),
		base.Check(c.RetryCount <= 7, "retry count", c.RetryCount),
		base.Check(c.ConnectTimeout > 0, "connect timeout", c.ConnectTimeout),
		base.Check(c.Deadline > 0, "deadline", c.Deadline),
		base.Check(c.PortGrace > 0, "port grace", c.PortGrace),
	)
}

// receives returns how many receives of its own an endpoint has.
func (c *Config) receives() int { return c.RecvDepth + controlDepth }

// queueEntries returns how many completions an endpoint with its own receives can have in its
// queue: one for each request that it can post, and one for the marker.
func (c *Config) queueEntries() int { return ownEntries(c.SendDepth) + c.receives() }

// ownEntries returns queueEntries without receives.
func ownEntries(sendDepth int) int { return sendDepth + controlDepth + 2 }
