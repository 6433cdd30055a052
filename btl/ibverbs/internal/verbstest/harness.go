package verbstest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

const everyAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// qkey is the default Q_Key of UD queue pairs. Its high bit is clear, so packets contain the key of
// the request.
const qkey = 0x11111111

var eachService = [...]verbs.Services{verbs.ServiceRC, verbs.ServiceUC, verbs.ServiceUD}

// end is a device with a protection domain.
type end struct {
	c      *caseRun
	name   string
	dev    verbs.Device
	port   int
	index  int // of the port's GID
	gid    verbs.GID
	attr   verbs.DeviceAttr
	pattr  verbs.PortAttr
	pd     verbs.PD
	events []verbs.AsyncEvent // taken and acknowledged
}

func newEnd(c *caseRun, name string, dev verbs.Device, port, index int) *end {
	e := &end{c: c, name: name, dev: dev, port: port, index: index}
	var err error
	e.attr, err = dev.Query()
	require.NoError(c, err)
	e.pattr, err = dev.QueryPort(port)
	require.NoError(c, err)
	// An earlier case may have just restored the port's address.
	c.wait(fmt.Sprintf("GID %d of %s", index, name), func() bool {
		gids, err := dev.GIDs(port)
		require.NoError(c, err)
		for _, g := range gids {
			if g.Index == index {
				e.gid = g.GID
			}
		}
		return !e.gid.IsZero()
	})
	e.pd = e.newPD()
	return e
}

func (e *end) newPD() verbs.PD {
	pd, err := e.dev.AllocPD()
	require.NoError(e.c, err)
	e.c.cleanup = append(e.c.cleanup, pd.Dealloc)
	return pd
}

func (e *end) remote() *end {
	if e == e.c.a {
		return e.c.b
	}
	return e.c.a
}

// takeEvents takes and acknowledges all available events.
func (e *end) takeEvents() {
	for {
		ev, ok, err := e.dev.NextEvent()
		require.NoError(e.c, err, "events of %s", e.name)
		if !ok {
			return
		}
		e.dev.AckEvent(ev)
		e.c.record(ev.Type.String())
		e.events = append(e.events, ev)
	}
}

// count returns the number of events of a type so far. about, if not nil, is their object.
func (e *end) count(kind verbs.EventType, about any) (n int) {
	e.takeEvents()
	for _, ev := range e.events {
		var of any
		switch kind.Info().Affiliation {
		case verbs.AffiliationQP:
			of = ev.QP
		case verbs.AffiliationCQ:
			of = ev.CQ
		case verbs.AffiliationSRQ:
			of = ev.SRQ
		case verbs.AffiliationPort:
			of = ev.Port
		}
		if ev.Type == kind && (about == nil || of == about) {
			n++
		}
	}
	return n
}

// await waits for an event.
func (e *end) await(kind verbs.EventType, about any) {
	e.c.wait(kind.Native()+" of "+e.name, func() bool { return e.count(kind, about) > 0 })
}

// eventNames returns the names of the events so far, except those of ports: a device may raise an
// event for a link change of an earlier case late.
func (e *end) eventNames() (names []string) {
	if e == nil {
		return nil
	}
	for _, ev := range e.events {
		if ev.Type.Info().Affiliation != verbs.AffiliationPort {
			names = append(names, ev.Type.String())
		}
	}
	return names
}

// region is a registered memory region.
type region struct {
	verbs.MR
	buf  []byte
	gone bool
}

// Dereg deregisters the region; further calls do nothing.
func (r *region) Dereg() error {
	if r.gone {
		return nil
	}
	r.gone = true
	return r.MR.Dereg()
}

// region registers n bytes with a pattern that starts at a random value.
func (e *end) region(n int, access verbs.Access) *region { return e.regionIn(e.pd, n, access) }

func (e *end) regionIn(pd verbs.PD, n int, access verbs.Access) *region {
	r := &region{buf: aligned(n)}
	start := rand.N(251)
	for i := range r.buf {
		r.buf[i] = byte((start + i) % 251)
	}
	var err error
	r.MR, err = pd.RegMR(r.buf, access)
	require.NoError(e.c, err)
	e.c.cleanup = append(e.c.cleanup, r.Dereg)
	return r
}

// aligned returns n bytes that start at a multiple of 64.
func aligned(n int) []byte {
	buf := make([]byte, n+64)
	off := int(-uintptr(unsafe.Pointer(&buf[0])) & 63)
	return buf[off : off+n : off+n]
}

func (r *region) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: r.Addr() + uint64(off), Length: uint32(n), LKey: r.LKey()}
}

// cq is a completion queue and the completions taken from it.
type cq struct {
	verbs.CQ
	c    *caseRun
	name string
	got  []verbs.WC
	gone bool
}

func (e *end) cq(entries int, channel verbs.CompChannel) *cq {
	inner, err := e.dev.CreateCQ(entries, channel)
	require.NoError(e.c, err)
	require.GreaterOrEqual(e.c, inner.Entries(), entries)
	q := &cq{CQ: inner, c: e.c, name: e.name + "'s queue"}
	e.c.cleanup = append(e.c.cleanup, q.Destroy)
	return q
}

// Destroy destroys the queue; further calls do nothing.
func (q *cq) Destroy() error {
	if q.gone {
		return nil
	}
	err := q.CQ.Destroy()
	q.gone = err == nil
	return err
}

// poll takes all available completions.
func (q *cq) poll() {
	var wcs [4]verbs.WC
	for {
		n, err := q.Poll(wcs[:])
		require.NoError(q.c, err, "poll")
		for _, wc := range wcs[:n] {
			q.c.record(wc.Status.String())
			q.got = append(q.got, wc)
		}
		if n < len(wcs) {
			return
		}
	}
}

// await waits for the next n completions.
func (q *cq) await(n int) []verbs.WC {
	q.c.wait(fmt.Sprintf("%d completions of %s", n, q.name), func() bool {
		q.poll()
		return len(q.got) >= n
	})
	wcs := q.got[:n:n]
	q.got = q.got[n:]
	return wcs
}

// awaitOne waits for the next completion and checks its ID and status.
func (q *cq) awaitOne(id uint64, status verbs.Status) verbs.WC {
	wc := q.await(1)[0]
	require.Equal(q.c, status.Native(), wc.Status.Native(), "status of request %d", id)
	require.Equal(q.c, id, wc.ID, "request ID")
	return wc
}

// requireNone checks that there is no completion now.
func (q *cq) requireNone(why string) {
	q.poll()
	require.Empty(q.c, q.got, "a completion, but %s", why)
}

// opts configures a queue pair. Zero values stand for defaults.
type opts struct {
	service   verbs.Services
	depth     int // capacity of each queue
	sge       int
	inline    int
	cqEntries int
	signalAll bool
	srq       verbs.SRQ
	scq, rcq  *cq
	pd        verbs.PD
	mtu       verbs.MTU
	access    verbs.Access
	noAccess  bool
	rd        uint8 // outstanding reads as requester
	destRd    uint8 // outstanding reads as responder
	quick     bool  // short timeouts and few retries
	qkey      uint32
	pkey      uint16
	psn       uint32
	rnrRetry  uint8 // 7: unlimited
}

// Options of queue pairs that have only defaults, or short timeouts.
var (
	rc, quickRC = opts{service: verbs.ServiceRC}, opts{service: verbs.ServiceRC, quick: true}
	uc, ud      = opts{service: verbs.ServiceUC}, opts{service: verbs.ServiceUD}
)

// qp is a queue pair with its queues and its peer.
type qp struct {
	verbs.QP
	c        *caseRun
	e        *end
	o        opts
	peer     *qp
	destQPN  uint32 // if not 0, used instead of the peer's number
	scq, rcq *cq
	psn      uint32
	ah       verbs.AH
	mem      *region
	gone     bool
}

func (e *end) qp(o opts) *qp {
	c := e.c
	setDefault(&o.service, verbs.ServiceRC)
	setDefault(&o.depth, 16)
	setDefault(&o.sge, 2)
	setDefault(&o.cqEntries, 2*o.depth+8)
	setDefault(&o.access, everyAccess)
	setDefault(&o.rd, 4)
	setDefault(&o.destRd, 4)
	setDefault(&o.qkey, qkey)
	setDefault(&o.mtu, min(c.a.pattr.ActiveMTU, c.b.pattr.ActiveMTU))
	setDefault(&o.psn, rand.Uint32N(1<<24))
	setDefault(&o.rnrRetry, 6)
	if o.noAccess {
		o.access = 0
	}
	if o.pd == nil {
		o.pd = e.pd
	}
	q := &qp{c: c, e: e, o: o, scq: o.scq, rcq: o.rcq, psn: o.psn}
	if q.scq == nil {
		q.scq = e.cq(o.cqEntries, nil)
		q.scq.name = e.name + "'s send queue"
	}
	if q.rcq == nil {
		q.rcq = e.cq(o.cqEntries, nil)
		q.rcq.name = e.name + "'s receive queue"
	}
	init := verbs.QPInit{Service: o.service, SendCQ: q.scq.CQ, RecvCQ: q.rcq.CQ, SRQ: o.srq, SignalAll: o.signalAll,
		Cap: verbs.QPCap{MaxSendWR: o.depth, MaxRecvWR: o.depth, MaxSendSGE: o.sge, MaxRecvSGE: o.sge, MaxInlineData: o.inline}}
	if o.srq != nil {
		init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = 0, 0
	}
	var err error
	q.QP, err = o.pd.CreateQP(init)
	require.NoError(c, err)
	require.Equal(c, o.service, q.Service())
	c.qps = append(c.qps, q)
	q.mem = e.regionIn(o.pd, 4096, everyAccess)
	return q
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Destroy destroys the queue pair; further calls do nothing.
func (q *qp) Destroy() error {
	if q.gone {
		return nil
	}
	err := q.QP.Destroy()
	q.gone = err == nil
	return err
}

func (q *qp) query() verbs.QPAttr {
	attr, err := q.Query()
	require.NoError(q.c, err)
	return attr
}

func (q *qp) state() verbs.QPState { return q.query().State }

// attr returns all attributes for a change to a state.
func (q *qp) attr(to verbs.QPState) *verbs.QPAttr {
	a := &verbs.QPAttr{State: to, PathMTU: q.o.mtu, QKey: q.o.qkey, SQPSN: q.psn, Access: q.o.access, Port: q.e.port,
		PKeyIndex: q.o.pkey, AH: q.e.path(), MaxRdAtomic: q.o.rd, MaxDestRdAtomic: q.o.destRd,
		MinRNRTimer: 12, Timeout: 14, RetryCnt: 6, RNRRetry: q.o.rnrRetry}
	if q.o.quick {
		a.Timeout, a.RetryCnt, a.RNRRetry, a.MinRNRTimer = 10, 1, 1, 1
	}
	if q.peer != nil {
		a.DestQPN, a.RQPSN = q.peer.Num(), q.peer.psn
	}
	if q.destQPN != 0 {
		a.DestQPN = q.destQPN
	}
	return a
}

// path returns the address vector of the other end.
func (e *end) path() verbs.AHAttr {
	to := e.remote()
	if e.c.LocalRoutes {
		return verbs.AHAttr{Port: e.port, DLID: to.pattr.LID}
	}
	return verbs.AHAttr{Port: e.port, DLID: to.pattr.LID, IsGlobal: true, DGID: to.gid, SGIDIndex: e.index, HopLimit: 2}
}

// ah returns a new address handle of the other end.
func (e *end) ah(pd verbs.PD) verbs.AH {
	ah, err := pd.CreateAH(e.path())
	require.NoError(e.c, err)
	e.c.cleanup = append(e.c.cleanup, ah.Destroy)
	return ah
}

// move changes the state with the required attributes.
func (q *qp) move(to verbs.QPState) error { return q.moveWith(to, func(*verbs.QPAttr) {}) }

// moveWith changes the state with the required attributes, after change has modified them.
func (q *qp) moveWith(to verbs.QPState, change func(attr *verbs.QPAttr)) error {
	row, _ := verbs.FindTransition(q.Service(), q.state(), to)
	attr := q.attr(to)
	change(attr)
	return q.Modify(attr, verbs.AttrState|row.Required)
}

// moveTo moves a new queue pair to a state.
func (q *qp) moveTo(to verbs.QPState) {
	path := []verbs.QPState{verbs.StateInit, verbs.StateRTR, verbs.StateRTS}
	switch to {
	case verbs.StateReset:
		path = nil
	case verbs.StateInit, verbs.StateRTR, verbs.StateRTS:
		path = path[:to]
	case verbs.StateErr:
		path = []verbs.QPState{verbs.StateInit, verbs.StateErr}
	}
	for _, s := range path {
		require.NoError(q.c, q.move(s), "%s to %v", q.e.name, s)
	}
	switch to {
	case verbs.StateSQE:
		q.failSend()
	case verbs.StateSQD:
		q.moveToDrainedSQD()
	}
	require.Equal(q.c, to.String(), q.state().String())
}

// moveToDrainedSQD moves the queue pair from RTS to SQD and waits until the send queue is drained.
// Devices drain asynchronously, even an empty queue, and refuse to leave SQD until then.
func (q *qp) moveToDrainedSQD() {
	require.NoError(q.c, q.move(verbs.StateSQD), "%s to SQD", q.e.name)
	drained := func() bool { return !q.query().SQDraining }
	q.c.wait("the send queue of "+q.e.name+" to drain", drained)
}

// failSend moves a queue pair of UC or UD to SQE with a send that fails. Other cases check its
// status.
func (q *qp) failSend() {
	id := q.send(badLKey)
	wc := q.scq.await(1)[0]
	require.Equal(q.c, id, wc.ID)
	require.NotEqual(q.c, verbs.StatusSuccess.Native(), wc.Status.Native())
	q.awaitState(verbs.StateSQE)
}

// awaitState waits for a state. It fails at once in ERR, which a queue pair does not leave by
// itself.
func (q *qp) awaitState(s verbs.QPState) {
	q.c.wait("state "+s.String()+" of "+q.e.name, func() bool {
		now := q.state()
		require.False(q.c, now == verbs.StateErr && s != now, "%s is in ERR, not in %v", q.e.name, s)
		return now == s
	})
}

// ahHandle returns the address handle of the peer's end and creates it at the first call.
func (q *qp) ahHandle() uint64 {
	if q.ah == nil {
		q.ah = q.e.ah(q.o.pd)
	}
	return q.ah.Handle()
}

// wire is two connected queue pairs.
type wire struct {
	c    *caseRun
	a, b *qp
}

// pair returns two queue pairs in RESET with the same options and each other as peers.
func (c *caseRun) pair(o opts) *wire { return c.pairOf(o, o) }

// pairOf returns two queue pairs in RESET with each other as peers.
func (c *caseRun) pairOf(a, b opts) *wire {
	w := &wire{c, c.a.qp(a), c.b.qp(b)}
	w.a.peer, w.b.peer = w.b, w.a
	return w
}

// wire returns two connected queue pairs in RTS with the same options.
func (c *caseRun) wire(o opts) *wire { return c.wireOf(o, o) }

// wireOf returns two connected queue pairs in RTS.
func (c *caseRun) wireOf(a, b opts) *wire {
	w := c.pairOf(a, b)
	w.connect()
	return w
}

// connect moves both queue pairs from RESET to RTS.
func (w *wire) connect() {
	w.a.moveTo(verbs.StateRTS)
	w.b.moveTo(verbs.StateRTS)
}

// reset moves both queue pairs by way of ERR to RESET.
func (w *wire) reset() {
	for _, q := range []*qp{w.a, w.b} {
		require.NoError(w.c, q.move(verbs.StateErr))
		require.NoError(w.c, q.move(verbs.StateReset))
	}
}

// pings checks that both queue pairs work in both directions.
func (w *wire) pings() {
	w.a.ping()
	w.b.ping()
}

// id returns a new work request ID.
func (c *caseRun) id() uint64 {
	c.serial++
	return c.serial | 0xabcd<<48
}

// sendWR returns a signaled SEND of 64 bytes to the peer.
func (q *qp) sendWR(changes ...func(q *qp, wr *verbs.SendWR)) verbs.SendWR {
	wr := verbs.SendWR{ID: q.c.id(), Opcode: verbs.WRSend, Flags: verbs.SendSignaled, NumSGE: 1}
	wr.SGE[0] = q.mem.sge(0, 64)
	if q.Service() == verbs.ServiceUD {
		wr.AH, wr.RemoteQKey = q.ahHandle(), q.o.qkey
		if q.peer != nil {
			wr.RemoteQPN = q.peer.Num()
		}
	}
	for _, f := range changes {
		f(q, &wr)
	}
	return wr
}

// send posts the request of sendWR and returns its ID.
func (q *qp) send(changes ...func(q *qp, wr *verbs.SendWR)) uint64 {
	wr := q.sendWR(changes...)
	q.post(wr)
	return wr.ID
}

// post posts send requests, which must be accepted.
func (q *qp) post(wrs ...verbs.SendWR) {
	n, err := q.PostSend(wrs)
	require.NoError(q.c, err, "post send to %s in %v", q.e.name, q.state())
	require.Equal(q.c, len(wrs), n)
}

// recvWR returns a receive of up to 1024 bytes at offset 2048 of the queue pair's region.
func (q *qp) recvWR(changes ...func(q *qp, wr *verbs.RecvWR)) verbs.RecvWR {
	wr := verbs.RecvWR{ID: q.c.id(), NumSGE: 1}
	wr.SGE[0] = q.mem.sge(2048, 1024)
	for _, f := range changes {
		f(q, &wr)
	}
	return wr
}

// recv posts the receive of recvWR, to the shared receive queue if there is one, and returns its
// ID.
func (q *qp) recv(changes ...func(q *qp, wr *verbs.RecvWR)) uint64 {
	wr := q.recvWR(changes...)
	q.postRecv(wr)
	return wr.ID
}

// postRecv posts receives, which must be accepted.
func (q *qp) postRecv(wrs ...verbs.RecvWR) {
	post := q.PostRecv
	if q.o.srq != nil {
		post = q.o.srq.PostRecv
	}
	n, err := post(wrs)
	require.NoError(q.c, err, "post receive to %s in %v", q.e.name, q.state())
	require.Equal(q.c, len(wrs), n)
}

func badLKey(_ *qp, wr *verbs.SendWR) { wr.SGE[0].LKey ^= 0x00ffff00 }

func badRecvLKey(_ *qp, wr *verbs.RecvWR) { wr.SGE[0].LKey ^= 0x00ffff00 }

func unsignaled(_ *qp, wr *verbs.SendWR) { wr.Flags &^= verbs.SendSignaled }

// length changes the length of a request to n bytes.
func length(n int) func(*qp, *verbs.SendWR) {
	return func(_ *qp, wr *verbs.SendWR) { wr.SGE[0].Length = uint32(n) }
}

func recvLength(n int) func(*qp, *verbs.RecvWR) {
	return func(_ *qp, wr *verbs.RecvWR) { wr.SGE[0].Length = uint32(n) }
}

// remote turns a request into an operation, on the peer's region at offset 1024 if not a send.
func remote(op verbs.Opcode) func(*qp, *verbs.SendWR) {
	return func(q *qp, wr *verbs.SendWR) {
		wr.Opcode = op
		wr.RemoteAddr, wr.RKey = q.peer.mem.Addr()+1024, q.peer.mem.RKey()
		if op == verbs.WRAtomicCmpAndSwp || op == verbs.WRAtomicFetchAndAdd {
			wr.SGE[0].Length = 8
		}
		if op == verbs.WRRDMAWriteWithImm {
			wr.Imm = 0x01020304
		}
	}
}

// at changes the remote memory of a request.
func at(addr uint64, key uint32) func(*qp, *verbs.SendWR) {
	return func(_ *qp, wr *verbs.SendWR) { wr.RemoteAddr, wr.RKey = addr, key }
}

// withRegion changes the local memory of a request to the first 64 bytes of a region.
func withRegion(r *region) func(*qp, *verbs.SendWR) {
	return func(_ *qp, wr *verbs.SendWR) { wr.SGE[0] = r.sge(0, 64) }
}

func badRKey(_ *qp, wr *verbs.SendWR) { wr.RKey ^= 0x00ffff00 }

// ping sends a message to the peer to check that both queue pairs work.
func (q *qp) ping() {
	got := q.peer.recv()
	q.awaitSent(q.send())
	q.awaitMessage(got, 64)
}

// grhBytes returns the length of the global route header before each received message.
func (q *qp) grhBytes() int {
	if q.Service() == verbs.ServiceUD {
		return verbs.GRHBytes
	}
	return 0
}

// awaitMessage waits for a message of sendWR at the peer and checks its content.
func (q *qp) awaitMessage(id uint64, n int) {
	wc := q.peer.rcq.awaitOne(id, verbs.StatusSuccess)
	require.Equal(q.c, q.peer.Num(), wc.QPNum)
	grh := q.grhBytes()
	require.EqualValues(q.c, n+grh, wc.ByteLen, "bytes received")
	require.True(q.c, bytes.Equal(q.mem.buf[:n], q.peer.mem.buf[2048+grh:2048+grh+n]), "the data is not what was sent")
}

// awaitAll waits for the completions of these requests, in order, with the same status.
func (q *cq) awaitAll(status verbs.Status, ids ...uint64) {
	for _, id := range ids {
		q.awaitOne(id, status)
	}
}

// awaitSent waits until these send requests have succeeded, in order.
func (q *qp) awaitSent(ids ...uint64) { q.scq.awaitAll(verbs.StatusSuccess, ids...) }

func (q *cq) awaitFlushed(ids ...uint64) { q.awaitAll(verbs.StatusWRFlushErr, ids...) }

// requireRefused checks the result of a post that must be refused.
func (q *qp) requireRefused(n int, err error, what string) {
	require.Error(q.c, err, "%s", what)
	require.Zero(q.c, n, "%s: accepted", what)
	require.False(q.c, errors.Is(err, verbs.ErrQueueFull), "%s: %v", what, err)
}
