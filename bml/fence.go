package bml

import (
	"encoding/binary"
	"fmt"

	"github.com/mpigo/mpigo/btl"
)

// After a rail has ended a piece with an error, a late write of that incarnation may still touch
// the buffer, until the half at the buffer's end is drained. So a fence delays the buffer's
// release:
//
//   - This rank's half: this rank waits until it is drained (IsSettled).
//   - The peer's half, for remote writes: FIN names the incarnations (AppendFences). The peer fails
//     its half, as after RAILDOWN, and waits until it is drained (Fence).
//
// Fragments need no fence: the receiver copies them itself, and knows the ranges that it has.

// fence is an incarnation of a rail that has to be drained.
type fence struct {
	rail  uint8
	epoch uint32
}

// fenceBytes is the length of a fence in a FIN: module of the sender 1, of the receiver 1, zero 2,
// epoch 4.
const fenceBytes = 8

// MaxFencesBytes is the longest list of fences.
const MaxFencesBytes = maxRails * fenceBytes

// addFence notes that a rail's present incarnation ended a piece, and the result is unknown. It
// replaces an earlier one of the rail, which was drained before this one began; isAnother: there
// was one.
func (t *Transfer) addFence(rl *Rail) (isAnother bool) {
	return t.setFence(rl.index, rl.endpoint.Epoch())
}

func (t *Transfer) setFence(rail uint8, epoch uint32) (isAnother bool) {
	for i := range t.fences {
		if f := &t.fences[i]; f.rail == rail {
			isAnother = f.epoch < epoch
			f.epoch = max(f.epoch, epoch)
			return isAnother
		}
	}
	t.fences = append(t.fences, fence{rail, epoch})
	return false
}

// IsSettled reports whether no failed rail can touch the buffer at this end any more. Otherwise
// Upper.Resume follows when that may have changed.
func (b *BML) IsSettled(t *Transfer) bool {
	for _, f := range t.fences {
		rl := &t.peer.rails[f.rail]
		if rl.state != railDown && rl.endpoint.Epoch() <= f.epoch {
			t.awaits(waitsForFence)
			return false
		}
	}
	return true
}

// AfterDrain calls f when no failed rail to the peer can touch memory here any more. If none can
// already, it returns false and does not call f.
func (b *BML) AfterDrain(pr *Peer, f func()) bool {
	if len(pr.draining) == 0 {
		return false
	}
	pr.afterDrain = append(pr.afterDrain, f)
	return true
}

// drained calls the functions that AfterDrain was given.
func (pr *Peer) drained() {
	after := pr.afterDrain
	pr.afterDrain = nil
	for _, f := range after {
		f()
	}
}

// AppendFences appends the list of fences that the peer has to wait for.
func (t *Transfer) AppendFences(to []byte) []byte {
	for _, f := range t.fences {
		rl := &t.peer.rails[f.rail]
		to = append(to, rl.local, rl.remote, 0, 0)
		to = binary.LittleEndian.AppendUint32(to, f.epoch)
	}
	return to
}

// CheckFences checks a list of fences.
func CheckFences(list []byte) error {
	if len(list)%fenceBytes != 0 || len(list) > MaxFencesBytes {
		return fmt.Errorf("%w: %d bytes of fences", ErrMalformed, len(list))
	}
	return nil
}

// Fence fails this rank's halves of the listed incarnations, unless they have failed already.
// IsSettled tells when they are drained. A rail that this rank does not know has touched nothing.
func (b *BML) Fence(t *Transfer, list []byte) {
	pr := t.peer
	for ; len(list) >= fenceBytes; list = list[fenceBytes:] {
		rl := pr.between(list[1], list[0])
		if rl == nil || rl.endpoint == nil {
			continue
		}
		epoch := binary.LittleEndian.Uint32(list[4:])
		t.setFence(rl.index, epoch)
		if (rl.state == railUp || rl.state == railProbing) && rl.endpoint.Epoch() <= epoch {
			b.failRail(rl, &btl.Error{Rail: rl.name(), Peer: pr.rank, Class: btl.ClassPath, Side: btl.SideRemote, Native: "FIN", Err: errOtherEnd})
		}
	}
}
