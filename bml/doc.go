// Package bml is the BTL management layer: one reliable, ordered channel to each peer over all
// rails that lead there. It opens and chooses rails, stripes long messages over them, replays what
// a failed rail did not deliver, and brings rails back. The layer above (package pml) knows peers,
// operations and transfers; it never looks at a rail. Programs use package comm: this package is
// for extending the library, and may change with any version.
//
// A rail is the path from one module of this rank (btl.Module) to one module of the peer. Its tier
// follows from the place of its transport in the user's list, and from the quality of the path.
// Rails of later tiers are spare: they are opened when no rail of an earlier tier is up, or to
// carry long messages beside one (beside.go).
//
// On a switched network every module of one rank reaches every module of the other. Most of these
// rails are alternates: such a rail is used while one of its modules has no other rail that is up
// and does well. So if different ports die at the two ends, the remaining ports are used together.
//
// The package is a deterministic state machine: it has no goroutine, clock, I/O or randomness of
// its own. Every caller holds the lock of the rank's progress engine, which guards everything here.
//
// # What the layer above sees
//
//   - [BML.Send] posts a fragment. A fragment of a numbered kind arrives exactly once and in order,
//     even if rails fail. Op.Then is called once: with nil when the fragment is delivered, or with
//     the reason why it cannot be.
//   - A [Transfer] moves a long message in pieces over all rails that are up, and tracks which
//     bytes have arrived.
//   - Failover shows in three events: Op.Then (the piece moves again), Upper.Resume (the transfer
//     can go on) and Upper.Lost (the peer is lost).
//   - The [Kind] table says how each kind of fragment is handed up.
//
// # Failover
//
// The BML records nothing for failover while all is well: each BTL reports the result of each
// operation, and operations that failed are posted again. failover.go has the sequence from the
// first error to the replay. ledger.go and fence.go say which bytes of a long message go again, and
// when its buffer is released. The rest is in errors.go (which side an error points to), health.go
// (how far a rail is trusted), pull.go (how rails share messages), probe.go (how a rail comes
// back), grace.go (how long operations wait for a rail) and lost.go (the end of a peer).
//
// # States of a peer
//
//	state       meaning
//	new         no rail to the peer is known
//	connecting  rails are known, and none has been up yet
//	up          every rail that has been up, and is of use, is up
//	degraded    a rail is up, and another one has failed
//	no path     all rails have failed; one may come back within the grace time
//	failing     given up: nothing is posted, and the endpoints drain
//	lost        given up for good: what still arrives is dropped
//
// The last rail has failed for good in one of three cases: the peer has closed it, no rail to the
// peer can be opened again, or there is no grace time.
//
//	from        to          when
//	new         connecting  BML.Resolve has found rails
//	            failing     it has ended, given this rank up or broken the protocol; or a module
//	                        of this rank that may have led there has failed and is not drained
//	            lost        no rail leads there, or Close
//	connecting  up          a rail is up
//	            failing     the grace time is over; or as for up
//	            lost        as for up
//	up          degraded    a rail failed, and another one is up
//	            no path     the last rail failed
//	            failing     it has ended, given this rank up or broken the protocol; all rails
//	                        failed for good; no rail delivers an operation; or a device lost
//	                        acknowledged messages
//	            lost        Close
//	degraded    up          a rail came back, and no other one is missing
//	            no path     the last rail failed
//	            failing     as for up
//	            lost        as for up
//	no path     up          a rail came back, and no other one is missing
//	            degraded    a rail came back, and others did not
//	            failing     the grace time is over; or as for up
//	            lost        as for up
//	failing     lost        every endpoint to the peer is drained
//
// No rail delivers an operation in one of these cases:
//
//   - Every rail rejects it, for example as too long, and it has no number, or it replaces another
//     operation that every rail rejected (refused.go).
//   - Every rail that is up fails with it, again and again, until the grace time is over.
//   - It was posted again maxRetries times (failover.go).
//   - A post returns an error that the contract of package btl does not name (tryPost in post.go).
//
// A device that breaks before its rank has read acknowledged messages loses them (counters.go).
//
// Package pml tracks whether a peer has called Finalize: its rails do not depend on that.
//
// # States of a rail
//
//	state    meaning
//	up       takes traffic
//	failing  its endpoint has failed, and is not drained yet
//	down     has no working endpoint: none was opened yet, or the last one is drained
//	probing  the next incarnation is made, and the peer has not answered by it
//
//	from     to       when
//	up       failing  the endpoint failed; or the peer sent RAILDOWN, or a FIN that names it
//	failing  down     the endpoint is drained
//	down     probing  the next incarnation is made, and probes the peer or was probed by it
//	probing  up       PROBEACK came, or this rank's PROBEACK was delivered
//	         failing  the endpoint failed, or no probe was delivered
//
// A rail starts up, or down if it is spare, an alternate, or could not connect.
//
// # Wire format
//
// Numbers are little-endian. Every numbered fragment has its sequence number in bytes 12 to 15: the
// low half of a 64-bit count of the numbered fragments from one rank to another.
//
//	RAILDOWN     24  sender's module 1, version 1, receiver's module 1, gave up 1, epoch 4,
//	                 delivery counters 12, zero 4
//	RAILDOWNACK  24  as RAILDOWN
//	PROBE        24  as RAILDOWN, the last 4 being the length of the padding that follows
//	PROBEACK     24  as PROBE
//	TRIAL        24  as PROBE; its delivery shows that the rail works, and how fast
//
//	delivery counters      12  epoch 4, messages delivered 4, messages taken 4
//	remote key descriptor  48  module 1, zero 7, offset 8, key 32
//	fence                   8  sender's module 1, receiver's module 1, zero 2, epoch 4
//
// RAILDOWN says that its sender's half of a rail has failed. With "gave up" 1 instead of 0 it says
// that its sender has given the receiver up (reject.go). RAILDOWNACK answers it, and says that its
// sender's half is drained. PROBE, PROBEACK and TRIAL go by the rail that they are about. None of
// them has a sequence number: a late or repeated one does no harm.
package bml
