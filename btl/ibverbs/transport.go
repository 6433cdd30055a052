package ibverbs

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/libibverbs"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/netdev"
	"github.com/mpigo/mpigo/internal/rdma"
	"github.com/mpigo/mpigo/internal/tunable"
)

// devicesKey is the tunable that chooses ports, and allDevices its value for all devices.
const devicesKey, allDevices = "ibverbs.devices", "all"

// fragKey is the tunable for the longest fragment. It is the same at all ranks.
const fragKey = "ibverbs.frag.bytes"

// Transport describes the modules over InfiniBand and RoCE, one for each port.
func Transport() transport.Transport {
	return transport.Transport{
		Name: tunable.TransportIBVerbs, Reach: transport.Anywhere, Open: openModules, Leads: leads,
		Choices: []string{devicesKey}, Rare: true,
	}
}

// leads is transport.Transport's Leads. Ports of InfiniBand and of Ethernet do not reach each
// other, nor do ports of different partitions. InfiniBand ports of one subnet (the prefix of their
// GIDs) reach each other. The addresses of Ethernet ports do not say which are on one network.
// Malformed addresses are left to Connect, which reports them.
func leads(ours, theirs [][]byte) func(local, remote int) int {
	a, b := parseRailAddresses(ours), parseRailAddresses(theirs)
	best := 1
	for _, x := range a {
		for _, y := range b {
			best = max(best, relate(x, y))
		}
	}
	return func(local, remote int) int {
		if x, y := a[local], b[remote]; x != nil && y != nil && (x.address.isZero() || y.address.isZero()) {
			return best // nothing is known about an absent port
		}
		return relate(a[local], b[remote])
	}
}

// relate says how well two ports lead to each other, for leads.
func relate(x, y *railAddress) int {
	switch {
	case x == nil || y == nil:
		return 1
	case x.address.isZero() || y.address.isZero():
		return 0
	case (x.address.link == linkRoCE) != (y.address.link == linkRoCE), x.pkey.partition() != y.pkey.partition():
		return 0
	case x.address.link == linkRoCE || !x.address.sameSubnet(&y.address):
		return 1
	}
	return 2
}

// parseRailAddresses parses addresses. Entries that are not addresses become nil.
func parseRailAddresses(encoded [][]byte) []*railAddress {
	list := make([]*railAddress, len(encoded))
	for i, b := range encoded {
		if c, ok := parseRailAddress(b); ok {
			list[i] = &c
		}
	}
	return list
}

// errNoDevice is found without the library, which takes milliseconds to load.
var errNoDevice = errors.New("rail ibverbs: no device in /sys/class/infiniband")

// openModules makes the modules over the devices of this machine.
func openModules(env *transport.Env) (transport.Opened, error) {
	if all := slices.Equal(env.Settings.List(devicesKey), []string{allDevices}); all && env.Devices == nil && !rdma.Found("/") {
		return transport.Opened{}, errNoDevice
	}
	library, err := libibverbs.New()
	if err != nil {
		return transport.Opened{}, fmt.Errorf("rail ibverbs: %w", err)
	}
	var provider verbs.Provider = library
	if env.Devices != nil {
		provider = env.Devices(provider).(verbs.Provider)
	}
	return openPorts(env, provider)
}

// openPorts makes a module of each port that the user has named, or of each port that is up. In the
// latter case, it leaves out unusable ports, unless all are unusable. Named ports must work. A
// named port that is missing, down, or without an address is Absent until it comes up.
func openPorts(env *transport.Env, provider verbs.Provider) (opened transport.Opened, err error) {
	var ports []PortName
	list := env.Settings.List(devicesKey)
	all := slices.Equal(list, []string{allDevices})
	if all {
		ports, opened.LeftOut, err = AllPorts(provider)
	} else {
		ports, err = ParsePorts(list, env.LocalRank)
	}
	if err != nil {
		return transport.Opened{}, fmt.Errorf("rail ibverbs: %w", err)
	}
	modules := make([]transport.Module, len(ports))
	closeAll := func() (err error) {
		for _, o := range modules {
			if o.Module != nil {
				err = errors.Join(err, o.Module.Close())
			}
		}
		return err
	}
	siblings := new(Siblings)
	open := func(n int, mayCome bool) error {
		port := fmt.Sprintf("%s/%d", ports[n].Device, ports[n].Port)
		cfg := configOf(env.Settings)
		cfg.Rank, cfg.Size, cfg.Events, cfg.Wakeup, cfg.AsyncProgress = env.Rank, env.Size, env.Events, env.Wakeup, env.AsyncProgress()
		cfg.Siblings, cfg.MayCome, cfg.Moved = siblings, mayCome, env.Moved
		cfg.Rail, cfg.Provider, cfg.Device, cfg.Port = "ibverbs:"+port, provider, ports[n].Device, ports[n].Port
		m, err := New(cfg)
		if err == nil {
			modules[n] = transport.Module{Module: m, Port: port, Absent: m.(*module).Absent, Wires: netdev.Wires("/", rdma.NetDevs("/", cfg.Device, cfg.Port)...)}
		}
		return err
	}
	var absent []int // opened last, because they guess their attributes from the others
	for n := range ports {
		err := open(n, false)
		switch {
		case err == nil:
		case all:
			opened.LeftOut = append(opened.LeftOut, err)
		case errors.As(err, new(absence)):
			absent = append(absent, n)
		default: // the user has named it, so it may not be missing
			return transport.Opened{}, errors.Join(err, closeAll())
		}
	}
	for _, n := range absent {
		if err := open(n, true); err != nil {
			return transport.Opened{}, errors.Join(err, closeAll())
		}
	}
	for _, o := range modules {
		if o.Module != nil {
			opened.Modules = append(opened.Modules, o)
		}
	}
	if len(opened.Modules) == 0 {
		return transport.Opened{}, noUsablePort(opened.LeftOut)
	}
	return opened, nil
}

// noUsablePort says in one line why none of the ports that are up can be used.
func noUsablePort(leftOut []error) error {
	err := fmt.Errorf("rail ibverbs: no RDMA port can be used: %w", leftOut[0])
	for _, why := range leftOut[1:] {
		err = fmt.Errorf("%w; %w", err, why)
	}
	return err
}

// configOf makes the configuration from the user's settings.
func configOf(set tunable.Set) Config {
	cfg := Config{
		FragBytes:   int(set.Bytes(fragKey)) + btl.MaxHeaderBytes,
		RecvDepth:   int(set.Int("ibverbs.recv.depth")),
		SendDepth:   int(set.Int("ibverbs.send.depth")),
		Shared:      Shared(set.String("ibverbs.srq")),
		SharedDepth: int(set.Int("ibverbs.srq.depth")),

		EagerPeers: int(set.Int("ibverbs.eager.peers")),
		EagerAfter: int(set.Int("ibverbs.eager.after")),
		Reads:      Reads(set.String("ibverbs.reads")),

		GlobalRoute:  set.Bool("ibverbs.global"),
		ServiceLevel: uint8(set.Int("ibverbs.sl")),
		TrafficClass: uint8(set.Int("ibverbs.tclass")),
		HopLimit:     uint8(set.Int("ibverbs.hops")),

		AckTimeout: uint8(set.Int("ibverbs.timeout")),
		RetryCount: uint8(set.Int("ibverbs.retry")),
		Deadline:   set.Duration("ibverbs.deadline"),
		// The same limit for the silence of a peer, before and after it is connected.
		ConnectTimeout: set.Duration("ibverbs.deadline"),
		PortGrace:      set.Duration("ibverbs.port.grace"),
	}
	if cfg.KeepAlive = set.Duration("ibverbs.keepalive"); cfg.KeepAlive == 0 {
		cfg.KeepAlive = -1 // the user's 0 disables probing; Config's 0 is the default
	}
	// The zero values stand for "any" and "first". Package tunable has refused other words.
	cfg.GIDNetwork, _ = tunable.ParseNetwork(set.String("ibverbs.gid.network"))
	cfg.PKey, _ = tunable.ParsePKey(set.String("ibverbs.pkey"))
	if gid := int(set.Int("ibverbs.gid")); gid >= 0 {
		cfg.GIDIndex = &gid
	}
	return cfg
}
