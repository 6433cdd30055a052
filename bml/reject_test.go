package bml

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// newLost makes a wire whose rank 0 has lost rank 1. Rank 1 does not know that.
func newLost(t *testing.T) (w *wire, r *testRank, pr *Peer) {
	w, r, pr = newDeferredWire(t)
	r.ProtocolError(pr, errors.New("test"))
	r.Progress()
	for _, rail := range w.rails {
		rail[0].drain(1)
	}
	require.True(t, pr.IsLost())
	require.Zero(t, r.Deferred())
	return w, r, pr
}

// heard has a fragment of the lost peer arrive by rail 0.
func heard(w *wire) { w.arrive(0, 1, 0, tagNumbered, numbered(0, "")) }

// No RAILDOWN goes by a rail that does not lead to the lost peer, or that cannot be opened again.
func TestLostPeerIsNotRejectedWithoutRail(t *testing.T) {
	w, r, pr := newLost(t)
	other := &wireModule{w: w, attrs: w.rails[0][0].attrs}
	r.Arrived(other, 1, tagNumbered, numbered(0, ""))
	require.Zero(t, r.Deferred())
	pr.rails[0].reopen = nil
	heard(w)
	require.Zero(t, r.Deferred())
}

// If the rail cannot be opened, the next fragment of the peer causes another attempt.
func TestRejectIsTriedAgainAfterFailedOpen(t *testing.T) {
	w, r, _ := newLost(t)
	w.mended = false
	heard(w)
	r.Progress()
	require.Zero(t, r.Deferred())
	w.mended = true
	heard(w)
	r.Progress()
	require.Len(t, w.on(TagRailDown), 1)
}

// An endpoint without room is tried again every 5 ms, ten times. Then this rank fails it.
func TestRejectWithoutRoomIsTriedTenTimes(t *testing.T) {
	for _, refusals := range []int{3, 10, 11} {
		w, r, pr := newLost(t)
		ops := len(r.freeOps)
		heard(w)
		w.refuse = refusals
		r.Progress()
		require.Equal(t, refusals-1, w.refuse)
		ep := w.rails[0][0].endpoints[1]
		w.pass(4 * msec)
		require.Equal(t, refusals-1, w.refuse, "too early")
		w.pass(2 * msec)
		require.Equal(t, refusals-2, w.refuse)
		w.pass(100 * msec)
		require.Zero(t, w.refuse)
		require.Same(t, ep, pr.rails[0].endpoint)
		if refusals > maxProbes {
			require.Empty(t, w.flying)
			require.Equal(t, btl.Failed, ep.state)
			require.Len(t, r.freeOps, max(ops, 1), "an operation is not given back")
			require.False(t, pr.rails[0].isRejecting)
			continue
		}
		require.Len(t, w.flying, 1)
		require.Equal(t, btl.Up, ep.state)
		require.Equal(t, 1, w.rails[0][0].opened, "the endpoint is made again")
	}
}

// An endpoint that takes no operation, as if it were wrong in itself, is tried again every 5 ms,
// ten times. Then this rank fails it.
func TestRejectByEndpointThatTakesNothingIsTriedTenTimes(t *testing.T) {
	for _, err := range []error{btl.ErrTooLong, errors.New("broken")} {
		w, r, pr := newLost(t)
		m := w.rails[0][0]
		pr.rails[0].reopen = func() (btl.Endpoint, error) {
			ep := m.open(1)
			m.down[1] = err
			return ep, nil
		}
		heard(w)
		r.Progress()
		ep := m.endpoints[1]
		w.pass(10 * firstReopen.Nanoseconds())
		require.Equal(t, btl.Up, ep.state)
		require.True(t, pr.rails[0].isRejecting)
		w.pass(2 * msec)
		require.Same(t, ep, m.endpoints[1])
		require.Equal(t, btl.Failed, ep.state)
		require.False(t, pr.rails[0].isRejecting)
		require.Empty(t, w.flying)
	}
	w, r, pr := newLost(t)
	heard(w)
	m := w.rails[0][0]
	open := pr.rails[0].reopen
	pr.rails[0].reopen = func() (btl.Endpoint, error) {
		ep, err := open()
		m.down[1] = btl.ErrTooLong
		return ep, err
	}
	r.Progress()
	require.Empty(t, w.flying)
	m.down[1] = nil
	w.pass(6 * msec)
	require.Len(t, w.on(TagRailDown), 1, "the endpoint takes operations again")
}

// If the endpoint has failed before the RAILDOWN is posted, the rail is opened again after 5 ms.
func TestRejectByFailedEndpointIsTriedByTheNext(t *testing.T) {
	w, r, pr := newLost(t)
	m := w.rails[0][0]
	open := pr.rails[0].reopen
	pr.rails[0].reopen = func() (btl.Endpoint, error) {
		ep, err := open()
		if m.opened == 1 {
			m.endpoints[1].state = btl.Failed
		}
		return ep, err
	}
	heard(w)
	r.Progress()
	require.Empty(t, w.flying)
	w.pass(6 * msec)
	require.Equal(t, 2, m.opened)
	require.Len(t, w.on(TagRailDown), 1)
}

// If the RAILDOWN is not delivered, the rail is opened again after 5 ms, ten times.
func TestUndeliveredRejectIsTriedTenTimes(t *testing.T) {
	w, r, pr := newLost(t)
	ops := len(r.freeOps)
	heard(w)
	m := w.rails[0][0]
	for try := 1; try <= maxProbes+1; try++ {
		r.Progress()
		require.Equal(t, try, m.opened)
		require.Len(t, w.flying, 1)
		require.Equal(t, railMessage(railHeader{gaveUp: true, epoch: uint32(try) + 1}), w.flying[0].frag)
		require.Same(t, m.endpoints[1], pr.rails[0].endpoint)
		m.fail(1, pathError(0))
		m.drain(1)
		if try > maxProbes {
			break
		}
		require.Zero(t, r.Deferred())
		w.pass(4 * msec)
		require.Equal(t, try, m.opened, "too early")
		w.pass(2 * msec)
	}
	require.Equal(t, []workKind{workRejected}, r.kindsOfWork())
	r.Progress()
	w.pass(sec)
	require.Equal(t, maxProbes+1, m.opened)
	require.False(t, pr.rails[0].isRejecting)
	require.Len(t, r.freeOps, max(ops, 1), "an operation is not given back")
}

// After Close, no RAILDOWN goes to a lost peer.
func TestNoRejectAfterClose(t *testing.T) {
	for name, until := range map[string]func(w *wire, r *testRank){
		"deferred": func(*wire, *testRank) {},
		"no room": func(w *wire, r *testRank) {
			w.refuse = 1
			r.Progress()
		},
		"not delivered": func(w *wire, r *testRank) {
			r.Progress()
			w.rails[0][0].fail(1, pathError(0))
			w.rails[0][0].drain(1)
		},
	} {
		w, r, _ := newLost(t)
		heard(w)
		until(w, r)
		opened := w.rails[0][0].opened
		r.Close(btl.ErrClosed)
		w.pass(sec)
		require.Equal(t, opened, w.rails[0][0].opened, name)
		require.Empty(t, w.flying, name)
	}

	w, r, _ := newLost(t)
	heard(w)
	r.Progress()
	f := w.flying[0]
	w.flying = nil
	r.Close(btl.ErrClosed)
	w.end(f, pathError(0))
	w.pass(sec)
	require.Equal(t, 1, w.rails[0][0].opened)
	require.Empty(t, w.flying)

	// Nor does one go to a failing peer of which a fragment has arrived.
	w, r, pr := newDeferredWire(t)
	r.Fail(pr, request.ErrUnreachable)
	heard(w)
	r.Progress()
	r.Close(btl.ErrClosed)
	require.True(t, pr.IsLost())
	require.Zero(t, r.Deferred())
}

// A failing peer of which a fragment has arrived gets a RAILDOWN when it is lost, unless its
// process has ended.
func TestFailingPeerThatSendsIsRejectedWhenLost(t *testing.T) {
	for _, cause := range []error{request.ErrUnreachable, request.ErrProcFailed} {
		w, r, pr := newDeferredWire(t)
		r.Fail(pr, cause)
		heard(w)
		require.Equal(t, []string{""}, r.got, "a failing peer's last fragments count")
		r.Progress()
		w.rails[0][0].drain(1)
		require.Zero(t, r.Deferred())
		w.rails[1][0].drain(1)
		require.True(t, pr.IsLost())
		if cause == request.ErrUnreachable {
			require.Equal(t, []workKind{workReject}, r.kindsOfWork())
		} else {
			require.Zero(t, r.Deferred())
		}
	}
}

// A RAILDOWN of a peer that has given this rank up fails the peer, even if rails are up. A rank
// that has lost the peer does not answer, so two ranks that have lost each other stay quiet.
func TestPeerThatGaveThisRankUpFails(t *testing.T) {
	for _, h := range []railHeader{{gaveUp: true, epoch: 1}, {gaveUp: true, epoch: 2}, {gaveUp: true, sender: 9, receiver: 9}} {
		w, r, pr := newDeferredWire(t)
		w.arrive(1, 1, 0, TagRailDown, railMessage(h))
		require.True(t, pr.IsFailing())
		r.Progress()
		for _, rail := range w.rails {
			rail[0].drain(1)
		}
		require.True(t, pr.IsLost())
		require.ErrorIs(t, pr.Err(), request.ErrUnreachable)
		require.ErrorIs(t, pr.Err(), errGaveUp)
		w.flying = nil
		w.arrive(1, 1, 0, TagRailDown, railMessage(h))
		require.Zero(t, r.Deferred())
		h.gaveUp = false
		w.arrive(1, 1, 0, TagRailDown, railMessage(h))
		require.Equal(t, []workKind{workReject}, r.kindsOfWork(), "that peer does not know")
	}
}
