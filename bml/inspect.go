package bml

import (
	"cmp"
	"fmt"

	"github.com/mpigo/mpigo/bml/rating"
	"github.com/mpigo/mpigo/btl"
)

// This file reads the state of the rails, for reports and simulations. It changes nothing.

// RailStatus is the state of one rail to a peer.
type RailStatus struct {
	// Peer is a rank in the job, Rail the name of the rail.
	Peer int
	Rail string
	// Remote is the number of the peer's module at the other end. Rails with the same name lead to
	// different modules.
	Remote int
	// Alternate: it is used only while one of its modules has no better rail that is up.
	Alternate bool
	// State is "up", "failing", "down" or "probing", or "closed" if the peer was lost, or if the
	// peer or this rank has finalized.
	State string
	// First: short messages go by it.
	First bool
	// Health, from 0 to 1000, is how far the rail and its modules are trusted since they last
	// failed.
	Health int
	// Slow: the rail is up and loaded, and delivers at less than a quarter of the rate of another
	// rail to the peer.
	Slow bool
	// ShortNanos is the time until a short operation is acknowledged, and MBps the rate in 10⁶
	// bytes a second while the rail is busy. 0: not known. They are measured only while several
	// rails to the peer are up. A rail with little load shows a low rate.
	ShortNanos, MBps int64
	// Bytes delivered by this rank's operations on the rail: sent or written to the peer, or read
	// from it. The headers of fragments count.
	Bytes int64
	// LocalErrors, PathErrors and RemoteErrors count its errors that are evidence against this
	// rank's module, the path, and the peer. A lost link counts against the module, whichever end
	// of the cable lost it. Each failed attempt to reopen the rail counts, too: about two a second.
	LocalErrors, PathErrors, RemoteErrors ErrorCounts
	// Cause of its last failure while it was up, or why it started down; nil if neither applies.
	Cause error
}

// Rails lists the known rails to all peers, by peer.
func (b *BML) Rails() []RailStatus {
	var out []RailStatus
	now := b.eng.Now()
	for _, pr := range b.peers {
		if pr == nil {
			continue
		}
		slow := pr.judge.Slow(rating.Set(pr.up), now)
		for i := range pr.rails {
			rl := &pr.rails[i]
			state := rl.state.String()
			if pr.state == PeerLost || b.closed != nil {
				state = "closed"
			}
			out = append(out, RailStatus{
				Peer: pr.rank, Rail: rl.name(), Remote: int(rl.remote), Alternate: rl.alternate || rl.tier > pr.rails[0].tier && !pr.isBeside(rl), State: state, First: rl == pr.first,
				Health: int(rl.trust()), Slow: slow.Has(i),
				LocalErrors: rl.errors.local, PathErrors: rl.errors.path, RemoteErrors: rl.errors.remote,
				ShortNanos: pr.judge.RoundTrip(i), MBps: int64(pr.judge.Measured(i, now) * 1e3), Bytes: rl.deliveredBytes, Cause: rl.recovery.cause,
			})
		}
	}
	return out
}

// Channel counts the numbered fragments between this rank and a peer.
type Channel struct {
	Peer int
	// Posted counts those to the peer, delivered or not, and Taken those from the peer that were
	// handed up.
	Posted, Taken uint64
}

// Channels lists the peers that numbered fragments were posted to or taken from.
func (b *BML) Channels() []Channel {
	var out []Channel
	for _, pr := range b.peers {
		if pr != nil && pr.sendSeq+pr.recvSeq > 0 {
			out = append(out, Channel{pr.rank, pr.sendSeq, pr.recvSeq})
		}
	}
	return out
}

// KindName is the name of the fragments with a tag.
func (b *BML) KindName(tag btl.Tag) string {
	if int(tag) < NumKinds && b.kinds[tag].Name != "" {
		return b.kinds[tag].Name
	}
	return fmt.Sprintf("kind %d", tag)
}

// RailMessage is the content of a message about a rail.
type RailMessage struct {
	// The modules of the rail at the message's sender and at its receiver.
	Sender, Receiver int
	Epoch            uint32
}

// DecodeRail reads a message about a rail. isAboutRail is false for other tags.
func DecodeRail(tag btl.Tag, frag []byte, version uint8) (m RailMessage, isAboutRail bool, err error) {
	if tag < TagRailDown || tag > TagProbeAck {
		return m, false, nil
	}
	var h railHeader
	err = h.decode(frag, version)
	return RailMessage{int(h.sender), int(h.receiver), h.epoch}, true, err
}

// RailState is the local state of the rail that a message is about, and whether its present epoch
// is older or newer than the message's. sent: this rank sent the message. false: the rail is not
// known.
func (pr *Peer) RailState(m RailMessage, sent bool) (string, bool) {
	local, remote := m.Receiver, m.Sender
	if sent {
		local, remote = remote, local
	}
	rl := pr.between(uint8(local), uint8(remote))
	if rl == nil {
		return "", false
	}
	if rl.endpoint == nil {
		return rl.state.String(), true
	}
	return rl.state.String() + [...]string{", older", "", ", newer"}[1+cmp.Compare(rl.endpoint.Epoch(), m.Epoch)], true
}

// Turn says whether the number of a fragment is that of a duplicate (−1), the next one (0), or
// ahead (1).
func (pr *Peer) Turn(number uint32) int {
	next := uint32(pr.recvSeq)
	if _, here := pr.early[pr.recvSeq+uint64(number-next)]; here {
		return -1
	}
	return cmp.Compare(int32(number-next), 0)
}

// RailsUp is how many rails take traffic, and how many there are.
func (pr *Peer) RailsUp() (up, all int) {
	for i := range pr.rails {
		if pr.up.Has(i) {
			up++
		}
	}
	return up, len(pr.rails)
}

// Leftovers lists what should be gone when every operation is complete and every rail is up.
func (b *BML) Leftovers() []string {
	var out []string
	add := func(is bool, format string, args ...any) {
		if is {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(b.stats.Illegal != 0, "%d illegal transitions", b.stats.Illegal)
	for _, w := range b.deferred {
		add(w.kind != workRecheck && w.kind != workRetry, "deferred work %d", w.kind)
	}
	for _, pr := range b.peers {
		if pr == nil || pr.state == PeerLost {
			continue
		}
		add(pr.state != PeerNew && !pr.HasPath(), "rank %d: is %v", pr.rank, pr.state)
		add(!pr.replay.Empty(), "rank %d: operations to be replayed", pr.rank)
		add(!pr.waiting.Empty(), "rank %d: operations that wait for a rail", pr.rank)
		add(len(pr.draining) != 0, "rank %d: %d endpoints that drain", pr.rank, len(pr.draining))
		add(len(pr.transfers)+len(pr.waitRoom)+len(pr.waitFence) != 0, "rank %d: %d transfers", pr.rank, len(pr.transfers))
		add(pr.left != 0 || pr.wanting != 0 || !pr.shorts.isEmpty(), "rank %d: %d bytes of %d messages are not handed out", pr.rank, pr.left, pr.wanting)
		add(len(pr.early) != 0, "rank %d: %d early fragments", pr.rank, len(pr.early))
		add(pr.grace.timer != nil && !pr.grace.isNeeded(), "rank %d: a grace timer", pr.rank)
		for i := range pr.rails {
			rl := &pr.rails[i]
			add(rl.state != railUp && !pr.isSpare(rl), "rank %d: rail %d is %v", pr.rank, rl.local, rl.state)
			add(!rl.queue.Empty(), "rank %d: rail %d has a queue", pr.rank, rl.local)
		}
	}
	return out
}
