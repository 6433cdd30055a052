//go:build ibverbs && cgo && linux

package libibverbs

import (
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/internal/rdma"
)

const (
	udToInit = verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrQKey
	udKey    = 0x1234
)

func ud(t *testing.T, e *end) verbs.QP {
	t.Helper()
	q := e.qp(verbs.QPInit{Service: verbs.ServiceUD})
	attr := verbs.QPAttr{Port: 1, QKey: udKey, State: verbs.StateInit}
	require.NoError(t, q.Modify(&attr, udToInit))
	attr.State = verbs.StateRTR
	require.NoError(t, q.Modify(&attr, verbs.AttrState))
	attr.State = verbs.StateRTS
	require.NoError(t, q.Modify(&attr, verbs.AttrState|verbs.AttrSQPSN))
	return q
}

func TestDeviceDatagramNeedsAddressHandle(t *testing.T) {
	a, b := open(t)
	qa, qb := ud(t, a), ud(t, b)
	to := verbs.AHAttr{Port: 1, DLID: b.port.LID, IsGlobal: true, DGID: b.gid.GID, SGIDIndex: a.gid.Index, HopLimit: 64}
	ah, err := a.pd.CreateAH(to)
	require.NoError(t, err)
	fill(a.mem[:1000], 3)
	receive(t, qb, verbs.RecvWR{ID: 5, NumSGE: 1, SGE: b.sge(0, 4096)})
	wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, NumSGE: 1, SGE: a.sge(0, 1000),
		RemoteQPN: qb.Num(), RemoteQKey: udKey, AH: ah.Handle()}
	post(t, qa, wr)
	wc := succeeded(t, b.cq, 1)[0]
	assert.Equal(t, uint32(verbs.GRHBytes+1000), wc.ByteLen)
	assert.Equal(t, verbs.WCGRH, wc.Flags&verbs.WCGRH)
	assert.Equal(t, qa.Num(), wc.SrcQP)
	assert.Equal(t, a.mem[:1000], b.mem[verbs.GRHBytes:verbs.GRHBytes+1000])
	succeeded(t, a.cq, 1)

	// Posts with invalid handles are refused; the valid request before them is accepted.
	otherPD, err := a.dev.AllocPD()
	require.NoError(t, err)
	foreign, err := otherPD.CreateAH(to)
	require.NoError(t, err)
	assert.ErrorIs(t, otherPD.Dealloc(), verbs.ErrBusy)
	require.NoError(t, ah.Destroy())
	assert.ErrorIs(t, ah.Destroy(), verbs.ErrGone)
	ah2, err := a.pd.CreateAH(to) // reuses the slot of the first
	require.NoError(t, err)
	good := wr
	good.AH = ah2.Handle()
	for name, handle := range map[string]uint64{
		"none": 0, "stale": ah.Handle(), "foreign": foreign.Handle(), "wild": 1 << 20, "pointer": 0x7fff12345678, "all ones": ^uint64(0),
	} {
		wr.AH = handle
		receive(t, qb, verbs.RecvWR{NumSGE: 1, SGE: b.sge(0, 4096)})
		n, err := qa.PostSend([]verbs.SendWR{good, wr, good})
		assert.Equal(t, 1, n, name)
		assert.ErrorIs(t, err, verbs.ErrInvalid, name)
		succeeded(t, a.cq, 1)
		succeeded(t, b.cq, 1)
	}
	require.NoError(t, foreign.Destroy())
	require.NoError(t, otherPD.Dealloc())
	require.NoError(t, ah2.Destroy())
}

// next waits for a wanted event and acknowledges all events.
func next(t *testing.T, dev verbs.Device, wanted func(verbs.AsyncEvent) bool) verbs.AsyncEvent {
	t.Helper()
	called := make(chan struct{}, 1)
	dev.Notify(func() {
		select {
		case called <- struct{}{}:
		default:
		}
	})
	defer dev.Notify(nil)
	timeout := time.After(patience)
	for {
		ev, ok, err := dev.NextEvent()
		require.NoError(t, err)
		if ok {
			dev.AckEvent(ev)
			if wanted(ev) {
				return ev
			}
			continue
		}
		select {
		case <-called:
		case <-timeout:
			require.FailNow(t, "no such event")
		}
	}
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(t, err, "ip %v: %s", args, out)
}

func TestDeviceLinkDownRaisesPortErr(t *testing.T) {
	a, b := open(t)
	link := a.netdev(t)
	for range 3 {
		ip(t, "link", "set", link, "down")
		for _, e := range []*end{a, b} {
			ev := next(t, e.dev, func(ev verbs.AsyncEvent) bool { return ev.Type == verbs.EventPortErr })
			assert.Equal(t, 1, ev.Port)
		}
		port, err := a.dev.QueryPort(1)
		require.NoError(t, err)
		assert.False(t, port.State.Up())
		ip(t, "link", "set", link, "up")
		for _, e := range []*end{a, b} {
			next(t, e.dev, func(ev verbs.AsyncEvent) bool { return ev.Type == verbs.EventPortActive })
		}
	}
}

// netdev returns the network device of the end.
func (e *end) netdev(t *testing.T) string {
	t.Helper()
	for _, g := range rdma.ReadPort("/", e.dev.Name(), 1).GIDs {
		if g.NetDev != "" {
			return g.NetDev
		}
	}
	require.FailNow(t, "no network device")
	return ""
}

func TestDeviceReqNotifyRaisesOneEvent(t *testing.T) {
	a, b := open(t)
	ch, err := b.dev.CreateCompChannel()
	require.NoError(t, err)
	cq, err := b.dev.CreateCQ(64, ch)
	require.NoError(t, err)
	assert.ErrorIs(t, ch.Destroy(), verbs.ErrBusy)
	qa := a.qp(verbs.QPInit{Service: verbs.ServiceRC})
	qb := b.qp(verbs.QPInit{Service: verbs.ServiceRC, RecvCQ: cq})
	connect(t, a, qa, b, qb, nil)
	connect(t, b, qb, a, qa, nil)
	assert.ErrorIs(t, cq.Destroy(), verbs.ErrBusy)
	assert.ErrorIs(t, b.cq.ReqNotify(false), verbs.ErrInvalid, "the queue has no channel")

	called := make(chan struct{}, 100)
	ch.Notify(func() { called <- struct{}{} })
	const rounds = 20
	for i := range rounds {
		_, ok, err := ch.NextEvent()
		require.NoError(t, err)
		require.False(t, ok)
		require.NoError(t, cq.ReqNotify(i%2 == 1))
		receive(t, qb, verbs.RecvWR{NumSGE: 1, SGE: b.sge(0, 100)})
		post(t, qa, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendSolicited, NumSGE: 1, SGE: a.sge(0, 100)})
		select {
		case <-called:
		case <-time.After(patience):
			require.FailNow(t, "Notify's function was not called", "round %d", i)
		}
		got, ok, err := ch.NextEvent()
		require.NoError(t, err)
		require.True(t, ok)
		require.Same(t, cq, got)
		succeeded(t, cq, 1)
		succeeded(t, a.cq, 1)
	}
	assert.LessOrEqual(t, len(called), 1, "one call per event")

	// The queue cannot be destroyed before all events are acknowledged. Excess acknowledgments have
	// no effect.
	require.NoError(t, qb.Destroy())
	cq.AckEvents(rounds - 1)
	assert.ErrorIs(t, cq.Destroy(), verbs.ErrBusy)
	cq.AckEvents(1000)
	cq.AckEvents(-1)
	require.NoError(t, cq.Destroy())
	assert.ErrorIs(t, cq.Destroy(), verbs.ErrGone)
	require.NoError(t, ch.Destroy())
}

// A shared receive queue raises SRQ_LIMIT_REACHED below its limit, and cannot be destroyed before
// the event is acknowledged.
func TestDeviceDestroySRQWithUnackedEventFails(t *testing.T) {
	a, b := open(t)
	s, err := b.pd.CreateSRQ(verbs.SRQInit{MaxWR: 16, MaxSGE: 1, Limit: 3})
	require.NoError(t, err)
	qa := a.qp(verbs.QPInit{Service: verbs.ServiceRC})
	qb := b.qp(verbs.QPInit{Service: verbs.ServiceRC, SRQ: s})
	connect(t, a, qa, b, qb, nil)
	connect(t, b, qb, a, qa, nil)
	_, err = qb.PostRecv([]verbs.RecvWR{{}})
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	n, err := s.PostRecv([]verbs.RecvWR{{NumSGE: 1, SGE: b.sge(0, 10)}, {NumSGE: 1, SGE: b.sge(10, 10)}, {NumSGE: 1, SGE: b.sge(20, 10)}})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	post(t, qa, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, NumSGE: 1, SGE: a.sge(0, 10)})
	succeeded(t, b.cq, 1)

	var ev verbs.AsyncEvent
	require.Eventually(t, func() bool {
		var ok bool
		ev, ok, err = b.dev.NextEvent()
		require.NoError(t, err)
		return ok && ev.Type == verbs.EventSRQLimitReached
	}, patience, time.Millisecond)
	require.Same(t, s, ev.SRQ)
	require.NoError(t, qb.Destroy())
	assert.ErrorIs(t, s.Destroy(), verbs.ErrBusy, "the library would hang")
	b.dev.AckEvent(ev)
	b.dev.AckEvent(ev) // no event is left to acknowledge
	require.NoError(t, s.Destroy())
	assert.ErrorIs(t, s.Destroy(), verbs.ErrGone)
	assert.ErrorIs(t, s.SetLimit(1), verbs.ErrGone)
	b.dev.AckEvent(ev)
}

// A drained queue pair raises SQ_DRAINED, and cannot be destroyed before that event is
// acknowledged.
func TestDeviceDestroyQPWithUnackedEventFails(t *testing.T) {
	a, b := open(t)
	qa, _ := rc(t, a, b, nil)
	require.NoError(t, qa.Modify(&verbs.QPAttr{State: verbs.StateSQD, EnSQDAsyncNotify: true}, verbs.AttrState|verbs.AttrEnSQDAsyncNotify))
	var drained verbs.AsyncEvent
	require.Eventually(t, func() bool {
		ev, ok, err := a.dev.NextEvent()
		require.NoError(t, err)
		if ok && ev.Type != verbs.EventSQDrained {
			a.dev.AckEvent(ev)
			return false
		}
		drained = ev
		return ok
	}, patience, time.Millisecond)
	require.Same(t, qa, drained.QP)
	require.ErrorIs(t, qa.Destroy(), verbs.ErrBusy)
	a.dev.AckEvent(drained)
	require.NoError(t, qa.Destroy())
}

// A completion queue that overruns fails, and cannot be destroyed before CQ_ERR is acknowledged.
func TestDeviceCQOverrunRaisesCQErr(t *testing.T) {
	a, b := open(t)
	cq, err := a.dev.CreateCQ(4, nil)
	require.NoError(t, err)
	qa := a.qp(verbs.QPInit{Service: verbs.ServiceRC, SendCQ: cq, RecvCQ: cq})
	qb := b.qp(verbs.QPInit{Service: verbs.ServiceRC})
	connect(t, a, qa, b, qb, nil)
	connect(t, b, qb, a, qa, nil)
	for range cq.Entries() + 20 {
		post(t, qa, verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, NumSGE: 1, SGE: a.sge(0, 8), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
	}
	var events []verbs.AsyncEvent
	require.Eventually(t, func() bool {
		ev, ok, err := a.dev.NextEvent()
		require.NoError(t, err)
		if ok {
			require.Equal(t, verbs.EventCQErr, ev.Type)
			require.Same(t, cq, ev.CQ)
			events = append(events, ev)
		}
		return len(events) > 0 && !ok
	}, patience, 10*time.Millisecond)
	require.NoError(t, qa.Destroy())
	for _, ev := range events {
		assert.ErrorIs(t, cq.Destroy(), verbs.ErrBusy)
		a.dev.AckEvent(ev)
	}
	require.NoError(t, cq.Destroy())
}

// A wrong R_Key fails both queue pairs, which work again after RESET. Devices differ in the events
// that they raise.
func TestDeviceWrongRKeyFailsQueuePairs(t *testing.T) {
	a, b := open(t)
	qa, qb := rc(t, a, b, nil)
	receive(t, qb, verbs.RecvWR{ID: 8, NumSGE: 1, SGE: b.sge(0, 10)}, verbs.RecvWR{ID: 9, NumSGE: 1, SGE: b.sge(0, 10)})
	wr := verbs.SendWR{ID: 1, Opcode: verbs.WRRDMAWrite, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey() ^ 0xffff00, Flags: verbs.SendSignaled,
		NumSGE: 1, SGE: a.sge(0, 10)}
	next := wr
	next.ID = 2
	post(t, qa, wr, next)
	wcs := completions(t, a.cq, 2)
	assert.Equal(t, verbs.StatusRemAccessErr, wcs[0].Status)
	assert.Equal(t, uint64(1), wcs[0].ID)
	assert.Equal(t, verbs.StatusWRFlushErr, wcs[1].Status)
	assert.Equal(t, uint64(2), wcs[1].ID)
	assert.Equal(t, qa.Num(), wcs[1].QPNum)
	for _, wc := range completions(t, b.cq, 2) {
		assert.Equal(t, verbs.StatusWRFlushErr, wc.Status)
	}
	got, err := qa.Query()
	require.NoError(t, err)
	assert.Equal(t, verbs.StateErr, got.State)

	// Modify uses the state that the device changed by itself.
	attr := verbs.QPAttr{State: verbs.StateSQD}
	var te *verbs.TransitionError
	require.ErrorAs(t, qb.Modify(&attr, verbs.AttrState), &te)
	assert.Equal(t, verbs.StateErr, te.From)
	assert.ErrorIs(t, te, verbs.ErrInvalid)
	// In ERR, requests are flushed.
	next.ID = 3
	post(t, qa, next)
	wc := completions(t, a.cq, 1)[0]
	assert.Equal(t, verbs.StatusWRFlushErr, wc.Status)
	assert.Equal(t, uint64(3), wc.ID)

	// After RESET, the queue pairs work again.
	for _, q := range []verbs.QP{qa, qb} {
		require.NoError(t, q.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
	}
	connect(t, a, qa, b, qb, nil)
	connect(t, b, qb, a, qa, nil)
	wr.RKey = b.mr.RKey()
	post(t, qa, wr)
	succeeded(t, a.cq, 1)
	for {
		ev, ok, err := b.dev.NextEvent()
		require.NoError(t, err)
		if !ok {
			break
		}
		t.Logf("responder event %v", ev.Type)
		b.dev.AckEvent(ev)
	}
}

func TestDeviceErrorFlushesReceivesInOrder(t *testing.T) {
	a, b := open(t)
	qa, qb := rc(t, a, b, nil)
	var recvs []verbs.RecvWR
	for i := range 40 { // more than one chunk
		recvs = append(recvs, verbs.RecvWR{ID: uint64(100 + i), NumSGE: 1, SGE: b.sge(0, 10)})
	}
	receive(t, qb, recvs...)
	require.NoError(t, qb.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
	for i, wc := range completions(t, b.cq, 40) {
		assert.Equal(t, verbs.StatusWRFlushErr, wc.Status)
		assert.Equal(t, uint64(100+i), wc.ID)
		assert.Equal(t, qb.Num(), wc.QPNum)
	}
	_ = qa
}

func TestDevicePostToFullQueueFails(t *testing.T) {
	a, b := open(t)
	qa, qb := rc(t, a, b, nil)
	// The peer has posted no receive and RNR retries are unlimited, so nothing completes.
	wrs := make([]verbs.SendWR, 300)
	for i := range wrs {
		wrs[i] = verbs.SendWR{ID: uint64(i), Opcode: verbs.WRSend, Flags: verbs.SendSignaled, NumSGE: 1, SGE: a.sge(0, 8)}
	}
	n, err := qa.PostSend(wrs)
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	assert.ErrorIs(t, err, unix.ENOMEM)
	assert.GreaterOrEqual(t, n, qa.Cap().MaxSendWR)
	assert.Less(t, n, len(wrs))
	t.Logf("%d of %d accepted with a capacity of %d", n, len(wrs), qa.Cap().MaxSendWR)
	n2, err := qa.PostSend(wrs[:1])
	assert.Zero(t, n2)
	require.ErrorIs(t, err, verbs.ErrQueueFull)

	recvs := make([]verbs.RecvWR, 300)
	for i := range recvs {
		recvs[i] = verbs.RecvWR{ID: uint64(i), NumSGE: 1, SGE: b.sge(0, 8)}
	}
	m := 0
	for done := 0; done < n; { // exactly the accepted requests complete, in order
		k, err := qb.PostRecv(recvs[m:n])
		if err != nil {
			require.ErrorIs(t, err, verbs.ErrQueueFull)
		}
		m += k
		for _, wc := range succeeded(t, a.cq, 1) {
			require.Equal(t, uint64(done), wc.ID)
			done++
		}
		_, err = b.cq.Poll(make([]verbs.WC, 64))
		require.NoError(t, err)
	}

	// A malformed request ends the batch, even after the first chunk.
	bad := wrs[:50]
	for i := range bad {
		bad[i].Opcode, bad[i].RemoteAddr, bad[i].RKey = verbs.WRRDMAWrite, b.mr.Addr(), b.mr.RKey()
	}
	for _, malform := range []func(*verbs.SendWR){
		func(w *verbs.SendWR) { w.NumSGE = 5 },
		func(w *verbs.SendWR) { w.NumSGE = 1 << 31 },
		func(w *verbs.SendWR) { w.Opcode = 99 },
		func(w *verbs.SendWR) { w.Flags = 1 << 31 },
	} {
		keep := bad[40]
		malform(&bad[40])
		n, err := qa.PostSend(bad)
		assert.Equal(t, 40, n)
		assert.ErrorIs(t, err, verbs.ErrInvalid)
		bad[40] = keep
		succeeded(t, a.cq, 40)
	}
	n, err = qb.PostRecv([]verbs.RecvWR{{NumSGE: 1, SGE: b.sge(0, 8)}, {NumSGE: 5}})
	assert.Equal(t, 1, n)
	assert.ErrorIs(t, err, verbs.ErrInvalid)
}

func TestDeviceWrongTransitionIsRefused(t *testing.T) {
	a, b := open(t)
	q := a.qp(verbs.QPInit{Service: verbs.ServiceRC})
	_, err := q.PostSend([]verbs.SendWR{{}})
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	assert.ErrorContains(t, err, "RESET")
	_, err = q.PostRecv([]verbs.RecvWR{{}})
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	var te *verbs.TransitionError
	require.ErrorAs(t, q.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState), &te)
	assert.True(t, te.NoSuch)
	attr := rcAttr(a, b, 1)
	attr.State = verbs.StateInit
	require.ErrorAs(t, q.Modify(&attr, toInit&^verbs.AttrPort), &te)
	assert.Equal(t, verbs.AttrPort, te.Missing)
	// Only the device can find this error. The message contains the transition.
	attr.Port = 77
	err = q.Modify(&attr, toInit)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	assert.ErrorContains(t, err, "from RESET to INIT")
	attr.Port = 0
	assert.ErrorIs(t, q.Modify(&attr, toInit), verbs.ErrInvalid)
	attr.Port = 1
	require.NoError(t, q.Modify(&attr, toInit))
	_, err = q.PostSend([]verbs.SendWR{{}})
	assert.ErrorContains(t, err, "INIT")
	receive(t, q, verbs.RecvWR{NumSGE: 1, SGE: a.sge(0, 8)})
	attr.State, attr.AH.SGIDIndex = verbs.StateRTR, 256
	assert.ErrorIs(t, q.Modify(&attr, toRTR), verbs.ErrInvalid)
	attr.AH.SGIDIndex = 255 // an empty entry
	assert.Error(t, q.Modify(&attr, toRTR))
	got, err := q.Query()
	require.NoError(t, err)
	assert.Equal(t, verbs.StateInit, got.State)
}

func TestDeviceCallsOnDestroyedObjectsFail(t *testing.T) {
	a, _ := open(t)
	p, err := New()
	require.NoError(t, err)
	dev, err := p.Open(a.dev.Name())
	require.NoError(t, err)
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	ch, err := dev.CreateCompChannel()
	require.NoError(t, err)
	cq, err := dev.CreateCQ(10, ch)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, cq.Entries(), 10)
	mr, err := pd.RegMR(a.mem, verbs.AccessLocalWrite)
	require.NoError(t, err)
	srq, err := pd.CreateSRQ(verbs.SRQInit{MaxWR: 4, MaxSGE: 1})
	require.NoError(t, err)
	init := verbs.QPInit{Service: verbs.ServiceRC, SendCQ: cq, RecvCQ: cq, SRQ: srq, Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1}}
	qp, err := pd.CreateQP(init)
	require.NoError(t, err)

	// Invalid arguments.
	_, err = dev.CreateCQ(0, nil)
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = pd.CreateQP(verbs.QPInit{Service: verbs.ServiceRC, SendCQ: cq})
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = pd.CreateQP(verbs.QPInit{Service: verbs.AllServices, SendCQ: cq, RecvCQ: cq})
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = pd.CreateQP(verbs.QPInit{Service: verbs.ServiceRC, SendCQ: a.cq, RecvCQ: cq})
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	huge := init
	huge.Cap.MaxSendWR = 1 << 30
	_, err = pd.CreateQP(huge)
	assert.Error(t, err)
	_, err = pd.RegMR(nil, 0)
	assert.ErrorIs(t, err, verbs.ErrInvalid)

	for _, used := range []func() error{dev.Close, pd.Dealloc, ch.Destroy, cq.Destroy, srq.Destroy} {
		assert.ErrorIs(t, used(), verbs.ErrBusy)
	}
	for _, destroy := range []func() error{qp.Destroy, srq.Destroy, mr.Dereg, cq.Destroy, ch.Destroy, pd.Dealloc, dev.Close} {
		require.NoError(t, destroy())
	}
	events := func() error { _, _, err := dev.NextEvent(); return err }
	for name, call := range map[string]func() error{
		"qp": qp.Destroy, "srq": srq.Destroy, "mr": mr.Dereg, "cq": cq.Destroy, "channel": ch.Destroy, "pd": pd.Dealloc, "close": dev.Close,
		"events": events, "attr": func() error { _, err := dev.Query(); return err },
		"port":   func() error { _, err := dev.QueryPort(1); return err },
		"gids":   func() error { _, err := dev.GIDs(1); return err },
		"pkey":   func() error { _, err := dev.PKey(1, 0); return err },
		"new pd": func() error { _, err := dev.AllocPD(); return err },
		"new ch": func() error { _, err := dev.CreateCompChannel(); return err },
		"new cq": func() error { _, err := dev.CreateCQ(1, nil); return err },
		"reg":    func() error { _, err := pd.RegMR(a.mem, 0); return err },
		"ah":     func() error { _, err := pd.CreateAH(verbs.AHAttr{Port: 1}); return err },
		"new qp": func() error { _, err := pd.CreateQP(init); return err },
		"newsrq": func() error { _, err := pd.CreateSRQ(verbs.SRQInit{MaxWR: 1}); return err },
		"poll":   func() error { _, err := cq.Poll(make([]verbs.WC, 1)); return err },
		"arm":    func() error { return cq.ReqNotify(false) },
		"cqev":   func() error { _, _, err := ch.NextEvent(); return err },
		"modify": func() error { return qp.Modify(&verbs.QPAttr{}, verbs.AttrState) },
		"query":  func() error { _, err := qp.Query(); return err },
		"send":   func() error { _, err := qp.PostSend(make([]verbs.SendWR, 1)); return err },
		"recv":   func() error { _, err := qp.PostRecv(make([]verbs.RecvWR, 1)); return err },
		"srqrcv": func() error { _, err := srq.PostRecv(make([]verbs.RecvWR, 1)); return err },
		"limit":  func() error { return srq.SetLimit(1) },
	} {
		assert.ErrorIs(t, call(), verbs.ErrGone, name)
	}
	dev.Notify(func() {})
	ch.Notify(func() {})
	cq.AckEvents(1)
	dev.AckEvent(verbs.AsyncEvent{QP: qp})
}

// RegMR beyond RLIMIT_MEMLOCK fails with advice. The thread gives up the capability to lock any
// amount.
func TestDeviceRegMRBeyondLimitFails(t *testing.T) {
	a, _ := open(t)
	mem := offHeap(t, 1<<20)
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	require.NoError(t, unix.Capget(&header, &sets[0]))
	sets[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	require.NoError(t, unix.Capset(&header, &sets[0]))
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 256 << 10, Max: before.Max}))
	defer func() { assert.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before)) }()

	_, err := a.pd.RegMR(mem, verbs.AccessLocalWrite)
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	t.Log(err)
	for _, word := range []string{"1048576", "262144", "RLIMIT_MEMLOCK", "ulimit -l", "limits.conf", "LimitMEMLOCK", "--ulimit memlock"} {
		assert.ErrorContains(t, err, word)
	}
	assert.NotContains(t, err.Error(), "\n")
	mr, err := a.pd.RegMR(mem[:4096], verbs.AccessLocalWrite)
	require.NoError(t, err)
	require.NoError(t, mr.Dereg())
}

// Registered memory of the Go heap stays alive without other references.
func TestDeviceRegionKeepsMemoryAlive(t *testing.T) {
	a, b := open(t)
	qa, qb := rc(t, a, b, nil)
	var regions []verbs.MR
	for range 20 {
		mr, err := a.pd.RegMR(make([]byte, 100<<10), verbs.AccessLocalWrite)
		require.NoError(t, err)
		regions = append(regions, mr)
	}
	runtime.GC()
	runtime.GC()
	fill(b.mem[:50<<10], 9)
	for _, mr := range regions {
		sge := [4]verbs.SGE{{Addr: mr.Addr(), Length: 50 << 10, LKey: mr.LKey()}}
		post(t, qa, verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), NumSGE: 1, SGE: sge})
		succeeded(t, a.cq, 1)
		assert.Equal(t, b.mem[:50<<10], region(mr).mem[:50<<10])
		require.NoError(t, mr.Dereg())
	}
	_ = qb
}

func region(m verbs.MR) *mr { return m.(*mr) }

func TestDeviceHotCallsAllocateNothing(t *testing.T) {
	a, b := open(t)
	qa, _ := rc(t, a, b, nil)
	wcs := make([]verbs.WC, 16)
	wrs := []verbs.SendWR{{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), NumSGE: 1, SGE: a.sge(0, 8)}}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if n, err := qa.PostSend(wrs); n != 1 || err != nil {
			panic(err)
		}
		for {
			n, err := a.cq.Poll(wcs)
			if err != nil {
				panic(err)
			}
			if n > 0 {
				break
			}
		}
	}))
}

func BenchmarkDevicePollEmpty(b *testing.B) {
	e, _ := open(b)
	wcs := make([]verbs.WC, 16)
	for b.Loop() {
		if n, err := e.cq.Poll(wcs); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}

func benchmarkPost(b *testing.B, batch int) {
	from, to := open(b)
	q, _ := rc(b, from, to, nil)
	wrs := make([]verbs.SendWR, batch)
	for i := range wrs {
		wrs[i] = verbs.SendWR{Opcode: verbs.WRRDMAWrite, RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey(), NumSGE: 1, SGE: from.sge(0, 8)}
	}
	wrs[batch-1].Flags = verbs.SendSignaled
	var posting time.Duration
	for b.Loop() {
		start := time.Now()
		n, err := q.PostSend(wrs)
		posting += time.Since(start)
		if n != batch || err != nil {
			b.Fatal(n, err)
		}
		succeeded(b, from.cq, 1)
	}
	b.ReportMetric(float64(posting.Nanoseconds())/float64(b.N), "post-ns")
}

func BenchmarkDevicePost1(b *testing.B)  { benchmarkPost(b, 1) }
func BenchmarkDevicePost16(b *testing.B) { benchmarkPost(b, 16) }
