// Package ibverbs is the BTL over InfiniBand and RoCE: one module for each port.
//
// # Connections
//
// Each module has an unreliable-datagram queue pair, whose address is its card. By it ranks ask
// each other for connections and say when one has failed; each such message proves the job's
// secret. Fragments, puts and gets go over a reliable connection, a queue pair for each peer that
// is made when one of the two first connects, and anew for each incarnation:
//
//	asker                                    peer
//	queue pair, INIT, receives posted
//	                  ── REQ ──▶             queue pair, receives posted, RTR
//	RTR, RTS          ◀── REP ──
//	                  ══ HELLO ══▶           COMM_EST, or the receive: RTS
//
// HELLO is the first message on the connection itself, so a connection is in use only if the path
// carries it. Requests are repeated until they are answered. If both ask at once, the lower rank's
// request counts. A peer that cannot make its end, for lack of memory say, answers each request by
// REJ, which says why: the asker's endpoint fails for that, at once or, if the cause may pass,
// after a second of asking again (reject.go). REQ offers the MTU that the port has at that moment,
// REP says the smaller one of both ports', and both ends use that.
//
// # Sending
//
// A fragment takes one of the peer's posted receives; there is a credit for each, so no sender ever
// finds the receiver not ready. Credits come back with fragments the other way, or by a message of
// their own. A fragment is copied: into the work request if the device takes so much inline, else
// into a registered buffer (bounce.go). Success of an operation is the completion of its work
// request: the peer's device has acknowledged it.
//
// A peer that sends much gets a ring, of which a note of ours tells it: memory into which it writes
// its small fragments, where we find them without asking the device (ring.go). Each of these writes
// takes a receive too, so credits, order, failing and sleeping are those of sends.
//
// # Failing
//
// The first completion that failed and is not a flush, an event, or a deadline fails the endpoint
// (reactions.go). A flush fails it too, but looks for what led to it first. Its queue pair goes to
// Error, behind all that was posted, and when that has come back, or a deadline is over, it is
// destroyed: nothing of that incarnation can reach memory after that, and what is left is called
// back. If it cannot be destroyed the device is given up, and with it the registrations by which it
// could.
//
// After a failure of the path the endpoint is Drained as soon as its sends have come back, and its
// queue pair destroyed later (drain.go): that may take seconds, in which nothing else would move. A
// device whose port has no address any more is closed, for its driver may wait for that, and opened
// anew by the next Connect; how two ends find each other after that is in siblings.go.
//
// The parts: module.go, device.go (what is opened once), connect.go, reject.go and message.go
// (connections), endpoint.go (posting), receive.go (receiving and credits), ring.go (remote writes
// of small fragments), complete.go (completions), drain.go (the end of an endpoint), reactions.go
// and async.go (what errors and events mean), region.go (puts and gets), idle.go (sleeping),
// inject.go (faults on request).
package ibverbs
