package comm

import "github.com/mpigo/mpigo/pml"

// Stats counts what the message layer of a rank has done since the job began, for all messages,
// including those of collectives. With the setting stats=true each rank prints its counters in
// Finalize, as a table on standard error. With stats=json it prints a JSON object on one line.
//
// Short messages are sent at once: inline or eagerly. For a longer one, the sender first sends only
// a request to send (rendezvous). The receiver then reads the message from the sender's memory
// (get), lets the sender write it into the receive buffer (put), or asks for fragments.
type Stats struct {
	// SentInline, SentEager, SentRendezvous and SentGet count the messages sent, by how they began:
	// whole, by the shortest path between ranks of one machine; whole; with a request to send; and
	// with a request to send that lets the receiver read. SentPut counts the messages of
	// SentRendezvous that this rank then wrote into the receiver's memory.
	SentInline, SentEager, SentRendezvous, SentGet, SentPut uint64
	// Received counts the messages received, and ReceivedBytes the bytes that reached a buffer.
	Received      uint64
	ReceivedBytes int64
	// Throttled counts messages that were short enough to be sent at once, but waited for their
	// receive, because the receiver's window was full of earlier messages.
	Throttled uint64
	// Deferred counts sends that could not even send their request to send when they started.
	Deferred uint64
	// ReceivedGet counts the receives that read their message, ReceivedPut the receives whose
	// message the sender wrote, and Unread the receives that asked for fragments after a read
	// failed.
	ReceivedGet, ReceivedPut, Unread uint64
	// Unwritten counts the sends of SentPut that continued in fragments after a write failed.
	Unwritten uint64
	// Unregistered counts buffers that a rail could not register for remote access.
	Unregistered uint64
	// Unexpected counts messages that arrived before their receive was posted. UnexpectedBytes is
	// the memory that such messages, and fragments that arrived before their turn, occupy at
	// present. UnexpectedPeakBytes is its largest value so far.
	Unexpected          uint64
	UnexpectedBytes     int64
	UnexpectedPeakBytes int64
	// Early counts fragments that arrived before one that was sent earlier. Duplicates counts
	// fragments that were dropped because they had arrived already.
	Early, Duplicates uint64
	// Retries counts operations that had to wait because a rail had no room.
	Retries uint64
	// RailsFailed and RailsReturned count how often a rail to another rank failed and came back.
	// Resent counts fragments and pieces that were sent again because a rail had accepted them and
	// then completed them with an error. Operations that a rail did not accept do not count.
	// StaleFragments counts fragments that were dropped because they had arrived before.
	RailsFailed, RailsReturned, Resent, StaleFragments uint64
	// ResentBytes is the bytes of Resent, as far as the failed rails may have carried them.
	// TwiceBytes counts bytes at the end of messages that a second rail sent too, because the first
	// one was late.
	ResentBytes, TwiceBytes int64
	// Restarts counts messages that continued in fragments, because remote access was refused or no
	// rail offered it any more.
	Restarts uint64
	// LocalErrors, PathErrors and RemoteErrors count the errors of rails that are evidence against
	// this rank's end of the rail, the path, and the other rank's end. A lost link counts as an
	// error of this rank's end, whichever end of the cable has lost it. Each failed attempt to
	// reopen a rail counts too: about two a second for each rail of a port that is down.
	LocalErrors, PathErrors, RemoteErrors uint64
	// Refused counts operations that every rail rejected, such as those that were too long. Each of
	// them ended a message with an error.
	Refused uint64
	// SwitchNanos is the longest time in ns from a rail's failure until everything that was in
	// flight on it was sent again.
	SwitchNanos int64
	// Malformed counts fragments that were dropped because they violated the protocol, or belonged
	// to an operation that had ended.
	Malformed uint64
	// Illegal counts events that should be impossible. A value above 0 shows a fault of the
	// library.
	Illegal uint64
}

// RailStatus is the state of a rail of this rank: one network path to another rank, or to itself.
type RailStatus struct {
	// Peer is the other rank, as a rank of the world.
	Peer int
	// Rail is the name of the rail: the transport, and the device or interface of this rank that it
	// uses, as in "tcp:eth0".
	Rail string
	// Remote is the number of the peer's port or address at the other end. Two rails with the same
	// name differ in it.
	Remote int
	// Alternate: the rail is a spare. It is used only while one of its ends has no other rail that
	// is up, or while no better rail leads to the peer.
	Alternate bool
	// State is "up", "down", "failing" (it has failed, and its outstanding operations are ending),
	// "probing" (it is being tried again), or "closed" (the peer was lost, or one of the two ranks
	// has left the job).
	State string
	// First: short messages use this rail.
	First bool
	// Health, from 0 to 1000, says how far the rail has recovered since it last failed. It decides
	// the rail's share of long messages.
	Health int
	// Slow: the rail is up and had enough to send, but delivered at less than a quarter of the rate
	// of another rail to the peer.
	Slow bool
	// ShortNanos is the time in ns until a short operation on the rail is known to be delivered.
	// MBps is the rate of the rail while it is busy, in 10⁶ bytes a second. It is low for a rail
	// that has little to send. 0: not known. Both are measured only while several rails to the peer
	// are up.
	ShortNanos, MBps int64
	// Bytes is the number of delivered bytes, headers included, that this rail has sent or written
	// to the peer, or read from it.
	Bytes int64
	// LocalErrors, PathErrors and RemoteErrors count the errors of the rail that are evidence
	// against this rank's end, the path, and the peer's end. [Stats] has their sums over all rails.
	LocalErrors, PathErrors, RemoteErrors ErrorCounts
	// Cause is the reason of the last failure while the rail was up, or the reason why it was down
	// from the start. It is nil if the rail never failed.
	Cause error
}

// ErrorCounts counts errors of a rail by kind. These do not count: a rank closes the rail or ends,
// or an operation is invalid in itself.
type ErrorCounts struct {
	// Path: no packet gets through, or a connection was cut.
	Path uint64
	// Device: a device, port, address or segment of memory failed.
	Device uint64
	// Timeout: the peer did not answer in time.
	Timeout uint64
	// Protocol: received data violated the protocol.
	Protocol uint64
}

// Stats returns the counters of this rank, over all communicators. It works after Finalize and Free
// too.
func (c *Comm) Stats() Stats {
	if c.isNull() {
		return Stats{}
	}
	c.job.eng.Lock()
	defer c.job.eng.Unlock()
	return statsOf(c.job.pml.Stats())
}

// Rails lists the rails from this rank to the ranks that it has been in contact with, in the order
// of world ranks. The list has rails that can be used, and rails that have failed and may come
// back.
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

// The types above have the same fields as those of package pml. The compiler checks the first two
// types, and a test checks all.

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
