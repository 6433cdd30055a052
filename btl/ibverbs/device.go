package ibverbs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

const (
	// udSendDepth is how many datagrams can be in flight, udRecvDepth how many can arrive between
	// two polls. Every message is repeated, so the loss of one without room does no harm.
	udSendDepth = 32
	udRecvDepth = 256
	// groupEntries is the length of a completion queue, unless one endpoint needs more.
	groupEntries = 1 << 14
	// ownQKeyMask: a Q_Key with the highest bit is privileged.
	ownQKeyMask = 1<<31 - 1
)

// hca is an open device, and the objects that all connections of a rail share.
type hca struct {
	dev   verbs.Device
	attr  verbs.DeviceAttr
	port  verbs.PortAttr
	gid   verbs.GIDEntry
	roce  bool
	pd    verbs.PD
	wakes verbs.CompChannel // of all queues

	// The datagram queue pair.
	ud      verbs.QP
	udCQ    verbs.CQ
	qkey    uint32
	udRecvs *slab
	udSends *slab
	free    []int32 // free buffers of udSends
	udArmed bool    // udCQ's next completion makes an event
	lost    bool    // the datagram queue pair broke: it neither sends nor receives any more
	groups  []*group
	inline  int // the first of inlineSizes that the device has not refused

	regions    map[*region]struct{}
	registered uint32 // regions so far

	bounce     *slab
	scratch    []byte // outside of Go's heap: for what goes inline
	bounceFree []int32
}

// group is a completion queue with room for all completions that its endpoints can have in it at a
// time, so that it never overruns.
type group struct {
	cq       verbs.CQ
	room     int // entries that no endpoint has reserved
	reserved int
	broken   bool // by CQ_ERR: it cannot be polled any more
}

// absence is why a port cannot be used now, though it may come.
type absence struct{ error }

func (a absence) Unwrap() error { return a.error }

var errNoGID = errors.New("it has no GID")

// openHCA opens the device and makes the objects that connections share. With mustBeUp, the error
// is an absence if there is no such device, or its port is down or has no address.
func openHCA(cfg *Config, mustBeUp bool) (*hca, error) {
	var err error
	h := new(hca)
	if h.dev, err = cfg.Provider.Open(cfg.Device); err != nil {
		if mustBeUp && errors.Is(err, verbs.ErrNoDevice) {
			return nil, absence{err}
		}
		return nil, err // the error names the device
	}
	if err := h.setUp(cfg, mustBeUp); err != nil {
		return nil, errors.Join(fmt.Errorf("device %s: %w", cfg.Device, err), h.close())
	}
	return h, nil
}

// setUp makes the objects that connections share. After an error, close destroys those that exist.
func (h *hca) setUp(cfg *Config, mustBeUp bool) (err error) {
	if h.attr, err = h.dev.Query(); err != nil {
		return err
	}
	if cfg.Port > h.attr.Ports {
		return fmt.Errorf("it has no port %d, the last is %d: %w", cfg.Port, h.attr.Ports, verbs.ErrInvalid)
	}
	if err := h.queryPort(cfg); err != nil {
		if mustBeUp && errors.Is(err, errNoGID) {
			return absence{err}
		}
		return err
	}
	if mustBeUp && !h.port.State.Up() {
		return absence{fmt.Errorf("port %d is %v", cfg.Port, h.port.State)}
	}
	if h.pd, err = h.dev.AllocPD(); err != nil {
		return err
	}
	if h.wakes, err = h.dev.CreateCompChannel(); err != nil {
		return err
	}
	if h.bounce, err = newSlab(h.pd, bounceBuffers+1, headBytes+cfg.FragBytes, verbs.AccessLocalWrite); err != nil {
		return fmt.Errorf("send buffers: %w", err)
	}
	h.scratch = h.bounce.buffer(bounceBuffers)
	for i := range int32(bounceBuffers) {
		h.bounceFree = append(h.bounceFree, i)
	}
	if err := h.openUD(cfg); err != nil {
		return fmt.Errorf("datagrams: %w", err)
	}
	return nil
}

// inlineSizes are the numbers of inline bytes to ask for: as many as a small message has, and less
// for devices that refuse that. No device reports its limit. It may grant more.
var inlineSizes = [...]int{128, 96, 64, 32, headBytes, 0}

// createQP makes a queue pair that takes as many bytes inline as the device permits, up to the
// first of inlineSizes.
func (h *hca) createQP(init verbs.QPInit) (verbs.QP, error) {
	var first error
	for i := h.inline; i < len(inlineSizes); i++ {
		init.Cap.MaxInlineData = inlineSizes[i]
		qp, err := h.pd.CreateQP(init)
		if err == nil {
			h.inline = i
			return qp, nil
		}
		if first == nil {
			first = err // a smaller size may fail for another reason
		}
		// If the size is over its limit, a device reports that it is invalid, or that a work
		// request needs too much memory.
		if !errors.Is(err, verbs.ErrInvalid) && !errors.Is(err, verbs.ErrNoMemory) {
			break
		}
	}
	return nil, first
}

// queryPort queries the port's state and its present address.
func (h *hca) queryPort(cfg *Config) error {
	port, err := h.dev.QueryPort(cfg.Port)
	if err != nil {
		return err
	}
	h.port, h.roce = port, port.Link == verbs.LinkEthernet
	gids, err := h.dev.GIDs(cfg.Port)
	if err != nil {
		return err
	}
	gid, ok := chooseGID(gids, cfg.GIDIndex, h.roce)
	switch {
	case ok:
		h.gid = gid
	case cfg.GIDIndex != nil:
		return fmt.Errorf("port %d has nothing in entry %d of its GIDs, it has %s: %w",
			cfg.Port, *cfg.GIDIndex, listGIDs(gids), verbs.ErrInvalid)
	case h.roce:
		return fmt.Errorf("port %d: %w: its network interface needs an IP address", cfg.Port, errNoGID)
	case port.GRHRequired:
		return fmt.Errorf("port %d: %w, and requires a global route", cfg.Port, errNoGID)
	}
	return nil
}

// listGIDs lists entries of a GID table for a message.
func listGIDs(gids []verbs.GIDEntry) string {
	var list []string
	for _, g := range gids {
		list = append(list, g.String())
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}

// queryMTU queries the port's present MTU. It changes with the MTU of the port's network
// interface, which no event reports. Events report other changes (requery).
func (h *hca) queryMTU(cfg *Config) error {
	port, err := h.dev.QueryPort(cfg.Port)
	if err == nil {
		h.port.ActiveMTU = port.ActiveMTU
	}
	return err
}

// chooseGID prefers RoCE version 2 over an IPv4 address, which works on routed and switched
// networks alike, then an IPv6 address that is not link-local, then any of version 2, then any.
func chooseGID(gids []verbs.GIDEntry, index *int, roce bool) (best verbs.GIDEntry, ok bool) {
	if index != nil {
		i := slices.IndexFunc(gids, func(g verbs.GIDEntry) bool { return g.Index == *index })
		if i < 0 {
			return best, false
		}
		return gids[i], true
	}
	if len(gids) == 0 {
		return best, false
	}
	rank := func(g verbs.GIDEntry) int {
		switch ip := g.GID.Addr(); {
		case !roce || g.Type != verbs.GIDTypeRoCEv2:
			return 0
		case ip.Is4In6():
			return 3
		case !ip.IsLinkLocalUnicast():
			return 2
		}
		return 1
	}
	return slices.MaxFunc(gids, func(a, b verbs.GIDEntry) int { return rank(a) - rank(b) }), true
}

// openUD makes the datagram queue pair and posts its receives.
func (h *hca) openUD(cfg *Config) (err error) {
	var random [4]byte
	if _, err := io.ReadFull(cfg.Random, random[:]); err != nil {
		return err
	}
	h.qkey = binary.LittleEndian.Uint32(random[:]) & ownQKeyMask
	if h.udCQ, err = h.dev.CreateCQ(udSendDepth+udRecvDepth, h.wakes); err != nil {
		return err
	}
	h.ud, err = h.pd.CreateQP(verbs.QPInit{Service: verbs.ServiceUD, SendCQ: h.udCQ, RecvCQ: h.udCQ,
		Cap: verbs.QPCap{MaxSendWR: udSendDepth, MaxRecvWR: udRecvDepth, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return err
	}
	if h.udRecvs, err = newSlab(h.pd, udRecvDepth, verbs.GRHBytes+maxMessageBytes, verbs.AccessLocalWrite); err != nil {
		return err
	}
	if h.udSends, err = newSlab(h.pd, udSendDepth, maxMessageBytes, verbs.AccessLocalWrite); err != nil {
		return err
	}
	for i := range int32(udSendDepth) {
		h.free = append(h.free, i)
	}
	attr := verbs.QPAttr{State: verbs.StateInit, Port: cfg.Port, QKey: h.qkey}
	if err := h.ud.Modify(&attr, verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrQKey); err != nil {
		return err
	}
	for i := range udRecvDepth {
		if err := h.postUDRecv(i); err != nil {
			return err
		}
	}
	attr.State = verbs.StateRTR
	if err := h.ud.Modify(&attr, verbs.AttrState); err != nil {
		return err
	}
	attr.State = verbs.StateRTS
	return h.ud.Modify(&attr, verbs.AttrState|verbs.AttrSQPSN)
}

// postUDRecv posts a buffer for a datagram.
func (h *hca) postUDRecv(i int) error {
	wr := [1]verbs.RecvWR{{ID: uint64(makeID(wrUDRecv, 0, 0, uint32(i))), NumSGE: 1}}
	wr[0].SGE[0] = h.udRecvs.sge(i, verbs.GRHBytes+maxMessageBytes)
	_, err := h.ud.PostRecv(wr[:])
	return err
}

// address is the present address of the datagram queue pair.
func (h *hca) address() address {
	return address{gid: h.gid.GID, lid: h.port.LID, qpn: h.ud.Num(), qkey: h.qkey, link: h.link()}
}

func (h *hca) link() linkKind {
	switch {
	case h.roce:
		return linkRoCE
	case h.port.GRHRequired:
		return linkGlobal
	}
	return linkInfiniBand
}

// path is the route to an address. It is global if one of the two ports requires that.
func (h *hca) path(port int, to *address) verbs.AHAttr {
	a := verbs.AHAttr{Port: port, DLID: to.lid}
	if h.link() != linkInfiniBand || to.link != linkInfiniBand {
		a.IsGlobal, a.DGID, a.SGIDIndex, a.HopLimit = true, to.gid, h.gid.Index, 64
	}
	return a
}

// reserve finds a completion queue with room for so many entries, or makes one.
func (h *hca) reserve(entries int) (*group, error) {
	for _, g := range h.groups {
		if !g.broken && g.room >= entries {
			g.room -= entries
			g.reserved += entries
			return g, nil
		}
	}
	size := max(min(groupEntries, h.attr.MaxCQE), entries)
	cq, err := h.dev.CreateCQ(size, h.wakes)
	if err != nil {
		return nil, err
	}
	g := &group{cq: cq, room: size - entries, reserved: entries}
	h.groups = append(h.groups, g)
	return g, nil
}

// release gives reserved entries back. A broken queue without reservations is destroyed.
func (h *hca) release(g *group, entries int) error {
	g.room += entries
	g.reserved -= entries
	if !g.broken || g.reserved > 0 {
		return nil
	}
	i := slices.Index(h.groups, g)
	if i < 0 {
		return nil
	}
	h.groups = slices.Concat(h.groups[:i], h.groups[i+1:]) // Progress may iterate over the old list
	return g.cq.Destroy()
}

// revoke ends all registrations of the user's memory, which no queue pair accesses after that.
func (h *hca) revoke() error {
	var errs []error
	for r := range h.regions {
		errs = append(errs, r.revoke())
	}
	return errors.Join(errs...)
}

// close destroys all objects that exist, in order. The queue pairs of endpoints are destroyed
// before, except those for which that fails.
func (h *hca) close() error {
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	if h.ud != nil {
		keep(h.ud.Destroy())
	}
	keep(h.revoke())
	for r := range h.regions {
		r.mr = nil // the device ends it
	}
	for _, s := range []*slab{h.udRecvs, h.udSends, h.bounce} {
		if s != nil {
			keep(s.close())
		}
	}
	if h.udCQ != nil {
		keep(h.udCQ.Destroy())
	}
	for _, g := range h.groups {
		keep(g.cq.Destroy())
	}
	if h.wakes != nil {
		h.wakes.Notify(nil)
		keep(h.wakes.Destroy())
	}
	if h.pd != nil {
		keep(h.pd.Dealloc())
	}
	if h.dev != nil {
		h.dev.Notify(nil)
		keep(h.dev.Close())
	}
	return errors.Join(errs...)
}
