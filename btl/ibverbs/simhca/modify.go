package simhca

import "github.com/mpigo/mpigo/btl/ibverbs/verbs"

// Modify implements verbs.QP.
func (q *queuePair) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	defer q.f.enter().leave()
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
	if err := q.checkDevice(call, to, mask); err != nil {
		return err
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

// checkDevice checks a change that the tables permit against what the device is configured to
// refuse.
func (q *queuePair) checkDevice(call string, to verbs.QPState, mask verbs.AttrMask) error {
	from, cfg := q.attr.State, &q.hca.cfg
	switch {
	case mask&verbs.AttrCurState != 0 && cfg.NoCurState:
		return invalid(call, "the device does not support CUR_STATE")
	case from == verbs.StateSQE && to == verbs.StateRTS && cfg.KeepsSQE && mask&verbs.AttrCurState == 0:
		return invalid(call, "the device leaves SQE only with CUR_STATE")
	case from != verbs.StateErr && to == verbs.StateReset && cfg.ResetFromErrOnly:
		return invalid(call, "the device goes to RESET only from ERR")
	}
	return nil
}

// checkAttr checks the selected attributes against the device's limits.
func (q *queuePair) checkAttr(call string, a *verbs.QPAttr, mask verbs.AttrMask) error {
	has := func(m verbs.AttrMask) bool { return mask&m != 0 }
	if has(verbs.AttrPort) && q.hca.port(a.Port) == nil {
		return invalid(call, "no such port")
	}
	if has(verbs.AttrAV) {
		if err := q.hca.checkAH(call, &a.AH); err != nil {
			return err
		}
	}
	const access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	switch {
	case has(verbs.AttrPKeyIndex) && a.PKeyIndex >= tableSize:
		return invalid(call, "the partition key index is out of range")
	case has(verbs.AttrPathMTU) && (a.PathMTU.Bytes() == 0 || a.PathMTU > q.hca.cfg.MTU):
		return invalid(call, "the path MTU is out of range")
	case has(verbs.AttrAccessFlags) && a.Access&^access != 0:
		return invalid(call, "unknown access")
	case has(verbs.AttrMaxQPRdAtomic) && int(a.MaxRdAtomic) > q.hca.cfg.MaxReads:
		return invalid(call, "the device does not support that many outstanding reads as requester")
	case has(verbs.AttrMaxDestRdAtomic) && int(a.MaxDestRdAtomic) > q.hca.cfg.MaxReads:
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

// set copies an attribute if the mask selects it.
func set[T any](to *T, from T, mask, attr verbs.AttrMask) {
	if mask&attr != 0 {
		*to = from
	}
}

// setAttrs copies the attributes that the mask selects.
func (q *queuePair) setAttrs(a *verbs.QPAttr, mask verbs.AttrMask) {
	to := &q.attr
	to.EnSQDAsyncNotify = mask&verbs.AttrEnSQDAsyncNotify != 0 && a.EnSQDAsyncNotify
	set(&to.Access, a.Access, mask, verbs.AttrAccessFlags)
	set(&to.PKeyIndex, a.PKeyIndex, mask, verbs.AttrPKeyIndex)
	set(&to.Port, a.Port, mask, verbs.AttrPort)
	set(&to.QKey, a.QKey, mask, verbs.AttrQKey)
	set(&to.AH, a.AH, mask, verbs.AttrAV)
	set(&to.AltAH, a.AltAH, mask, verbs.AttrAltPath)
	set(&to.PathMTU, a.PathMTU, mask, verbs.AttrPathMTU)
	set(&to.Timeout, a.Timeout, mask, verbs.AttrTimeout)
	set(&to.RetryCnt, a.RetryCnt, mask, verbs.AttrRetryCnt)
	set(&to.RNRRetry, a.RNRRetry, mask, verbs.AttrRNRRetry)
	set(&to.RQPSN, a.RQPSN, mask, verbs.AttrRQPSN)
	set(&to.SQPSN, a.SQPSN, mask, verbs.AttrSQPSN)
	set(&to.MaxRdAtomic, a.MaxRdAtomic, mask, verbs.AttrMaxQPRdAtomic)
	set(&to.MaxDestRdAtomic, a.MaxDestRdAtomic, mask, verbs.AttrMaxDestRdAtomic)
	set(&to.MinRNRTimer, a.MinRNRTimer, mask, verbs.AttrMinRNRTimer)
	set(&to.DestQPN, a.DestQPN, mask, verbs.AttrDestQPN)
}
