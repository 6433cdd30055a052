// Package pml is the point-to-point messaging layer of one rank. It matches messages with receives,
// chooses the protocol that moves a message, and runs the state machines of sends and receives. It
// is for those who extend the library, and may change with any version: programs use package comm.
//
// The package is a deterministic state machine: it has no goroutine, clock, I/O or randomness of
// its own. The calls of the user and the events of the layer below drive it, so the same calls and
// events in the same order have the same result. The lock of the rank's progress engine guards
// everything in it, and every caller holds that lock.
//
// The layer below is package bml: one reliable, ordered channel to each peer. Failover is visible
// here in only three events: Op.Then reports the result of an operation, [bml.Upper].Resume that a
// transfer may go on, and [bml.Upper].Lost that a peer is lost.
//
// # Protocols
//
//	eager         sender ── MATCH ──▶ receiver
//	rendezvous    sender ── RNDV ───▶  ◀── ACK ──  ── FRAG… ──▶
//	remote read   sender ── RGET ───▶  ◀══ get ══  ◀── FIN ──
//	remote write  sender ── RNDV ───▶  ◀── PUT ──  ══ put ══▶ ── FIN ──▶
//
// RNDV and RGET are requests to send (RTS). ACK and PUT are their answers (CTS: clear to send). The
// sender takes the first protocol that it can use:
//
//  1. Eager, if the message is not longer than the rail's eager limit and the receiver's window has
//     room for it. A synchronous message of that length is sent as a RNDV, because the answer to
//     the RNDV shows that the message was matched.
//  2. Remote read, if the message is long enough for remote access, a rail can read, and the
//     sender's buffer can be registered. The receiver reads the message, and ends with FIN.
//  3. Remote write, if the message is long enough and a rail can write. The receiver answers PUT,
//     and the sender writes, and ends with FIN.
//  4. Rendezvous: the receiver answers ACK, and the sender sends fragments.
//
// After a remote read, FIN goes to the sender and names the send. The receiver has all bytes and
// its receive is complete; the sender releases its buffer, and its send completes. After a remote
// write, FIN goes to the receiver and names the receive. The sender posts FIN when all writes are
// done, so all bytes are in the receive buffer. The receive completes when FIN arrives, and the
// send when FIN was called back. If rails failed during a write, FIN names their incarnations
// (fences), and the receive completes when they are drained at the receiver. Rails without remote
// writes may carry fragments of the same message: FIN has the number of these bytes.
//
// If remote access turns out to be impossible, the transfer goes on in fragments (restart.go). It
// does not resend bytes that have arrived. Package bml spreads the pieces of a long message over
// all rails that are up. All other fragments use one rail: the trusted rail with the lowest
// latency, or the healthiest if none is trusted.
//
// # Wire format
//
// Numbers are little-endian; the number behind a field is its length in bytes. A handle names a
// request by slot and generation, so a stale or forged handle finds nothing.
//
//	numbered:
//	MATCH              16  context 6, flags 1, version 1, tag 4, sequence 4; the message follows
//	RNDV               32  as MATCH, then length 8, send handle 8; the first bytes of the message
//	                       may follow
//	RGET               32  as RNDV; remote key descriptors of the message follow
//	ACK                40  send handle 8, zero 4, sequence 4, receive handle 8, from 8, to 8
//	PUT                40  as ACK; remote key descriptors of the receive buffer follow
//	FIN                24  handle 8, type 1 (0 send handle, 1 receive handle), zero 3, sequence 4,
//	                       bytes in fragments 8; fences follow a receive handle
//	RNDVRESTARTNOTIFY  24  send handle 8, zero 4, sequence 4, receive handle 8
//	RNDVRESTARTACK     40  as ACK
//	RNDVRESTARTNACK    24  as RNDVRESTARTNOTIFY
//	REVOKE             24  as MATCH, then 8 bytes for the context's handler
//	MISMATCHPROBE      48  as MATCH, then 32 bytes for the context's handler
//	INVITE             40  as MATCH, then 24 bytes for the context's handler
//	FINALIZED          16  as MATCH, with tag 0 if receives are active, else 1
//	WAITING            16  as MATCH, with tag 0
//	NACK               32  start of the replaced fragment 24, its kind 1, zero 3, length of its
//	                       payload 4
//
//	not numbered:
//	FRAG               16  receive handle 8, offset 8; a piece of the message follows
//	CREDIT             16  bytes consumed 8, RTS messages allowed 8
//
// Every numbered fragment has its sequence number in bytes 12 to 15: the low half of a 64-bit count
// of the numbered fragments from one rank to another, whatever their communicator. Package bml
// delivers each of them once and in order, whatever rails fail. It also defines RAILDOWN,
// RAILDOWNACK, PROBE, PROBEACK and TRIAL, the remote key descriptor and the fence. A fragment
// without a number may arrive late, twice or never, without harm.
//
//   - Flag 1: the sender can write, if the receiver sends it remote key descriptors. The other
//     seven flags are the kind of the message's elements, as the user of the package numbers them;
//     0: no kind. Only audited sends set it (audited.go).
//   - from and to are the range of bytes of the message that the receiver still wants. Equal
//     negative values reject the message: −1 if the receiver has freed the communicator, −2 if all
//     ranks are in Finalize and no receive matches.
//   - The data of REVOKE and MISMATCHPROBE is defined in comm/internal/coll (revoke.go,
//     mismatch.go), that of INVITE in comm (invite.go). The data of a REVOKE has a fixed length, so
//     that a NACK can contain all of it.
//   - In a NACK, the bytes that the replaced fragment does not have are zero, except that the
//     length of the message, 8, follows a MATCH. A NACK of kind FRAG replaces no fragment: receive
//     handle 8, zero 4, sequence 4, zero 8, and then the kind as always.
//
// # States
//
// The tables of the states of a send and of a receive are in sendstate.go and recvstate.go.
//
// # Flow control
//
// A receiver has to buffer data that arrives before its receive is posted. The sender limits these
// data by two windows for each pair of ranks. The first one counts bytes: a fragment with data
// takes 64 bytes plus its payload. A message that does not fit is sent as a RNDV without data,
// whatever its length. The second window is as long and counts those RNDVs, at 64 bytes each. A
// send that finds no room there either is pending, and later sends to the same peer wait behind it.
// The receiver sends a CREDIT when half a window was consumed.
//
// If a receive waits, its message may be stuck behind sends that are waiting for room. Then the
// receiver lets the peer send another window of RNDVs. So flow control never causes a deadlock
// (credit.go).
//
// # Files
//
//	pml.go           configuration, counters, construction, Close
//	header.go        headers of fragments
//	kinds.go         the table of the kinds of fragments
//	upper.go         events from the BTLs and from package bml
//	arrive.go        matching of fragments that arrive
//	eager.go         what a whole message changes, and how a call that waits for it takes it
//	short.go         sends and receives that are posted in one step
//	match.go         queues of posted receives and unexpected messages
//	context.go       matching spaces, one for each communicator and kind of traffic
//	control.go       contexts that a layer above controls, for collectives
//	revoke.go        revocation of communicators for a rank that never got them
//	peer.go          what this rank knows of each peer, and the end of a peer
//	credit.go        flow control
//	pending.go       sends that wait for flow control
//	protocol.go      choice of the protocol, registered memory
//	sendreq.go       sends
//	sendstate.go     states of a send
//	bcopy.go         short sends from a copy, which do not wait for delivery
//	detach.go        sends that return their buffer before they are complete
//	recvreq.go       receives
//	recvstate.go     states of a receive
//	blockingrecv.go  a blocking receive without a request
//	pair.go          a send and a receive under one request
//	audited.go       sends and receives of the checked mode of package comm
//	probe.go         probes and matched probes
//	restart.go       transfers that go on in fragments after remote access failed
//	ranges.go        which bytes have come in fragments
//	nack.go          fragments that every rail refuses
//	finalized.go     peers that are in Finalize
//	waiting.go       peers that do not know that this rank waits for them
//	unmatched.go     sends that no receive matches before all ranks are in Finalize
//	handle.go        handles of requests
//	pool.go          pools of objects
//	observe.go       lists of operations and messages, for reports
//	introspection.go what a simulation sees
//	aliases.go       types of package bml for callers of this package
package pml
