package bml

import "slices"

// awaits puts a transfer in the list of its peer for what it waits for, and takes it out of the
// other one.
func (t *Transfer) awaits(what waitsFor) {
	if t.waits == what {
		return
	}
	if list := t.peer.waitList(t.waits); list != nil {
		i := slices.Index(*list, t)
		*list = slices.Delete(*list, i, i+1)
	}
	t.waits = what
	if list := t.peer.waitList(what); list != nil {
		*list = append(*list, t)
	}
}

func (pr *Peer) waitList(what waitsFor) *[]*Transfer {
	switch what {
	case waitsForRoom:
		return &pr.waitRoom
	case waitsForFence:
		return &pr.waitFence
	}
	return nil
}

// pull lets the transfers that wait for room go on, in turn, until one finds none.
func (b *BML) pull(pr *Peer) {
	if pr.isPulling {
		return
	}
	pr.isPulling = true
	for n := len(pr.waitRoom); n > 0 && len(pr.waitRoom) > 0 && pr.IsAlive(); n-- {
		t, left := pr.waitRoom[0], pr.waitRoom[0].left
		t.awaits(waitsForNothing)
		b.upper.Resume(t)
		if t.waits == waitsForRoom && t.left == left {
			break
		}
	}
	pr.isPulling = false
}

// pullLater is pull, at the next turn.
func (b *BML) pullLater(pr *Peer) {
	if len(pr.waitRoom) > 0 && !pr.isPullDeferred {
		pr.isPullDeferred = true
		b.postpone(work{kind: workPull, peer: pr})
	}
}

// ResumeLater has Upper.Resume called at the next turn.
func (b *BML) ResumeLater(t *Transfer) {
	t.awaits(waitsForRoom)
	b.pullLater(t.peer)
}

// resumeAll lets all transfers of a list go on: other rails are up than before, or one is drained.
func (b *BML) resumeAll(pr *Peer, what waitsFor) {
	list := pr.waitList(what)
	for n := len(*list); n > 0 && len(*list) > 0 && pr.IsAlive(); n-- {
		t := (*list)[0]
		t.awaits(waitsForNothing)
		b.upper.Resume(t)
	}
}
