package simhca

import (
	"fmt"
	"slices"
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// DeviceConfig configures a device. The comments give the defaults, which replace zero values.
type DeviceConfig struct {
	Name    string          // "sim" and the index among the node's devices
	Ports   int             // 1
	MTU     verbs.MTU       // MTU4096; for every port
	Link    verbs.LinkLayer // the fabric's
	MaxQP   int             // 65536; queue pairs
	MaxQPWR int             // 16384
	MaxCQE  int             // 1 << 22
	// MaxReads limits the outstanding reads and atomics of a queue pair, as requester and as
	// responder. 16; negative: none.
	MaxReads    int
	NoDatagrams bool // the device has no UD, like iWARP
	// Subnet is the number of the InfiniBand subnet of the ports, from 0. LMC is the number of bits
	// in which the LIDs of a port differ, at most 7.
	Subnet int
	LMC    uint8
	// PKeys is the partition key table of each port: 0xffff, the default partition.
	PKeys []uint16
	// GRHRequired: the ports send and accept only packets with a global route header.
	GRHRequired bool
	MaxInline   int // 256; negative: no inline data
	// InlineUnit rounds the granted inline data up to a multiple, at most MaxInline. 1.
	InlineUnit int

	// MaxMsgBytes is the longest message; the fabric's limit by default. A responder refuses
	// messages that exceed its own limit.
	MaxMsgBytes uint32
	MaxMRBytes  uint64 // 1 << 40; longest memory region
	VendorID    uint32

	// NoCurState: the device lacks CURR_QP_STATE_MOD, so Modify refuses CUR_STATE (Queue pair
	// states, 3).
	NoCurState bool
	// KeepsSQE: Modify takes a queue pair from SQE to RTS only with CUR_STATE, as of a driver that
	// does not notice that the queue pair has left RTS.
	KeepsSQE bool
	// ResetFromErrOnly: Modify refuses RESET from any state but ERR (Queue pair states, 2.1).
	ResetFromErrOnly bool
	// NoPortEvents: the device lacks PORT_ACTIVE_EVENT, so it raises neither PORT_ERR nor
	// PORT_ACTIVE (InfiniBand error model, 3.5).
	NoPortEvents bool
	// LastWQEDelay is how long a queue pair in ERR takes to end its receives. Only then do these
	// completions enter their queue, behind the flushed sends: the completion of the last message
	// that has arrived, unless it was polled, and the completions of flushed receives. With a
	// shared queue, LAST_WQE_REACHED follows. 0: at once; negative: at once, and the event is not
	// raised.
	LastWQEDelay time.Duration
	// MaxLocked limits the registered bytes; RegMR returns ErrNoMemory beyond it. 0: no limit.
	MaxLocked int64
}

// Limits of every device. The device does not count completion queues, shared receive queues and
// protection domains; it only reports limits of them.
const (
	maxSRQWR  = 32768
	tableSize = 8 // entries of a port's GID and partition key tables
	mbps      = 100_000
)

func setDefault[T int | uint32 | uint64 | verbs.LinkLayer | verbs.MTU](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

func (c *DeviceConfig) setDefaults(fabric *Config, index int) {
	if c.Name == "" {
		c.Name = fmt.Sprintf("sim%d", index)
	}
	setDefault(&c.Ports, 1)
	setDefault(&c.MTU, verbs.MTU4096)
	setDefault(&c.Link, fabric.Link)
	setDefault(&c.MaxQP, 65536)
	setDefault(&c.MaxQPWR, 16384)
	setDefault(&c.MaxCQE, 1<<22)
	setDefault(&c.MaxReads, 16)
	c.MaxReads = max(c.MaxReads, 0)
	c.LMC = min(c.LMC, 7)
	if c.PKeys == nil {
		c.PKeys = []uint16{0xffff}
	}
	setDefault(&c.MaxInline, 256)
	c.MaxInline = max(c.MaxInline, 0)
	setDefault(&c.InlineUnit, 1)
	setDefault(&c.MaxMsgBytes, fabric.MaxMsgBytes)
	setDefault(&c.MaxMRBytes, 1<<40)
}

// Node is a machine on a fabric. It implements [verbs.Provider].
type Node struct {
	f    *Fabric
	num  int
	hcas []*HCA
}

// NewNode adds a machine with these devices to the network. Without devices, it has one, "sim0".
func (f *Fabric) NewNode(devices ...DeviceConfig) *Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(devices) == 0 {
		devices = []DeviceConfig{{}}
	}
	n := &Node{f: f, num: len(f.nodes) + 1}
	f.nodes = append(f.nodes, n)
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
	defer n.f.enter().leave()
	h := n.hca(name)
	if h == nil || h.dead {
		return nil, fmt.Errorf("%w: %s", verbs.ErrNoDevice, name)
	}
	c := &context{f: n.f, hca: h}
	h.contexts = append(h.contexts, c)
	return c, nil
}

// HCA returns the hardware of a device, or nil if no device has that name.
func (n *Node) HCA(name string) *HCA {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	return n.hca(name)
}

func (n *Node) hca(name string) *HCA {
	if i := slices.IndexFunc(n.hcas, func(h *HCA) bool { return h.name == name }); i >= 0 {
		return n.hcas[i]
	}
	return nil
}

// HCA is the hardware of a device. All contexts of the device share it. Its methods inject faults.
type HCA struct {
	f        *Fabric
	cfg      DeviceConfig
	name     string // as in traces
	ports    []*port
	contexts []*context
	dead     bool // DEVICE_FATAL

	qps     []*queuePair // indexed by number - firstQPN; nil: free
	freeQPN []uint32
	regions regionTable
	ahs     map[uint64]*address
	lastAH  uint64
	// resolved are the paths that are known, until the port that they begin at goes down.
	resolved map[pathEnd]struct{}
	locked   int64

	faults []*rule
	fired  int
}

func newHCA(n *Node, cfg DeviceConfig, index int) *HCA {
	h := &HCA{f: n.f, cfg: cfg, name: cfg.Name, ahs: map[uint64]*address{}, resolved: map[pathEnd]struct{}{}, lastAH: 0x1000}
	for i := range cfg.Ports {
		p := &port{hca: h, num: i + 1, up: true, mtu: cfg.MTU}
		copy(p.pkeys[:], cfg.PKeys)
		// prefix and GUID, or MAC address
		gid := verbs.GID{0: 0xfe, 1: 0x80, 8: 0x02, 10: byte(n.num >> 8), 11: byte(n.num), 12: byte(index), 15: byte(p.num)}
		if cfg.Link == verbs.LinkInfiniBand {
			p.subnet = h.f.subnetOf(cfg.Subnet)
			p.subnet.assign(p)
			copy(gid[:], p.subnet.prefix[:])
		}
		p.setGID(0, gid)
		if cfg.Link == verbs.LinkEthernet {
			p.setGID(1, verbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: byte(index*8 + p.num), 14: byte(n.num >> 8), 15: byte(n.num)})
		}
		h.ports = append(h.ports, p)
	}
	return h
}

func (h *HCA) port(num int) *port {
	if num < 1 || num > len(h.ports) {
		return nil
	}
	return h.ports[num-1]
}
