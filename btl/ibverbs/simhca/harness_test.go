package simhca

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// end is a device with a queue pair and the objects that it needs.
type end struct {
	t testing.TB
	f *Fabric
	// The device's machine and hardware.
	node *Node
	hca  *HCA
	dev  verbs.Device
	pd   verbs.PD
	ch   verbs.CompChannel
	cq   verbs.CQ
	srq  verbs.SRQ
	qp   verbs.QP
	mem  []byte
	mr   verbs.MR
	gid  verbs.GID
	ah   verbs.AH
	mtu  verbs.MTU
	psn  uint32
	// route, if not nil, is used instead of pathTo.
	route *verbs.AHAttr

	initRdAtomic, destRdAtomic uint8
	timeout, retries, rnr      uint8
	access                     verbs.Access
}

// setup configures a pair; the zero setup is small and without faults.
type setup struct {
	service verbs.Services
	cfg     Config
	device  DeviceConfig
	srq     bool
	cqe     int
	cap     verbs.QPCap
	memory  int
	change  func(e *end) // before connecting
	idle    bool         // not connected
	real    bool
}

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// pair returns two machines with one connected queue pair each.
func pair(t testing.TB, s setup) (a, b *end) {
	t.Helper()
	if s.service == 0 {
		s.service = verbs.ServiceRC
	}
	s.cfg.Virtual = !s.real
	f := NewFabric(s.cfg)
	t.Cleanup(f.Close)
	a, b = newEnd(t, f, s), newEnd(t, f, s)
	if !s.idle {
		connect(t, a, b)
	}
	return a, b
}

func newEnd(t testing.TB, f *Fabric, s setup) *end {
	t.Helper()
	n := f.NewNode(s.device)
	names, err := n.Devices()
	require.NoError(t, err)
	dev, err := n.Open(names[0])
	require.NoError(t, err)
	e := &end{t: t, f: f, node: n, hca: n.HCA(names[0]), dev: dev, psn: 0xfffff0,
		initRdAtomic: 4, destRdAtomic: 4, timeout: 8, retries: 3, rnr: 3, access: allAccess}
	e.pd, err = dev.AllocPD()
	require.NoError(t, err)
	e.ch, err = dev.CreateCompChannel()
	require.NoError(t, err)
	if s.cqe == 0 {
		s.cqe = 256
	}
	e.cq, err = dev.CreateCQ(s.cqe, e.ch)
	require.NoError(t, err)
	if s.cap == (verbs.QPCap{}) {
		s.cap = verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 128}
	}
	if s.srq {
		e.srq, err = e.pd.CreateSRQ(verbs.SRQInit{MaxWR: 64, MaxSGE: 4})
		require.NoError(t, err)
	}
	if s.memory == 0 {
		s.memory = 64 << 10
	}
	e.mem = make([]byte, s.memory)
	e.mr, err = e.pd.RegMR(e.mem, allAccess)
	require.NoError(t, err)
	gids, err := dev.GIDs(1)
	require.NoError(t, err)
	e.gid = gids[len(gids)-1].GID
	e.mtu = verbs.MTU1024
	if s.change != nil {
		s.change(e)
	}
	e.newQP(s.service, s.cap)
	return e
}

func (e *end) newQP(service verbs.Services, limits verbs.QPCap) {
	e.t.Helper()
	var err error
	e.qp, err = e.pd.CreateQP(verbs.QPInit{Service: service, SendCQ: e.cq, RecvCQ: e.cq, SRQ: e.srq, Cap: limits})
	require.NoError(e.t, err)
}

func connect(t testing.TB, a, b *end) {
	t.Helper()
	for _, e := range []*end{a, b} {
		e.toInit()
	}
	a.toRTR(b)
	b.toRTR(a)
	a.toRTS()
	b.toRTS()
	for _, p := range [][2]*end{{a, b}, {b, a}} {
		if p[0].qp.Service() == verbs.ServiceUD && p[0].ah == nil {
			ah, err := p[0].pd.CreateAH(p[0].pathTo(p[1]))
			require.NoError(t, err)
			p[0].ah = ah
		}
	}
}

// pathTo returns the address vector of the peer.
func (e *end) pathTo(to *end) verbs.AHAttr {
	if e.route != nil {
		return *e.route
	}
	return verbs.AHAttr{Port: 1, IsGlobal: true, DGID: to.gid, SGIDIndex: 1, HopLimit: 3}
}

func (e *end) toInit() {
	e.t.Helper()
	attr := verbs.QPAttr{State: verbs.StateInit, Port: 1, Access: e.access, QKey: 0x1234}
	mask := verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort
	if e.qp.Service() == verbs.ServiceUD {
		mask |= verbs.AttrQKey
	} else {
		mask |= verbs.AttrAccessFlags
	}
	require.NoError(e.t, e.qp.Modify(&attr, mask))
}

func (e *end) toRTR(peer *end) {
	e.t.Helper()
	attr := verbs.QPAttr{State: verbs.StateRTR}
	mask := verbs.AttrState
	if e.qp.Service() != verbs.ServiceUD {
		attr.AH, attr.PathMTU, attr.DestQPN, attr.RQPSN = e.pathTo(peer), e.mtu, peer.qp.Num(), peer.psn
		mask |= verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN
	}
	if e.qp.Service() == verbs.ServiceRC {
		attr.MaxDestRdAtomic, attr.MinRNRTimer = e.destRdAtomic, 1
		mask |= verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer
	}
	require.NoError(e.t, e.qp.Modify(&attr, mask))
}

func (e *end) toRTS() {
	e.t.Helper()
	attr := verbs.QPAttr{State: verbs.StateRTS, SQPSN: e.psn}
	mask := verbs.AttrState | verbs.AttrSQPSN
	if e.qp.Service() == verbs.ServiceRC {
		attr.Timeout, attr.RetryCnt, attr.RNRRetry, attr.MaxRdAtomic = e.timeout, e.retries, e.rnr, e.initRdAtomic
		mask |= verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry | verbs.AttrMaxQPRdAtomic
	}
	require.NoError(e.t, e.qp.Modify(&attr, mask))
}

func (e *end) modify(to verbs.QPState) {
	e.t.Helper()
	require.NoError(e.t, e.qp.Modify(&verbs.QPAttr{State: to, EnSQDAsyncNotify: true}, verbs.AttrState|map[bool]verbs.AttrMask{true: verbs.AttrEnSQDAsyncNotify}[to == verbs.StateSQD]))
}

func (e *end) state() verbs.QPState {
	e.t.Helper()
	a, err := e.qp.Query()
	require.NoError(e.t, err)
	return a.State
}

// sge returns an element for a piece of the end's memory.
func (e *end) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: e.mr.Addr() + uint64(off), Length: uint32(n), LKey: e.mr.LKey()}
}

// wr returns a signaled request from a piece of the end's memory to the same offset of the peer's.
func (e *end) wr(id uint64, op verbs.Opcode, peer *end, off, n int) verbs.SendWR {
	wr := verbs.SendWR{
		ID: id, Opcode: op, Flags: verbs.SendSignaled, NumSGE: 1, SGE: [verbs.MaxSGE]verbs.SGE{e.sge(off, n)},
		RemoteAddr: peer.mr.Addr() + uint64(off), RKey: peer.mr.RKey(), Imm: uint32(id),
	}
	if e.ah != nil {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = e.ah.Handle(), peer.qp.Num(), 0x1234
	}
	return wr
}

func (e *end) post(wrs ...verbs.SendWR) {
	e.t.Helper()
	n, err := e.qp.PostSend(wrs)
	require.NoError(e.t, err)
	require.Equal(e.t, len(wrs), n)
}

func (e *end) recv(id uint64, off, n int) {
	e.t.Helper()
	wrs := []verbs.RecvWR{{ID: id, NumSGE: 1, SGE: [verbs.MaxSGE]verbs.SGE{e.sge(off, n)}}}
	var err error
	if e.srq != nil {
		_, err = e.srq.PostRecv(wrs)
	} else {
		_, err = e.qp.PostRecv(wrs)
	}
	require.NoError(e.t, err)
}

// run executes all events.
func (e *end) run() {
	e.t.Helper()
	for i := 0; e.f.Advance(); i++ {
		require.Less(e.t, i, 2_000_000, "too many events")
	}
}

// exec posts requests and executes all events.
func (e *end) exec(wrs ...verbs.SendWR) {
	e.t.Helper()
	e.post(wrs...)
	e.run()
}

// advance executes n events.
func (e *end) advance(n int) {
	for range n {
		e.f.Advance()
	}
}

// runFor executes the events of the next d.
func (e *end) runFor(d time.Duration) {
	end := e.f.Now() + d
	for {
		at, ok := e.f.Next()
		if !ok || at > end {
			return
		}
		e.f.Advance()
	}
}

// poll takes all completions.
func (e *end) poll() []verbs.WC {
	e.t.Helper()
	var all []verbs.WC
	wcs := make([]verbs.WC, 16)
	for {
		n, err := e.cq.Poll(wcs)
		require.NoError(e.t, err)
		all = append(all, wcs[:n]...)
		if n < len(wcs) {
			return all
		}
	}
}

// results polls all completions and returns their IDs and statuses.
func (e *end) results() []string {
	e.t.Helper()
	var all []string
	for _, wc := range e.poll() {
		all = append(all, fmt.Sprintf("%d %v", wc.ID, wc.Status))
	}
	return all
}

// events takes all asynchronous events and acknowledges them.
func (e *end) events() []verbs.EventType {
	e.t.Helper()
	var all []verbs.EventType
	for {
		ev, ok, err := e.dev.NextEvent()
		require.NoError(e.t, err)
		if !ok {
			return all
		}
		e.dev.AckEvent(ev)
		all = append(all, ev.Type)
	}
}

// fill writes a pattern to the end's memory and returns a copy of it.
func (e *end) fill(off, n int, seed byte) []byte {
	for i := range n {
		e.mem[off+i] = seed + byte(i*7) + byte(i>>8)
	}
	return append([]byte(nil), e.mem[off:off+n]...)
}
