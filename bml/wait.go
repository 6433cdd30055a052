package bml

import "slices"

// awaits moves a transfer to its peer's list for what it waits for.
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

// pull resumes the transfers that wait for room, in turn, until one finds none.
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

// pullLater runs pull in the next progress call.
func (b *BML) pullLater(pr *Peer) {
	if len(pr.waitRoom) > 0 && !pr.isPullDeferred {
		pr.isPullDeferred = true
		b.postpone(work{kind: workPull, peer: pr})
	}
}

// ResumeLater calls Upper.Resume in the next progress call.
func (b *BML) ResumeLater(t *Transfer) {
	t.awaits(waitsForRoom)
	b.pullLater(t.peer)
}

// resumeAll resumes all transfers of a list: the set of rails that are up has changed, or a rail is
// drained.
func (b *BML) resumeAll(pr *Peer, what waitsFor) {
	list := pr.waitList(what)
	for n := len(*list); n > 0 && len(*list) > 0 && pr.IsAlive(); n-- {
		t := (*list)[0]
		t.awaits(waitsForNothing)
		b.upper.Resume(t)
	}
}
