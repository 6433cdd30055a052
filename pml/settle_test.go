package pml

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/request"
)

// When a long message has arrived, and when its buffers are released.

// writing has rank 0 send a message of which two rails have writes under way.
func writing(t *testing.T, n int) (w *wire, s *SendRequest, r *RecvRequest, in, out []byte) {
	w, c := newWire(t, 2, withRails(1, 1), withTwoKeys, withAsync(true), withProtocol(Put))
	s, r, in, out = oneWay(w, c, n)
	for !isBound(w.flying[0].tag) {
		w.step(0)
	}
	for rail := range 2 {
		require.True(t, slices.ContainsFunc(w.flying, func(f flight) bool { return f.rail == rail && f.tag == bml.TagPut }))
	}
	return w, s, r, in, out
}

// TestWriteEndsWhenBothHalvesAreDrained: the writes of a rail that fails go by the other one at
// once. The sender waits for its own half. The receiver learns from FIN that the rail has failed,
// and waits for its half, which could still write.
func TestWriteEndsWhenBothHalvesAreDrained(t *testing.T) {
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		w, s, r, in, out := writing(t, 100_000)
		w.loseRail(1, 0)
		// No RAILDOWN tells the receiver.
		w.take(func(f *flight) bool { return f.tag == bml.TagRailDown })
		for w.flying[0].tag != tagFin {
			w.step(0)
		}
		require.Equal(t, in, out)
		require.EqualValues(t, 0, w.pmls[0].Stats().Restarts)
		require.Empty(t, w.rails[1][1].failed)
		w.step(0) // FIN
		w.pmls[1].Progress()
		require.Equal(t, []int{0}, w.rails[1][1].failed, "the receiver has not failed its half")
		for _, rank := range order {
			o := []ended{s, r}[rank]
			require.Equal(t, request.Active, o.State())
			w.rails[1][rank].drain(1 - rank)
			require.Equal(t, request.Complete, o.State())
		}
		requireSuccess(t, s, r)
		require.Empty(t, w.regions)
	}
}

// TestFinOvertakesFragments: a rail without writes carries fragments of a message that another one
// writes. The sender knows that they were delivered, and sends FIN. The receiver waits for them.
func TestFinOvertakesFragments(t *testing.T) {
	w, c := newWire(t, 2, withRails(1, 1), withAsync(true), withProtocol(Put)) // room for one key
	s, r, in, out := oneWay(w, c, 50_000)
	var late []flight
	for i := 0; !slices.ContainsFunc(w.flying, func(f flight) bool { return f.tag == tagFin }); i++ {
		require.NotEmpty(t, w.flying)
		if f := w.flying[0]; f.tag == tagFrag {
			w.flying = w.flying[1:]
			late = append(late, f)
			f.op.Done(f.op, nil) // the receiver's device has it
			continue
		}
		w.step(0)
	}
	require.NotEmpty(t, late)
	w.settle()
	requireSuccess(t, s)
	for i, f := range late {
		require.Equal(t, request.Active, r.State(), "%d of %d fragments have arrived", i, len(late))
		require.True(t, r.hasFin)
		w.pmls[1].Arrived(w.rails[f.rail][1], 0, f.tag, f.frag)
	}
	requireSuccess(t, r)
	require.True(t, bytes.Equal(in, out))
	for _, f := range late {
		w.pmls[1].Arrived(w.rails[f.rail][1], 0, f.tag, f.frag)
	}
	require.EqualValues(t, len(late), w.pmls[1].Stats().StaleFragments)
}

// TestLateFragmentOfFailedRailIsDropped: a rail fails after its fragments were taken, and they go
// again by another rail. Fragments of the dead rail that arrive after the receive is complete do
// not change the user's buffer.
func TestLateFragmentOfFailedRailIsDropped(t *testing.T) {
	w, c := newWire(t, 2, withRails(1, 1), withAsync(true), withProtocol(Copy))
	s, r, in, out := oneWay(w, c, 2000)
	for w.flying[0].tag != tagFrag {
		w.step(0)
	}
	late := slices.DeleteFunc(slices.Clone(w.flying), func(f flight) bool { return f.rail != 0 || f.tag != tagFrag })
	require.NotEmpty(t, late)
	w.loseRail(0, 0)
	w.settle()
	requireSuccess(t, r)
	require.Equal(t, in, out)
	require.Equal(t, request.Active, s.State(), "the rail may still read the buffer")
	clear(out)
	for _, f := range late {
		w.pmls[1].Arrived(w.rails[0][1], 0, f.tag, f.frag)
	}
	require.Equal(t, make([]byte, len(out)), out)
	require.EqualValues(t, len(late), w.pmls[1].Stats().StaleFragments)
	w.rails[0][0].drain(1)
	requireSuccess(t, s)
	require.True(t, w.pmls[1].peer(0).IsAlive())
}

// TestFinAfterTooManyFragmentsLosesPeer: the receive would wait for them for ever.
func TestFinAfterTooManyFragmentsLosesPeer(t *testing.T) {
	for _, tooMany := range []int64{0, 1} {
		w, _, r, _, _ := writing(t, 100_000)
		fin := finOf(finHdr{handle: r.name, ofReceive: true, fragments: 100_000 + tooMany})
		w.pmls[1].Arrived(w.modules[1], 0, tagFin, inSequence(fin, 1))
		w.pmls[1].Progress()
		require.Equal(t, tooMany > 0, r.State() == request.Complete)
		if tooMany > 0 {
			requireFailure(t, errMalformed, r)
		}
	}
}
