// Package ibverbs is the BTL over InfiniBand and RoCE: one module for each port.
//
// # Connections
//
// Each module has an unreliable-datagram queue pair, whose address Address publishes. By datagrams
// ranks ask each other for connections, and report that one has failed. Each such message proves
// that its sender knows the job's secret. Fragments, puts and gets go over a reliable connection: a
// queue pair for each peer, which is made when one of the two first connects, and anew for each
// incarnation:
//
//	asker                                    peer
//	queue pair, INIT, receives posted
//	                  ── REQ ──▶             queue pair, receives posted, RTR
//	RTR, RTS          ◀── REP ──
//	                  ══ HELLO ══▶           COMM_EST, or the receive: RTS
//
// HELLO is the first message on the connection itself, so a connection is used only if the path
// carries it. A REQ is repeated until it is answered. If both ends ask at once, the lower rank's
// REQ counts. A peer that cannot make its end, for example for lack of memory, answers each REQ by
// REJ, which says why. The asker's endpoint then fails, at once or, if the cause may pass, after a
// second of asking again (reject.go). REQ offers the present MTU of its sender's port, REP says the
// smaller one of both ports', and both ends use that.
//
// # Sending
//
// A fragment takes one of the peer's posted receives. There is a credit for each receive, so no
// sender ever finds the receiver not ready. Credits come back with fragments in the other
// direction, or by a control message. A fragment is copied: into the work request if the device
// takes so much inline, otherwise into a registered buffer (bounce.go). An operation succeeds when
// its work request completes: the peer's device has acknowledged it.
//
// A peer that sends much is offered a ring by a control message: memory of the receiver into which
// it writes its small fragments, where the receiver finds them without asking the device (ring.go).
// Each of these writes takes a receive too, so credits, order, failure and sleep work as for sends.
//
// # Failing
//
// The first completion that failed and is not a flush, an event, or a deadline fails the endpoint
// (reactions.go). A flush fails it too, but the module first looks for its cause. The queue pair
// goes to Error, behind everything that was posted. When all of that has come back, or a deadline
// is over, the queue pair is destroyed: nothing of that incarnation can reach memory after that,
// and what is left is called back. If the queue pair cannot be destroyed, the module gives the
// device up, and with it the registrations by which the queue pair could reach memory.
//
// After a failure of the path the endpoint is Drained as soon as its sends have come back, and its
// queue pair is destroyed later (drain.go): that may take seconds, in which nothing else would
// move. A device whose port has no address any more is closed, because its driver may wait for
// that, and is opened anew by the next Connect. siblings.go is how two ends find each other after
// that.
//
// The parts: module.go, device.go (what is opened once), railaddress.go, connect.go, reject.go and
// message.go (connections), endpoint.go (posting), receive.go (receiving and credits), ring.go
// (remote writes of small fragments), complete.go (completions), drain.go (the end of an endpoint),
// reactions.go and async.go (what errors and events mean), region.go (puts and gets), idle.go
// (sleeping), transport.go (opening from settings).
package ibverbs
