package simulation

import (
	"math/rand/v2"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// verbsNet is btl/ibverbs on simulated devices. Each rail is a network of its own, with its own
// speed, of RoCE or InfiniBand, unless the plan is switched. Simulated devices cannot lose packets
// by length, so no link is narrow.
type verbsNet struct {
	noFaults
	setup   *setup
	now     int64
	rails   []*simhca.Fabric
	ends    [][]end // by rail, then rank
	own     ownFabrics
	randoms byte
	faults  int // kinds of faults of a device
	// shared: the connections of a port share their receives.
	shared bool
}

// end is the device of a rank on a rail.
type end struct {
	node *simhca.Node
	hca  *simhca.HCA
	gid  verbs.GID
}

const (
	deviceName = "sim0"
	// deadlineNanos is the longest time of an operation before its rail fails.
	deadlineNanos = 60_000_000
	// keepAliveNanos is the idle time after which a connection is probed. Connections are seldom
	// idle for that long while a plan runs, but often while the world settles.
	keepAliveNanos = 25_000_000
	// sharedDepth is the number of shared receives: fewer than the messages that two peers may
	// send.
	sharedDepth = 16
)

func newVerbsNet(seed uint64, s *setup) (network, error) {
	n := &verbsNet{setup: s, faults: roceFaults, shared: seed%2 == 1}
	for i, r := range s.rails {
		link := linkOf(seed, i)
		if s.switched {
			link = linkOf(seed, 0) // the link of the only fabric
		}
		if link == verbs.LinkInfiniBand {
			n.faults = infiniBandFaults
		}
		f := simhca.NewFabric(simhca.Config{
			Link: link, ResolveTime: resolveTimes[seed/3%uint64(len(resolveTimes))],
			Seed: seed + uint64(i)<<32, Virtual: true, Latency: time.Duration(r.latency), Jitter: time.Duration(r.jitter), Loss: s.loss,
		})
		if s.switched && i > 0 {
			f = n.rails[0]
		}
		n.rails, n.ends = append(n.rails, f), append(n.ends, nil)
		for range s.ranks {
			node := f.NewNode(deviceOf(seed, i, len(n.ends[i])))
			gid, err := gidOf(node)
			if err != nil {
				return nil, err
			}
			n.ends[i] = append(n.ends[i], end{node, node.HCA(deviceName), gid})
		}
	}
	var err error
	n.own, err = newOwnFabrics(seed, s)
	return n, err
}

// resolveTimes are the possible times to resolve a path, chosen by the seed. One second is the
// kernel's limit.
var resolveTimes = [...]time.Duration{0, 50 * time.Microsecond, 20 * time.Millisecond, time.Second}

// lastWQEDelays are the possible delays until a device has ended the receives of a queue pair in
// Error. With the last one, the device does not report it.
var lastWQEDelays = [...]time.Duration{0, 20 * time.Microsecond, 3 * time.Millisecond, -1}

// deviceOf chooses the capabilities of a device, which differ between real devices.
func deviceOf(seed uint64, rail, rank int) simhca.DeviceConfig {
	rnd := rand.New(rand.NewPCG(seed, uint64(rail)<<16|uint64(rank)))
	may := func() bool { return rnd.IntN(2) == 0 }
	return simhca.DeviceConfig{
		Name: deviceName, NoCurState: may(), KeepsSQE: may(), ResetFromErrOnly: may(), NoPortEvents: rnd.IntN(4) == 0,
		LastWQEDelay: lastWQEDelays[rnd.IntN(len(lastWQEDelays))],
	}
}

// linkOf chooses RoCE for all rails, InfiniBand for all, or both in turn.
func linkOf(seed uint64, rail int) verbs.LinkLayer {
	if kind := seed % 3; kind == 0 || kind == 2 && rail%2 == 0 {
		return verbs.LinkEthernet
	}
	return verbs.LinkInfiniBand
}

// Numbers of kinds of faults. InfiniBand also has faults of its subnet manager.
const (
	roceFaults       = 13
	newLID           = 13
	smChange         = 14
	clientReregister = 15
	newPKeys         = 16
	infiniBandFaults = 17
)

// gidOf returns the first GID of the port of a node's device.
func gidOf(node *simhca.Node) (verbs.GID, error) {
	dev, err := node.Open(deviceName)
	if err != nil {
		return verbs.GID{}, err
	}
	defer dev.Close()
	all, err := dev.GIDs(1)
	if err != nil {
		return verbs.GID{}, err
	}
	return all[0].GID, nil
}

func (n *verbsNet) Now() int64 { return n.now }

func (n *verbsNet) Next() (at int64, ok bool) {
	for _, f := range n.rails {
		if t, is := f.Next(); is && (!ok || int64(t) < at) {
			at, ok = int64(t), true
		}
	}
	if t, is := n.own.next(); is && (!ok || t < at) {
		at, ok = t, true
	}
	return at, ok
}

func (n *verbsNet) AdvanceTo(at int64) {
	n.now = max(n.now, at)
	for _, f := range n.rails {
		f.AdvanceTo(time.Duration(n.now))
	}
	n.own.advanceTo(n.now)
}

// pass lets time pass while a module waits in Close.
func (n *verbsNet) pass() { n.AdvanceTo(n.now + 1_000_000) }

// counting is a reproducible source of random bytes.
type counting struct{ next byte }

func (c *counting) Read(b []byte) (int, error) {
	for i := range b {
		c.next = c.next*13 + 7
		b[i] = c.next
	}
	return len(b), nil
}

func (n *verbsNet) module(rank, rail int, ev btl.Events) (btl.Module, error) {
	if rail == len(n.rails) {
		return n.own.module(n, rank, ev)
	}
	n.randoms++
	shared, depth := ibverbs.SharedOff, 0
	if n.shared {
		shared, depth = ibverbs.SharedOn, sharedDepth
	}
	return faulty(n, ev, func(ev btl.Events) (btl.Module, error) {
		return ibverbs.New(ibverbs.Config{
			Rank: rank, Size: n.setup.ranks, Events: ev, Rail: "ib" + string(rune('0'+rail)), Provider: n.ends[rail][rank].node, Device: deviceName,
			Clock: n, Pass: n.pass, Secret: []byte("the simulation's secret"), Random: &counting{n.randoms},
			FragBytes: n.setup.fragBytes, RecvDepth: max(8, n.setup.slots), SendDepth: max(4, n.setup.slots),
			AckTimeout: 10, RetryCount: 2, ConnectTimeout: time.Second, Deadline: deadlineNanos, PortGrace: 2 * time.Millisecond,
			KeepAlive: keepAliveNanos, Shared: shared, SharedDepth: depth,
		})
	})
}

func (n *verbsNet) ownRail() (rail int, ok bool) { return len(n.rails), true }

// of finds the network and the addresses of a link.
func (n *verbsNet) of(l link) (f *simhca.Fabric, a, b verbs.GID) {
	return n.rails[l[0].rail], n.ends[l[0].rail][l[0].rank].gid, n.ends[l[1].rail][l[1].rank].gid
}

func (n *verbsNet) cut(l link, fate int, half bool) {
	if fate&1 != 0 {
		l = l.reversed()
	}
	f, a, b := n.of(l)
	f.Partition(a, b, !half)
}

func (n *verbsNet) mend(l link) {
	f, a, b := n.of(l)
	f.Heal(a, b)
}

// impair delays each packet by a part of the device's ACK timeout, or loses it.
func (n *verbsNet) impair(l link, i impairment) {
	f, a, b := n.of(l)
	f.Impair(a, b, simhca.Impairment{Latency: time.Duration(i.latency+i.perByte) * 10 * time.Microsecond, Loss: i.loss})
}

func (n *verbsNet) port(p port, up bool, _ int) {
	h := n.ends[p.rail][p.rank].hca
	h.SetLink(1, up)
	if up {
		h.Revive()
		h.SetPKeys(1, 0xffff)
	}
}

// device makes the device break, or one of its work requests fail in one of the ways of real
// devices, or the subnet manager change the device's port.
func (n *verbsNet) device(rank, rail, what, after int) {
	h := n.ends[rail][rank].hca
	f := simhca.Fault{After: after % 4, Count: 1}
	switch what % n.faults {
	case 0:
		h.Raise(verbs.EventDeviceFatal, 1)
		return
	case 1:
		f.Kind, f.Status = simhca.FaultSendStatus, verbs.StatusRetryExcErr
	case 2, 3:
		if what%n.faults == 3 && h.BreakSRQs() {
			return
		}
		f.Kind, f.Status = simhca.FaultSendStatusExecuted, verbs.StatusRetryExcErr
	case 4:
		f.Kind, f.Status = simhca.FaultRecvStatus, verbs.StatusLocProtErr
	case 5, 6:
		f.Kind = simhca.FaultAckLost
	case 7:
		f.Kind = simhca.FaultResponseLost
	case 8:
		f.Kind, f.Count = simhca.FaultPacketLost, 1+after%5
	case 9:
		f.Kind, f.Delay = simhca.FaultLateCompletion, time.Duration(1+after%30)*time.Millisecond
	case 10:
		f.Kind = simhca.FaultSilence
	case 11:
		f.Kind = simhca.FaultStale
	case 12:
		f.Kind, f.Status, f.Datagrams = simhca.FaultSendStatus, verbs.StatusLocQPOpErr, true
	case newLID:
		h.ChangeLID(1)
		return
	case smChange:
		h.Raise(verbs.EventSMChange, 1)
		return
	case clientReregister:
		h.Raise(verbs.EventClientReregister, 1)
		return
	case newPKeys:
		keys := make([]uint16, 4)
		if i := after % 5; i < len(keys) { // else the port has no key until it is repaired
			keys[i] = 0xffff
		}
		h.SetPKeys(1, keys...)
		return
	}
	h.Inject(f)
}

func (n *verbsNet) losesDevice(what int) bool { return what%n.faults == 0 }

func (n *verbsNet) slow(rail int, nanos int64) { n.rails[rail].SetLatency(time.Duration(nanos)) }

func (n *verbsNet) fired() int {
	sum := 0
	for _, ends := range n.ends {
		for _, e := range ends {
			sum += e.hca.Fired()
		}
	}
	return sum
}

func (n *verbsNet) close() {
	for _, f := range n.rails {
		f.Close()
	}
}
