package main

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/internal/observe"
)

// The errors that can be injected, by the names of their cases.
const (
	wrongRKey = "rkey"  // a remote key that is wrong
	qpInError = "error" // a queue pair that goes to Error
)

// injector injects errors into work requests on the first device, and notes how long devices take
// to accept requests.
type injector struct {
	next   atomic.Value // a string: the error that the next work request meets; empty for none
	stalls *stallLog
}

// inject makes the next work request fail.
func (i *injector) inject(kind string) { i.next.Store(kind) }

// hook wraps the verbs of a rank.
func (i *injector) hook(h *observe.Hook) {
	h.Devices = func(devices any) any {
		if p, ok := devices.(verbs.Provider); ok {
			return provider{p, i}
		}
		return devices
	}
}

// The wrappers lead from the provider to the queue pairs.

type provider struct {
	verbs.Provider
	*injector
}

func (p provider) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	if err != nil {
		return nil, err
	}
	return &device{Device: d, injector: p.injector, isFirst: strings.HasSuffix(name, "0"), qps: map[verbs.QP]*queuePair{}}, nil
}

type device struct {
	verbs.Device
	*injector
	isFirst bool
	qps     map[verbs.QP]*queuePair // by what they wrap
}

func (d *device) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	if err != nil {
		return nil, err
	}
	return domain{pd, d}, nil
}

// NextEvent names the wrapper of a queue pair.
func (d *device) NextEvent() (ev verbs.AsyncEvent, ok bool, err error) {
	ev, ok, err = d.Device.NextEvent()
	if q := d.qps[ev.QP]; q != nil {
		ev.QP = q
	}
	return ev, ok, err
}

func (d *device) AckEvent(ev verbs.AsyncEvent) {
	if q, ok := ev.QP.(*queuePair); ok {
		ev.QP = q.QP
	}
	d.Device.AckEvent(ev)
}

type domain struct {
	verbs.PD
	d *device
}

func (d domain) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	qp, err := d.PD.CreateQP(init)
	if err != nil || init.Service != verbs.ServiceRC {
		return qp, err
	}
	q := &queuePair{qp, d.d}
	d.d.qps[qp] = q
	return q, nil
}

type queuePair struct {
	verbs.QP
	d *device
}

func (q *queuePair) Destroy() error {
	err := q.QP.Destroy()
	if err == nil {
		delete(q.d.qps, q.QP)
	}
	return err
}

func (q *queuePair) PostSend(wrs []verbs.SendWR) (int, error) {
	d := q.d
	defer d.stalls.end(time.Now())
	if !d.isFirst {
		return q.QP.PostSend(wrs)
	}
	switch d.next.Load() {
	case wrongRKey:
		if op := wrs[0].Opcode; op == verbs.WRRDMARead || op == verbs.WRRDMAWrite {
			d.next.Store("")
			wrs[0].RKey ^= 0xff
		}
	case qpInError:
		d.next.Store("")
		attr := verbs.QPAttr{State: verbs.StateErr}
		if err := q.Modify(&attr, verbs.AttrState); err != nil {
			return 0, err
		}
	}
	return q.QP.PostSend(wrs)
}
