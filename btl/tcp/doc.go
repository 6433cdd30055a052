// Package tcp is the BTL over TCP: one module for each local address.
//
// # Connections
//
// A module listens at its address, which its card tells, and connects from it. There is one connection for each incarnation of an endpoint, begun by
// Connect. Before anything else is looked at, both ends prove that they know the job's secret; what is said before that has a fixed
// size, so that there is nothing to be parsed of a stranger:
//
//	connector                                acceptor
//	                  ── SYN ──▶
//	                  ◀── challenge ──       a nonce of 32 bytes
//	hello             ── hello ──▶           version, ranks, size, epoch, nonces of both cards, a nonce; HMAC of the
//	                                         challenge and all that
//	                  ◀── answer ──          verdict, epoch; HMAC of the challenge, the hello and these
//	ready                                    ready
//
// The two HMACs differ by the role of who made them, and each covers a nonce that the other end has just drawn, so neither can be
// replayed, nor given back. The nonces of the cards mark the lives of the two modules. Who says anything else, or nothing for too long, is
// dropped without a word; how many of these there can be is bounded (accept.go).
//
// If both ends connect at once the lower rank's attempt counts. An end that learns of an epoch later than its own has been left behind,
// and fails; the other one tries again until it has a connection or its time is over (dial.go).
//
// # Frames
//
//	 0       4       8       12     13    14         16
//	+-------+-------+-------+------+-----+----------+----------------------
//	| length|  ack  | epoch | kind | tag | 0        | header and payload ...
//	+-------+-------+-------+------+-----+----------+----------------------
//
// Frames are fragments, acknowledgements, and good-byes. TCP keeps their order. A fragment that the system has taken is not delivered: each
// end counts the fragments that it has handed up, and every frame says how many (ack.go). Until then an operation and its payload belong to the
// endpoint; if the connection breaks it ends in an error. The system copies what it takes, so nothing reaches memory once a socket is closed.
// What an endpoint has under way is bounded; beyond that posts are refused.
//
// # Sending
//
// A short fragment is copied next to its head and goes to the system at once; a long one is gathered from where it lies. What is posted from inside of what
// a turn hands up goes out together at the turn's end, and so do fragments from the fifth on that are posted between two turns, up to 256 KiB together: a system call
// for each, and a segment or two, would take three to ten times as long. If no turn comes, a timer has one made.
//
// # Polling
//
// A turn reads the connection that has spoken last, without asking whether there is anything: one system call, that does not pass through
// Go's scheduler. The others, and the listener, are polled only so often. A rank that sleeps or computes is woken through Go's network poller
// (idle.go).
//
// # Failing
//
// An error of the system, the end of a connection without a good-bye, or a frame that makes no sense fails the endpoint; a listener or an address that is
// gone fails the rail, and an interface that is down, or has no link, the connections to other machines (link.go). That a connection has ended is no proof that a process has, so no peer is ever said to be gone: its connections are refused
// then, which looks the same as a firewall. A machine that does not answer is noticed by the system if nothing is being sent to it, and else
// by asking the system what it waits for (health.go).
//
// The parts: module.go, config.go, card.go, address.go (local addresses), pair.go and apart.go (which lead to which, and why none does), socket.go and poller.go (the system), handshake.go, dial.go and
// accept.go (connections), endpoint.go, frame.go, send.go, receive.go, ack.go, health.go, link.go, close.go, idle.go (sleeping), faults.go (faults on request).
package tcp
