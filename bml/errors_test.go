package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
)

// Each error of a rail is counted once: by its class, and by the side that it points to.
func TestErrorsAreCountedBySideAndClass(t *testing.T) {
	for _, c := range []struct {
		class btl.Class
		side  btl.Side
		want  railErrors
	}{
		{btl.ClassPath, btl.SideLocal, railErrors{local: ErrorCounts{Path: 1}}},
		{btl.ClassDevice, btl.SideLocal, railErrors{local: ErrorCounts{Device: 1}}},
		{btl.ClassTimeout, btl.SideLocal, railErrors{local: ErrorCounts{Timeout: 1}}},
		{btl.ClassPath, btl.SideRemote, railErrors{remote: ErrorCounts{Path: 1}}},
		{btl.ClassProtocol, btl.SideRemote, railErrors{remote: ErrorCounts{Protocol: 1}}},
		{btl.ClassPath, btl.SideBoth, railErrors{path: ErrorCounts{Path: 1}}},
		{btl.ClassPath, btl.SideNone, railErrors{path: ErrorCounts{Path: 1}}},
		{btl.ClassTimeout, btl.SideBoth, railErrors{path: ErrorCounts{Timeout: 1}}},
		// These are no evidence against the rail.
		{btl.ClassClosed, btl.SideLocal, railErrors{}},
		{btl.ClassClosed, btl.SideRemote, railErrors{}},
		{btl.ClassPeerGone, btl.SideRemote, railErrors{}},
		{btl.ClassUsage, btl.SideBoth, railErrors{}},
		{btl.ClassFlushed, btl.SideNone, railErrors{}},
	} {
		w, r, pr := newGraceWire(t, 2, 10*sec)
		w.rails[0][0].lose(1, &btl.Error{Rail: "wire0", Peer: 1, Class: c.class, Side: c.side})
		rails := r.Rails()
		require.Len(t, rails, 2)
		got := railErrors{rails[0].LocalErrors, rails[0].PathErrors, rails[0].RemoteErrors}
		if c.class != btl.ClassPeerGone {
			require.Equal(t, railDown, pr.rails[0].state)
		}
		require.Equal(t, c.want, got, "%v, %v", c.class, c.side)
		require.Zero(t, pr.rails[1].errors)
		sum := func(of ErrorCounts) uint64 { return of.Path + of.Device + of.Timeout + of.Protocol }
		require.Equal(t, []uint64{sum(got.local), sum(got.path), sum(got.remote)},
			[]uint64{r.stats.LocalErrors, r.stats.PathErrors, r.stats.RemoteErrors})
	}

	// ErrFailed of an endpoint points to the path.
	w, r, pr := newGraceWire(t, 1, 10*sec)
	w.rails[0][0].down[1] = btl.ErrFailed
	r.send(1, "a")
	require.Equal(t, railErrors{path: ErrorCounts{Path: 1}}, pr.rails[0].errors)
}

// An incarnation that cannot be made is an error, too.
func TestFailedOpenIsCounted(t *testing.T) {
	w, r, pr := newGraceWire(t, 1, 10*sec)
	w.rails[0][0].lose(1, pathError(0))
	w.rails[0][0].openError = &btl.Error{Rail: "wire0", Peer: 1, Class: btl.ClassPath, Side: btl.SideLocal, Native: "no carrier"}
	w.pass(6 * msec)
	require.Equal(t, 1, w.rails[0][0].opened)
	require.Equal(t, railErrors{path: ErrorCounts{Path: 1}, local: ErrorCounts{Path: 1}}, pr.rails[0].errors)
	require.EqualValues(t, 1, r.stats.LocalErrors)
}

// A PROBE that is not delivered in time points to the path, and does not lower the module's health.
func TestPostedTooLongPointsToPath(t *testing.T) {
	w := newWatched(t, 100*sec, loop.RailConfig{})
	w.modules[0][0].(btl.Injector).Inject(btl.Fault{Kind: btl.FaultSilence, Peer: 1, Count: 1})
	w.breaks(t, 0)
	rl := &w.pr.rails[0]
	require.Equal(t, railProbing, rl.state)
	w.until(t, "the end of the incarnation", func() bool { return rl.state != railProbing }, 0)
	require.Equal(t, railErrors{remote: ErrorCounts{Protocol: 1}, path: ErrorCounts{Timeout: 1}}, rl.errors)
	require.Equal(t, fullHealth, rl.own.health)
}

// A PROBE that is delivered, and not answered in time, points to the peer. It does not lower any
// health, because the peer may only be busy.
func TestAnsweredLatePointsToPeer(t *testing.T) {
	w := newWatched(t, 5*sec, loop.RailConfig{})
	w.pr.rails[0].endpoint.Fail(&btl.Error{Class: btl.ClassClosed, Side: btl.SideLocal})
	w.run(5*sec, 0) // looked at 0.2, 2.2 and 4.2 s after the PROBE
	rl := &w.pr.rails[0]
	require.Equal(t, railProbing, rl.state)
	require.Equal(t, railErrors{remote: ErrorCounts{Timeout: 3}}, rl.errors)
	require.EqualValues(t, 3, w.ranks[0].stats.RemoteErrors)
	require.Equal(t, []health{fullHealth, fullHealth}, []health{rl.health, rl.own.health})
}
