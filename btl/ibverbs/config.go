package ibverbs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/progress"
)

// Config of a module. Zero means the default where one is given.
type Config struct {
	// Rank of this process and Size of the job.
	Rank, Size int
	Events     btl.Events
	// Rail is the module's name ("ibverbs").
	Rail string

	// Provider opens Device, a name. Port of it, counted from 1 (1).
	Provider verbs.Provider
	Device   string
	Port     int
	// GIDIndex of the port's table; nil chooses: for RoCE an entry of version 2, with an IPv4 address if there is one.
	GIDIndex *int

	// Clock, nil for the system's.
	Clock progress.Clock
	// Bell is what this rank's engine sleeps on. Without one it only naps.
	Bell progress.Bell
	// Wakeup, if not nil, is called from any goroutine when a peer asks for a connection or the device has news, and
	// perhaps nobody makes progress: it should have a turn of progress made soon, and not block.
	Wakeup func()
	// Pass, if not nil, is called in what little waiting Close does: a simulation moves its time in it.
	Pass func()
	// Secret of the job; nil if SetSecret is to give it. No message of a peer is looked at before that.
	Secret []byte
	// Siblings, if not nil, is of all modules of this rank.
	Siblings *Siblings
	// Random gives packet sequence numbers and nonces (crypto/rand).
	Random io.Reader

	// FragBytes is the longest fragment, header and payload (8 KiB and a header).
	FragBytes int
	// RecvDepth is how many fragments a peer may send before we look (64), SendDepth how many operations to a peer
	// can be under way (128).
	RecvDepth, SendDepth int
	// EagerPeers is how many peers may write small fragments into memory of this rank (0), EagerAfter how many a peer has sent
	// before it may (16).
	EagerPeers, EagerAfter int
	// AckTimeout and RetryCount: an answer is waited for 4.096 µs · 2^AckTimeout (14) long, RetryCount times (6) more.
	AckTimeout, RetryCount uint8
	// ConnectTimeout is how long a peer may take to answer a request for a connection (10 s).
	ConnectTimeout time.Duration
	// Deadline is how long an operation may take without anything to a peer completing (10 s).
	Deadline time.Duration
	// KeepAlive is how long nothing may be heard of a peer to which nothing is under way, before it is found out whether a way leads
	// there (2 s); negative: for ever.
	KeepAlive time.Duration
	// PortGrace is how long a port may be down before its connections are given up (20 ms).
	PortGrace time.Duration
}

const (
	defaultFragBytes  = 8<<10 + btl.MaxHeaderBytes
	mostFragBytes     = 1 << 20
	defaultRecvDepth  = 64
	leastRecvDepth    = 8 // so that credits can come back while others are used
	defaultSendDepth  = 128
	mostDepth         = 4096
	defaultEagerAfter = 16
	defaultAckTimeout = 14
	defaultRetryCount = 6
	mostRanks         = 1 << 20
)

var errConfig = errors.New("bad configuration")

// fill checks, and sets what was left at zero.
func (c *Config) fill() error {
	if c.Rail == "" {
		c.Rail = "ibverbs"
	}
	if c.Port == 0 {
		c.Port = 1
	}
	if c.Clock == nil {
		c.Clock = progress.SystemClock()
	}
	if c.Pass == nil {
		c.Pass = runtime.Gosched
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.FragBytes == 0 {
		c.FragBytes = defaultFragBytes
	}
	if c.RecvDepth == 0 {
		c.RecvDepth = defaultRecvDepth
	}
	if c.SendDepth == 0 {
		c.SendDepth = defaultSendDepth
	}
	if c.EagerAfter == 0 {
		c.EagerAfter = defaultEagerAfter
	}
	if c.AckTimeout == 0 {
		c.AckTimeout = defaultAckTimeout
	}
	if c.RetryCount == 0 {
		c.RetryCount = defaultRetryCount
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 10 * time.Second
	}
	if c.Deadline == 0 {
		c.Deadline = 10 * time.Second
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = 2 * time.Second
	}
	if c.PortGrace == 0 {
		c.PortGrace = 20 * time.Millisecond
	}
	gid := 0
	if c.GIDIndex != nil {
		gid = *c.GIDIndex
	}
	for _, check := range []struct {
		ok   bool
		what string
		got  any
	}{
		{c.Size >= 1 && c.Size <= mostRanks, "size", c.Size},
		{c.Rank >= 0 && c.Rank < c.Size, "rank", c.Rank},
		{c.Events != nil, "events", c.Events},
		{c.Provider != nil, "provider", c.Provider},
		{c.Port >= 1 && c.Port <= 255, "port", c.Port},
		{gid >= 0 && gid <= 255, "GID index", gid},
		{c.FragBytes >= btl.MaxHeaderBytes && c.FragBytes <= mostFragBytes, "fragment bytes", c.FragBytes},
		{c.RecvDepth >= leastRecvDepth && c.RecvDepth <= mostDepth, "receive depth", c.RecvDepth},
		{c.SendDepth >= 4 && c.SendDepth <= mostDepth, "send depth", c.SendDepth},
		{c.EagerPeers >= 0, "peers with rings", c.EagerPeers},
		{c.EagerAfter >= 1, "fragments before a ring", c.EagerAfter},
		{c.AckTimeout <= 31, "acknowledgement timeout", c.AckTimeout},
		{c.RetryCount <= 7, "retry count", c.RetryCount},
		{c.ConnectTimeout > 0, "connect timeout", c.ConnectTimeout},
		{c.Deadline > 0, "deadline", c.Deadline},
		{c.PortGrace > 0, "port grace", c.PortGrace},
	} {
		if !check.ok {
			return fmt.Errorf("%w: %s %v", errConfig, check.what, check.got)
		}
	}
	return nil
}
