//go:build cgo && linux && !386 && !arm && !mips && !mipsle

package libibverbs

/*
#cgo noescape mpigo_post_send
#cgo nocallback mpigo_post_send
#cgo noescape mpigo_post_recv
#cgo nocallback mpigo_post_recv
#cgo noescape mpigo_post_srq_recv
#cgo nocallback mpigo_post_srq_recv
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"math"
	"syscall"
	"unsafe"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

type qp struct {
	c       C.struct_mpigo_qp // c.qp is 0 once destroyed
	pd      *pd
	sendCQ  *cq
	recvCQ  *cq
	srq     *srq // nil: none
	service verbs.Services
	num     uint32
	cap     verbs.QPCap
	number  uint64 // in the device's objects
	unacked int    // events

	// state is the state after the last Modify or Query. The device may since have moved the queue
	// pair to SQE or ERR; stateStale is set when an event indicates that.
	state      verbs.QPState
	stateStale bool
}

func (p *pd) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	const name = "ibv_create_qp"
	if p.pd == 0 {
		return nil, gone(name)
	}
	q := &qp{pd: p, service: init.Service}
	types := map[verbs.Services]C.int{verbs.ServiceRC: 2, verbs.ServiceUC: 3, verbs.ServiceUD: 4}
	service, ok := types[init.Service]
	if !ok {
		return nil, invalid(name, "service %q: exactly one service is required", init.Service)
	}
	var err error
	if q.sendCQ, err = p.ownCQ(name, "send", init.SendCQ); err != nil {
		return nil, err
	}
	if q.recvCQ, err = p.ownCQ(name, "receive", init.RecvCQ); err != nil {
		return nil, err
	}
	var srqNumber C.uint64_t
	if init.SRQ != nil {
		own, ok := init.SRQ.(*srq)
		if !ok || own.pd.dev != p.dev {
			return nil, invalid(name, "the shared receive queue belongs to another device")
		}
		if own.srq == 0 {
			return nil, gone(name)
		}
		q.srq, srqNumber = own, own.srq
	}
	var size C.struct_mpigo_cap
	for _, part := range []struct {
		to *C.uint32_t
		n  int
	}{
		{&size.send_wr, init.Cap.MaxSendWR}, {&size.recv_wr, init.Cap.MaxRecvWR}, {&size.send_sge, init.Cap.MaxSendSGE},
		{&size.recv_sge, init.Cap.MaxRecvSGE}, {&size.inline_data, init.Cap.MaxInlineData},
	} {
		if *part.to, ok = toUint32(part.n); !ok {
			return nil, invalid(name, "capacity %d is out of range", part.n)
		}
	}
	q.number = p.dev.objects.put(q)
	var num C.uint32_t
	errno := C.mpigo_create_qp(p.dev.lib, p.pd, C.uint64_t(q.number), service, q.sendCQ.cq, q.recvCQ.cq, srqNumber,
		&size, cbool(init.SignalAll), &q.c.qp, &num)
	if errno != 0 {
		p.dev.objects.drop(q.number)
		return nil, createError(name, fmt.Sprintf("%v with %+v", init.Service, init.Cap), syscall.Errno(errno))
	}
	q.num = uint32(num)
	q.cap = capBack(&size)
	q.c.pd = p.pd
	q.c.max_send_sge, q.c.max_recv_sge, q.c.max_inline = size.send_sge, size.recv_sge, size.inline_data
	if init.Service == verbs.ServiceUD {
		q.c.ud = 1
	}
	p.users++
	q.sendCQ.users++
	q.recvCQ.users++
	if q.srq != nil {
		q.srq.users++
	}
	return q, nil
}

// ownCQ returns c as a completion queue of this device.
func (p *pd) ownCQ(name, which string, c verbs.CQ) (*cq, error) {
	own, ok := c.(*cq)
	if !ok || own.dev != p.dev {
		return nil, invalid(name, "the completion queue of the %s queue does not belong to this device", which)
	}
	if own.cq == 0 {
		return nil, gone(name)
	}
	return own, nil
}

// capBack converts capacities from C.
func capBack(c *C.struct_mpigo_cap) verbs.QPCap {
	return verbs.QPCap{
		MaxSendWR: int(c.send_wr), MaxRecvWR: int(c.recv_wr), MaxSendSGE: int(c.send_sge), MaxRecvSGE: int(c.recv_sge),
		MaxInlineData: int(c.inline_data),
	}
}

func (q *qp) Num() uint32             { return q.num }
func (q *qp) Service() verbs.Services { return q.service }
func (q *qp) Cap() verbs.QPCap        { return q.cap }

// Modify checks the change against the known state, and queries the device before it refuses.
func (q *qp) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	const name = "ibv_modify_qp"
	if q.c.qp == 0 {
		return gone(name)
	}
	if q.stateStale {
		if _, err := q.Query(); err != nil {
			return err
		}
	}
	to, err := q.check(attr, mask)
	if err != nil {
		return err
	}
	native := C.struct_mpigo_qp_attr{
		state: C.uint32_t(attr.State), cur_state: C.uint32_t(attr.CurState), path_mtu: C.uint32_t(attr.PathMTU), qkey: C.uint32_t(attr.QKey),
		rq_psn: C.uint32_t(attr.RQPSN), sq_psn: C.uint32_t(attr.SQPSN), dest_qpn: C.uint32_t(attr.DestQPN), access: C.uint32_t(attr.Access),
		pkey_index: C.uint16_t(attr.PKeyIndex), en_sqd_async_notify: C.uint8_t(cbool(attr.EnSQDAsyncNotify)),
		max_rd_atomic: C.uint8_t(attr.MaxRdAtomic), max_dest_rd_atomic: C.uint8_t(attr.MaxDestRdAtomic),
		min_rnr_timer: C.uint8_t(attr.MinRNRTimer), port: C.uint8_t(attr.Port), timeout: C.uint8_t(attr.Timeout),
		retry_cnt: C.uint8_t(attr.RetryCnt), rnr_retry: C.uint8_t(attr.RNRRetry),
	}
	if mask&verbs.AttrPort != 0 && (attr.Port < 1 || attr.Port > 255) {
		return invalid(name, "port %d: ports count from 1", attr.Port)
	}
	if mask&verbs.AttrAV != 0 {
		if native.ah, err = ahAttr(name, &attr.AH); err != nil {
			return err
		}
	}
	if mask&verbs.AttrAltPath != 0 {
		if native.alt_ah, err = ahAttr(name, &attr.AltAH); err != nil {
			return err
		}
	}
	if errno := C.mpigo_modify_qp(q.pd.dev.lib, q.c.qp, &native, C.uint32_t(mask)); errno != 0 {
		before := q.state
		if _, err := q.Query(); err == nil && q.state != before {
			if _, err := verbs.CheckModify(q.service, q.state, attr, mask); err != nil {
				return err
			}
		}
		return verbs.NewCallError(name, syscall.Errno(errno), fmt.Sprintf("%v queue pair %d from %v to %v with %v",
			q.service, q.num, q.state, to, mask))
	}
	q.state = to
	return nil
}

// check calls CheckModify with the known state and, if that refuses, with the state of the device.
func (q *qp) check(attr *verbs.QPAttr, mask verbs.AttrMask) (verbs.QPState, error) {
	to, err := verbs.CheckModify(q.service, q.state, attr, mask)
	if err == nil {
		return to, nil
	}
	before := q.state
	if _, failed := q.Query(); failed != nil || q.state == before {
		return to, err
	}
	return verbs.CheckModify(q.service, q.state, attr, mask)
}

func (q *qp) Query() (verbs.QPAttr, error) {
	const name = "ibv_query_qp"
	if q.c.qp == 0 {
		return verbs.QPAttr{}, gone(name)
	}
	var a C.struct_mpigo_qp_attr
	if err := call(name, C.mpigo_query_qp(q.pd.dev.lib, q.c.qp, &a)); err != nil {
		return verbs.QPAttr{}, err
	}
	if a.state >= verbs.StateCount {
		return verbs.QPAttr{}, &verbs.CallError{Call: name, Note: fmt.Sprintf("the device returns %v", verbs.QPState(a.state)), Err: verbs.ErrGone}
	}
	q.state, q.stateStale = verbs.QPState(a.state), false
	return verbs.QPAttr{
		State: verbs.QPState(a.state), CurState: verbs.QPState(a.cur_state), PathMTU: verbs.MTU(a.path_mtu), QKey: uint32(a.qkey),
		RQPSN: uint32(a.rq_psn), SQPSN: uint32(a.sq_psn), DestQPN: uint32(a.dest_qpn), Access: verbs.Access(a.access),
		AH: ahAttrBack(&a.ah), AltAH: ahAttrBack(&a.alt_ah), PKeyIndex: uint16(a.pkey_index), EnSQDAsyncNotify: a.en_sqd_async_notify != 0,
		SQDraining: a.sq_draining != 0, MaxRdAtomic: uint8(a.max_rd_atomic), MaxDestRdAtomic: uint8(a.max_dest_rd_atomic), MinRNRTimer: uint8(a.min_rnr_timer),
		Port: int(a.port), Timeout: uint8(a.timeout), RetryCnt: uint8(a.retry_cnt), RNRRetry: uint8(a.rnr_retry),
		Cap: capBack(&a.cap),
	}, nil
}

// posted splits the result of a C post into a count and an error.
func posted(name string, r C.uint64_t) (int, error) {
	if errno := syscall.Errno(r >> 32); errno != 0 {
		return int(uint32(r)), verbs.NewCallError(name, errno, "")
	}
	return int(uint32(r)), nil
}

// PostSend refuses requests in the states in which the specification does, because not all devices
// do. A queue pair enters these states only by Modify, so the known state suffices.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	const name = "ibv_post_send"
	if q.c.qp == 0 {
		return 0, gone(name)
	}
	if q.state.SendPosting() == verbs.PostRefused {
		return 0, invalid(name, "the queue pair is in %v", q.state)
	}
	if len(wrs) == 0 {
		return 0, nil
	}
	ahs := q.pd.dev.ahs.slots
	r := C.mpigo_post_send(&q.c, (*C.struct_mpigo_send_wr)(unsafe.Pointer(&wrs[0])), C.uint32_t(min(len(wrs), math.MaxInt32)),
		unsafe.SliceData(ahs), C.uint32_t(len(ahs)))
	return posted(name, r)
}

func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	const name = "ibv_post_recv"
	if q.c.qp == 0 {
		return 0, gone(name)
	}
	if q.srq != nil {
		return 0, invalid(name, "the queue pair has a shared receive queue")
	}
	if q.state.RecvPosting() == verbs.PostRefused {
		return 0, invalid(name, "the queue pair is in %v", q.state)
	}
	if len(wrs) == 0 {
		return 0, nil
	}
	r := C.mpigo_post_recv(&q.c, (*C.struct_mpigo_recv_wr)(unsafe.Pointer(&wrs[0])), C.uint32_t(min(len(wrs), math.MaxInt32)))
	return posted(name, r)
}

func (q *qp) Destroy() error {
	const name = "ibv_destroy_qp"
	if q.c.qp == 0 {
		return gone(name)
	}
	if q.unacked > 0 {
		return busy(name, q.unacked, "events are unacknowledged")
	}
	if err := call(name, C.mpigo_destroy_qp(q.pd.dev.lib, q.c.qp)); err != nil {
		return err
	}
	q.c.qp = 0
	q.pd.dev.objects.drop(q.number)
	q.pd.users--
	q.sendCQ.users--
	q.recvCQ.users--
	if q.srq != nil {
		q.srq.users--
	}
	return nil
}

type srq struct {
	pd      *pd
	srq     C.uint64_t // 0 once destroyed
	maxSGE  C.uint32_t
	number  uint64 // in the device's objects
	users   int    // queue pairs
	unacked int    // events
}

func (p *pd) CreateSRQ(init verbs.SRQInit) (verbs.SRQ, error) {
	const name = "ibv_create_srq"
	if p.pd == 0 {
		return nil, gone(name)
	}
	maxWR, ok := toUint32(init.MaxWR)
	maxSGE, ok2 := toUint32(init.MaxSGE)
	if !ok || !ok2 || init.MaxWR == 0 || init.Limit < 0 || init.Limit > init.MaxWR {
		return nil, invalid(name, "%+v", init)
	}
	s := &srq{pd: p}
	s.number = p.dev.objects.put(s)
	if errno := C.mpigo_create_srq(p.dev.lib, p.pd, C.uint64_t(s.number), &maxWR, &maxSGE, &s.srq); errno != 0 {
		p.dev.objects.drop(s.number)
		return nil, createError(name, fmt.Sprintf("%+v", init), syscall.Errno(errno))
	}
	s.maxSGE = maxSGE
	p.users++
	if init.Limit > 0 { // the library ignores the limit at creation
		if err := s.SetLimit(init.Limit); err != nil {
			_ = s.Destroy()
			return nil, err
		}
	}
	return s, nil
}

func (s *srq) PostRecv(wrs []verbs.RecvWR) (int, error) {
	const name = "ibv_post_srq_recv"
	if s.srq == 0 {
		return 0, gone(name)
	}
	if len(wrs) == 0 {
		return 0, nil
	}
	r := C.mpigo_post_srq_recv(s.srq, s.maxSGE, (*C.struct_mpigo_recv_wr)(unsafe.Pointer(&wrs[0])), C.uint32_t(min(len(wrs), math.MaxInt32)))
	return posted(name, r)
}

func (s *srq) SetLimit(limit int) error {
	const name = "ibv_modify_srq"
	if s.srq == 0 {
		return gone(name)
	}
	native, ok := toUint32(limit)
	if !ok {
		return invalid(name, "limit %d is out of range", limit)
	}
	return call(name, C.mpigo_srq_limit(s.pd.dev.lib, s.srq, native))
}

func (s *srq) Query() (verbs.SRQAttr, error) {
	const name = "ibv_query_srq"
	if s.srq == 0 {
		return verbs.SRQAttr{}, gone(name)
	}
	var maxWR, maxSGE, limit C.uint32_t
	if err := call(name, C.mpigo_query_srq(s.pd.dev.lib, s.srq, &maxWR, &maxSGE, &limit)); err != nil {
		return verbs.SRQAttr{}, err
	}
	return verbs.SRQAttr{MaxWR: int(maxWR), MaxSGE: int(maxSGE), Limit: int(limit)}, nil
}

func (s *srq) Destroy() error {
	const name = "ibv_destroy_srq"
	if s.srq == 0 {
		return gone(name)
	}
	if s.users > 0 {
		return busy(name, s.users, "queue pairs use it")
	}
	if s.unacked > 0 {
		return busy(name, s.unacked, "events are unacknowledged")
	}
	if err := call(name, C.mpigo_destroy_srq(s.pd.dev.lib, s.srq)); err != nil {
		return err
	}
	s.srq = 0
	s.pd.dev.objects.drop(s.number)
	s.pd.users--
	return nil
}
