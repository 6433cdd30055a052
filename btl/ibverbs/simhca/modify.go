package simhca

import "github.com/mpigo/mpigo/btl/ibverbs/verbs"

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
		return goneError(call) // only Destroy is possible (InfiniBand error model, 3.1)
	}
	if from == verbs.StateSQD && to != verbs.StateErr && to != verbs.StateReset && !q.drained() {
		return invalid(call, "the send queue is still draining") // Queue pair states, 2.5
	}
	if err := q.checkAttr(call, attr, mask); err != nil {
		return err
	}
	switch to {
	case verbs.StateReset:
		q.toReset()
		return nil
	case verbs.StateErr:
		q.enterError()
		return nil
	}
	q.setAttrs(attr, mask)
	q.attr.State = to
	if from != to && q.f.cfg.Trace != nil {
		q.f.tracef("%s/%06x enters %v", q.hca.name, q.num, to)
	}
	switch {
	case to == verbs.StateRTR && from != to:
		q.resp.begin(&q.attr)
		q.f.replayStale(q, false)
	case to == verbs.StateRTS:
		if from == verbs.StateRTR {
			q.req.begin(&q.attr)
		}
		q.transmit()
	case to == verbs.StateSQD && from != to:
		q.req.notifyDrained = q.attr.EnSQDAsyncNotify
		q.checkDrained()
	}
	return nil
}

// toReset moves the queue pair to RESET and drops its requests and completions (Queue pair states,
// 5.2).
func (q *queuePair) toReset() {
	q.clear()
	q.sendCQ.purge(q)
	q.recvCQ.purge(q)
	q.f.replayStale(q, true)
}

// checkAttr checks the selected attributes against the device's limits.
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
		return invalid(call, "the partition key index is out of range")
	case has(verbs.AttrPathMTU) && (a.PathMTU.Bytes() == 0 || a.PathMTU > g.MTU):
		return invalid(call, "the path MTU is out of range")
	case has(verbs.AttrAccessFlags) && a.Access&^access != 0:
		return invalid(call, "unknown access")
	case has(verbs.AttrMaxQPRdAtomic) && int(a.MaxRdAtomic) > g.MaxQPInitRdAtom:
		return invalid(call, "the device does not support that many outstanding reads as requester")
	case has(verbs.AttrMaxDestRdAtomic) && int(a.MaxDestRdAtomic) > g.MaxQPRdAtom:
		return invalid(call, "the device does not support that many outstanding reads as responder")
	case has(verbs.AttrTimeout) && a.Timeout > 31, has(verbs.AttrMinRNRTimer) && a.MinRNRTimer > 31:
		return invalid(call, "the timer is out of range")
	case has(verbs.AttrRetryCnt) && a.RetryCnt > 7, has(verbs.AttrRNRRetry) && a.RNRRetry > 7:
		return invalid(call, "the retry count is out of range")
	case has(verbs.AttrRQPSN) && a.RQPSN > psnMask, has(verbs.AttrSQPSN) && a.SQPSN > psnMask:
		return invalid(call, "the packet sequence number is out of range")
	case has(verbs.AttrDestQPN) && a.DestQPN > psnMask:
		return invalid(call, "the queue pair number is out of range")
	}
	return nil
}

// setAttrs copies the attributes that the mask selects.
func (q *queuePair) setAttrs(a *verbs.QPAttr, mask verbs.AttrMask) {
	has := func(m verbs.AttrMask) bool { return mask&m != 0 }
	to := &q.attr
	to.EnSQDAsyncNotify = has(verbs.AttrEnSQDAsyncNotify) && a.EnSQDAsyncNotify
	if has(verbs.AttrAccessFlags) {
		to.Access = a.Access
	}
	if has(verbs.AttrPKeyIndex) {
		to.PKeyIndex = a.PKeyIndex
	}
	if has(verbs.AttrPort) {
		to.Port = a.Port
	}
	if has(verbs.AttrQKey) {
		to.QKey = a.QKey
	}
	if has(verbs.AttrAV) {
		to.AH = a.AH
	}
	if has(verbs.AttrAltPath) {
		to.AltAH = a.AltAH
	}
	if has(verbs.AttrPathMTU) {
		to.PathMTU = a.PathMTU
	}
	if has(verbs.AttrTimeout) {
		to.Timeout = a.Timeout
	}
	if has(verbs.AttrRetryCnt) {
		to.RetryCnt = a.RetryCnt
	}
	if has(verbs.AttrRNRRetry) {
		to.RNRRetry = a.RNRRetry
	}
	if has(verbs.AttrRQPSN) {
		to.RQPSN = a.RQPSN
	}
	if has(verbs.AttrSQPSN) {
		to.SQPSN = a.SQPSN
	}
	if has(verbs.AttrMaxQPRdAtomic) {
		to.MaxRdAtomic = a.MaxRdAtomic
	}
	if has(verbs.AttrMaxDestRdAtomic) {
		to.MaxDestRdAtomic = a.MaxDestRdAtomic
	}
	if has(verbs.AttrMinRNRTimer) {
		to.MinRNRTimer = a.MinRNRTimer
	}
	if has(verbs.AttrDestQPN) {
		to.DestQPN = a.DestQPN
	}
}
