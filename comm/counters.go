package comm

import "github.com/mpigo/mpigo/pml"

// Stats counts what the message layer of a rank did since the job began: all its messages, also
// those of collectives. With the setting stats=true each rank prints its own at Finalize, as a
// table on standard error, and with stats=json as a JSON object on one line.
//
// Short messages are sent at once: inline or eagerly. Of a longer one, only a notice is sent at
// first (rendezvous). The receiver then reads the message from the sender's memory (get), or has it
// written into its buffer (put), or asks for it in fragments.
type Stats struct {
	// SentInline, SentEager, SentRendezvous and SentGet count the messages sent, by how they began:
	// whole, by the shortest path between ranks of one machine; whole; with a notice; and with a
	// notice that lets the receiver read. SentPut counts those of SentRendezvous that were then
	// written.
	SentInline, SentEager, SentRendezvous, SentGet, SentPut uint64
	// Received counts the messages received, and ReceivedBytes the bytes that reached a buffer.
	Received      uint64
	ReceivedBytes int64
	// Throttled counts messages that were short enough to be sent at once, but waited for their
	// receive, because the receiver had not yet received enough of the earlier ones.
	Throttled uint64
	// Deferred counts sends of which not even the notice could be sent when they started.
	Deferred uint64
	// ReceivedGet counts the receives that read their message, ReceivedPut those that had it
	// written, and Unread those that asked for fragments after a read failed.
	ReceivedGet, ReceivedPut, Unread uint64
	// Unwritten counts the sends of SentPut that went on in fragments after a write failed.
	Unwritten uint64
	// Unregistered counts buffers that a rail could not register for remote access.
	Unregistered uint64
	// Unexpected counts messages that arrived before their receive was posted. UnexpectedBytes is
	// what is buffered now: of such messages, and of fragments that arrived before their turn.
	// UnexpectedPeakBytes is the most that was buffered at a time.
	Unexpected          uint64
	UnexpectedBytes     int64
	UnexpectedPeakBytes int64
	// Early counts fragments that arrived before one that was sent earlier, Duplicates those that
	// had arrived before and were dropped.
	Early, Duplicates uint64
	// Retries counts operations that had to wait because a rail had no room.
	Retries uint64
	// RailsFailed and RailsReturned count how often a rail to another rank failed and came back.
	// Resent counts the fragments and pieces that went again after a rail had taken them and ended
	// them with an error: it failed, or rejected them then. What a rail did not take does not
	// count. StaleFragments counts the fragments that were dropped because they had come before.
	RailsFailed, RailsReturned, Resent, StaleFragments uint64
	// ResentBytes is the bytes of Resent: as much as the rails may have carried of it. TwiceBytes
	// counts the bytes at the end of messages that a second rail sent too, because the first one
	// was late.
	ResentBytes, TwiceBytes int64
	// Restarts counts the messages that went on in fragments, because remote access was refused or
	// no rail had it any more.
	Restarts uint64
	// LocalErrors, PathErrors and RemoteErrors count the errors of rails that are evidence against
	// this rank's end of the rail, the path, and the other rank's end. A lost link is an error of
	// this rank's end, whichever end of the cable has lost it. Each failed try to open a rail again
	// counts too: while a port is down, about two a second for each of its rails.
	LocalErrors, PathErrors, RemoteErrors uint64
	// Refused counts operations that every rail rejected, such as those that were too long. Each of
	// them ended a message with an error.
	Refused uint64
	// SwitchNanos is the longest time in ns from a rail's failure until all that was under way on
	// it was sent again.
	SwitchNanos int64
	// Malformed counts fragments that were dropped because they broke the protocol, or were for an
	// operation that is over.
	Malformed uint64
	// Illegal counts events that should be impossible: more than 0 is a fault of the library.
	Illegal uint64
}

// RailStatus is the state of a rail of this rank: one network path to another rank, or to itself.
type RailStatus struct {
	// Peer is the other rank, by its number in the world.
	Peer int
	// Rail is the name of the rail: the transport, and what of this rank it uses, as in "tcp:eth0".
	Rail string
	// Remote is the number of the port or address of the peer at the other end. Of two rails with
	// the same name, each leads to another one.
	Remote int
	// Alternate: the rail is used only while one of its ends has no other rail that is up, or while
	// no better rail leads to the peer.
	Alternate bool
	// State is "up", "down", "failing" (it has failed, and what was under way on it comes to its
	// end), "probing" (it is tried again), or "closed" if the peer was lost or has left, or this
	// rank has.
	State string
	// First: short messages go by this rail.
	First bool
	// Health, from 0 to 1000, is how far the rail is trusted since it last failed. It decides the
	// rail's share of long messages.
	Health int
	// Slow: the rail is up and had enough to carry, and delivered at less than a quarter of the
	// rate of another rail to the peer.
	Slow bool
	// ShortNanos is the time in ns until a short operation on the rail is known to be delivered.
	// MBps is how many 10⁶ bytes it carries in a second in which it is busy; that of a rail that
	// has little to carry is low. 0: not known. Both are measured only while several rails to the
	// peer are up.
	ShortNanos, MBps int64
	// Bytes is what was sent or written to the peer by this rail, or read from it, and delivered.
	// Headers count.
	Bytes int64
	// LocalErrors, PathErrors and RemoteErrors count the errors of the rail that are evidence
	// against this rank's end, the path, and the peer's end, as those of [Stats] do for all rails.
	LocalErrors, PathErrors, RemoteErrors ErrorCounts
	// Cause is why the rail last failed while it was up, or why it was down from the start; nil if
	// it never failed.
	Cause error
}

// ErrorCounts counts errors of a rail by kind. It is no error of a rail that a rank closes it or
// ends, nor that an operation is wrong in itself.
type ErrorCounts struct {
	// Path: nothing gets through, or a connection was cut.
	Path uint64
	// Device: a device, port, address or segment of memory failed.
	Device uint64
	// Timeout: nothing was heard in time.
	Timeout uint64
	// Protocol: what arrived broke the protocol.
	Protocol uint64
}

// Stats returns the counters of this rank, whatever the communicator. It works after Finalize and
// Free too.
func (c *Comm) Stats() Stats {
	if c.isNull() {
		return Stats{}
	}
	c.job.eng.Lock()
	defer c.job.eng.Unlock()
	return statsOf(c.job.pml.Stats())
}

// Rails lists the rails from this rank to the ranks that it has been in touch with, by rank of the
// world: rails that can be used, and rails that have failed and may come back.
func (c *Comm) Rails() []RailStatus {
	if c.isNull() {
		return nil
	}
	c.job.eng.Lock()
	defer c.job.eng.Unlock()
	var out []RailStatus
	for _, r := range c.job.pml.Rails() {
		out = append(out, railStatusOf(r))
	}
	return out
}

// The types above have the fields of those of package pml: the compiler checks that of the first
// two, and a test that of all.

func statsOf(s pml.Stats) Stats { return Stats(s) }

func errorCountsOf(c pml.ErrorCounts) ErrorCounts { return ErrorCounts(c) }

func railStatusOf(r pml.RailStatus) RailStatus {
	return RailStatus{
		Peer: r.Peer, Rail: r.Rail, Remote: r.Remote, Alternate: r.Alternate, State: r.State, First: r.First,
		Health: r.Health, Slow: r.Slow, ShortNanos: r.ShortNanos, MBps: r.MBps, Bytes: r.Bytes,
		LocalErrors: errorCountsOf(r.LocalErrors), PathErrors: errorCountsOf(r.PathErrors),
		RemoteErrors: errorCountsOf(r.RemoteErrors), Cause: r.Cause,
	}
}
