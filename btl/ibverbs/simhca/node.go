package simhca

import (
	"fmt"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// DeviceConfig is what a device is like. A zero stands for what the comment says.
type DeviceConfig struct {
	Name  string          // "sim" and its place among the node's devices
	Ports int             // 1
	MTU   verbs.MTU       // MTU4096; of every port
	Link  verbs.LinkLayer // LinkEthernet: RoCE
	Mbps  int             // 100000
	// GIDs and PKeys are the lengths of the tables, 8 each.
	GIDs, PKeys int

	MaxQP           int // 65536
	MaxQPWR         int // 16384
	MaxSGE          int // verbs.MaxSGE, and never more
	MaxCQ           int // 65536
	MaxCQE          int // 1<<22
	MaxMR           int // 65535, and never more
	MaxPD           int // 1024
	MaxSRQ          int // 1024
	MaxSRQWR        int // 32768
	MaxQPRdAtom     int // 16
	MaxQPInitRdAtom int // 16
	NoAtomics       bool
	NoDatagrams     bool // no UD, as with iWARP
	// GRHRequired: ports of InfiniBand take and send nothing without a global route.
	GRHRequired bool
	MaxInline   int // 256; negative: none
	// InlineUnit: what is granted of inline data is a multiple of it, as far as MaxInline goes (1).
	InlineUnit int

	// MaxMsgBytes is the longest message, if it is not the fabric's. A responder with a shorter one than the requester's refuses.
	MaxMsgBytes uint32
	// MaxLocked bounds the bytes that are registered at one time; 0: it does not. Beyond it RegMR is ErrNoMemory.
	MaxLocked int64
	// SRQAbort: a message of UC that is given up takes its receive from a shared queue along, as REM_ABORT_ERR; else the
	// queue pair uses it for the next message (InfiniBand error model, 2.13).
	SRQAbort bool
}

func setDefault[T int | uint32 | verbs.MTU | verbs.LinkLayer](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

func (c *DeviceConfig) setDefaults(fabric *Config, place int) {
	if c.Name == "" {
		c.Name = fmt.Sprintf("sim%d", place)
	}
	setDefault(&c.Ports, 1)
	setDefault(&c.MTU, verbs.MTU4096)
	setDefault(&c.Link, verbs.LinkEthernet)
	setDefault(&c.Mbps, 100_000)
	setDefault(&c.GIDs, 8)
	setDefault(&c.PKeys, 8)
	setDefault(&c.MaxQP, 65536)
	setDefault(&c.MaxQPWR, 16384)
	setDefault(&c.MaxSGE, verbs.MaxSGE)
	c.MaxSGE = min(c.MaxSGE, verbs.MaxSGE)
	setDefault(&c.MaxCQ, 65536)
	setDefault(&c.MaxCQE, 1<<22)
	setDefault(&c.MaxMR, maxRegions)
	c.MaxMR = min(c.MaxMR, maxRegions)
	setDefault(&c.MaxPD, 1024)
	setDefault(&c.MaxSRQ, 1024)
	setDefault(&c.MaxSRQWR, 32768)
	setDefault(&c.MaxQPRdAtom, 16)
	setDefault(&c.MaxQPInitRdAtom, 16)
	setDefault(&c.MaxInline, 256)
	c.MaxInline = max(c.MaxInline, 0)
	setDefault(&c.InlineUnit, 1)
	setDefault(&c.MaxMsgBytes, fabric.MaxMsgBytes)
}

// Node is a machine. It is a [verbs.Provider].
type Node struct {
	f    *Fabric
	num  int
	hcas []*HCA
}

// NewNode puts a machine with such devices on the network; without any it has one, "sim0".
func (f *Fabric) NewNode(devices ...DeviceConfig) *Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(devices) == 0 {
		devices = []DeviceConfig{{}}
	}
	f.nodes = append(f.nodes, nil)
	n := &Node{f: f, num: len(f.nodes)}
	f.nodes[n.num-1] = n
	for i, cfg := range devices {
		cfg.setDefaults(&f.cfg, i)
		n.hcas = append(n.hcas, newHCA(n, cfg, i))
	}
	return n
}

// Devices implements verbs.Provider.
func (n *Node) Devices() ([]string, error) {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	var names []string
	for _, h := range n.hcas {
		if !h.dead {
			names = append(names, h.name)
		}
	}
	return names, nil
}

// Open implements verbs.Provider.
func (n *Node) Open(name string) (verbs.Device, error) {
	n.f.enter()
	defer n.f.leave()
	h := n.hca(name)
	if h == nil || h.dead {
		return nil, fmt.Errorf("%w: %s", verbs.ErrNoDevice, name)
	}
	c := &context{f: n.f, hca: h}
	h.contexts = append(h.contexts, c)
	return c, nil
}

// HCA is the hardware of a device, nil if there is none of that name.
func (n *Node) HCA(name string) *HCA {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	return n.hca(name)
}

func (n *Node) hca(name string) *HCA {
	for _, h := range n.hcas {
		if h.name == name {
			return h
		}
	}
	return nil
}

// HCA is a device's hardware, which all contexts that were opened of it share. Its methods make it fail.
type HCA struct {
	f        *Fabric
	cfg      DeviceConfig
	name     string // as traces call it
	ports    []*port
	contexts []*context
	dead     bool // DEVICE_FATAL

	qps     []*queuePair // by number - firstQPN
	freeQPN []uint32
	regions regionTable
	ahs     map[uint64]*address
	lastAH  uint64
	count   struct{ qp, cq, pd, srq int }
	locked  int64

	faults []*rule
	fired  int
}

func newHCA(n *Node, cfg DeviceConfig, place int) *HCA {
	h := &HCA{f: n.f, cfg: cfg, name: cfg.Name, ahs: map[uint64]*address{}, lastAH: 0x1000}
	for i := range cfg.Ports {
		p := &port{
			hca: h, num: i + 1, up: true, mtu: cfg.MTU,
			gids: make([]verbs.GID, cfg.GIDs), pkeys: make([]uint16, cfg.PKeys),
		}
		p.pkeys[0] = 0xffff
		linkLocal := verbs.GID{0: 0xfe, 1: 0x80, 8: 0x02, 10: byte(n.num >> 8), 11: byte(n.num), 12: byte(place), 15: byte(p.num)}
		p.setGID(0, linkLocal)
		if cfg.Link == verbs.LinkInfiniBand {
			h.f.lastLID++
			p.setLID(h.f.lastLID)
			p.smlid = 1
		} else if len(p.gids) > 1 {
			p.setGID(1, verbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: byte(place*8 + p.num), 14: byte(n.num >> 8), 15: byte(n.num)})
		}
		h.ports = append(h.ports, p)
		n.f.ports = append(n.f.ports, p)
	}
	return h
}

func (h *HCA) port(num int) *port {
	if num < 1 || num > len(h.ports) {
		return nil
	}
	return h.ports[num-1]
}
