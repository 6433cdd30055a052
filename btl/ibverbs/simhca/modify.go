package simhca

import (
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// Modify implements verbs.QP.
func (q *queuePair) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	q.f.enter()
	defer q.f.leave()
	const call = "ibv_modify_qp"
	if q.dead() {
		return goneError(call)
	}
	from := q.attr.State
	to, err := verbs.CheckModify(q.service, from, attr, mask)
	if err != nil {
		return err
	}
	if q.fatal && to != verbs.StateErr {
		return goneError(call) // nothing but Destroy is left (InfiniBand error model, 3.1)
	}
	if from == verbs.StateSQD && to != verbs.StateErr && to != verbs.StateReset && !q.drained() {
		return invalid(call, "send queue is still draining") // queue pair states, 2.5
	}
	if err := q.checkAttr(call, attr, mask); err != nil {
		return err
	}
	if mask&verbs.AttrState != 0 {
		switch to {
		case verbs.StateReset:
			q.toReset()
			return nil
		case verbs.StateErr:
			q.enterError()
			return nil
		}
	}
	q.take(attr, mask)
	q.attr.State = to
	if from != to && q.f.cfg.Trace != nil {
		q.f.tracef("%s/%06x enters %v", q.hca.name, q.num, to)
	}
	switch {
	case to == verbs.StateRTR && from != to:
		q.resp.begin(&q.attr)
		q.f.haunt(q, false)
	case to == verbs.StateRTS:
		if from == verbs.StateRTR {
			q.req.begin(&q.attr)
		}
		q.transmit()
	case to == verbs.StateSQD && from != to:
		q.req.tellDrained = q.attr.EnSQDAsyncNotify
		q.checkDrained()
	}
	return nil
}

// toReset drops the requests and the completions (queue pair states, 5.2).
func (q *queuePair) toReset() {
	q.clear()
	q.sendCQ.purge(q)
	q.recvCQ.purge(q)
	q.f.haunt(q, true)
}

// checkAttr refuses values that the device does not have.
func (q *queuePair) checkAttr(call string, a *verbs.QPAttr, mask verbs.AttrMask) error {
	has := func(m verbs.AttrMask) bool { return mask&m != 0 }
	g := &q.hca.cfg
	p := q.port()
	if has(verbs.AttrPort) {
		if p = q.hca.port(a.Port); p == nil {
			return invalid(call, "no such port")
		}
	}
	if has(verbs.AttrAV) {
		if err := q.hca.checkAH(call, &a.AH); err != nil {
			return err
		}
	}
	const access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	switch {
	case has(verbs.AttrPKeyIndex) && int(a.PKeyIndex) >= len(p.pkeys):
		return invalid(call, "no such partition key")
	case has(verbs.AttrPathMTU) && (a.PathMTU.Bytes() == 0 || a.PathMTU > g.MTU):
		return invalid(call, "MTU out of range")
	case has(verbs.AttrAccessFlags) && a.Access&^access != 0:
		return invalid(call, "unknown access")
	case has(verbs.AttrMaxQPRdAtomic) && int(a.MaxRdAtomic) > g.MaxQPInitRdAtom:
		return invalid(call, "more reads at once than the device begins")
	case has(verbs.AttrMaxDestRdAtomic) && int(a.MaxDestRdAtomic) > g.MaxQPRdAtom:
		return invalid(call, "more reads at once than the device answers")
	case has(verbs.AttrTimeout) && a.Timeout > 31, has(verbs.AttrMinRNRTimer) && a.MinRNRTimer > 31:
		return invalid(call, "timer out of range")
	case has(verbs.AttrRetryCnt) && a.RetryCnt > 7, has(verbs.AttrRNRRetry) && a.RNRRetry > 7:
		return invalid(call, "retry count out of range")
	case has(verbs.AttrRQPSN) && a.RQPSN > psnMask, has(verbs.AttrSQPSN) && a.SQPSN > psnMask:
		return invalid(call, "packet sequence number out of range")
	case has(verbs.AttrDestQPN) && a.DestQPN > psnMask:
		return invalid(call, "queue pair number out of range")
	}
	return nil
}

// take copies the attributes that the mask names.
func (q *queuePair) take(a *verbs.QPAttr, mask verbs.AttrMask) {
	set := func(m verbs.AttrMask, do func(to *verbs.QPAttr)) {
		if mask&m != 0 {
			do(&q.attr)
		}
	}
	q.attr.EnSQDAsyncNotify = mask&verbs.AttrEnSQDAsyncNotify != 0 && a.EnSQDAsyncNotify
	set(verbs.AttrAccessFlags, func(to *verbs.QPAttr) { to.Access = a.Access })
	set(verbs.AttrPKeyIndex, func(to *verbs.QPAttr) { to.PKeyIndex = a.PKeyIndex })
	set(verbs.AttrPort, func(to *verbs.QPAttr) { to.Port = a.Port })
	set(verbs.AttrQKey, func(to *verbs.QPAttr) { to.QKey = a.QKey })
	set(verbs.AttrAV, func(to *verbs.QPAttr) { to.AH = a.AH })
	set(verbs.AttrAltPath, func(to *verbs.QPAttr) { to.AltAH = a.AltAH })
	set(verbs.AttrPathMTU, func(to *verbs.QPAttr) { to.PathMTU = a.PathMTU })
	set(verbs.AttrTimeout, func(to *verbs.QPAttr) { to.Timeout = a.Timeout })
	set(verbs.AttrRetryCnt, func(to *verbs.QPAttr) { to.RetryCnt = a.RetryCnt })
	set(verbs.AttrRNRRetry, func(to *verbs.QPAttr) { to.RNRRetry = a.RNRRetry })
	set(verbs.AttrRQPSN, func(to *verbs.QPAttr) { to.RQPSN = a.RQPSN })
	set(verbs.AttrSQPSN, func(to *verbs.QPAttr) { to.SQPSN = a.SQPSN })
	set(verbs.AttrMaxQPRdAtomic, func(to *verbs.QPAttr) { to.MaxRdAtomic = a.MaxRdAtomic })
	set(verbs.AttrMaxDestRdAtomic, func(to *verbs.QPAttr) { to.MaxDestRdAtomic = a.MaxDestRdAtomic })
	set(verbs.AttrMinRNRTimer, func(to *verbs.QPAttr) { to.MinRNRTimer = a.MinRNRTimer })
	set(verbs.AttrDestQPN, func(to *verbs.QPAttr) { to.DestQPN = a.DestQPN })
}
