//go:build cgo && linux && !386 && !arm && !mips && !mipsle

package libibverbs

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/internal/rdma"
)

// device is an open device. Each object counts its users; only the calling goroutine changes the
// counts.
type device struct {
	name   string
	lib    *library
	ctx    C.uint64_t // 0 once closed
	events *watcher

	children int // protection domains, channels and completion queues
	// Objects that events name: queue pairs, completion queues, shared receive queues.
	objects handles
	ahs     ahTable
	// resolvers has room for each call that Resolve makes at a time.
	resolvers chan struct{}
}

func (d *device) Name() string { return d.name }

func (d *device) Query() (verbs.DeviceAttr, error) {
	if d.ctx == 0 {
		return verbs.DeviceAttr{}, gone("ibv_query_device")
	}
	var a C.struct_mpigo_device_attr
	if err := call("ibv_query_device", C.mpigo_query_device(d.lib, d.ctx, &a)); err != nil {
		return verbs.DeviceAttr{}, err
	}
	return verbs.DeviceAttr{
		Ports: int(a.ports), MaxQP: int(a.max_qp), MaxQPWR: int(a.max_qp_wr), MaxSGE: int(a.max_sge),
		MaxCQ: int(a.max_cq), MaxCQE: int(a.max_cqe), MaxMR: int(a.max_mr), MaxPD: int(a.max_pd),
		MaxSRQ: int(a.max_srq), MaxSRQWR: int(a.max_srq_wr),
		MaxQPRdAtom: int(a.max_qp_rd_atom), MaxQPInitRdAtom: int(a.max_qp_init_rd_atom), Atomics: a.atomics != 0,
		MaxMRBytes: uint64(a.max_mr_size), VendorID: uint32(a.vendor_id),
		CurState: a.cur_state != 0, PortEvents: a.port_events != 0,
	}, nil
}

// portNumber converts a port number, which C takes as 8 bits.
func portNumber(name string, port int) (C.uint32_t, error) {
	if port < 1 || port > 255 {
		return 0, invalid(name, "port %d: ports count from 1", port)
	}
	return C.uint32_t(port), nil
}

func (d *device) QueryPort(port int) (verbs.PortAttr, error) {
	const name = "ibv_query_port"
	if d.ctx == 0 {
		return verbs.PortAttr{}, gone(name)
	}
	number, err := portNumber(name, port)
	if err != nil {
		return verbs.PortAttr{}, err
	}
	var a C.struct_mpigo_port_attr
	if err := call(name, C.mpigo_query_port(d.lib, d.ctx, number, &a)); err != nil {
		return verbs.PortAttr{}, err
	}
	return verbs.PortAttr{
		State: verbs.PortState(a.state), MaxMTU: verbs.MTU(a.max_mtu), ActiveMTU: verbs.MTU(a.active_mtu),
		GIDs: int(a.gids), PKeys: int(a.pkeys), MaxMsg: uint32(a.max_msg), LID: uint16(a.lid), LMC: uint8(a.lmc), SMLID: uint16(a.sm_lid),
		Link: verbs.LinkLayer(a.link), GRHRequired: a.grh_required != 0, Mbps: mbps(uint32(a.width), uint32(a.speed)),
	}, nil
}

// mbps returns the speed of a port in Mbit/s: lane speed times lanes. Both arguments are bits of
// masks (InfiniBand specification, PortInfo).
func mbps(width, speed uint32) int {
	lanes := map[uint32]int{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}[width]
	lane := map[uint32]int{
		1: 2500, 2: 5000, 4: 10000, 8: 10000, // SDR, DDR, QDR, FDR10
		16: 14000, 32: 25000, 64: 50000, 128: 100000, 256: 200000, // FDR, EDR, HDR, NDR, XDR
	}[speed]
	return lanes * lane
}

func (d *device) GIDs(port int) ([]verbs.GIDEntry, error) {
	attr, err := d.QueryPort(port)
	if err != nil {
		return nil, err
	}
	all, err := d.gidTable()
	if errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EOPNOTSUPP) {
		return d.gidsOneByOne(port, attr)
	}
	if err != nil {
		return nil, err
	}
	var used []verbs.GIDEntry
	for _, e := range all {
		if int(e.port) != port {
			continue
		}
		entry := verbs.GIDEntry{Index: int(e.index), Type: verbs.GIDType(e._type)}
		for i := range entry.GID {
			entry.GID[i] = byte(e.gid[i])
		}
		if !entry.GID.IsZero() {
			used = append(used, entry)
		}
	}
	return used, nil
}

// gidTable returns the nonempty entries of all ports. Libraries since 2020 have this call.
func (d *device) gidTable() ([]C.struct_mpigo_gid, error) {
	attr, err := d.Query()
	if err != nil {
		return nil, err
	}
	room := 0
	for port := 1; port <= attr.Ports; port++ {
		p, err := d.QueryPort(port)
		if err != nil {
			return nil, err
		}
		room += p.GIDs
	}
	if room == 0 {
		return nil, nil
	}
	entries := make([]C.struct_mpigo_gid, room)
	var n C.uint32_t
	if err := call("ibv_query_gid_table", C.mpigo_gid_table(d.lib, d.ctx, &entries[0], C.uint32_t(room), &n)); err != nil {
		return nil, err
	}
	return entries[:n], nil
}

// gidsOneByOne returns the nonempty entries of a port with older libraries. These do not return the
// GID types, so it reads the types from sysfs.
func (d *device) gidsOneByOne(port int, attr verbs.PortAttr) ([]verbs.GIDEntry, error) {
	types := map[int]verbs.GIDType{}
	for _, g := range rdma.ReadPort("/", d.name, port).GIDs {
		switch g.Type {
		case rdma.RoCEv1:
			types[g.Index] = verbs.GIDTypeRoCEv1
		case rdma.RoCEv2:
			types[g.Index] = verbs.GIDTypeRoCEv2
		}
	}
	other := verbs.GIDTypeIB
	if attr.Link == verbs.LinkEthernet {
		other = verbs.GIDTypeRoCEv1 // kernels without types in sysfs support no other
	}
	var used []verbs.GIDEntry
	for i := range attr.GIDs {
		var raw [16]C.uint8_t
		if err := call("ibv_query_gid", C.mpigo_query_gid(d.lib, d.ctx, C.uint32_t(port), C.int(i), &raw[0])); err != nil {
			return nil, err
		}
		entry := verbs.GIDEntry{Index: i, Type: other}
		for k := range raw {
			entry.GID[k] = byte(raw[k])
		}
		if t, ok := types[i]; ok {
			entry.Type = t
		}
		if !entry.GID.IsZero() {
			used = append(used, entry)
		}
	}
	return used, nil
}

func (d *device) PKey(port, index int) (uint16, error) {
	const name = "ibv_query_pkey"
	if d.ctx == 0 {
		return 0, gone(name)
	}
	number, err := portNumber(name, port)
	if err != nil {
		return 0, err
	}
	if index < 0 || index > 1<<16-1 {
		return 0, invalid(name, "index %d is out of range", index)
	}
	var key C.uint16_t
	if err := call(name, C.mpigo_query_pkey(d.lib, d.ctx, number, C.int(index), &key)); err != nil {
		return 0, err
	}
	return uint16(key), nil
}

// NextEvent takes the oldest event. An event of a queue pair marks its known state as stale.
func (d *device) NextEvent() (verbs.AsyncEvent, bool, error) {
	const name = "ibv_get_async_event"
	if d.ctx == 0 {
		return verbs.AsyncEvent{}, false, gone(name)
	}
	var e C.struct_mpigo_event
	switch errno := syscall.Errno(C.mpigo_async_event(d.lib, d.ctx, &e)); errno {
	case 0:
	case syscall.EAGAIN, syscall.EINTR:
		return verbs.AsyncEvent{}, false, nil
	default:
		return verbs.AsyncEvent{}, false, verbs.NewCallError(name, errno, "")
	}
	ev := verbs.AsyncEvent{Type: verbs.EventType(e._type), Port: int(e.port)}
	if e.context == 0 {
		return ev, true, nil
	}
	// An object with unacknowledged events cannot be destroyed, and a destroyed object has no
	// events.
	switch o := d.objects.get(uint64(e.context)).(type) {
	case *qp:
		o.unacked++
		o.stateStale = true
		ev.QP = o
	case *cq:
		o.unackedAsync++
		ev.CQ = o
	case *srq:
		o.unacked++
		ev.SRQ = o
	default:
		return ev, false, fmt.Errorf("%s: %v of an unknown object", name, ev.Type)
	}
	return ev, true, nil
}

func (d *device) AckEvent(ev verbs.AsyncEvent) {
	switch {
	case ev.QP != nil:
		if o, ok := ev.QP.(*qp); ok && o.pd.dev == d && o.unacked > 0 {
			o.unacked--
			C.mpigo_ack_qp(d.lib, o.c.qp)
		}
	case ev.CQ != nil:
		if o, ok := ev.CQ.(*cq); ok && o.dev == d && o.unackedAsync > 0 {
			o.unackedAsync--
			C.mpigo_ack_cq(d.lib, o.cq)
		}
	case ev.SRQ != nil:
		if o, ok := ev.SRQ.(*srq); ok && o.pd.dev == d && o.unacked > 0 {
			o.unacked--
			C.mpigo_ack_srq(d.lib, o.srq)
		}
	}
}

func (d *device) Notify(fn func()) {
	if d.ctx != 0 {
		d.events.set(fn)
	}
}

// Close closes the context. A second call returns ErrGone.
func (d *device) Close() error {
	const name = "ibv_close_device"
	if d.ctx == 0 {
		return gone(name)
	}
	if d.children > 0 {
		return busy(name, d.children, "protection domains, channels or completion queues exist")
	}
	d.events.close()
	ctx := d.ctx
	d.ctx = 0
	return call(name, C.mpigo_close(d.lib, ctx))
}
