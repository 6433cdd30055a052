package pml

import (
	"errors"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// A receiver has to keep what arrives before its receive is posted, and that memory is bounded:
// from one rank to another no more than a window of bytes goes without having been
// received. Beyond it messages are announced, whatever their size, by a RNDV that brings nothing
// along, and so wait at the sender.
//
// An announcement has to be kept as well. So no more of them go without having been received than what
// they cost fits into a second window. Beyond that a send is held: it is not even announced, and
// what is sent to the same peer later is held behind it, because messages do not overtake each other.
//
// The receiver tells now and then, in a CREDIT, how much it has taken out of its queues, and how many
// announcements may come; both sides count the same fragments by the same rule. What comes
// beyond that, and would have to be kept, is nonsense.
//
// Nobody waits in a circle. A send that is held waits for what an announced one waits for: that the receiver
// receives. It gives credit for what is matched or dropped, and with nothing left in its queues the
// window is open. But the message that it receives next may be behind others that it wants only later: the
// messages of one sender are received in any order of their tags and communicators. So whenever an
// operation waits that could take a message of a peer which may have used its announcements up, another window
// of them is opened for that peer: they have to be seen for that message to be found, and to be kept
// since they are not asked for.

const (
	// fragmentCost is what a fragment counts for beside the bytes that come along: about what the
	// receiver needs to remember it.
	fragmentCost = 64
	// defaultWindowBytes is the window from one rank to another.
	defaultWindowBytes = 4 << 20
	// maxNotices bounds the control fragments and FINALIZEDs of one peer that are kept before their turn, or before their
	// communicator is made. They go without credit, because they are few.
	maxNotices = 1 << 12
	// answersEach is how many answers to one of our requests can be on their way, at most.
	answersEach = 4
)

var (
	errCredit = errors.New("credit for what was not sent")
	errWindow = errors.New("more than its window has room for")
)

// credit is what has been sent and received between this rank and a peer. The counts
// only grow, but for those of what is kept.
type credit struct {
	window int64 // bytes
	// Bytes sent to the peer, and how many of them it has taken, as far as it told.
	sent, taken int64
	// Bytes received of what the peer has sent, and how many of them it was told of.
	received, told int64
	// Announcements sent to the peer, and how many may have been.
	announced, announceable int64
	// Announcements that have come from the peer, those of them that were matched or dropped, and how many the
	// peer was told may come.
	heard, answered, allowed int64
	// What is here of the peer's and not received: bytes, and notices and answers.
	kept    int64
	notices int
}

func (c *credit) init(window int64) {
	if window <= 0 {
		window = defaultWindowBytes
	}
	c.window = window
	c.announceable, c.allowed = c.announcements(), c.announcements()
}

// announcements is how many there are in a window.
func (c *credit) announcements() int64 { return max(c.window/fragmentCost, 1) }

// covers reports whether a fragment that brings so many bytes along may go.
func (c *credit) covers(bytes int) bool {
	return c.sent-c.taken+int64(bytes)+fragmentCost <= c.window
}

// spend counts a fragment that goes.
func (c *credit) spend(bytes int) { c.sent += int64(bytes) + fragmentCost }

// unspend takes back the count of one that was not taken.
func (c *credit) unspend(bytes int) { c.sent -= int64(bytes) + fragmentCost }

// mayAnnounce reports whether a fragment may go that brings nothing along.
func (c *credit) mayAnnounce() bool { return c.announced < c.announceable }

// isFull reports whether the peer may hold sends back.
func (c *credit) isFull() bool { return c.heard >= c.allowed }

// counts reports whether a fragment that is matched, of this kind and with so many bytes, counts in the
// window of bytes. If not, it is an announcement.
func counts(kind btl.Tag, bytes int) bool { return kind == tagMatch || bytes > 0 }

// hear counts a fragment that has come and was not here before, if it is an announcement.
func (p *PML) hear(pr *peer, kind btl.Tag, bytes int) error {
	c := &pr.credit
	if !isMessage(kind) || counts(kind, bytes) {
		return nil
	}
	if c.isFull() {
		return errWindow
	}
	c.heard++
	if c.isFull() {
		p.full++
	}
	return nil
}

// keep counts a fragment that has to be kept for now.
func (p *PML) keep(pr *peer, kind btl.Tag, bytes int) error {
	c := &pr.credit
	switch {
	case !isMessage(kind):
		if c.notices >= p.mostNotices() {
			return errWindow
		}
		c.notices++
	case counts(kind, bytes):
		cost := int64(bytes) + fragmentCost
		if c.kept+cost > c.window {
			return errWindow
		}
		c.kept += cost
	}
	p.stats.UnexpectedBytes += int64(bytes)
	p.stats.UnexpectedPeakBytes = max(p.stats.UnexpectedPeakBytes, p.stats.UnexpectedBytes)
	return nil
}

// mostNotices is how many fragments of a peer that are no messages can have to be kept, if it does as it should.
func (p *PML) mostNotices() int {
	return maxNotices + answersEach*(p.sends.inUse()+p.recvs.inUse())
}

// letGo takes keep back.
func (p *PML) letGo(pr *peer, kind btl.Tag, bytes int) {
	c := &pr.credit
	switch {
	case !isMessage(kind):
		c.notices--
	case counts(kind, bytes):
		c.kept -= int64(bytes) + fragmentCost
	}
	p.stats.UnexpectedBytes -= int64(bytes)
}

// took counts a fragment from the peer that has been received, or dropped, and brought something along.
func (p *PML) took(pr *peer, bytes int) {
	c := &pr.credit
	c.received += int64(bytes) + fragmentCost
	if 2*(c.received-c.told) > c.window {
		p.tell(pr, false)
	}
}

// tookAny is took for every kind of message.
func (p *PML) tookAny(pr *peer, kind btl.Tag, bytes int) {
	if counts(kind, bytes) {
		p.took(pr, bytes)
		return
	}
	c := &pr.credit
	c.answered++
	if most := c.announcements(); c.answered+most-c.allowed > most/2 {
		p.tell(pr, false)
	}
}

// tell sends a CREDIT, if need be with another window of announcements.
func (p *PML) tell(pr *peer, more bool) {
	if pr.IsLost() {
		return
	}
	c := &pr.credit
	wasFull := c.isFull()
	c.told = c.received
	c.allowed = max(c.allowed, c.answered+c.announcements())
	if more {
		c.allowed = max(c.allowed, c.heard+c.announcements())
	}
	if wasFull && !c.isFull() {
		p.full--
	}
	p.post(pr, tagCredit, creditBytes, creditHdr{taken: c.told, announceable: c.allowed}.encode)
}

// credited takes a CREDIT. An older one than the last says nothing; one of more than was sent is
// nonsense.
func (p *PML) credited(pr *peer, h creditHdr) error {
	c := &pr.credit
	if h.taken > c.sent {
		return errCredit
	}
	c.taken = max(c.taken, h.taken)
	c.announceable = max(c.announceable, h.announceable)
	p.release(pr)
	return nil
}

// demand is called when an operation waits for a message of source, a rank of the job or AnySource,
// in c, or has looked for one and found nothing. It may be among those that are held.
func (p *PML) demand(c *Context, source int) {
	if p.full > 0 {
		p.openFor(c, source)
	}
}

// openFor is demand, when there are peers that may hold something back.
func (p *PML) openFor(c *Context, source int) {
	if source != request.AnySource {
		p.demandOf(source)
		return
	}
	for _, world := range c.group.world {
		p.demandOf(world)
	}
}

func (p *PML) demandOf(world int) {
	if pr := p.peers[world]; pr != nil && !pr.IsLost() && pr.credit.isFull() {
		p.tell(pr, true)
	}
}

// demanded is demand for all that wait already, when the announcements of a peer are used up.
func (p *PML) demanded(pr *peer) {
	if pr.IsLost() || !pr.credit.isFull() {
		return
	}
	p.settleDirect()
	for _, c := range p.contexts {
		if _, member := c.group.Rank(pr.Rank()); member && c.awaits(pr.Rank()) {
			p.tell(pr, true)
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
