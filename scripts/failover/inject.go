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

// injection is the error that the next work request on the first device meets; "" for none.
var injection atomic.Value

// inject asks for an error.
func inject(kind string) { injection.Store(kind) }

// injectInto returns what puts errors into the work requests of the cases that want them.
func injectInto(name string) func(h *observe.Hook) {
	return func(h *observe.Hook) {
		if name == wrongRKey || name == qpInError {
			injection.Store("")
			h.Verbs = func(p verbs.Provider) verbs.Provider { return provider{p} }
		}
	}
}

// The wrappers lead from the provider to the queue pairs of the first device.

type provider struct{ verbs.Provider }

func (p provider) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	if err != nil || !strings.HasSuffix(name, "0") {
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
	return &queuePair{qp}, nil
}

type queuePair struct{ verbs.QP }

func (q *queuePair) PostSend(wrs []verbs.SendWR) (int, error) {
	switch injection.Load() {
	case wrongRKey:
		if op := wrs[0].Opcode; op == verbs.WRRDMARead || op == verbs.WRRDMAWrite {
			injection.Store("")
			wrs[0].RKey ^= 0xff
		}
	case qpInError:
		injection.Store("")
		attr := verbs.QPAttr{State: verbs.StateErr}
		if err := q.Modify(&attr, verbs.AttrState); err != nil {
			return 0, err
		}
	}
	return q.QP.PostSend(wrs)
}
