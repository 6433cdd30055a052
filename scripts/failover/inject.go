package main

import (
	"sync/atomic"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/internal/observe"
)

// wanted is the spoiling that the next request of the first device is to meet: 1 a wrong remote key, 2 a queue pair in Error.
var wanted atomic.Int32

func spoil(how string) {
	switch how {
	case "rkey":
		wanted.Store(1)
	case "error":
		wanted.Store(2)
	}
}

func hook(h *observe.Hook) {
	if *name != "rkey" && *name != "error" {
		return
	}
	h.Verbs = func(p verbs.Provider) verbs.Provider { return provider{p} }
}

type provider struct{ verbs.Provider }

func (p provider) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	if err != nil || name[len(name)-1] != '0' {
		return d, err
	}
	return device{d}, nil
}

type device struct{ verbs.Device }

func (d device) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	if err != nil {
		return nil, err
	}
	return domain{pd}, nil
}

type domain struct{ verbs.PD }

func (d domain) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	qp, err := d.PD.CreateQP(init)
	if err != nil || init.Service != verbs.ServiceRC {
		return qp, err
	}
	return &pair{qp}, nil
}

type pair struct{ verbs.QP }

func (q *pair) PostSend(wrs []verbs.SendWR) (int, error) {
	switch wanted.Load() {
	case 1:
		if op := wrs[0].Opcode; op == verbs.WRRDMARead || op == verbs.WRRDMAWrite {
			wanted.Store(0)
			wrs[0].RKey ^= 0xff
		}
	case 2:
		wanted.Store(0)
		attr := verbs.QPAttr{State: verbs.StateErr}
		if err := q.Modify(&attr, verbs.AttrState); err != nil {
			return 0, err
		}
	}
	return q.QP.PostSend(wrs)
}
