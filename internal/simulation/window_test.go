package simulation

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/pml"
)

// forger gives a rank fragments that rank 0 has not sent.
type forger struct {
	r    *rank
	next uint32 // number of the fragment whose turn it is
}

func newForger(r *rank) *forger {
	f := &forger{r: r}
	for r.p.Turn(0, f.next) != 0 {
		f.next++
	}
	return f
}

// give gives the rank a fragment whose number is ahead of the next one.
func (f *forger) give(name string, ahead uint32, bytes int) {
	tag := btl.Tag(0)
	for f.r.p.FragmentName(tag) != name {
		tag++
	}
	frag := make([]byte, bytes)
	if name == "MATCH" {
		frag[7] = pml.Version
	}
	binary.LittleEndian.PutUint32(frag[12:], f.next+ahead)
	f.r.call(func(*pml.PML) { f.r.taps[0].arrived(0, tag, frag) })
}

// failureOf returns the invariant that a call breaks, or "".
func failureOf(call func()) (invariant string) {
	defer func() {
		if is, ok := recover().(failed); ok {
			invariant = is.Invariant
		}
	}()
	call()
	return ""
}

const ackBytes = 40

// An early answer counts once, until its turn. The bytes are those that the PML counts.
func TestEarlyAnswersCountUntilTheirTurn(t *testing.T) {
	r := quietWorld(t, Verbs, 1, 0).ranks[1]
	f := newForger(r)
	for _, step := range []struct {
		ahead uint32
		held  int64
	}{{2, 24}, {2, 24}, {1, 48}, {4, 72}, {0, 24}, {1, 24}, {3, 0}} {
		f.give("ACK", step.ahead, ackBytes)
		require.Equal(t, [2]int64{step.held, step.held}, [2]int64{r.earlyAnswerBytes(), r.p.Stats().UnexpectedBytes}, "%+v", step)
	}
}

func TestEarlyMessageNeedsWindow(t *testing.T) {
	r := quietWorld(t, Verbs, 1, 0).ranks[1]
	f := newForger(r)
	f.give("MATCH", 1, 116)
	f.give("ACK", 2, ackBytes)
	require.Equal(t, [2]int64{24, 124}, [2]int64{r.earlyAnswerBytes(), r.p.Stats().UnexpectedBytes})
	f.give("ACK", 0, ackBytes)
	require.Equal(t, [2]int64{0, 100}, [2]int64{r.earlyAnswerBytes(), r.p.Stats().UnexpectedBytes})
}

func TestLostPeerHasNoEarlyAnswers(t *testing.T) {
	r := quietWorld(t, Verbs, 1, 0).ranks[1]
	newForger(r).give("ACK", 1, ackBytes)
	require.EqualValues(t, 24, r.earlyAnswerBytes())
	r.lose(0)
	require.Equal(t, [2]int64{}, [2]int64{r.earlyAnswerBytes(), r.p.Stats().UnexpectedBytes})
}

// lose makes a rank give up a peer, and not tell it.
func (r *rank) lose(peer int) {
	r.call(func(p *pml.PML) {
		path := btl.Path{Peer: peer}
		p.Failed(r.taps[0], path, &btl.Error{Rail: "verbs0", Peer: peer, Class: btl.ClassPeerGone})
		p.Drained(r.taps[0], path)
	})
	for r.w.pass(1e6); r.p.PeerState(peer) != bml.PeerLost; r.w.pass(1e6) {
		r.turn()
	}
}

// The bytes of a message exceed the window. Early answers that are no longer held do not hide that.
func TestCheckWindowFindsOverrunAfterEarlyAnswers(t *testing.T) {
	w := quietWorld(t, Verbs, 1, 0)
	f := newForger(w.ranks[1])
	w.plan.setup.window = 4 // the PML's is longer
	f.give("ACK", 1, ackBytes)
	f.give("ACK", 2, ackBytes)
	f.give("ACK", 0, ackBytes)
	f.give("MATCH", 3, 16+8)
	require.Equal(t, "bounded", failureOf(func() { f.give("MATCH", 4, 16+1) }))
}

// Rank 0 has declared rank 1 lost. The sends of rank 1 that wait for the window still end.
func TestBlockedSendDiscoversLoss(t *testing.T) {
	w := quietWorld(t, Loop, 1, 300_000_000)
	w.plan.setup.ending = Breaks
	for range 100 {
		w.sendFrom(1)
	}
	w.settle()
	w.ranks[0].lose(1)
	w.discoverLosses()
	require.Equal(t, bml.PeerLost, w.ranks[1].p.PeerState(0))
}

// Rank 0 has given up rank 1 and does not answer. The window has room, so the send must end by
// itself, and no rail is cut for it.
func TestSendThatIsNotBlockedMustEnd(t *testing.T) {
	w := quietWorld(t, Loop, 1, 300_000_000)
	w.plan.setup.ending = Breaks
	w.ranks[0].call(func(p *pml.PML) { require.NoError(t, p.Close(btl.ErrInjected)) })
	w.ranks[0].taps[0].until = math.MaxInt64
	require.Equal(t, "bounded", failureOf(w.discoverLosses))
	up, _ := w.ranks[1].p.RailsUp(0)
	require.Equal(t, 1, up)
}
