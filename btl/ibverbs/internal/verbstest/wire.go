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

// qkey of all UD queue pairs, unless a case wants another. Its top bit is clear: such a key is sent as it is.
const qkey = 0x11111111

var eachService = [...]verbs.Services{verbs.ServiceRC, verbs.ServiceUC, verbs.ServiceUD}

// end is a device with a protection domain.
type end struct {
	c      *c
	name   string
	dev    verbs.Device
	port   int
	index  int // of its GID
	gid    verbs.GID
	attr   verbs.DeviceAttr
	pattr  verbs.PortAttr
	pd     verbs.PD
	events []verbs.AsyncEvent // taken and acknowledged
}

func newEnd(c *c, name string, dev verbs.Device, port, index int) *end {
	e := &end{c: c, name: name, dev: dev, port: port, index: index}
	var err error
	e.attr, err = dev.Query()
	require.NoError(c, err)
	e.pattr, err = dev.QueryPort(port)
	require.NoError(c, err)
	gids, err := dev.GIDs(port)
	require.NoError(c, err)
	for _, g := range gids {
		if g.Index == index {
			e.gid = g.GID
		}
	}
	require.False(c, e.gid.IsZero(), "%s has no GID %d", name, index)
	e.pd = e.newPD()
	return e
}

func (e *end) newPD() verbs.PD {
	pd, err := e.dev.AllocPD()
	require.NoError(e.c, err)
	e.c.cleanup = append(e.c.cleanup, pd.Dealloc)
	return pd
}

func (e *end) other() *end {
	if e == e.c.a {
		return e.c.b
	}
	return e.c.a
}

// takeEvents takes all events that are there, and acknowledges them.
func (e *end) takeEvents() {
	for {
		ev, ok, err := e.dev.NextEvent()
		require.NoError(e.c, err, "events of %s", e.name)
		if !ok {
			return
		}
		e.dev.AckEvent(ev)
		e.c.mark(ev.Type.String())
		e.events = append(e.events, ev)
	}
}

// has counts the events of a kind that came; about, if not nil, is the object.
func (e *end) has(kind verbs.EventType, about any) (n int) {
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
	e.c.wait(kind.Native()+" of "+e.name, func() bool { return e.has(kind, about) > 0 })
}

// eventNames names the events that came, but for those of ports: a device may tell late of what a
// case before has done to the link.
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

// region is registered memory.
type region struct {
	verbs.MR
	buf  []byte
	gone bool
}

// region registers n bytes, which are counted up from a start of their own.
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
	e.c.cleanup = append(e.c.cleanup, func() error {
		if r.gone {
			return nil
		}
		return r.Dereg()
	})
	return r
}

// aligned makes n bytes that begin at a multiple of 64.
func aligned(n int) []byte {
	buf := make([]byte, n+64)
	off := int(-uintptr(unsafe.Pointer(&buf[0])) & 63)
	return buf[off : off+n : off+n]
}

func (r *region) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: r.Addr() + uint64(off), Length: uint32(n), LKey: r.LKey()}
}

// cq is a completion queue, and what was taken from it.
type cq struct {
	verbs.CQ
	c    *c
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

// Destroy destroys it once.
func (q *cq) Destroy() error {
	if q.gone {
		return nil
	}
	err := q.CQ.Destroy()
	q.gone = err == nil
	return err
}

// poll takes what is there.
func (q *cq) poll() {
	var wcs [4]verbs.WC
	for {
		n, err := q.Poll(wcs[:])
		require.NoError(q.c, err, "poll")
		for _, wc := range wcs[:n] {
			q.c.mark(wc.Status.String())
			q.got = append(q.got, wc)
		}
		if n < len(wcs) {
			return
		}
	}
}

// await takes the next n completions.
func (q *cq) await(n int) []verbs.WC {
	q.c.wait(fmt.Sprintf("%d completions of %s", n, q.name), func() bool {
		q.poll()
		return len(q.got) >= n
	})
	wcs := q.got[:n:n]
	q.got = q.got[n:]
	return wcs
}

// one takes the next completion and checks its status and whose it is.
func (q *cq) one(id uint64, status verbs.Status) verbs.WC {
	wc := q.await(1)[0]
	require.Equal(q.c, status.Native(), wc.Status.Native(), "status of request %d", id)
	require.Equal(q.c, id, wc.ID, "which request")
	return wc
}

// none checks that there is no completion now.
func (q *cq) none(why string) {
	q.poll()
	require.Empty(q.c, q.got, "a completion, but %s", why)
}

// opts is how a queue pair is made. The zero of each stands for what is usual.
type opts struct {
	service   verbs.Services
	depth     int // of each queue
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
	rd        uint8 // as requester
	destRd    uint8 // as responder
	quick     bool  // give up soon when there is no answer, or no receive
	qkey      uint32
	pkey      uint16
	psn       uint32
}

// qp is a queue pair, its queues, and the one that it is to talk to.
type qp struct {
	verbs.QP
	c        *c
	e        *end
	o        opts
	peer     *qp
	destQPN  uint32 // if not 0, instead of the peer's
	scq, rcq *cq
	psn      uint32
	ah       verbs.AH
	mem      *region
	gone     bool
}

func (e *end) qp(o opts) *qp {
	c := e.c
	def(&o.depth, 16)
	def(&o.sge, 2)
	def(&o.cqEntries, 2*o.depth+8)
	def(&o.access, everyAccess)
	def(&o.rd, 4)
	def(&o.destRd, 4)
	def(&o.qkey, qkey)
	def(&o.mtu, min(c.a.pattr.ActiveMTU, c.b.pattr.ActiveMTU))
	def(&o.psn, rand.Uint32N(1<<24))
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

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Destroy destroys it once.
func (q *qp) Destroy() error {
	if q.gone {
		return nil
	}
	err := q.QP.Destroy()
	if q.gone = err == nil; q.gone && q.ah != nil {
		err = q.ah.Destroy()
	}
	return err
}

func (q *qp) state() verbs.QPState {
	attr, err := q.Query()
	require.NoError(q.c, err)
	return attr.State
}

// attr is all attributes as they have to be for a state.
func (q *qp) attr(to verbs.QPState) *verbs.QPAttr {
	a := &verbs.QPAttr{State: to, PathMTU: q.o.mtu, QKey: q.o.qkey, SQPSN: q.psn, Access: q.o.access, Port: q.e.port,
		PKeyIndex: q.o.pkey, AH: q.e.way(), MaxRdAtomic: q.o.rd, MaxDestRdAtomic: q.o.destRd, MinRNRTimer: 12, Timeout: 14, RetryCnt: 6, RNRRetry: 6}
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

// way is the way to the other end.
func (e *end) way() verbs.AHAttr {
	to := e.other()
	return verbs.AHAttr{Port: e.port, DLID: to.pattr.LID, IsGlobal: true, DGID: to.gid, SGIDIndex: e.index, HopLimit: 1}
}

// move changes the state with what is required.
func (q *qp) move(to verbs.QPState) error {
	from := q.state()
	row, _ := verbs.FindTransition(q.Service(), from, to)
	return q.Modify(q.attr(to), verbs.AttrState|row.Required)
}

// bring brings a new queue pair, of the wire's end A or B, to a state.
func (q *qp) bring(to verbs.QPState) {
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
		q.hold()
	}
	require.Equal(q.c, to.String(), q.state().String())
}

// hold goes from RTS to SQD and waits until the send queue is drained. Devices drain
// asynchronously, even a queue that has nothing under way, and refuse to leave SQD until they are
// done.
func (q *qp) hold() {
	require.NoError(q.c, q.move(verbs.StateSQD), "%s to SQD", q.e.name)
	q.c.wait("the send queue of "+q.e.name+" to drain", func() bool {
		attr, err := q.Query()
		require.NoError(q.c, err)
		return !attr.SQDraining
	})
}

// failSend brings UC or UD to SQE by a send that fails here; how it fails is another case's matter.
func (q *qp) failSend() {
	id := q.send(badLKey)
	wc := q.scq.await(1)[0]
	require.Equal(q.c, id, wc.ID)
	require.NotEqual(q.c, verbs.StatusSuccess.Native(), wc.Status.Native())
	q.becomes(verbs.StateSQE)
}

// becomes waits for a state. From ERR no other comes by itself.
func (q *qp) becomes(s verbs.QPState) {
	q.c.wait("state "+s.String()+" of "+q.e.name, func() bool {
		now := q.state()
		require.False(q.c, now == verbs.StateErr && s != now, "%s is in ERR, not in %v", q.e.name, s)
		return now == s
	})
}

// address is the AH of the peer's end, made when first needed.
func (q *qp) address() uint64 {
	if q.ah == nil {
		ah, err := q.o.pd.CreateAH(q.e.way())
		require.NoError(q.c, err)
		q.ah = ah
	}
	return q.ah.Handle()
}

// wire is two queue pairs that talk to each other.
type wire struct {
	c    *c
	a, b *qp
}

// pair makes two queue pairs in RESET, each the other's peer.
func (c *c) pair(o opts) *wire {
	w := &wire{c, c.a.qp(o), c.b.qp(o)}
	w.a.peer, w.b.peer = w.b, w.a
	return w
}

// wire makes two queue pairs that are RTS.
func (c *c) wire(o opts) *wire {
	w := c.pair(o)
	w.a.bring(verbs.StateRTS)
	w.b.bring(verbs.StateRTS)
	return w
}

// id is a new identity of a work request.
func (c *c) id() uint64 {
	c.serial++
	return c.serial | 0xabcd<<48
}

// sendWR is a signaled SEND of 64 bytes of the own region to the peer.
func (q *qp) sendWR(changes ...func(q *qp, wr *verbs.SendWR)) verbs.SendWR {
	wr := verbs.SendWR{ID: q.c.id(), Opcode: verbs.WRSend, Flags: verbs.SendSignaled, NumSGE: 1}
	wr.SGE[0] = q.mem.sge(0, 64)
	if q.Service() == verbs.ServiceUD {
		wr.AH, wr.RemoteQKey = q.address(), q.o.qkey
		if q.peer != nil {
			wr.RemoteQPN = q.peer.Num()
		}
	}
	for _, f := range changes {
		f(q, &wr)
	}
	return wr
}

// send posts one, and gives its ID.
func (q *qp) send(changes ...func(q *qp, wr *verbs.SendWR)) uint64 {
	wr := q.sendWR(changes...)
	n, err := q.PostSend([]verbs.SendWR{wr})
	require.NoError(q.c, err, "post send to %s in %v", q.e.name, q.state())
	require.Equal(q.c, 1, n)
	return wr.ID
}

// recvWR is a receive of up to 1024 bytes at offset 2048 of the own region.
func (q *qp) recvWR(changes ...func(q *qp, wr *verbs.RecvWR)) verbs.RecvWR {
	wr := verbs.RecvWR{ID: q.c.id(), NumSGE: 1}
	wr.SGE[0] = q.mem.sge(2048, 1024)
	for _, f := range changes {
		f(q, &wr)
	}
	return wr
}

// recv posts one, to the shared receive queue if there is one, and gives its ID.
func (q *qp) recv(changes ...func(q *qp, wr *verbs.RecvWR)) uint64 {
	wr := q.recvWR(changes...)
	post := q.PostRecv
	if q.o.srq != nil {
		post = q.o.srq.PostRecv
	}
	n, err := post([]verbs.RecvWR{wr})
	require.NoError(q.c, err, "post receive to %s in %v", q.e.name, q.state())
	require.Equal(q.c, 1, n)
	return wr.ID
}

func badLKey(_ *qp, wr *verbs.SendWR) { wr.SGE[0].LKey ^= 0x00ffff00 }

func badRecvLKey(_ *qp, wr *verbs.RecvWR) { wr.SGE[0].LKey ^= 0x00ffff00 }

func unsignaled(_ *qp, wr *verbs.SendWR) { wr.Flags &^= verbs.SendSignaled }

// length makes it n bytes long.
func length(n int) func(*qp, *verbs.SendWR) {
	return func(_ *qp, wr *verbs.SendWR) { wr.SGE[0].Length = uint32(n) }
}

func recvLength(n int) func(*qp, *verbs.RecvWR) {
	return func(_ *qp, wr *verbs.RecvWR) { wr.SGE[0].Length = uint32(n) }
}

// remote makes it a request for memory of the peer's region at offset 1024.
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

func badRKey(_ *qp, wr *verbs.SendWR) { wr.RKey ^= 0x00ffff00 }

// carry sends a message from one queue pair to its peer, which shows that both work.
func (q *qp) carry() {
	got := q.peer.recv()
	sent := q.send()
	q.scq.one(sent, verbs.StatusSuccess)
	q.arrived(got, 64)
}

// arrived awaits a message at the peer that recvWR and sendWR made.
func (q *qp) arrived(id uint64, n int) {
	wc := q.peer.rcq.one(id, verbs.StatusSuccess)
	require.Equal(q.c, q.peer.Num(), wc.QPNum)
	grh := 0
	if q.Service() == verbs.ServiceUD {
		grh = verbs.GRHBytes
	}
	require.EqualValues(q.c, n+grh, wc.ByteLen, "bytes received")
	require.True(q.c, bytes.Equal(q.mem.buf[:n], q.peer.mem.buf[2048+grh:2048+grh+n]), "what arrived is not what was sent")
}

// flushed awaits flushes of exactly these requests, in order.
func (q *cq) flushed(ids ...uint64) {
	for _, id := range ids {
		q.one(id, verbs.StatusWRFlushErr)
	}
}

// refused checks a post that must not take anything.
func (q *qp) refused(n int, err error, what string) {
	require.Error(q.c, err, "%s", what)
	require.Zero(q.c, n, "%s: taken", what)
	require.False(q.c, errors.Is(err, verbs.ErrQueueFull), "%s: %v", what, err)
}
