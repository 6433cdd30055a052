// Package tcp is the BTL over TCP: one module for each interface, or several (plan.go).
//
// # Connections
//
// A module listens at its addresses, which Address publishes, and connects from there. Connect
// begins one connection for each incarnation of an endpoint. Before anything else, both ends prove
// that they know the job's secret. Messages before that have a fixed size, so nothing from an
// unauthenticated peer has to be parsed:
//
//	connector                                acceptor
//	                  ── SYN ──▶
//	                  ◀── challenge ──       a nonce of 32 bytes
//	hello             ── hello ──▶           version, ranks, size, epoch, nonces of both modules, a
//	                                         nonce; HMAC of the challenge and all that
//	                  ◀── answer ──          result, epoch; HMAC of challenge, hello and these
//	ready                                    ready
//
// The two HMACs differ by the role of their sender, and each covers a nonce that the other end has
// just drawn: neither can be replayed or reflected. The nonces of the modules distinguish one life
// of a module from the next. The acceptor drops a connector without an answer if it sends anything
// else, or nothing for too long. The number of unauthenticated connections is bounded (accept.go).
//
// If both ends connect at once, the lower rank's attempt counts. An end that learns of an epoch
// later than its own fails. The other end tries again until it has a connection or its deadline
// passes (dial.go).
//
// # Frames
//
//	 0       4       8       12     13    14         16
//	+-------+-------+-------+------+-----+----------+----------------------
//	| length|  ack  | epoch | kind | tag | 0        | header and payload ...
//	+-------+-------+-------+------+-----+----------+----------------------
//
// A frame is a fragment, an acknowledgement or a good-bye. TCP keeps their order. A fragment that
// the system has taken is not yet delivered. Each end counts the fragments that it has handed up,
// and every frame carries that count (ack.go). Until the peer has acknowledged a fragment, the
// operation and its payload belong to the endpoint; if the connection breaks, the operation ends in
// an error.
//
// The system copies the bytes that it takes, so it does not access the user's memory once a socket
// is closed. The number of fragments and bytes in flight to a peer is bounded; beyond that, posts
// are refused.
//
// # Sending
//
// A short fragment is copied next to its head and goes to the system at once. The system gathers a
// long one from where it lies. Fragments that the layer above posts from inside a progress call go
// out together at the end of the call. So do fragments posted between two progress calls, from the
// fifth on, up to 256 KiB together: a system call and a segment for each would take three to ten
// times as long. If no progress call comes, a timer asks for one.
//
// # Polling
//
// A progress call reads the active connection, the one that received last, without polling it
// first. That is one system call, which does not pass through Go's scheduler. It polls the other
// connections and the listener less often. A rank that sleeps or computes is woken through Go's
// network poller (idle.go).
//
// # Failing
//
// An endpoint fails at an error of the system, at the end of the connection without a good-bye, and
// at a frame that breaks the protocol. The rail fails when its listener or its address is gone. It
// may then get another address (absent.go). Connections to other machines fail when the interface
// is down or has no link (link.go).
//
// The end of a connection does not prove that the peer's process has ended, so this BTL never
// reports ClassPeerGone. New connections are then refused, which looks the same as a firewall. If
// the peer's machine does not answer on an idle connection, the system detects it. For a busy
// connection, the module asks the system (health.go).
package tcp
