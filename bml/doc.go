// Package bml is the BTL management layer: one reliable, ordered channel to each peer over all
// rails that lead there. It opens and chooses rails, stripes long messages over them, replays what
// a failed rail did not deliver, and brings rails back. The layer above (package pml) knows peers,
// operations and transfers; it never looks at a rail.
//
// The package is a machine: it has no goroutine, clock, I/O or randomness of its own. The lock of
// the rank's progress engine guards everything in it, and every caller holds that lock.
//
// # What the layer above sees
//
//   - [BML.Send] posts a fragment. A fragment of a numbered kind arrives exactly once and in order,
//     whatever rails fail. Op.Then is called once: with nil when the fragment is delivered, or with
//     the reason why it never will be.
//   - A [Transfer] moves a long message in pieces over all rails that are up.
//   - Failover shows in three events: Op.Then (delivered), Upper.Restart (this transfer was
//     interrupted) and Upper.Lost (this peer is lost).
//   - The [Kind] table says for each kind of fragment how it is handed up.
//
// # Failover
//
// Nothing is recorded for failover while all is well: each BTL reports what became of each
// operation, and what did not succeed is done again. failover.go tells the sequence from the first
// error to the replay, in the order in which it happens. The rest of it is in health.go (how far a
// rail is trusted), probe.go (how a rail comes back), grace.go (how long operations wait for one)
// and lost.go (the end of a peer).
//
// # States of a peer
//
//	state       meaning
//	new         no rail to the peer is known
//	connecting  rails are known, and none has been up yet
//	up          every rail that has been up is up
//	degraded    a rail is up, and another one has failed
//	no path     all rails have failed; one may come back within the grace time
//	failing     given up: nothing is posted, and the endpoints drain
//	lost        given up and drained: nothing arrives, and nothing touches memory any more
//
//	from        to          when
//	new         connecting  BML.Resolve has found rails
//	            failing     the peer's process has ended, or a rail of this rank that may have led
//	                        there has failed and is not drained
//	            lost        no rail leads there; the peer broke the protocol; or Close
//	connecting  up          a rail is up
//	            failing     as for up
//	            lost        as for up
//	up          degraded    a rail failed, and another one is up
//	            no path     the last rail failed
//	            failing     the peer's process has ended; the last rail failed for good; no rail
//	                        takes an operation; or messages were lost
//	            lost        the peer broke the protocol, or Close
//	degraded    up          the last failed rail came back
//	            no path     the last rail failed
//	            failing     as for up
//	            lost        as for up
//	no path     up          the rail came back, and was the only one
//	            degraded    a rail came back, and others did not
//	            failing     the grace time is over; or as for up
//	            lost        as for up
//	failing     lost        every endpoint to the peer is drained
//
// The last rail fails for good if the peer has closed it, if no rail to the peer can be opened
// again, or if there is no grace time. No rail takes an operation if each one calls it wrong, or
// fails with it again and again until the grace time is over.
//
// Whether a peer has called Finalize does not concern its rails; package pml keeps that.
//
// # States of a rail
//
//	state    meaning
//	up       takes traffic
//	failing  its endpoint has failed, and is not drained yet
//	down     drained; the next incarnation is not made yet
//	probing  the next incarnation is made, and the peer has not answered by it
//
//	from     to       when
//	up       failing  the endpoint failed, or the peer sent RAILDOWN
//	failing  down     the endpoint is drained
//	down     probing  the next incarnation is made, and probes the peer or was probed by it
//	probing  up       PROBEACK came, or this rank's PROBEACK was delivered
//	         failing  the endpoint failed, or no probe was delivered
//
// # Wire format
//
// Numbers are little-endian. Every numbered fragment has its sequence number in bytes 12 to 15: the
// low half of a 64-bit count of the numbered fragments from one rank to another.
//
//	RAILDOWN     24  rail 1, version 1, zero 2, epoch 4, delivery counters 12, zero 4
//	RAILDOWNACK  24  as RAILDOWN; the rail is the receiver's number
//	PROBE        24  as RAILDOWN, the last 4 being the length of the padding that follows
//	PROBEACK     24  as PROBE
//
//	delivery counters      12  epoch 4, messages delivered 4, messages taken 4
//	remote key descriptor  48  rail 1, zero 7, offset 8, key 32
//
// RAILDOWN says that the sender's half of a rail has failed, RAILDOWNACK that the receiver's half
// is drained too. PROBE and PROBEACK go by the rail that they are about. None of them is numbered:
// a late or repeated one does no harm.
package bml
