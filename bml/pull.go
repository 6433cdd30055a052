package bml

import (
	"math/bits"
	"slices"
	"time"

	"github.com/mpigo/mpigo/bml/rating"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// While several rails to a peer are up, they pull: a rail takes the next piece of a long message
// when it has room. Package rating measures the rails and decides. This file gives it samples and
// acts on its decisions. No rail fails for being slow: only an error of its transport, which also
// detects silence, fails a rail.
//
// A tick acts without a delivery: a piece that waits for an overdue rail goes by another one, a
// piece at the end of a message is sent twice, and an unused rail gets a TRIAL. Without traffic
// there are no ticks.

const (
	// longTick is the time between ticks during a long message: a fifth of rating's target.
	longTick = time.Millisecond
	// shortTick is the time between ticks with short messages only, which wait on one rail
	// meanwhile.
	shortTick = 25 * time.Millisecond
	// awayNanos without a tick means that this rank made no progress. Operations that were under
	// way then are no samples of the rails.
	awayNanos = 100e6
	// pipelineDepth is how many pieces of one message may be under way on the only rail.
	pipelineDepth = 8
	// remotePieceBytes is the longest piece of remote access: long enough that the cost of a piece
	// does not count, short enough that several rails share a message of a few pieces.
	remotePieceBytes = 256 << 10
)

// puller is the part of a Peer that shares messages between several rails.
type puller struct {
	judge   *rating.Judge // nil until two rails are up for the first time
	timer   *progress.Timer
	tick    func()
	at      int64   // of the last tick
	isBusy  bool    // something was posted since the last tick
	lagging RailSet // at the last tick
	// shorts are the numbered fragments that endpoints have, in posting order. At idleAt the list
	// was last empty, or the first rail changed.
	shorts shorts
	idleAt int64
	// transfers are under way. Those in waitRoom wait for room, and those in waitFence until a rail
	// is drained here.
	transfers, waitRoom, waitFence []*Transfer
	// left is how many bytes transfers have to hand out, and wanting how many transfers have some.
	left    int64
	wanting int
	// isPulling: pull is running. isPullDeferred and isResumeDeferred: pull and resumeAll are
	// deferred.
	isPulling, isPullDeferred, isResumeDeferred bool
}

func (p *puller) addLeft(now, before int64) {
	p.left += now - before
	if now > 0 && before == 0 {
		p.wanting++
	} else if now == 0 && before > 0 {
		p.wanting--
	}
}

// isShared reports whether several rails are up.
func (pr *Peer) isShared() bool { return pr.up&(pr.up-1) != 0 }

// rateRails begins to measure the rails when two are up for the first time.
func (b *BML) rateRails(pr *Peer) {
	if pr.judge != nil || !pr.isShared() {
		return
	}
	promised := make([]float64, len(pr.rails))
	for i := range pr.rails {
		promised[i] = float64(max(pr.rails[i].module.Attrs().BandwidthMBps, 1)) / 1e3
	}
	pr.judge = rating.New(promised, b.eng.Now())
	for i := range pr.rails {
		pr.judge.Promise(i, 2*float64(pr.rails[i].latencyNanos))
	}
	b.startPulling(pr)
}

// begin counts an operation just before it is posted.
func (b *BML) begin(rl *Rail, op *Op) {
	pr := rl.peer
	op.bytes = int32(op.Len())
	rl.underWay++
	if pr.judge == nil {
		return
	}
	op.isRated = true
	op.mark = pr.judge.Posted(int(rl.index), int64(op.bytes), b.eng.Now())
	if op.numbered && !op.isCopy {
		pr.shorts.add(op)
	}
	if op.Tag != TagTrial {
		pr.isBusy = true
		b.startPulling(pr)
	}
}

// finish counts an operation that the endpoint has completed, or did not take.
func (b *BML) finish(op *Op, isDelivered bool) {
	rl := &op.peer.rails[op.rail]
	rl.underWay--
	if isDelivered {
		n := int64(op.bytes)
		rl.deliveredBytes += n
		rl.own.deliveredBytes += n
		rl.far.deliveredBytes += n
	}
	if !op.isRated {
		return
	}
	op.isRated = false
	pr, now := rl.peer, b.eng.Now()
	pr.noticeAway(now) // deliveries are handled before the next tick
	if op.numbered && !op.isCopy {
		if pr.shorts.remove(op); pr.shorts.isEmpty() {
			pr.idleAt = now
		}
	}
	if isDelivered {
		pr.judge.Delivered(int(rl.index), int64(op.bytes), op.mark, now)
	} else {
		pr.judge.Dropped(int(rl.index), int64(op.bytes))
	}
}

// choose chooses the rail for the next piece of a transfer, and the piece's length. The rail is
// negative if the piece has to wait.
func (b *BML) choose(t *Transfer, by Access, headerBytes int) (rail int, bytes int64) {
	pr := t.peer
	set := t.rails(by)
	longest := func(i int) int64 {
		if by == Fragments || by == Write && !t.reaches(i) {
			return int64(pr.rails[i].pieceBytes - headerBytes)
		}
		return remotePieceBytes
	}
	if !pr.isShared() {
		i := bits.TrailingZeros32(uint32(set))
		if set == 0 || len(t.pieces) >= pipelineDepth {
			return -1, 0
		}
		return i, longest(i)
	}
	return pr.judge.Next(rating.Set(set), t.demand(by == Fragments), longest, b.eng.Now())
}

// withRoom returns the rails of a set whose queues are empty.
func (pr *Peer) withRoom(set RailSet) RailSet {
	for i := range pr.rails {
		if !pr.rails[i].queue.Empty() {
			set &^= 1 << i
		}
	}
	return set
}

// startPulling starts the ticks.
func (b *BML) startPulling(pr *Peer) {
	if pr.judge == nil || pr.timer != nil || !pr.isShared() || !pr.IsAlive() {
		return
	}
	if pr.tick == nil {
		pr.tick = func() { b.pullTick(pr) }
	}
	pr.at = b.eng.Now()
	b.planTick(pr)
}

func (b *BML) planTick(pr *Peer) {
	period := shortTick
	if len(pr.transfers) > 0 {
		period = longTick
	}
	pr.timer = b.eng.After(int64(period), pr.tick)
}

// pullTick is a tick.
func (b *BML) pullTick(pr *Peer) {
	now := b.eng.Now()
	pr.noticeAway(now)
	pr.timer = nil
	if !pr.isShared() || !pr.IsAlive() || !pr.isBusy && pr.shorts.isEmpty() && len(pr.transfers) == 0 {
		b.noneLags(pr, now)
		return
	}
	pr.isBusy = false
	pr.at = now
	b.planTick(pr)
	if now-pr.idleAt > int64(shortTick) {
		b.chooseFirst(pr, now)
	}
	b.findLagging(pr, now)
	b.copyShorts(pr, now)
	b.helpTails(pr, now)
	b.pull(pr)
	b.tryStale(pr, now)
}

// noticeAway tells the judge if this rank has made no progress since the last tick.
func (pr *Peer) noticeAway(now int64) {
	if pr.timer != nil && now-pr.at > awayNanos {
		pr.judge.Returned(pr.at, now)
		pr.at = now
	}
}

// tryStale sends a TRIAL by unused rails whose samples are old.
func (b *BML) tryStale(pr *Peer, now int64) {
	stale := pr.judge.Stale(rating.Set(pr.withRoom(pr.up)), now)
	for i := range pr.rails {
		if stale.Has(i) {
			b.try(&pr.rails[i], func(error) {})
		}
	}
}

// try sends a TRIAL by a rail.
func (b *BML) try(rl *Rail, then func(err error)) {
	h := railHeader{padding: uint32(min(rating.LeastPiece, rl.sendBytes) - railBytes)}
	b.postAbout(rl, TagTrial, h, then)
}

// helpTails calls helpTail for all transfers.
func (b *BML) helpTails(pr *Peer, now int64) {
	for i := len(pr.transfers) - 1; i >= 0; i-- { // helpTail may end some of them
		if i < len(pr.transfers) {
			b.returnQueued(pr.transfers[i])
		}
		if i < len(pr.transfers) {
			b.helpTail(pr.transfers[i], now)
		}
	}
}

// helpTail sends the pieces that are due last by another rail, too, if everything is handed out and
// they would arrive much sooner. Only fragments are sent twice: a slow remote access would still
// use the buffer.
func (b *BML) helpTail(t *Transfer, now int64) {
	for t.place > 0 && t.left == 0 && len(t.pieces) > 0 && t.peer.isShared() && b.sendTwice(t, now) {
	}
}

// sendTwice sends the piece that is due last by another rail, too, if that gains enough.
func (b *BML) sendTwice(t *Transfer, now int64) bool {
	pr := t.peer
	var last *Op
	var due float64
	for _, op := range t.pieces {
		if op.twin != nil || op.isCovered || !op.isFragment() || !op.isRated {
			continue
		}
		if at := pr.judge.Due(int(op.rail), op.mark, now); last == nil || at > due {
			last, due = op, at
		}
	}
	if last == nil {
		return false
	}
	i := pr.judge.Again(rating.Set(pr.withRoom(t.rails(Fragments))), int64(last.Len()), due, now)
	if i < 0 {
		return false
	}
	op := b.pieceOf(t, i, last.span, Fragments)
	op.Tag, op.HdrLen, op.Hdr, op.Payload, op.Request, op.Then = last.Tag, last.HdrLen, last.Hdr, last.Payload, last.Request, last.Then
	op.isAgain, op.twin, last.twin = last.isAgain, last, op
	b.stats.TwiceBytes += int64(op.Len())
	b.PostPiece(op)
	return true
}

// returnQueued lets any rail take the pieces at the end of a message that are queued for one rail.
func (b *BML) returnQueued(t *Transfer) {
	for i := len(t.pieces) - 1; i >= 0 && t.left == 0; i-- {
		if i < len(t.pieces) && t.pieces[i].IsQueued() {
			b.EndQueued(t.pieces[i], ErrMovesAgain)
		}
	}
}

// cover notes that the twin of a piece has delivered its bytes. If the endpoint can go on from a
// copy, the transfer does not wait for the piece.
func (b *BML) cover(op *Op) {
	op.isCovered = true
	if op.IsQueued() {
		b.EndQueued(op, nil)
		return
	}
	rl := &op.peer.rails[op.rail]
	copied := slices.Clone(op.Payload)
	if rl.endpoint.State() != btl.Up || !rl.endpoint.Rebind(&op.Op, copied) {
		return
	}
	op.transfer.forget(op)
	op.transfer, op.Request = nil, nil
	op.Then = func(op *Op, _ error) { b.PutOp(op) }
}
