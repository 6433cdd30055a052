package bml

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// The pools keep no more than their bounds, so a burst does not cost its memory for ever.
func TestPoolsKeepNoMoreThanTheirBounds(t *testing.T) {
	w := newWire(t, 2)
	r := w.ranks[0]
	var ops []*Op
	for range maxFreeOps + 10 {
		ops = append(ops, r.GetOp())
	}
	for _, op := range ops {
		r.PutOp(op)
	}
	require.Len(t, r.freeOps, 1<<13)
	last := r.freeOps[maxFreeOps-1]
	require.Same(t, last, r.GetOp())
	require.Len(t, r.freeOps, maxFreeOps-1)

	var transfers []*Transfer
	for range maxFreeTransfers + 10 {
		transfers = append(transfers, r.Transfer(nil, r.Peer(1), nil))
	}
	for _, tr := range transfers {
		require.False(t, r.EndTransfer(tr, false, false))
	}
	require.Len(t, r.freeTransfers, 1<<11)
	top := r.freeTransfers[maxFreeTransfers-1]
	require.Same(t, top, r.Transfer(nil, r.Peer(1), nil))
}

// An operation from the pool keeps only what Init has set.
func TestPooledOperationIsAsNew(t *testing.T) {
	w := newWire(t, 2, withRails(2))
	r := w.ranks[0]
	op := r.op("a")
	op.Request, op.Local, op.Answered, op.bound, op.isReplacement = r, &wireRegion{}, true, true, true
	op.retries, op.mistakes, op.trouble = 1, 2, trouble{by: 1}
	op.replacement, op.released, op.transfer = []byte{1}, func() {}, new(Transfer)
	op.state = opPosted
	op.peer, op.numbered = r.Peer(1), true
	r.PutOp(op)
	require.Same(t, op, r.GetOp())
	require.NotNil(t, op.Done)
	require.Same(t, op, op.Owner)
	op.Done = nil
	require.Equal(t, &Op{Op: btl.Op{Owner: op, Tag: op.Tag, HdrLen: op.HdrLen, Hdr: op.Hdr}}, op)
}

// A transfer from the pool keeps only the capacity of its lists.
func TestPooledTransferIsAsNew(t *testing.T) {
	w := newWire(t, 2, func(w *wire) {
		withRails(2)(w)
		for i := range w.attrs {
			w.attrs[i].MaxSendBytes = 256 // room for two remote key descriptors
		}
	})
	r := w.ranks[0]
	resolve(w)
	tr := r.Transfer(nil, r.Peer(1), "owner")
	require.NotEmpty(t, r.Expose(tr, make([]byte, 100), btl.AccessRemoteRead))
	require.Equal(t, 2, w.regions)
	tr.Begin(3, 7)
	tr.wrong, tr.mistakes, tr.avoid, tr.mistake = btl.ErrInjected, 3, 1, btl.ErrInjected
	tr.trouble, tr.fences = trouble{by: 1}, []fence{{1, 1}}
	tr.awaits(waitsForFence)
	require.True(t, r.EndTransfer(tr, true, false), "the registration is kept")
	require.Equal(t, 2, w.regions)
	require.NoError(t, tr.wrong)
	require.NoError(t, tr.LastMistake())
	require.Zero(t, tr.trouble)
	require.Zero(t, tr.mistakes)
	require.Zero(t, tr.avoid)
	require.Empty(t, tr.fences)
	require.Zero(t, tr.waits)
	require.Zero(t, tr.left)
	pr := r.Peer(1)
	require.Empty(t, pr.transfers)
	require.Empty(t, pr.waitFence)
	require.Zero(t, pr.left+int64(pr.wanting))

	require.False(t, r.EndTransfer(tr, true, true), "the registration is kept after a failure")
	require.Zero(t, w.regions)
	require.Same(t, tr, r.Transfer(nil, r.Peer(0), nil))
	require.Empty(t, tr.keys)
	require.Empty(t, tr.pieces)
	tr.keys, tr.pieces, tr.fences, tr.again = nil, nil, nil, nil
	require.Equal(t, &Transfer{peer: r.Peer(0)}, tr)
}

// sink is an endpoint that holds the last operation.
type sink struct {
	wireEndpoint
	op *btl.Op
}

func (s *sink) Send(op *btl.Op) error {
	s.op = op
	return nil
}

// newSink makes a rank whose operations to rank 1 a sink takes.
func newSink(t testT) (*testRank, *sink) {
	w := newWire(t, 2)
	s := &sink{wireEndpoint: wireEndpoint{m: w.rails[0][0], to: 1, epoch: 1}}
	r := w.ranks[0]
	r.cfg.Resolve = func(int) ([]Route, error) { return []Route{{Module: s.m, Endpoint: s}}, nil }
	resolve(w)
	return r, s
}

// Sending and completing a fragment that does not go inline allocates nothing.
func TestSendAllocatesNothing(t *testing.T) {
	r, s := newSink(t)
	pr := r.Peer(1)
	done := 0
	then := func(op *Op, err error) {
		done++
		r.PutOp(op)
	}
	payload := make([]byte, 100)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		op := r.GetOp()
		op.Tag, op.HdrLen, op.Payload, op.Then = tagNumbered, testHeaderBytes, payload, then
		r.Send(pr, op)
		s.op.Done(s.op, nil)
	}))
	require.Equal(t, 101, done)
	require.EqualValues(t, 101, pr.sendSeq)
}

// Moving a piece of a transfer allocates nothing.
func TestPieceAllocatesNothing(t *testing.T) {
	r, s := newSink(t)
	payload := make([]byte, 100)
	tr := r.Transfer(nil, r.Peer(1), nil)
	var result error
	then := func(op *Op, err error) {
		result = errors.Join(result, err)
		r.PutOp(op)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		tr.Begin(0, 100)
		op, from, to := r.NextPiece(tr, Fragments, testHeaderBytes)
		op.Tag, op.HdrLen, op.Payload, op.Then = tagPlain, testHeaderBytes, payload[from:to], then
		r.PostPiece(op)
		s.op.Done(s.op, nil)
	}))
	require.True(t, tr.IsDone())
	require.NoError(t, result)
}

// Moving a long message over two rails, which are rated, allocates nothing for a piece.
func TestMessageOverTwoRailsAllocatesNothing(t *testing.T) {
	w := newWire(t, 2, withRails(2), withGrace(10*sec))
	var sinks []*sink
	for _, rail := range w.rails {
		sinks = append(sinks, &sink{wireEndpoint: wireEndpoint{m: rail[0], to: 1, epoch: 1}})
	}
	r := w.ranks[0]
	r.cfg.Resolve = func(int) (routes []Route, err error) {
		for i, s := range sinks {
			routes = append(routes, Route{Module: s.m, Endpoint: s, Local: i, Remote: i})
		}
		return routes, nil
	}
	resolve(w)
	pr := r.Peer(1)
	require.NotNil(t, pr.judge)
	const n = 10_000
	payload := make([]byte, n)
	tr := r.Transfer(nil, pr, nil)
	pieces, by := 0, [2]int{}
	then := func(op *Op, err error) { r.PutOp(op) }
	require.Zero(t, testing.AllocsPerRun(10, func() {
		tr.Begin(0, n)
		for !tr.IsDone() {
			op, from, to := r.NextPiece(tr, Fragments, testHeaderBytes)
			if op != nil {
				pieces++
				by[op.rail]++
				op.Tag, op.HdrLen, op.Payload, op.Then = tagPlain, testHeaderBytes, payload[from:to], then
				r.PostPiece(op)
			}
			for i, s := range sinks { // a sink holds one operation
				if done := s.op; done != nil {
					s.op = nil
					w.now += int64(1000 * (1 + i))
					done.Done(done, nil)
				}
			}
		}
	}))
	require.Greater(t, pieces, 500)
	require.NotZero(t, by[0])
	require.NotZero(t, by[1])
}

// Handing up a numbered fragment in its turn allocates nothing.
func TestArrivedAllocatesNothing(t *testing.T) {
	r, s := newSink(t)
	r.kinds[tagNumbered].Handle = func(*Peer, btl.Module, []byte) error { return nil }
	frag, seq := numbered(0, "abc"), uint32(0)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		setSequence(frag, seq)
		seq++
		r.Arrived(s.m, 1, tagNumbered, frag)
	}))
	require.EqualValues(t, 101, r.Peer(1).recvSeq)
}
