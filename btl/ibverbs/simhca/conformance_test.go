package simhca

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/internal/verbstest"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// machines provides the devices of two machines. Each machine has the name of its only device.
type machines map[string]*Node

func (m machines) Devices() (names []string, err error) {
	for name := range m {
		names = append(names, name)
	}
	return names, nil
}

func (m machines) Open(name string) (verbs.Device, error) {
	n, ok := m[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s", verbs.ErrNoDevice, name)
	}
	return n.Open(name)
}

func (m machines) hca(dev verbs.Device) *HCA { return m[dev.Name()].HCA(dev.Name()) }

// conformance returns a maker of device pairs, one device on each of two machines. The second is in
// the next subnet if apart is set.
func conformance(cfg Config, device DeviceConfig, apart bool) verbstest.Maker {
	return func(t testing.TB) *verbstest.Pair {
		f := NewFabric(cfg)
		m := machines{}
		p := &verbstest.Pair{PortA: 1, PortB: 1, Provider: m, Patience: 10 * time.Second, Close: f.Close}
		if device.Link == verbs.LinkEthernet {
			p.GIDA, p.GIDB = 1, 1
		} else {
			p.LocalRoutes = !apart
		}
		if cfg.Virtual {
			p.Step = func() { f.Advance() }
		}
		var err error
		for name, dev := range map[string]*verbs.Device{"sim0": &p.A, "sim1": &p.B} {
			d := device
			d.Name = name
			if apart && name == "sim1" {
				d.Subnet++
			}
			m[name] = f.NewNode(d)
			*dev, err = m[name].Open(name)
			require.NoError(t, err)
		}
		m["sim0"].HCA("sim0").ChangePKey(1, 1, 0x8123) // a partition that the peer does not have
		for ev, ok, _ := p.A.NextEvent(); ok; ev, ok, _ = p.A.NextEvent() {
			p.A.AckEvent(ev)
		}
		fault := func(f Fault) func(dev verbs.Device, qp verbs.QP) {
			return func(dev verbs.Device, qp verbs.QP) {
				f.QPN = qp.Num()
				m.hca(dev).Inject(f)
			}
		}
		p.Injector = verbstest.Injector{
			SetPKeys: func(dev verbs.Device, port int, keys ...uint16) { m.hca(dev).SetPKeys(port, keys...) },
			Link:     func(dev verbs.Device, port int, up bool) { m.hca(dev).SetLink(port, up) },
			ShortMTU: func(dev verbs.Device, port int) (restore func()) {
				m.hca(dev).SetMTU(port, verbs.MTU1024)
				return func() { m.hca(dev).SetMTU(port, verbs.MTU4096) }
			},
			Address: func(dev verbs.Device, port int) {
				m.hca(dev).ChangeGID(port, 5, verbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: 9, 14: 9, 15: 9})
				m.hca(dev).ChangeGID(port, 5, verbs.GID{})
			},
			Raise: func(dev verbs.Device, ev verbs.AsyncEvent) {
				if ev.QP != nil {
					require.True(t, m.hca(dev).RaiseQP(ev.QP.Num(), ev.Type))
				} else {
					m.hca(dev).Raise(ev.Type, ev.Port)
				}
			},
			BreakSendCQ: func(dev verbs.Device, qp verbs.QP) { require.True(t, m.hca(dev).BreakCQ(qp.Num())) },
			BreakRecvCQ: func(dev verbs.Device, qp verbs.QP) { require.True(t, m.hca(dev).BreakRecvCQ(qp.Num())) },
			BreakSRQ: func(dev verbs.Device, qp verbs.QP) {
				require.True(t, m.hca(dev).RaiseQP(qp.Num(), verbs.EventSRQErr))
			},
			SendStatus: func(dev verbs.Device, qp verbs.QP, status verbs.Status, executed bool) {
				kind := FaultSendStatus
				if executed {
					kind = FaultSendStatusExecuted
				}
				fault(Fault{Kind: kind, Status: status})(dev, qp)
			},
			RecvStatus: func(dev verbs.Device, qp verbs.QP, status verbs.Status) {
				fault(Fault{Kind: FaultRecvStatus, Status: status})(dev, qp)
			},
			Mistake: func(dev verbs.Device, qp verbs.QP, mistake verbs.Mistake) {
				fault(Fault{Kind: FaultMistake, Mistake: mistake})(dev, qp)
			},
			LosePackets: func(dev verbs.Device, qp verbs.QP, n int) {
				fault(Fault{Kind: FaultPacketLost, Count: n})(dev, qp)
			},
			LoseAcks: fault(Fault{Kind: FaultAckLost}),
			Silence:  fault(Fault{Kind: FaultSilence}),
			Stale:    fault(Fault{Kind: FaultStale}),
		}
		if p.LocalRoutes {
			p.Injector.ChangeLID = func(dev verbs.Device, port int) { m.hca(dev).ChangeLID(port) }
		}
		return p
	}
}

// small are the devices of the suite on each kind of fabric.
var (
	small        = DeviceConfig{Link: verbs.LinkEthernet, MaxMsgBytes: 1 << 20}
	onInfiniBand = DeviceConfig{Link: verbs.LinkInfiniBand, MaxMsgBytes: 1 << 20}
)

func TestConformanceVirtual(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			verbstest.Test(t, conformance(Config{Seed: seed, Virtual: true, Jitter: time.Duration(seed) * 5 * time.Microsecond}, small, false))
		})
	}
}

func TestConformanceRealTime(t *testing.T) { verbstest.Test(t, conformance(Config{}, small, false)) }

func TestConformanceLatency(t *testing.T) {
	verbstest.Test(t, conformance(Config{Latency: 100 * time.Microsecond, Jitter: 50 * time.Microsecond}, small, false))
}

// TestConformanceInfiniBand runs the suite in one subnet, without global routes. The table has what
// occurred there.
func TestConformanceInfiniBand(t *testing.T) {
	verbstest.Test(t, conformance(Config{}, onInfiniBand, false)).Table(t, "../../../docs/evidence/verbs.md", "simhca")
}

// TestConformanceInfiniBandVirtual runs the suite on a device that does less than others.
func TestConformanceInfiniBandVirtual(t *testing.T) {
	device := onInfiniBand
	device.NoCurState, device.LastWQEDelay = true, 50*time.Microsecond
	verbstest.Test(t, conformance(Config{Virtual: true, Jitter: 5 * time.Microsecond}, device, false))
}

// TestConformanceInfiniBandSubnets runs the suite across a router, with several LIDs for each port
// and the smallest MTU.
func TestConformanceInfiniBandSubnets(t *testing.T) {
	device := DeviceConfig{Link: verbs.LinkInfiniBand, MTU: verbs.MTU256, LMC: 2}
	verbstest.Test(t, conformance(Config{Virtual: true}, device, true))
}
