package ibverbs

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

var errStuck = errors.New("it does not end")

// pathFails fails the rank's endpoint with an error of the path, and waits until it is drained.
func (r *testRank) pathFails() {
	r.w.t.Helper()
	r.ep.Fail(&btl.Error{Class: btl.ClassPath, Side: btl.SideBoth})
	r.w.until("Drained", r.isDrained)
}

// silentGet posts a read of rank 0 that never completes, and returns its local region. then is
// called when the read ends.
func (w *world) silentGet(then func(error)) (into *region) {
	w.t.Helper()
	a, b := w.ranks[0], w.ranks[1]
	into = a.memory(100, btl.AccessLocal)
	a.silence()
	a.get(into, b.memory(100, btl.AccessRemoteRead).Key(), then)
	return into
}

// TestDrainedBeforeQueuePairIsDestroyed: an endpoint whose path has failed is Drained as soon as
// its requests have completed. Its queue pair is destroyed later, because that may block, or when
// the module is closed.
func TestDrainedBeforeQueuePairIsDestroyed(t *testing.T) {
	onEachFabric(t, testDrainedBeforeQueuePairIsDestroyed)
}

func testDrainedBeforeQueuePairIsDestroyed(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, Config{AckTimeout: 10, RetryCount: 2})
	qp := a.faultQP()
	room := a.m.h.groups[0].room
	w.cut()
	require.NoError(t, a.send("lost"))
	a.fails(1, btl.ClassPath, btl.SideBoth, verbs.StatusRetryExcErr.Native())
	require.Zero(t, qp.destroyed)
	since := w.clock.Now()
	w.heal()
	w.recovers()
	require.Zero(t, qp.destroyed)
	w.until("the end of the queue pair", func() bool { return qp.destroyed > 0 })
	require.GreaterOrEqual(t, w.clock.Now()-since, int64(3e9))
	require.Empty(t, a.m.toDestroy)
	require.Equal(t, room, a.m.h.groups[0].room)
	a.pathFails()
	require.Len(t, a.m.toDestroy, 1)
	require.NoError(t, a.m.Close())
	require.Empty(t, a.m.toDestroy)
}

// TestDrainWithLostReceive: a receive that the device never flushes delays the drain only shortly.
func TestDrainWithLostReceive(t *testing.T) { onEachFabric(t, testDrainWithLostReceive) }

func testDrainWithLostReceive(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, Config{})
	a.end().posted++ // one more than the device has
	since := w.clock.Now()
	a.pathFails()
	require.Less(t, w.clock.Now()-since, int64(50e6))
}

// TestDrainWithoutMarker: if the device takes no request in Error, nothing shows that the sends
// have completed, so the queue pair is destroyed before they end.
func TestDrainWithoutMarker(t *testing.T) { onEachFabric(t, testDrainWithoutMarker) }

func testDrainWithoutMarker(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, Config{})
	qp := a.faultQP()
	w.silentGet(func(error) { require.Positive(t, qp.destroyed, "the device may still write into memory") })
	qp.ignore(verbs.StateErr, nil) // so nothing is flushed
	qp.postInError(0, errors.New("not in this state"))
	a.pathFails()
	require.Zero(t, a.inFlight)
	w.recovers()
}

// TestDrainWithoutFlushes: an endpoint whose path has failed and whose sends never complete is
// Drained once its queue pair is in RESET, where it accesses no memory. The queue pair is not
// destroyed before that, because destroying it may block. If RESET is refused, the queue pair is
// destroyed first.
func TestDrainWithoutFlushes(t *testing.T) { onEachFabric(t, testDrainWithoutFlushes) }

func testDrainWithoutFlushes(t *testing.T, link verbs.LinkLayer) {
	for _, refused := range []bool{false, true} {
		w, a, b := connectedWorld(t, link, Config{})
		qp := a.faultQP()
		qp.ignore(verbs.StateErr, nil)
		qp.postInError(1, nil) // the marker
		if refused {
			qp.ignore(verbs.StateReset, errStuck)
		}
		w.cut()
		a.get(a.memory(100, btl.AccessLocal), b.memory(100, btl.AccessRemoteRead).Key(), func(err error) {
			require.Error(t, err)
			if refused {
				require.Equal(t, 1, qp.destroyed)
			} else {
				require.Equal(t, verbs.StateReset, qp.state, "the device may still write into memory")
			}
		})
		since := w.clock.Now()
		a.pathFails()
		require.Zero(t, a.inFlight)
		if !refused {
			require.Less(t, w.clock.Now()-since, int64(2*drainNanos))
			require.Zero(t, qp.destroyed)
			require.Len(t, a.m.toDestroy, 1)
		}
		w.heal()
		w.recovers()
		w.until("the end of the queue pair", func() bool { return qp.destroyed > 0 })
		require.Empty(t, a.m.toDestroy)
	}
}

// TestDrainAfterTimeWithoutProgress: if the deadline of a drain passes while the rank makes no
// progress, the completions are not taken for missing.
func TestDrainAfterTimeWithoutProgress(t *testing.T) {
	onEachFabric(t, testDrainAfterTimeWithoutProgress)
}

func testDrainAfterTimeWithoutProgress(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, Config{})
	qp := a.faultQP()
	a.ep.Fail(&btl.Error{Class: btl.ClassPath})
	w.deliver()
	w.clock.skip(2 * drainNanos)
	a.m.Progress()
	require.True(t, a.isDrained())
	require.Zero(t, qp.destroyed)
	state, err := qp.Query()
	require.NoError(t, err)
	require.Equal(t, verbs.StateErr, state.State, "everything had completed, so RESET was not needed")
	w.recovers()
}

// TestConnectDestroysOldQueuePairs: if there is no room for a new queue pair, queue pairs that wait
// for their destruction are destroyed at once.
func TestConnectDestroysOldQueuePairs(t *testing.T) {
	onEachFabric(t, testConnectDestroysOldQueuePairs)
}

func testConnectDestroysOldQueuePairs(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, Config{})
	pd, restore := a.faultPD()
	pd.createQP = func(init verbs.QPInit) (verbs.QP, error) {
		if len(a.m.toDestroy) > 0 {
			return nil, verbs.ErrNoMemory
		}
		return pd.PD.CreateQP(init)
	}
	a.pathFails()
	require.Len(t, a.m.toDestroy, 1)
	w.recovers()
	require.Empty(t, a.m.toDestroy)
	restore()
}

// TestLostDeviceClosesDespiteOldQueuePairs: queue pairs that wait for their destruction do not keep
// a lost device open.
func TestLostDeviceClosesDespiteOldQueuePairs(t *testing.T) {
	onEachFabric(t, testLostDeviceClosesDespiteOldQueuePairs)
}

func testLostDeviceClosesDespiteOldQueuePairs(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, Config{AckTimeout: 10, RetryCount: 2})
	w.cut()
	require.NoError(t, a.send("lost"))
	a.fails(1, btl.ClassPath, btl.SideBoth, verbs.StatusRetryExcErr.Native())
	require.NotEmpty(t, a.m.toDestroy)
	at := w.clock.Now()
	a.losesDevice()
	require.Less(t, w.clock.Now()-at, int64(destroyDelayNanos)/2)
}

// stuckGet makes all calls of Destroy of rank 0's queue pair fail, and posts a silentGet, which
// ends once its memory is not registered any more.
func (w *world) stuckGet() (into *region) {
	w.ranks[0].faultQP().destroy = func() error { return errStuck }
	into = w.silentGet(func(error) { require.Nil(w.t, into.mr) })
	w.ranks[0].end().giveUp()
	return into
}

// stuckMR is a registration whose first calls of Dereg fail.
type stuckMR struct {
	verbs.MR
	left int
}

func (r *stuckMR) Dereg() error {
	if r.left > 0 {
		r.left--
		return errStuck
	}
	return r.MR.Dereg()
}

// TestDestroyFailsForever: the module closes the device, and ends the registrations of the memory
// that the queue pair may access. Only then operations end.
func TestDestroyFailsForever(t *testing.T) { onEachFabric(t, testDestroyFailsForever) }

func testDestroyFailsForever(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, Config{})
	into := w.stuckGet()
	mr := &stuckMR{into.mr, 3}
	into.mr = mr
	a.ep.Fail(nil)
	w.until("the rail's failure", func() bool { return len(a.failed) == 2 })
	require.Equal(t, []any{btl.AllPeers, btl.ClassDevice}, []any{a.failed[1].Peer, a.failed[1].Class})
	require.ErrorIs(t, a.failed[1], errStuck)
	require.ErrorContains(t, a.failed[1], "the connection to rank 1 cannot be destroyed")
	w.until("Drained", func() bool { return len(a.drained) == 2 })
	require.Equal(t, []int{1, btl.AllPeers}, a.drained)
	require.Zero(t, mr.left, "the memory was registered when the get ended")
	require.Zero(t, a.inFlight)
	w.recovers()
}

// TestCloseWhileDestroyFails: Close does not wait, but ends registrations before operations.
func TestCloseWhileDestroyFails(t *testing.T) { onEachFabric(t, testCloseWhileDestroyFails) }

func testCloseWhileDestroyFails(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, Config{})
	w.stuckGet()
	require.ErrorIs(t, a.m.Close(), errStuck)
	require.Zero(t, a.inFlight)
}

// TestDrainWaitsForDestroy: a queue pair that can neither be moved to Error nor be destroyed may
// still write into the memory of a Get. The Get ends, and the endpoint is Drained, only once the
// queue pair is destroyed. A later event of the queue pair does not change that.
func TestDrainWaitsForDestroy(t *testing.T) { onEachFabric(t, testDrainWaitsForDestroy) }

func testDrainWaitsForDestroy(t *testing.T, link verbs.LinkLayer) {
	const none = verbs.EventType(verbs.EventCount)
	events := []verbs.EventType{none, verbs.EventQPAccessErr, verbs.EventQPReqErr, verbs.EventQPFatal}
	for _, event := range events {
		t.Run(event.String(), func(t *testing.T) {
			w, a, _ := connectedWorld(t, link, Config{})
			qp, left := a.faultQP(), destroyTries-1
			qp.destroy = func() error {
				if left > 0 {
					left--
					return errStuck
				}
				return qp.QP.Destroy()
			}
			qp.ignore(verbs.StateErr, errStuck)
			w.silentGet(func(error) { require.Zero(t, left, "the queue pair still exists") })
			a.ep.Fail(&btl.Error{Class: btl.ClassPath, Side: btl.SideBoth})
			attr, err := qp.Query()
			require.NoError(t, err)
			require.Equal(t, verbs.StateRTS, attr.State)
			if event != none {
				a.m.react(&verbs.AsyncEvent{Type: event, QP: qp})
			}
			a.fails(1, btl.ClassPath, btl.SideBoth, "")
			require.Zero(t, left)
			w.recovers()
		})
	}
}
