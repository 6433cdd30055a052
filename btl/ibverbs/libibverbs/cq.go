//go:build cgo && linux && !386 && !arm && !mips && !mipsle

package libibverbs

/*
#cgo noescape mpigo_poll_cq
#cgo nocallback mpigo_poll_cq
#cgo noescape mpigo_cq_event
#cgo nocallback mpigo_cq_event
#cgo noescape mpigo_req_notify_cq
#cgo nocallback mpigo_req_notify_cq
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

type channel struct {
	dev    *device
	ch     C.uint64_t // 0 once destroyed
	events *watcher
	users  int
}

func (d *device) CreateCompChannel() (verbs.CompChannel, error) {
	const name = "ibv_create_comp_channel"
	if d.ctx == 0 {
		return nil, gone(name)
	}
	c := &channel{dev: d}
	var fd C.int
	if err := call(name, C.mpigo_create_channel(d.lib, d.ctx, &c.ch, &fd)); err != nil {
		return nil, err
	}
	var err error
	if c.events, err = watch(int(fd), d.name+" completions"); err != nil {
		C.mpigo_destroy_channel(d.lib, c.ch)
		return nil, err
	}
	d.children++
	return c, nil
}

func (c *channel) NextEvent() (verbs.CQ, bool, error) {
	const name = "ibv_get_cq_event"
	if c.ch == 0 {
		return nil, false, gone(name)
	}
	var context C.uint64_t
	switch errno := syscall.Errno(C.mpigo_cq_event(c.dev.lib, c.ch, &context)); errno {
	case 0:
	case syscall.EAGAIN, syscall.EINTR:
		return nil, false, nil
	default:
		return nil, false, verbs.NewCallError(name, errno, "")
	}
	o, ok := c.dev.objects.get(uint64(context)).(*cq)
	if !ok {
		return nil, false, fmt.Errorf("%s: event of an unknown completion queue", name)
	}
	o.unacked++
	return o, true, nil
}

func (c *channel) Notify(fn func()) {
	if c.ch != 0 {
		c.events.set(fn)
	}
}

func (c *channel) Destroy() error {
	const name = "ibv_destroy_comp_channel"
	if c.ch == 0 {
		return gone(name)
	}
	if c.users > 0 {
		return busy(name, c.users, "completion queues use it")
	}
	c.events.close()
	ch := c.ch
	c.ch = 0
	c.dev.children--
	return call(name, C.mpigo_destroy_channel(c.dev.lib, ch))
}

type cq struct {
	dev     *device
	cq      C.uint64_t // 0 once destroyed
	channel *channel   // nil: none
	entries int
	number  uint64 // in dev.objects
	users   int    // send and receive queues of queue pairs

	unacked      int // completion events taken from the channel
	unackedAsync int // asynchronous events taken
}

func (d *device) CreateCQ(entries int, ch verbs.CompChannel) (verbs.CQ, error) {
	const name = "ibv_create_cq"
	if d.ctx == 0 {
		return nil, gone(name)
	}
	if entries < 1 || entries > math.MaxInt32 {
		return nil, invalid(name, "%d entries", entries)
	}
	q := &cq{dev: d}
	var chNumber C.uint64_t
	if ch != nil {
		own, ok := ch.(*channel)
		if !ok || own.dev != d {
			return nil, invalid(name, "the channel belongs to another device")
		}
		if own.ch == 0 {
			return nil, gone(name)
		}
		q.channel, chNumber = own, own.ch
	}
	q.number = d.objects.put(q)
	var granted C.int
	errno := C.mpigo_create_cq(d.lib, d.ctx, C.int(entries), C.uint64_t(q.number), chNumber, &q.cq, &granted)
	if errno != 0 {
		d.objects.drop(q.number)
		return nil, createError(name, fmt.Sprintf("%d entries", entries), syscall.Errno(errno))
	}
	q.entries = int(granted)
	d.children++
	if q.channel != nil {
		q.channel.users++
	}
	return q, nil
}

func (q *cq) Entries() int { return q.entries }

func (q *cq) Poll(wcs []verbs.WC) (int, error) {
	if q.cq == 0 {
		return 0, gone("ibv_poll_cq")
	}
	if len(wcs) == 0 {
		return 0, nil
	}
	n := C.mpigo_poll_cq(q.cq, (*C.struct_mpigo_wc)(unsafe.Pointer(&wcs[0])), C.int(min(len(wcs), math.MaxInt32)))
	if n < 0 {
		return 0, &verbs.CallError{Call: "ibv_poll_cq", Errno: syscall.EIO, Err: verbs.ErrGone, Note: "the completion queue failed"}
	}
	return int(n), nil
}

func (q *cq) ReqNotify(solicitedOnly bool) error {
	const name = "ibv_req_notify_cq"
	if q.cq == 0 {
		return gone(name)
	}
	if q.channel == nil {
		return invalid(name, "the completion queue has no channel")
	}
	return call(name, C.mpigo_req_notify_cq(q.cq, cbool(solicitedOnly)))
}

func (q *cq) AckEvents(n int) {
	n = min(n, q.unacked)
	if q.cq == 0 || n <= 0 {
		return
	}
	q.unacked -= n
	C.mpigo_ack_cq_events(q.dev.lib, q.cq, C.uint32_t(n))
}

func (q *cq) Destroy() error {
	const name = "ibv_destroy_cq"
	if q.cq == 0 {
		return gone(name)
	}
	if q.users > 0 {
		return busy(name, q.users, "queues of queue pairs use it")
	}
	if n := q.unacked + q.unackedAsync; n > 0 {
		return busy(name, n, "events are unacknowledged")
	}
	if err := call(name, C.mpigo_destroy_cq(q.dev.lib, q.cq)); err != nil {
		return err
	}
	q.cq = 0
	q.dev.objects.drop(q.number)
	q.dev.children--
	if q.channel != nil {
		q.channel.users--
	}
	return nil
}

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
