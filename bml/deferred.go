package bml

// Work that must not run inside a call of a BTL, or cannot run yet, is deferred to the next
// progress call. Progress runs it in order, from one queue.

// workKind is a kind of deferred work.
type workKind uint8

const (
	workRetry    workKind = iota // rail: post what its endpoint had no room for
	workSettle                   // peer: post the replay queue, and resume what waited for a fence
	workPull                     // peer: let transfers that wait for room go on
	workResume                   // peer: let all transfers that wait for room go on
	workFailPeer                 // peer: fail every endpoint to it
	workFailRail                 // rail: fail its endpoint, with cause
	workReject                   // rail: tell a lost peer that it is lost
	workRejected                 // rail: end fails the endpoint that told it
	workRecheck                  // Upper.Recheck
)

// work is one deferred piece of work.
type work struct {
	kind  workKind
	peer  *Peer
	rail  *Rail
	cause error
	end   func()
}

// postpone queues work, and keeps the engine awake until it has run.
func (b *BML) postpone(w work) {
	b.deferred = append(b.deferred, w)
	b.eng.Wake()
}

// Progress implements progress.Poller. It runs the deferred work, and returns the number of
// operations that rails have taken.
func (b *BML) Progress() int {
	if len(b.deferred) == 0 {
		return 0
	}
	return b.runDeferred()
}

func (b *BML) runDeferred() int {
	n := 0
	for i := 0; i < len(b.deferred); i++ { // work may defer more work, which runs now too
		w := b.deferred[i]
		switch w.kind {
		case workRetry:
			n += b.retry(w.rail)
			if w.rail.isRetrying {
				b.blocked = append(b.blocked, w)
			}
		case workSettle:
			w.peer.isSettling = false
			b.settled(w.peer)
		case workPull:
			w.peer.isPullDeferred = false
			b.pull(w.peer)
		case workResume:
			w.peer.isResumeDeferred = false
			b.resumeAll(w.peer, waitsForRoom)
		case workFailPeer:
			b.failEndpoints(w.peer)
		case workFailRail:
			if w.rail.state == railFailing {
				w.rail.endpoint.Fail(w.cause)
			}
		case workReject:
			b.rejectBy(w.rail, maxProbes)
		case workRejected:
			w.end()
		case workRecheck:
			b.upper.Recheck()
		}
	}
	clear(b.deferred)
	// A rail wakes the engine when it has room again, so the engine may sleep until then.
	b.deferred, b.blocked = b.blocked, b.deferred[:0]
	return n
}
