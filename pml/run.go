package pml

import "github.com/mpigo/mpigo/request"

// noRun is a result of TakeRun: the requests have to be taken one by one.
const noRun = -1

// TakeRun implements request.Shortcut. Receives of one source and tag that were posted one after
// another, and are waited for in this order, take their messages straight from the slots of the
// peer. For each of them TakeRun does what TakeShort does; what is counted is counted once.
func (r *RecvRequest) TakeRun(reqs []request.Request, sts []request.Status) int {
	c, p := r.ctx, r.p
	if r.state != recvPosted || r.tag < 0 || !c.posted.isNext(r) || p.blocking.ctx == c || p.onMove != nil {
		return noRun
	}
	pr := p.peers[r.world]
	if pr == nil {
		return noRun
	}
	from, seq := pr.SlotReceiver()
	if from == nil {
		return noRun
	}
	slots, ok := from.Slots()
	if !ok {
		return noRun
	}
	// The bounds of receiveShort and consumed: what they would do at the next one is done after the
	// run.
	most, room := min(len(reqs), slots.Most), maxShortReceives-p.shortReceives
	credit := pr.credit.window/2 - (pr.credit.received - pr.credit.reported)
	var st *request.Status
	q, tag, first, second := r.node.in, r.tag, c.firstWord, matchSecond(r.tag, seq)
	n, bytes, next := 0, int64(0), (*node[RecvRequest])(nil)
	for n < most && room > 0 && bytes <= credit && r.MayTake(reqs[n]) {
		got := slots.Take(pollsAhead, tagMatch, first, second, r.buf)
		if got < 0 {
			break
		}
		if sts != nil {
			st = &sts[n]
		}
		bytes += int64(got) + fragmentCostBytes
		room -= 1 + got>>10
		second += 1 << 32
		n++
		next = r.node.next
		r.node = node[RecvRequest]{}
		r.state = recvIdle
		if r.Taken(st, r.source, tag, int64(got)) {
			r.Release()
		}
		if next == nil {
			break
		}
		r = next.item
	}
	if n == 0 {
		return 0
	}
	c.posted.removeRun(q, n, next)
	from.TakeSlots(n)
	pr.TakeNextRun(n)
	p.shortReceives = maxShortReceives - room
	p.stats.Received += uint64(n)
	p.stats.ReceivedBytes += bytes - int64(n)*fragmentCostBytes
	p.eng.CountCompletions(n)
	p.consumed(pr, int(bytes)-fragmentCostBytes)
	if c.removed {
		c.freeIfUnused()
	}
	return n
}
