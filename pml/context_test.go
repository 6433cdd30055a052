package pml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

func TestMessagesBeforeAddContextAreReceivedInOrder(t *testing.T) {
	w, c := newWire(t, 2)
	id := w.pmls[0].NewContextID()
	c0 := w.pmls[0].AddContext(id, c[0].group, 0, testCaller{})
	long, short := pattern(1000, 2), pattern(9, 3)
	w.pmls[0].Isend(c0, long, 1, 5, Standard, "send")
	w.pmls[0].Isend(c0, short, 1, 5, Standard, "send")
	w.settle()
	c1 := w.pmls[1].AddContext(id, c[1].group, 1, testCaller{})
	for _, want := range [][]byte{long, short} {
		requireArrival(t, w, c1, 5, want)
	}
	require.Zero(t, w.pmls[1].Stats().UnexpectedBytes)
}

func TestRemoveContextRejectsUnreceivedMessages(t *testing.T) {
	w, c := newWire(t, 2)
	a, b := w.pmls[0], w.pmls[1]
	id, c0, c1 := newPairContext(w, c)
	// No receive takes this message. Its sender must get an error.
	s := a.Isend(c0, pattern(1000, 1), 1, 9, Synchronous, "ssend")
	out := make([]byte, 10)
	r := b.Irecv(c1, out, 1, 0, 1, "recv")
	w.settle()
	b.RemoveContext(c1)
	require.NotNil(t, b.contexts[id], "a receive is still posted in the context")
	a.Isend(c0, pattern(10, 4), 1, 1, Standard, "send")
	w.settle()
	requireSuccess(t, r)
	require.Equal(t, pattern(10, 4), out)
	require.Nil(t, b.contexts[id])
	w.settle()
	err := requireFailure(t, request.ErrComm, s)
	require.EqualError(t, err, "invalid communicator: the receiver has freed it")
	require.Zero(t, b.Stats().UnexpectedBytes)
	require.Zero(t, a.Busy()+b.Busy())
}

// TestPersistentReceiveKeepsContext: an inactive persistent receive can be started after its
// communicator was freed (MPI 4.1, section 7.4.3: the object is deallocated when no reference is
// left).
func TestPersistentReceiveKeepsContext(t *testing.T) {
	w, c := newWire(t, 2)
	a, b := w.pmls[0], w.pmls[1]
	id, c0, c1 := newPairContext(w, c)
	out := make([]byte, 10)
	r := b.RecvInit(c1, out, 1, 0, 1, "recv init")
	s := a.SendInit(c0, pattern(10, 4), 1, 1, Standard, "send init")
	b.RemoveContext(c1)
	a.RemoveContext(c0)
	for _, sendFirst := range []bool{true, false} {
		clear(out)
		if sendFirst {
			start(s)
			w.settle()
			start(r)
		} else {
			start(r)
			start(s)
			w.settle()
		}
		requireSuccess(t, r, s)
		require.Equal(t, pattern(10, 4), out)
	}
	waiting := a.Isend(c0, pattern(1000, 4), 1, 2, Standard, "send")
	w.settle()
	require.Equal(t, request.Active, waiting.State())
	start(r)
	r.Abandon()
	require.NotNil(t, b.contexts[id], "the context went although the freed receive is posted")
	start(s)
	w.settle()
	require.Nil(t, b.contexts[id])
	w.settle()
	require.Equal(t, request.Complete, waiting.State(), "the send to the removed context did not end")
	require.Zero(t, b.Stats().UnexpectedBytes)

	// An inactive receive is freed.
	id = b.NewContextID()
	c1 = b.AddContext(id, c[1].group, 1, testCaller{})
	r = b.RecvInit(c1, out, 1, 0, 1, "recv init")
	b.RemoveContext(c1)
	require.NotNil(t, b.contexts[id])
	r.Abandon()
	require.Nil(t, b.contexts[id])
}

// TestMessagesToRemovedContextAreRejected: messages that arrive after RemoveContext are treated
// like those that were there before.
func TestMessagesToRemovedContextAreRejected(t *testing.T) {
	w, c := newWire(t, 2)
	a, b := w.pmls[0], w.pmls[1]
	_, c0, c1 := newPairContext(w, c)
	b.RemoveContext(c1)
	_, err := a.Isend(c0, pattern(10, 1), 1, 1, Standard, "send").Take()
	require.NoError(t, err, "an eager send ended in an error")
	for _, n := range []int{0, 10, 1000} {
		for _, mode := range []Mode{Synchronous, Standard} {
			s := a.Isend(c0, pattern(n, 1), 1, 1, mode, "send")
			w.settle()
			_, err := s.Take()
			if mode == Synchronous || n == 1000 {
				require.ErrorIs(t, err, request.ErrComm, "%d bytes", n)
			} else {
				require.NoError(t, err)
			}
		}
	}
	require.Zero(t, b.Stats().UnexpectedBytes)
	require.Empty(t, b.earlyContext)
	require.Zero(t, a.Busy()+b.Busy())
}

func TestRemoveContextEndsProbes(t *testing.T) {
	w, c := newWire(t, 1)
	p := w.pmls[0]
	ctx := p.AddContext(p.NewContextID(), c[0].group, 0, testCaller{})
	probe := p.Probe(ctx, 0, 0, true, "mprobe")
	p.RemoveContext(ctx)
	requireFailure(t, request.ErrRequest, probe)
}

// TestGroupTranslatesRanks uses a communicator whose ranks are not those of the job.
func TestGroupTranslatesRanks(t *testing.T) {
	w, _ := newWire(t, 4)
	world := []int{3, 1}
	g := NewGroup(world)
	require.Equal(t, 2, g.Size())
	require.Equal(t, 3, g.World(0))
	for world, want := range map[int]int{3: 0, 1: 1, 0: -1, 2: -1} {
		rank, ok := g.Rank(world)
		require.Equal(t, want >= 0, ok)
		if ok {
			require.Equal(t, want, rank)
		}
	}
	_, ok := NewGroup([]int{0, 1}).Rank(2)
	require.False(t, ok)
	id := w.pmls[3].NewContextID()
	c3, c1 := w.pmls[3].AddContext(id, g, 0, testCaller{}), w.pmls[1].AddContext(id, g, 1, testCaller{})
	w.pmls[1].Isend(c1, pattern(9, 1), 0, 5, Standard, "send").Abandon()
	w.settle()
	env, found := w.pmls[3].Iprobe(c3, 1, 5)
	require.True(t, found)
	require.Equal(t, Envelope{Source: 1, Tag: 5, Bytes: 9}, env)
	r := w.pmls[3].Irecv(c3, make([]byte, 20), 1, request.AnySource, request.AnyTag, "recv")
	require.Equal(t, request.Status{Source: 1, Tag: 5, Count: 9, Bytes: 9}, requireSuccess(t, r))
	// The loss of a rank that is not in the group has no effect on the communicator.
	r = w.pmls[3].Irecv(c3, nil, 1, request.AnySource, 1, "recv")
	w.modules[3].lose(2, &btl.Error{Rail: "wire", Peer: 2, Class: btl.ClassPeerGone})
	require.Equal(t, request.Active, r.State())
	w.modules[3].lose(1, gone)
	require.Equal(t, request.Complete, r.State())
}
