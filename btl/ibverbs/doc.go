// Package ibverbs is the BTL over InfiniBand and RoCE: one module for each port.
//
// # Connections
//
// Each module has an unreliable-datagram queue pair, whose address Address publishes. Ranks send
// datagrams to ask each other for connections, and to report that one has failed. Each datagram
// proves that its sender knows the job's secret. Fragments, puts and gets go over a reliable
// connection: a queue pair for each peer, which is made when one of the two first connects, and
// again for each incarnation:
//
//	asker                                    peer
//	queue pair, INIT, receives posted
//	                  ── REQ ──▶             queue pair, receives posted, RTR
//	RTR, RTS          ◀── REP ──
//	                  ══ HELLO ══▶           COMM_EST, or the receive: RTS
//
// HELLO is the first message on the connection itself, so a connection is used only if the path
// carries it. A REQ is repeated until it is answered. If both ends ask at once, the lower rank's
// REQ wins.
//
// A peer that cannot make its end, for example for lack of memory, answers each REQ with REJ, which
// says why. The asker's endpoint then fails at once. If the cause may pass, the asker repeats its
// REQ for a second first (reject.go).
//
// REQ has the current MTU of its sender's port. REP has the smaller MTU of both ports, which both
// ends use.
//
// # Addresses
//
// Ports of RoCE are addressed by GID, ports of one InfiniBand subnet by LID, and ports of different
// subnets by both (port.go). Every message about a connection has the current address of its
// sender. If a port gets another address, or its partition key moves in its table, the module fails
// its connections. It publishes the new address (Config.Moved), and sends DOWN to the peers from
// there. If DOWN ends a connection that the peer still has, the peer trusts the address, because
// such a DOWN is not a replay.
//
// # Sending
//
// A fragment takes one of the peer's posted receives. There is a credit for each receive, so a
// receive is always ready. Credits come back with fragments in the other direction, or in a control
// message. With many peers, all connections of a port share their receives (shared.go).
//
// A fragment is copied: into the work request if the device takes that many bytes inline, otherwise
// into a registered buffer (bounce.go). An operation succeeds when its work request completes,
// because the peer's device has acknowledged it.
//
// To a peer that sends much, the receiver offers a ring by a control message. A ring is memory of
// the receiver into which the peer writes its small fragments. The receiver finds them there
// without polling the device (ring.go). Each of these writes takes a receive too, so credits,
// order, failure and sleep work as for sends.
//
// # Failing
//
// An endpoint fails because of the first error completion that is not a flush, an event, or a
// deadline (reactions.go). A flush fails it too, but the module first looks for the cause. The
// queue pair goes to Error, which flushes everything that was posted. When all requests have
// completed, or a deadline has passed, the queue pair is destroyed. After that, the incarnation
// accesses no memory, and the remaining operations end. If the queue pair cannot be destroyed, the
// module closes the device, and ends the registrations with which the queue pair could access
// memory.
//
// After a failure of the path, the endpoint is Drained as soon as its sends have completed, and its
// queue pair is destroyed later (drain.go), because destroying it may block for seconds. If a port
// has lost its address, the module closes the device, because its driver may wait for that. The
// next Connect opens the device again. It then has a new address, which the module publishes
// (Config.Moved), and sends by other rails (siblings.go).
//
// The parts: module.go, device.go (shared objects of a device), port.go (how a port is addressed),
// limits.go (limits of a device), railaddress.go, connect.go, resolve.go, reject.go and message.go
// (connections), endpoint.go (posting), receive.go (receiving and credits), shared.go (shared
// receive queues), ring.go (remote writes of small fragments), complete.go (completions), drain.go
// (the end of an endpoint), reactions.go and async.go (the meaning of errors and events), region.go
// (puts and gets), idle.go (sleeping), transport.go (opening from settings).
package ibverbs
