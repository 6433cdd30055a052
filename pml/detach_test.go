package pml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// TestDetachInEveryState: after Detach, in any state of the send, the caller may overwrite the
// buffer, and the message arrives unchanged.
func TestDetachInEveryState(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		for _, n := range []int{20, 90, 5000} {
			for _, refuse := range []int{0, 1, 2, 3} {
				for _, steps := range []int{0, 1, 2, 3} {
					w, c := newWire(t, 2, func(w *wire) { w.keeps = keeps })
					out := make([]byte, n)
					r := w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
					w.refuse = refuse
					buf := pattern(n, 1)
					s := w.pmls[0].Isend(c[0], buf, 1, 1, Standard, "send")
					for range min(steps, len(w.flying)) {
						w.step(0)
					}
					require.Nil(t, s.Detach())
					require.Nil(t, s.Detach(), "the second Detach returned a Detachment")
					_, used := w.pmls[0].User(buf)
					require.False(t, used)
					s.Abandon()
					clear(buf)
					w.settle()
					requireSuccess(t, r)
					require.Equal(t, pattern(n, 1), out, "%d bytes, %d refused, after %d steps, kept %v", n, refuse, steps, keeps)
					require.Zero(t, w.pmls[0].Busy())
				}
			}
		}
	}
}

// TestDetachDuringWritesWaitsForDevices: the buffer is free, and its registration released, when
// the devices have finished their writes. Later writes read from the copy.
func TestDetachDuringWritesWaitsForDevices(t *testing.T) {
	const n = 20 * remotePieceBytes
	w, c := newWire(t, 2, withRails(2, 1), withTwoKeys, withAsync(true), withProtocol(Put))
	p := w.pmls[0]
	bound := map[any]bool{}
	p.eng.OnBound(func(obj any) { bound[obj] = true }, func(obj any) { delete(bound, obj) })
	out, buf := make([]byte, n), pattern(n, 1)
	r := w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
	s := p.Isend(c[0], buf, 1, 1, Standard, "send")
	w.step(0)
	w.step(0)
	require.Equal(t, sendPutting, s.state)
	writing := len(w.flying)
	require.Greater(t, writing, 1)

	d := s.Detach()
	require.NotNil(t, d)
	require.True(t, d == s.Detach(), "the second Detach returned another Detachment")
	s.Abandon()
	for range writing {
		require.Equal(t, request.Active, d.State())
		user, used := p.User(buf[5:6])
		require.True(t, used)
		require.Equal(t, "send peer 1 tag 1 of 5242880 bytes: given up, with a device", user.String())
		w.step(0)
	}
	require.Equal(t, request.Complete, d.State())
	d.Abandon()
	require.Len(t, bound, 1, "only the send stays bound to the engine")
	require.Equal(t, sendPutting, p.sends.get(1<<32).state, "the send did not go on")
	_, used := p.User(buf)
	require.False(t, used)
	for _, region := range w.regions {
		require.False(t, overlap(region.mem, buf), "the old buffer is still registered")
	}
	clear(buf)
	w.settle()
	requireSuccess(t, r)
	require.Equal(t, pattern(n, 1), out)
	require.Zero(t, p.Busy())
	require.Empty(t, w.regions)
	require.Empty(t, p.Leftovers())
}

// TestDetachWhileRailFailsCompletes: a Detachment is complete when the rail is drained, even if the
// send goes on or waits for another rail.
func TestDetachWhileRailFailsCompletes(t *testing.T) {
	const n = 4 * remotePieceBytes
	w, c := newWire(t, 2, withRails(1, 1), withAsync(true), withProtocol(Put), withGrace(1e9))
	p := w.pmls[0]
	out, buf := make([]byte, n), pattern(n, 1)
	r := w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
	s := p.Isend(c[0], buf, 1, 1, Standard, "send")
	w.step(0)
	w.step(0)
	d := s.Detach()
	p.Failed(w.rails[0][0], w.rails[0][0].path(1), pathErr)
	p.Failed(w.rails[1][0], w.rails[1][0].path(1), pathErr)
	require.Equal(t, request.Active, d.State())
	w.failPieces()
	require.Equal(t, request.Active, d.State(), "a device may still read the buffer")
	w.mended = true
	w.rails[0][0].drain(1)
	require.Equal(t, request.Active, d.State(), "a device may still read the buffer")
	w.rails[1][0].drain(1)
	require.Equal(t, request.Complete, d.State())
	require.Equal(t, request.Active, s.State(), "the send ended although a rail may come back")
	clear(buf)
	for i := range w.rails {
		w.rails[i][1].lose(0, pathErr)
	}
	for range 50 {
		w.now += 100e6
		for _, p := range w.pmls {
			p.eng.Turn()
		}
		w.settle()
	}
	requireSuccess(t, r)
	require.Equal(t, pattern(n, 1), out)
}

// TestDetachWithUnregistrableCopyGoesOnInFragments: the number of writes that a rail has accepted
// before makes no difference.
func TestDetachWithUnregistrableCopyGoesOnInFragments(t *testing.T) {
	for _, n := range []int{1000, 4 * remotePieceBytes} {
		for accepted := range 3 {
			w, c := newWire(t, 2, withRemote(btl.CapPut), withAsync(true), withProtocol(Put))
			out, buf := make([]byte, n), pattern(n, 1)
			r := w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
			s := w.pmls[0].Isend(c[0], buf, 1, 1, Standard, "send")
			w.step(0)
			left := accepted
			w.log = func(string, *flight) {
				if left--; left == 0 {
					w.refuse = 1000
				}
			}
			if accepted == 0 {
				w.refuse = 1000
			}
			w.step(0)
			w.log = nil
			require.Equal(t, sendPutting, s.state)
			w.unregistrable = func(*wireModule, btl.Access) error { return btl.ErrMemory }
			d := s.Detach()
			w.refuse = 0
			if d == nil {
				clear(buf)
			}
			w.settle()
			for _, o := range []ended{s, r} {
				require.Equal(t, request.Complete, o.State(), "%d bytes, %d accepted", n, accepted)
				_, err := o.Take()
				require.NoError(t, err, "%d bytes, %d accepted", n, accepted)
			}
			require.Equal(t, pattern(n, 1), out)
			require.Empty(t, w.regions)
		}
	}
}
