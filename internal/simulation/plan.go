package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/pml"
)

// Transport connects the ranks of a simulation.
type Transport int

// The transports.
const (
	Loop   Transport = iota // btl/loop
	Verbs                   // btl/ibverbs on simhca
	TCP                     // btl/tcp over loopback
	Direct                  // btl/loop without simulated time
	Transports
)

func (t Transport) String() string { return [...]string{"loop", "verbs", "tcp", "direct"}[t] }

// Ending says what is broken at the end of a plan.
type Ending int

// The endings.
const (
	// Heals: everything is repaired in the end, and every operation succeeds.
	Heals Ending = iota
	// Dies: a rank's process ends during the plan. Messages among the other ranks are not affected.
	Dies
	// Parts: no rail between two ranks comes back, and the grace time ends.
	Parts
	// Refuses: rails refuse operations of some kinds for good. A message may end in an error.
	Refuses
	// Breaks: without a grace time. Ranks without a common rail lose each other at once.
	Breaks
	Endings
)

func (e Ending) String() string { return [...]string{"heals", "dies", "parts", "refuses", "breaks"}[e] }

// railSetup describes a rail: nanoseconds, and 10⁶ bytes a second.
type railSetup struct {
	latency, jitter, mbps int64
}

// setup describes the ranks and rails of a plan. It is a function of the seed.
type setup struct {
	ranks      int
	rails      []railSetup
	slots      int
	fragBytes  int
	eager      int
	rdma       int
	window     int64
	protocol   pml.Protocol
	groups     [][]int // members of each communicator
	registered bool    // some buffers are in memory that is registered once
	loss       float64
	ending     Ending
	victims    [2]int // the first one dies, or the two part
	grace      int64  // nanoseconds; 0: no limit
	narrow     bool   // when the victims part, short packets still arrive
	deadRail   int    // place in links of a rail of the victims that is never repaired; -1: none
	maxBytes   int    // longest message
	skipOdds   int    // one poll of a rail in skipOdds is skipped

	lateContexts bool     // a rank makes a communicator when it first uses it
	inline       int      // bytes that a rail sends inline, if it does
	unregistered int      // one in this many registrations fails for lack of room; 0: none
	wrong        []string // kinds of operations that rails refuse
	wrongRail    int      // the rail that refuses; -1: all rails

	switched  bool   // all rails are one network, see links.go
	ports     []int  // number of rails of each rank; nil: all have all
	spare     bool   // the last rail is a spare rail
	beside    bool   // which may carry long messages beside the others
	deadPorts []port // of the victims, that are never repaired
	impaired  bool   // links are slow or lossy at times
	wires     *wires // nil: there are none
}

// kind of an action. Comments name what a fault affects.
type kind int

const (
	doSend kind = iota
	doSendInit
	doReceive
	doReceiveInit
	doStart
	doCancel
	doFree
	doDetach
	doIprobe
	doImprobe
	doProbe
	doImrecv
	doTest
	doTurn
	doPoll     // one rail of a rank
	doSleep    // a rail of a rank is not polled for a while
	doNext     // time advances to the next event
	doPass     // time passes
	doInject   // an operation on a rail
	doAim      // a fragment of a given kind
	doCut      // a link
	doPort     // the port of a rank on a rail
	doRail     // a whole rail
	doAllRails // all rails between two ranks
	doDevice   // a device, or a queue pair
	doMend     // repairs a link
	doMendPort // repairs a port
	doSlow     // a rail's latency grows
	doFlap     // a link is cut and repaired several times
	doNarrow   // a link loses long packets, or remote accesses
	doDie
	doPart
	doCross   // all links of two ranks but one, by the ports of the others
	doUncross // repairs them
	doImpair  // a link, or all of a port, is slow or lossy
	doRepair  // repairs it
	kinds

	firstFault = doInject
)

var kindNames = [...]string{
	"send", "send init", "receive", "receive init", "start", "cancel", "free", "detach", "iprobe", "improbe", "probe", "imrecv", "test",
	"turn", "poll", "sleep", "next", "pass", "inject", "aim", "cut", "break port", "break rail", "cut all", "device", "mend", "mend port", "slow", "flap", "narrow", "die", "part",
	"cross", "uncross", "impair", "repair",
}

// action is one step of a plan. Its kind says what the numbers mean. They are taken modulo the
// number of choices, so an action stays valid when other actions before it are left out.
type action struct {
	kind    kind
	rank    int
	a, b, c int
	name    string // of the operation that a fault is aimed at
}

func (a action) isFault() bool { return a.kind >= firstFault }

func (a action) String() string {
	return fmt.Sprintf("%s rank %d (%d, %d, %d) %s", kindNames[a.kind], a.rank, a.a, a.b, a.c, a.name)
}

// plan determines a simulation, except for the order of polls, which also follows from the seed.
type plan struct {
	seed      uint64
	transport Transport
	setup     setup
	actions   []action
}

// aimed lists the kinds of operations at which faults are aimed.
var aimed = [...]string{
	"RAILDOWN", "RAILDOWNACK", "PROBE", "PROBEACK", "RNDVRESTARTNOTIFY", "RNDVRESTARTACK", "RNDVRESTARTNACK", "CREDIT", "FIN", "ACK", "PUT",
	"MATCH", "RNDV", "RGET", "FRAG", remoteRead, remoteWrite,
}

// restarts lists the rarest kinds, which drawActions chooses more often.
var restarts = [...]string{"RNDVRESTARTNOTIFY", "RNDVRESTARTACK", "RNDVRESTARTNACK"}

// draw makes the plan of a seed.
func draw(seed uint64, t Transport) *plan {
	rng := rand.New(rand.NewPCG(seed, 0x706c616e+uint64(t)))
	pick := func(of ...int) int { return of[rng.IntN(len(of))] }
	s := setup{
		ranks: 2 + rng.IntN(5)/3, slots: 1 << rng.IntN(6), fragBytes: pick(256, 300, 1000),
		eager: pick(0, 0, 1, 50), rdma: pick(1, 200, 200, 900), window: int64(pick(0, 0, 400, 1000)),
		protocol: pml.Protocol(rng.IntN(4)), registered: rng.IntN(2) == 0, maxBytes: pick(1500, 1500, 1500, 6000), skipOdds: pick(8, 8, 3, 2),
	}
	for range pick(1, 2, 2, 3, 3, 4) {
		s.rails = append(s.rails, railSetup{latency: int64(pick(200, 1000, 1000, 30_000, 1_000_000)), jitter: int64(pick(1, 10_000, 100_000)), mbps: int64(pick(1, 100, 100, 10_000))})
	}
	if t == Verbs && rng.IntN(4) == 0 {
		s.loss = 0.02
	}
	world := make([]int, s.ranks)
	for i := range world {
		world[i] = i
	}
	s.groups = [][]int{world, rng.Perm(s.ranks)}
	s.victims[0] = rng.IntN(s.ranks)
	s.victims[1] = (s.victims[0] + 1 + rng.IntN(s.ranks-1)) % s.ranks
	s.deadRail = -1
	if len(s.rails) > 1 && rng.IntN(3) == 0 {
		s.deadRail = rng.IntN(len(s.rails))
	}
	switch rng.IntN(10) {
	case 0:
		s.ending = Dies
	case 1:
		s.ending = Parts
		s.grace = int64(pick(1, 30, 300)) * 1_000_000
		s.narrow = t == Loop && rng.IntN(2) == 0
	}
	s.drawRefusals(seed, t)
	network := s.drawNetwork(seed, t)
	s.drawSpare(seed, t)
	s.drawWires(seed, t)
	p := &plan{seed: seed, transport: t, setup: s}
	p.drawActions(rng)
	p.insertNetworkActions(network)
	return p
}

// weights of the actions that are not faults.
var weights = [firstFault]int{
	doSend: 14, doSendInit: 2, doReceive: 13, doReceiveInit: 2, doStart: 4, doCancel: 1, doFree: 2, doDetach: 2, doIprobe: 1, doImprobe: 2,
	doProbe: 2, doImrecv: 2, doTest: 4, doTurn: 22, doPoll: 12, doSleep: 3, doNext: 24, doPass: 5,
}

// faultWeights are the weights of the actions that are faults.
var faultWeights = [kinds - firstFault]int{
	doInject - firstFault: 12, doAim - firstFault: 17, doCut - firstFault: 5, doPort - firstFault: 3, doRail - firstFault: 1,
	doAllRails - firstFault: 2, doDevice - firstFault: 4, doMend - firstFault: 7, doMendPort - firstFault: 4, doFlap - firstFault: 1, doSlow - firstFault: 2, doNarrow - firstFault: 3,
}

func (p *plan) drawActions(rng *rand.Rand) {
	n := 40 + rng.IntN(160)
	odds := []int{5, 12, 30}[rng.IntN(3)] // one action in odds is a fault
	for range n {
		a := action{rank: rng.IntN(p.setup.ranks), a: rng.IntN(1 << 20), b: rng.IntN(1 << 20), c: rng.IntN(1 << 20)}
		if rng.IntN(odds) == 0 {
			a.kind = firstFault + kind(weighted(rng, faultWeights[:]))
		} else {
			a.kind = kind(weighted(rng, weights[:]))
		}
		if a.kind == doAim {
			a.name = aimed[rng.IntN(len(aimed))]
			if rng.IntN(4) == 0 {
				a.name = restarts[rng.IntN(len(restarts))]
			}
		}
		p.actions = append(p.actions, a)
	}
	switch p.setup.ending {
	case Dies:
		p.insert(rng, action{kind: doDie})
	case Parts:
		p.insert(rng, action{kind: doPart})
	}
}

func (p *plan) insert(rng *rand.Rand, a action) {
	a.a, a.b, a.c = rng.IntN(1<<20), rng.IntN(1<<20), rng.IntN(1<<20)
	p.actions = slices.Insert(p.actions, len(p.actions)/4+rng.IntN(len(p.actions)/2), a)
}

func weighted(rng *rand.Rand, weights []int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	n := rng.IntN(sum)
	for i, w := range weights {
		if n -= w; n < 0 {
			return i
		}
	}
	return 0
}

// faultKinds are the faults that doInject injects.
var faultKinds = [...]btl.FaultKind{btl.FaultErrorLost, btl.FaultErrorDelivered, btl.FaultSilence, btl.FaultLate, btl.FaultStale, btl.FaultRefuse, btl.FaultWrong}
