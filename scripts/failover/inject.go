package main

import (
	"strings"
	"sync/atomic"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/internal/observe"
)

// The errors that can be injected, by the names of their cases.
const (
	wrongRKey = "rkey"  // a remote key that is wrong
	qpInError = "error" // a queue pair that goes to Error
)

// injector injects errors into work requests on the first device.
type injector struct {
	next atomic.Value // a string: the error that the next work request meets; empty for none
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

// The wrappers lead from the provider to the queue pairs of the first device.

type provider struct {
	verbs.Provider
	*injector
}

func (p provider) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	if err != nil || !strings.HasSuffix(name, "0") {
		return d, err
	}
	return device{d, p.injector}, nil
}

type device struct {
	verbs.Device
	*injector
}

func (d device) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	if err != nil {
		return nil, err
	}
	return domain{pd, d.injector}, nil
}

type domain struct {
	verbs.PD
	*injector
}

func (d domain) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	qp, err := d.PD.CreateQP(init)
	if err != nil || init.Service != verbs.ServiceRC {
		return qp, err
	}
	return &queuePair{qp, d.injector}, nil
}

type queuePair struct {
	verbs.QP
	*injector
}

func (q *queuePair) PostSend(wrs []verbs.SendWR) (int, error) {
	switch q.next.Load() {
	case wrongRKey:
		if op := wrs[0].Opcode; op == verbs.WRRDMARead || op == verbs.WRRDMAWrite {
			q.next.Store("")
			wrs[0].RKey ^= 0xff
		}
	case qpInError:
		q.next.Store("")
		attr := verbs.QPAttr{State: verbs.StateErr}
		if err := q.Modify(&attr, verbs.AttrState); err != nil {
			return 0, err
		}
	}
	return q.QP.PostSend(wrs)
}
