package pml

import (
	"errors"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// Flow control. A receiver has to buffer what arrives before its receive is posted, and that memory
// is bounded: from one rank to another, no more than a window of bytes is under way that the
// receiver has not consumed. A message that does not fit goes as a RNDV without data, whatever its
// length, so its data waits at the sender.
//
// The receiver has to remember each RNDV as well. So a second window bounds the RNDVs without data
// that are not matched. A send that finds no room there is pending, and what is sent to the same
// peer later waits behind it, because messages do not overtake each other.
//
// The receiver sends a CREDIT now and then, with the number of bytes that it has consumed and of
// the RNDVs that it allows. Both sides count the same fragments by the same rule. A peer that sends
// more, so that it would have to be buffered, has broken the protocol.
//
// Ranks never wait in a circle. A pending send waits for what a send that has sent its RNDV waits
// for: that the receiver receives. The receiver gives credit for what it matches or drops, and with
// nothing left in its queues the window is open. But the message that it receives next may be
// behind others that it wants only later, because it may receive the messages of one sender in any
// order of tags and communicators. So whenever an operation waits that could take a message of a
// peer that has used up its RNDVs, the receiver opens another window of them: it has to see those
// RNDVs to find that message, and to keep them, since it does not ask for their data.

const (
	// fragmentCostBytes is what a fragment counts for beside its payload: about what the receiver
	// needs to remember it.
	fragmentCostBytes = 64
	// defaultWindowBytes is the window from one rank to another.
	defaultWindowBytes = 4 << 20
	// maxNotices bounds the buffered fragments of one peer that are neither messages nor answers.
	// They need no credit, because there are few.
	maxNotices = 1 << 12
	// maxAnswersPerRequest is how many answers to one request of this rank can be on their way.
	maxAnswersPerRequest = 4
)

var (
	errCredit = errors.New("credit for what was not sent")
	errWindow = errors.New("more than its window has room for (pml.unexpected.bytes must be the same for all ranks)")
)

// credit counts what this rank and a peer have sent each other. All counts but kept and notices
// only grow. "RTS" is a RNDV or RGET that brings no data.
type credit struct {
	window int64 // bytes
	// sent is the cost of what was sent to the peer, taken what the peer says it has consumed.
	sent, taken int64
	// received is the cost of what this rank has consumed, reported what it told the peer of that.
	received, reported int64
	// rtsSent counts the RTS messages sent to the peer. It allows rtsLimit of them.
	rtsSent, rtsLimit int64
	// rtsReceived counts the RTS messages from the peer, and rtsTaken those of them that were
	// matched or dropped. This rank allows rtsGranted of them.
	rtsReceived, rtsTaken, rtsGranted int64
	// kept is the cost of the peer's messages that are buffered here, notices the number of its
	// other fragments that are.
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

// rtsWindow is the number of RTS messages that a window has room for.
func (c *credit) rtsWindow() int64 { return max(c.window/fragmentCostBytes, 1) }

// covers reports whether a fragment with so many bytes of payload may be sent.
func (c *credit) covers(bytes int) bool {
	return c.sent-c.taken+int64(bytes)+fragmentCostBytes <= c.window
}

// spend counts a fragment that is sent.
func (c *credit) spend(bytes int) { c.sent += int64(bytes) + fragmentCostBytes }

// unspend undoes spend for a fragment that the rail did not accept.
func (c *credit) unspend(bytes int) { c.sent -= int64(bytes) + fragmentCostBytes }

// mayRTS reports whether an RTS without data may be sent.
func (c *credit) mayRTS() bool { return c.rtsSent < c.rtsLimit }

// isFull reports whether the peer has sent all RTS messages that it may, so sends may be pending
// there.
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

// buffer counts a fragment that is kept for now. It fails if a correct peer would not have sent it.
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

// unreported is how much may be consumed before it is reported.
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

// creditArrived takes a CREDIT. One that is older than the last changes nothing.
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

// grant opens another window of RTS messages for each blocked peer that may send the message that
// an operation waits for. source is a rank of the job or AnySource. The caller has looked for the
// message in c and not found it.
func (p *PML) grant(c *Context, source int) {
	if p.blockedPeers > 0 {
		p.grantBlocked(c, source)
	}
}

// grantBlocked is grant if there are blocked peers. It is a function of its own so that grant is
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
