package pml

import (
	"errors"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// Flow control. A receiver has to buffer data that arrives before its receive is posted, and that
// memory is bounded: from one rank to another, at most a window of bytes is under way and not yet
// consumed. A message that does not fit is sent as a RNDV without data, whatever its length, so its
// data waits at the sender.
//
// The receiver has to remember each RNDV as well. So a second window bounds the unmatched RNDVs
// without data. A send that finds no room there is pending. Later sends to the same peer wait
// behind it, because messages must not overtake each other.
//
// The receiver sends a CREDIT periodically, with the number of bytes that it has consumed and the
// number of RNDVs that it allows. Both sides count the same fragments by the same rule. A peer has
// broken the protocol if it sends more than the receiver may buffer.
//
// Flow control never causes a deadlock. A pending send waits for the same event as a send that has
// sent its RNDV: the receiver posts a receive. The receiver gives credit for each message that it
// matches or drops, so with empty queues the window is open. But the next message that it wants may
// be behind others that it wants only later, because it may receive the messages of one sender in
// any order of tags and communicators. So whenever an operation waits that could match a message of
// a peer that has used up its RNDVs, the receiver opens another window of RNDVs. It has to see
// these RNDVs to find that message. It keeps the others, without asking for their data.

const (
	// fragmentCostBytes is the number of bytes that a fragment counts besides its payload: about
	// the memory that the receiver needs to remember it.
	fragmentCostBytes = 64
	// defaultWindowBytes is the window from one rank to another.
	defaultWindowBytes = 4 << 20
	// maxNotices bounds the buffered fragments of one peer that are neither messages nor answers.
	// They need no credit, because their number is small.
	maxNotices = 1 << 12
	// maxAnswersPerRequest is the largest number of answers to one request of this rank that can be
	// under way.
	maxAnswersPerRequest = 4
)

var (
	errCredit = errors.New("credit for data that was not sent")
	errWindow = errors.New("more than its window has room for (pml.unexpected.bytes must be the same for all ranks)")
)

// credit counts the fragments between this rank and a peer. All counts except kept and notices only
// grow. "RTS" is a RNDV or RGET without data.
type credit struct {
	window int64 // bytes
	// sent is the cost of the fragments sent to the peer. taken is the cost that the peer has
	// reported as consumed.
	sent, taken int64
	// received is the cost that this rank has consumed. reported is the part that it has reported
	// to the peer.
	received, reported int64
	// rtsSent counts the RTS messages sent to the peer. It allows rtsLimit of them.
	rtsSent, rtsLimit int64
	// rtsReceived counts the RTS messages from the peer. rtsTaken counts the matched or dropped
	// ones. This rank allows rtsGranted of them.
	rtsReceived, rtsTaken, rtsGranted int64
	// kept is the cost of the peer's messages that are buffered here. notices is the number of its
	// other buffered fragments.
	kept    int64
	notices int
}

func (c *credit) init(window int64) {
	if window <= 0 {
		window = defaultWindowBytes
	}
	c.window = window
	c.rtsLimit, c.rtsGranted = c.rtsWindow(), c.rtsWindow()
}

// rtsWindow returns the number of RTS messages for which a window has room.
func (c *credit) rtsWindow() int64 { return max(c.window/fragmentCostBytes, 1) }

// covers reports whether a fragment with a payload of the given length may be sent.
func (c *credit) covers(bytes int) bool {
	return c.sent-c.taken+int64(bytes)+fragmentCostBytes <= c.window
}

// spend counts a fragment that is sent.
func (c *credit) spend(bytes int) { c.sent += int64(bytes) + fragmentCostBytes }

// unspend undoes spend for a fragment that the rail did not accept.
func (c *credit) unspend(bytes int) { c.sent -= int64(bytes) + fragmentCostBytes }

// mayRTS reports whether an RTS without data may be sent.
func (c *credit) mayRTS() bool { return c.rtsSent < c.rtsLimit }

// isFull reports whether the peer has used up its RTS messages, so it may have pending sends.
func (c *credit) isFull() bool { return c.rtsReceived >= c.rtsGranted }

// countsBytes reports whether a message that begins with a fragment of this kind and payload counts
// in the window of bytes. If not, it counts as an RTS without data.
func countsBytes(kind btl.Tag, bytes int) bool { return kind == tagMatch || bytes > 0 }

// countRTS counts a fragment that has arrived for the first time, if it is an RTS without data.
func (p *PML) countRTS(pr *peer, kind btl.Tag, bytes int) error {
	c := &pr.credit
	if !isMessage(kind) || countsBytes(kind, bytes) {
		return nil
	}
	if c.isFull() {
		return errWindow
	}
	c.rtsReceived++
	if c.isFull() {
		p.blockedPeers++
	}
	return nil
}

// buffer counts a fragment that is kept. It fails if a correct peer would not have sent the
// fragment.
func (p *PML) buffer(pr *peer, kind btl.Tag, bytes int) error {
	c := &pr.credit
	switch {
	case !isMessage(kind):
		if c.notices >= maxNotices+maxAnswersPerRequest*(p.sends.inUse()+p.recvs.inUse()) {
			return errWindow
		}
		c.notices++
	case countsBytes(kind, bytes):
		cost := int64(bytes) + fragmentCostBytes
		if c.kept+cost > c.window {
			return errWindow
		}
		c.kept += cost
	}
	p.stats.UnexpectedBytes += int64(bytes)
	p.stats.UnexpectedPeakBytes = max(p.stats.UnexpectedPeakBytes, p.stats.UnexpectedBytes)
	return nil
}

// unbuffer undoes buffer.
func (p *PML) unbuffer(pr *peer, kind btl.Tag, bytes int) {
	c := &pr.credit
	switch {
	case !isMessage(kind):
		c.notices--
	case countsBytes(kind, bytes):
		c.kept -= int64(bytes) + fragmentCostBytes
	}
	p.stats.UnexpectedBytes -= int64(bytes)
}

// consumed counts a fragment with data that was received or dropped.
func (p *PML) consumed(pr *peer, messages, bytes int) {
	c := &pr.credit
	c.received += int64(bytes) + int64(messages)*fragmentCostBytes
	if 2*(c.received-c.reported) > c.window {
		p.sendCredit(pr, false)
	}
}

// unreported returns how many bytes may be consumed before a report is due.
func (c *credit) unreported() int { return int(c.window/2 - (c.received - c.reported)) }

// consumedMessage counts the first fragment of a message that was received or dropped.
func (p *PML) consumedMessage(pr *peer, kind btl.Tag, bytes int) {
	if countsBytes(kind, bytes) {
		p.consumed(pr, 1, bytes)
		return
	}
	c := &pr.credit
	c.rtsTaken++
	if window := c.rtsWindow(); c.rtsTaken+window-c.rtsGranted > window/2 {
		p.sendCredit(pr, false)
	}
}

// sendCredit sends a CREDIT. With more, it opens another window of RTS messages.
func (p *PML) sendCredit(pr *peer, more bool) {
	if pr.IsLost() {
		return
	}
	c := &pr.credit
	wasFull := c.isFull()
	c.reported = c.received
	c.rtsGranted = max(c.rtsGranted, c.rtsTaken+c.rtsWindow())
	if more {
		c.rtsGranted = max(c.rtsGranted, c.rtsReceived+c.rtsWindow())
	}
	if wasFull && !c.isFull() {
		p.blockedPeers--
	}
	p.post(pr, tagCredit, creditBytes, creditHdr{taken: c.reported, rtsLimit: c.rtsGranted}.encode)
}

// creditArrived handles a CREDIT. It ignores a CREDIT that is older than the last one.
func (p *PML) creditArrived(pr *peer, frag []byte) error {
	var h creditHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	c := &pr.credit
	if h.taken > c.sent {
		return errCredit
	}
	c.taken = max(c.taken, h.taken)
	c.rtsLimit = max(c.rtsLimit, h.rtsLimit)
	p.launchPending(pr)
	return nil
}

// grant opens another window of RTS messages for each blocked peer that may send the message for
// which an operation waits. source is a rank of the job or AnySource. The caller has not found the
// message in c.
func (p *PML) grant(c *Context, source int) {
	if p.blockedPeers > 0 {
		p.grantBlocked(c, source)
	}
}

// grantBlocked is the part of grant for blocked peers. It is a separate function so that grant is
// inlined.
func (p *PML) grantBlocked(c *Context, source int) {
	if source == request.AnySource {
		for _, world := range c.group.world {
			p.grantBlocked(c, world)
		}
	} else if pr := p.peers[source]; pr != nil && !pr.IsLost() && pr.credit.isFull() {
		p.sendCredit(pr, true)
	}
}

// grantIfAwaited opens another window for a peer that has just become blocked, if an operation
// waits for a message of that peer.
func (p *PML) grantIfAwaited(pr *peer) {
	if pr.IsLost() || !pr.credit.isFull() {
		return
	}
	p.postBlocking()
	for _, c := range p.contexts {
		if _, member := c.group.Rank(pr.Rank()); member && c.awaits(pr.Rank()) {
			p.sendCredit(pr, true)
			return
		}
	}
}

// awaits reports whether an operation waits for a message of a rank of the job, or of any.
func (c *Context) awaits(world int) bool {
	for _, r := range c.probes {
		if s := c.world(r.source); s == world || s == request.AnySource {
			return true
		}
	}
	return c.posted.count > 0 && c.posted.awaits(world)
}
