package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/pml"
)

// Transport is what the ranks of a simulation are joined by.
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

// Ending is how the rails of a plan end.
type Ending int

// The endings.
const (
	// Heals: everything is mended in the end, and every operation succeeds.
	Heals Ending = iota
	// Dies: a rank's process ends on the way. What others do among themselves goes on.
	Dies
	// Parts: between two ranks no rail comes back, and the grace time ends.
	Parts
	// Refuses: rails refuse operations of some kinds for good. A message may end in an error.
	Refuses
	// Breaks: without a grace time. Ranks without a rail in common have lost each other at once.
	Breaks
	Endings
)

func (e Ending) String() string { return [...]string{"heals", "dies", "parts", "refuses", "breaks"}[e] }

// railSetup is what a rail is like.
type railSetup struct {
	latency, jitter, mbps int64
}

// setup is what a plan's ranks and rails are like. It is a function of the seed.
type setup struct {
	ranks     int
	rails     []railSetup
	slots     int
	fragBytes int
	eager     int
	rdma      int
	window    int64
	protocol  pml.Protocol
	groups    [][]int // of communicators, by index
	lent      bool    // some buffers are in memory that is registered once
	loss      float64
	ending    Ending
	victims   [2]int // of whom one dies, or who part
	grace     int64  // 0: for ever
	narrow    bool   // who part exchange short packets still, if the network can do that
	scar      int    // a rail between the victims that is never mended; -1: none
	most      int    // bytes in a message
	lazy      int    // one in so many looks at a rail does not happen

	lateContexts bool     // a rank makes a communicator when it first uses it
	inline       int      // bytes that a rail sends inline, if it does
	unregistered int      // one in so many registrations fails for lack of room; 0: none does
	wrong        []string // kinds of operations that rails refuse
	wrongRail    int      // the rail that does; -1: all do
}

// kind of an action.
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
	doSleep    // a rail of a rank is not looked at for a while
	doNext     // time moves to the next event
	doPass     // time passes
	doInject   // an operation of a rail goes wrong
	doAim      // a fragment of some kind does
	doCut      // a link
	doPort     // a rank's port of a rail
	doRail     // a whole rail
	doAllRails // between two ranks
	doDevice   // a device is lost, or its queue pair goes wrong
	doMend     // a link
	doMendPort
	doSlow   // a rail is slow
	doFlap   // a link is cut and mended, again and again
	doNarrow // a link loses what is long, or remote accesses
	doDie
	doPart
	kinds

	firstFault = doInject
)

var kindNames = [...]string{
	"send", "send init", "receive", "receive init", "start", "cancel", "free", "detach", "iprobe", "improbe", "probe", "imrecv", "test",
	"turn", "poll", "sleep", "next", "pass", "inject", "aim", "cut", "break port", "break rail", "cut all", "device", "mend", "mend port", "slow", "flap", "narrow", "die", "part",
}

// action is one thing that is done. What its numbers mean is up to its kind; they are taken modulo what there is, so that an action means
// something whatever was done before, or left out.
type action struct {
	kind    kind
	rank    int
	a, b, c int
	name    string // of a fragment that is aimed at
}

func (a action) isFault() bool { return a.kind >= firstFault }

func (a action) String() string {
	return fmt.Sprintf("%s rank %d (%d, %d, %d) %s", kindNames[a.kind], a.rank, a.a, a.b, a.c, a.name)
}

// plan is all that a simulation does, but for the order in which rails are looked at, which follows from the seed too.
type plan struct {
	seed      uint64
	transport Transport
	setup     setup
	actions   []action
}

// aimed are the kinds of operations at which faults are aimed.
var aimed = [...]string{
	"RAILDOWN", "RAILDOWNACK", "PROBE", "PROBEACK", "RNDVRESTARTNOTIFY", "RNDVRESTARTACK", "RNDVRESTARTNACK", "CREDIT", "FIN", "ACK", "PUT",
	"MATCH", "RNDV", "RGET", "FRAG", remoteRead, remoteWrite,
}

// restarts are those of them that there are least of.
var restarts = [...]string{"RNDVRESTARTNOTIFY", "RNDVRESTARTACK", "RNDVRESTARTNACK"}

// Aims are the kinds of fragments at which faults are aimed.
func Aims() []string { return slices.Clone(aimed[:]) }

// draw makes the plan of a seed.
func draw(seed uint64, t Transport) *plan {
	rng := rand.New(rand.NewPCG(seed, 0x706c616e+uint64(t)))
	pick := func(of ...int) int { return of[rng.IntN(len(of))] }
	s := setup{
		ranks: 2 + rng.IntN(5)/3, slots: 1 << rng.IntN(6), fragBytes: pick(256, 300, 1000),
		eager: pick(0, 0, 1, 50), rdma: pick(1, 200, 200, 900), window: int64(pick(0, 0, 400, 1000)),
		protocol: pml.Protocol(rng.IntN(4)), lent: rng.IntN(2) == 0, most: pick(1500, 1500, 1500, 6000), lazy: pick(8, 8, 3, 2),
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
	s.scar = -1
	if len(s.rails) > 1 && rng.IntN(3) == 0 {
		s.scar = rng.IntN(len(s.rails))
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
	p := &plan{seed: seed, transport: t, setup: s}
	p.drawActions(rng)
	return p
}

// weights of what is done that is no fault.
var weights = [firstFault]int{
	doSend: 14, doSendInit: 2, doReceive: 13, doReceiveInit: 2, doStart: 4, doCancel: 1, doFree: 2, doDetach: 2, doIprobe: 1, doImprobe: 2,
	doProbe: 2, doImrecv: 2, doTest: 4, doTurn: 22, doPoll: 12, doSleep: 3, doNext: 24, doPass: 5,
}

// faultWeights likewise, of those that are.
var faultWeights = [kinds - firstFault]int{
	doInject - firstFault: 12, doAim - firstFault: 17, doCut - firstFault: 5, doPort - firstFault: 3, doRail - firstFault: 1,
	doAllRails - firstFault: 2, doDevice - firstFault: 4, doMend - firstFault: 7, doMendPort - firstFault: 4, doFlap - firstFault: 1, doSlow - firstFault: 2, doNarrow - firstFault: 3,
}

func (p *plan) drawActions(rng *rand.Rand) {
	n := 40 + rng.IntN(160)
	odds := []int{5, 12, 30}[rng.IntN(3)] // of a fault: one in so many
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

// faultKinds are what operations meet.
var faultKinds = [...]btl.FaultKind{btl.FaultErrorLost, btl.FaultErrorDelivered, btl.FaultSilence, btl.FaultLate, btl.FaultStale, btl.FaultRefuse, btl.FaultWrong}
