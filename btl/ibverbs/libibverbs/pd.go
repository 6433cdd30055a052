//go:build cgo && linux && !386 && !arm && !mips && !mipsle

package libibverbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

type pd struct {
	dev   *device
	pd    C.uint64_t // 0 once deallocated
	users int        // regions, address handles, queue pairs, shared receive queues
	// resolving are the goroutines of Resolve.
	resolving sync.WaitGroup
}

func (d *device) AllocPD() (verbs.PD, error) {
	const name = "ibv_alloc_pd"
	if d.ctx == 0 {
		return nil, gone(name)
	}
	p := &pd{dev: d}
	if err := call(name, C.mpigo_alloc_pd(d.lib, d.ctx, &p.pd)); err != nil {
		return nil, err
	}
	d.children++
	return p, nil
}

func (p *pd) Dealloc() error {
	const name = "ibv_dealloc_pd"
	if p.pd == 0 {
		return gone(name)
	}
	p.resolving.Wait()
	if p.users > 0 {
		return busy(name, p.users, "regions, address handles or queues belong to it")
	}
	if err := call(name, C.mpigo_dealloc_pd(p.dev.lib, p.pd)); err != nil {
		return err
	}
	p.pd = 0
	p.dev.children--
	return nil
}

type mr struct {
	pd         *pd
	mr         C.uint64_t // 0 once deregistered
	lkey, rkey uint32
	addr       uint64
	mem        []byte // keeps the memory alive
}

func (p *pd) RegMR(mem []byte, access verbs.Access) (verbs.MR, error) {
	const name = "ibv_reg_mr"
	if p.pd == 0 {
		return nil, gone(name)
	}
	if len(mem) == 0 {
		return nil, invalid(name, "no memory")
	}
	m := &mr{pd: p, mem: mem, addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))}
	var lkey, rkey C.uint32_t
	errno := C.mpigo_reg_mr(p.dev.lib, p.pd, C.uint64_t(m.addr), C.uint64_t(len(mem)), C.uint32_t(access), &m.mr, &lkey, &rkey)
	runtime.KeepAlive(mem)
	if errno != 0 {
		return nil, regError(syscall.Errno(errno), len(mem))
	}
	m.lkey, m.rkey = uint32(lkey), uint32(rkey)
	p.users++
	return m, nil
}

// regError returns the error of a failed registration. Kernels and drivers use three error numbers
// for the limit of locked memory.
func regError(errno syscall.Errno, wanted int) error {
	e := verbs.NewCallError("ibv_reg_mr", errno, fmt.Sprintf("%d bytes more", wanted))
	if errno == syscall.ENOMEM || errno == syscall.EAGAIN || errno == syscall.EPERM {
		e.Err = verbs.ErrNoMemory
		e.Note += lockedNote()
	}
	return e
}

// createError returns the error of a failed queue creation. Many drivers lock the memory of queues,
// too.
func createError(name, what string, errno syscall.Errno) error {
	e := verbs.NewCallError(name, errno, what)
	if errno == syscall.ENOMEM {
		e.Note += lockedNote()
	}
	return e
}

// lockedNote returns the limit of locked memory, if there is one, and the ways to raise it.
func lockedNote() string {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil || limit.Cur == unix.RLIM_INFINITY {
		return ""
	}
	return fmt.Sprintf(": at most %d bytes of memory may be locked (RLIMIT_MEMLOCK); raise it: ulimit -l unlimited, "+
		"memlock in /etc/security/limits.conf, LimitMEMLOCK=infinity of the systemd unit, --ulimit memlock=-1 of the container", limit.Cur)
}

func (m *mr) LKey() uint32 { return m.lkey }
func (m *mr) RKey() uint32 { return m.rkey }
func (m *mr) Addr() uint64 { return m.addr }

func (m *mr) Dereg() error {
	const name = "ibv_dereg_mr"
	if m.mr == 0 {
		return gone(name)
	}
	if err := call(name, C.mpigo_dereg_mr(m.pd.dev.lib, m.mr)); err != nil {
		return err
	}
	m.mr, m.mem = 0, nil
	m.pd.users--
	return nil
}

// ahTable is the table of the device's address handles, which C reads.
type ahTable struct {
	slots []C.struct_mpigo_ah
	free  []uint32
}

func (t *ahTable) put(ah, pd C.uint64_t) uint64 {
	var i uint32
	if n := len(t.free); n > 0 {
		i = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		i = uint32(len(t.slots))
		t.slots = append(t.slots, C.struct_mpigo_ah{})
	}
	t.slots[i].ah, t.slots[i].pd = ah, pd
	return handle(uint32(t.slots[i].generation), i)
}

func (t *ahTable) drop(number uint64) {
	i := uint32(number) - 1
	t.slots[i] = C.struct_mpigo_ah{generation: t.slots[i].generation + 1}
	t.free = append(t.free, i)
}

type ah struct {
	pd     *pd
	ah     C.uint64_t // 0 once destroyed
	handle uint64
}

func (p *pd) CreateAH(attr verbs.AHAttr) (verbs.AH, error) {
	const name = "ibv_create_ah"
	if p.pd == 0 {
		return nil, gone(name)
	}
	native, err := ahAttr(name, &attr)
	if err != nil {
		return nil, err
	}
	a := &ah{pd: p}
	if err := call(name, C.mpigo_create_ah(p.dev.lib, p.pd, &native, &a.ah)); err != nil {
		return nil, err
	}
	a.handle = p.dev.ahs.put(a.ah, p.pd)
	p.users++
	return a, nil
}

func (a *ah) Handle() uint64 { return a.handle }

func (a *ah) Destroy() error {
	const name = "ibv_destroy_ah"
	if a.ah == 0 {
		return gone(name)
	}
	if err := call(name, C.mpigo_destroy_ah(a.pd.dev.lib, a.ah)); err != nil {
		return err
	}
	a.ah = 0
	a.pd.dev.ahs.drop(a.handle)
	a.pd.users--
	return nil
}

// ahAttr converts an address vector to C.
func ahAttr(name string, a *verbs.AHAttr) (C.struct_mpigo_ah_attr, error) {
	out := C.struct_mpigo_ah_attr{
		dlid: C.uint16_t(a.DLID), sl: C.uint8_t(a.SL), src_path_bits: C.uint8_t(a.SrcPathBits), is_global: C.uint8_t(cbool(a.IsGlobal)), sgid_index: C.uint8_t(a.SGIDIndex),
		hop_limit: C.uint8_t(a.HopLimit), traffic_class: C.uint8_t(a.TrafficClass), port: C.uint8_t(a.Port),
	}
	for i, b := range a.DGID {
		out.dgid[i] = C.uint8_t(b)
	}
	if a.Port < 1 || a.Port > 255 {
		return out, invalid(name, "port %d: ports count from 1", a.Port)
	}
	if a.IsGlobal && (a.SGIDIndex < 0 || a.SGIDIndex > 255) {
		return out, invalid(name, "GID index %d is out of range", a.SGIDIndex)
	}
	return out, nil
}

// ahAttrBack converts an address vector from C.
func ahAttrBack(a *C.struct_mpigo_ah_attr) verbs.AHAttr {
	out := verbs.AHAttr{
		Port: int(a.port), DLID: uint16(a.dlid), SL: uint8(a.sl), SrcPathBits: uint8(a.src_path_bits), IsGlobal: a.is_global != 0, SGIDIndex: int(a.sgid_index),
		HopLimit: uint8(a.hop_limit), TrafficClass: uint8(a.traffic_class),
	}
	for i := range out.DGID {
		out.DGID[i] = byte(a.dgid[i])
	}
	return out
}

// toUint32 converts n to a C integer. ok is false if n does not fit.
func toUint32(n int) (_ C.uint32_t, ok bool) { return C.uint32_t(n), n >= 0 && n <= math.MaxInt32 }
