package ibverbs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/progress"
)

// TestResultOfEachStatus repeats the table of results by the names of the statuses.
func TestResultOfEachStatus(t *testing.T) {
	const device, path, local, remote = btl.ClassDevice, btl.ClassPath, btl.SideLocal, btl.SideRemote
	want := map[string]result{}
	for names, r := range map[string]result{
		"SUCCESS REM_ABORT_ERR":                          {staysUp: true},
		"LOC_LEN_ERR LOC_QP_OP_ERR LOC_PROT_ERR":         {class: btl.ClassUsage},
		"MW_BIND_ERR LOC_ACCESS_ERR REM_INV_REQ_ERR":     {class: btl.ClassUsage},
		"REM_ACCESS_ERR":                                 {class: btl.ClassUsage},
		"WR_FLUSH_ERR":                                   {class: btl.ClassFlushed},
		"BAD_RESP_ERR":                                   {class: btl.ClassProtocol, side: remote},
		"REM_OP_ERR":                                     {class: device, side: remote},
		"RETRY_EXC_ERR":                                  {class: path, side: btl.SideBoth},
		"RNR_RETRY_EXC_ERR":                              {class: path, side: remote},
		"LOC_EEC_OP_ERR LOC_RDD_VIOL_ERR INV_EECN_ERR":   {class: device, side: local},
		"REM_INV_RD_REQ_ERR INV_EEC_STATE_ERR FATAL_ERR": {class: device, side: local},
		"RESP_TIMEOUT_ERR GENERAL_ERR":                   {class: device, side: local},
	} {
		for _, name := range strings.Fields(names) {
			want[name] = r
		}
	}
	require.Len(t, want, verbs.StatusCount)
	for _, info := range verbs.Statuses() {
		w, ok := want[info.Name]
		require.True(t, ok, info.Name)
		require.Equal(t, w, resultOf(info.Status, true), info.Name)
		if info.Name == "LOC_QP_OP_ERR" {
			w = result{class: path, side: local}
		}
		require.Equal(t, w, resultOf(info.Status, false), "%s with the port down", info.Name)
	}
	require.Equal(t, btl.ClassDevice, resultOf(verbs.StatusCount, true).class)
}

// TestResponseToEachEvent repeats the table of responses by the names of the events.
func TestResponseToEachEvent(t *testing.T) {
	want := map[string]response{}
	for names, r := range map[string]response{
		"CQ_ERR SRQ_ERR":                   {failRail, btl.ClassDevice, btl.SideLocal},
		"QP_FATAL":                         {failEndpoint, btl.ClassDevice, btl.SideLocal},
		"QP_REQ_ERR QP_ACCESS_ERR":         {failEndpoint, btl.ClassUsage, btl.SideNone},
		"COMM_EST":                         {reaction: established},
		"SQ_DRAINED PATH_MIG PATH_MIG_ERR": {},
		"SRQ_LIMIT_REACHED":                {reaction: refill},
		"QP_LAST_WQE_REACHED":              {reaction: lastReceive, class: btl.ClassFlushed},
		"DEVICE_FATAL":                     {failDevice, btl.ClassDevice, btl.SideLocal},
		"PORT_ACTIVE":                      {reaction: portUp},
		"PORT_ERR":                         {portDown, btl.ClassPath, btl.SideLocal},
		"LID_CHANGE PKEY_CHANGE SM_CHANGE": {requery, btl.ClassPath, btl.SideNone},
		"CLIENT_REREGISTER GID_CHANGE":     {requery, btl.ClassPath, btl.SideNone},
	} {
		for _, name := range strings.Fields(names) {
			want[name] = r
		}
	}
	require.Len(t, want, verbs.EventCount)
	for _, info := range verbs.EventTypes() {
		w, ok := want[info.Name]
		require.True(t, ok, info.Name)
		require.Equal(t, w, respond(info.Type), info.Name)
	}
	require.Equal(t, response{}, respond(verbs.EventCount))
}

// TestSendCompletesWithEachStatus: the endpoint fails with the error from the table of results, all
// operations end, and the next incarnation works.
func TestSendCompletesWithEachStatus(t *testing.T) {
	for _, info := range verbs.Statuses() {
		t.Run(info.Name, func(t *testing.T) {
			bothWays(t, Config{}, func(t *testing.T, w *world, a, _ *testRank) {
				want := resultOf(info.Status, true)
				if info.Status == verbs.StatusRemAbortErr { // only receives get it
					want = impossible
				}
				a.ended = nil
				a.hca.Inject(simhca.Fault{Kind: simhca.FaultSendStatus, QPN: a.end().qpn, After: 1, Status: info.Status})
				for i := range 4 {
					require.NoError(t, a.send(fmt.Sprint(i)))
				}
				if want.staysUp {
					w.until("completions", func() bool { return len(a.ended) == 4 })
					w.turns(100)
					require.Empty(t, a.failed)
					return
				}
				a.fails(1, want.class, want.side, info.Status.Native())
				require.Len(t, a.ended, 4)
				require.NoError(t, a.ended[0], "the send before the failed one")
				hasClass(t, want.class, a.ended[1])
				hasClass(t, btl.ClassFlushed, a.ended[2])
				hasClass(t, btl.ClassFlushed, a.ended[3])
				w.recovers()
			})
		})
	}
}

func TestReceiveCompletesWithEachStatus(t *testing.T) {
	for _, info := range verbs.Statuses()[1:] {
		t.Run(info.Name, func(t *testing.T) {
			bothWays(t, Config{}, func(t *testing.T, w *world, a, b *testRank) {
				want := resultOf(info.Status, true)
				b.completeWith(simhca.FaultRecvStatus, info.Status)
				require.NoError(t, a.send("x"))
				if want.staysUp {
					w.until("the completion", a.isIdle)
					w.turns(100)
					require.Empty(t, b.failed)
					return
				}
				w.until("the failure", func() bool { return len(b.failed) > 0 && len(a.failed) > 0 })
				require.Equal(t, info.Status.Native(), b.failed[0].Native)
				require.Equal(t, []any{want.class, want.side}, []any{b.failed[0].Class, b.failed[0].Side})
				w.recovers()
			})
		})
	}
}

// TestEachEvent: each event has the consequence that the table of responses specifies.
func TestEachEvent(t *testing.T) {
	for _, info := range verbs.EventTypes() {
		t.Run(info.Name, func(t *testing.T) {
			bothWays(t, Config{}, func(t *testing.T, w *world, _, _ *testRank) { w.checkEvent(t, info) })
		})
	}
}

func (w *world) checkEvent(t *testing.T, info verbs.EventInfo) {
	a, b, r := w.ranks[0], w.ranks[1], respond(info.Type)
	for range 3 {
		require.NoError(t, a.send("in flight"))
	}
	a.ended = nil
	switch {
	case info.Affiliation == verbs.AffiliationQP:
		require.True(t, a.hca.RaiseQP(a.end().qpn, info.Type))
	case info.Affiliation == verbs.AffiliationCQ:
		require.True(t, a.hca.BreakCQ(a.end().qpn))
	case info.Type == verbs.EventSRQErr && a.end().shared != nil:
		require.True(t, a.hca.RaiseQP(a.end().qpn, info.Type))
	case info.Affiliation == verbs.AffiliationSRQ: // there is no such queue, so the device is wrong
		a.m.react(&verbs.AsyncEvent{Type: info.Type})
	case info.Type == verbs.EventPortErr || info.Type == verbs.EventPortActive:
		a.hca.SetLink(1, false)
	default:
		a.hca.Raise(info.Type, 1)
	}
	switch r.reaction {
	case lastReceive:
		if a.end().shared == nil {
			w.stays(a)
			return
		}
		a.fails(1, r.class, r.side, info.Type.Native())
	case requery:
		if info.Type == verbs.EventLIDChange && !a.m.h.roce {
			a.fails(btl.AllPeers, btl.ClassPath, btl.SideLocal, info.Type.Native())
			break
		}
		w.stays(a)
		return
	case failEndpoint:
		a.fails(1, r.class, r.side, info.Type.Native())
	case failRail:
		a.fails(btl.AllPeers, r.class, r.side, info.Type.Native())
	case failDevice:
		a.fails(btl.AllPeers, r.class, r.side, info.Type.Native())
		a.hca.Revive()
	case portDown:
		a.fails(btl.AllPeers, r.class, r.side, info.Type.Native())
		_, err := a.m.Connect(btl.Path{Peer: 1}, b.m.Address())
		require.ErrorContains(t, err, "port 1 of sim0 is down")
		a.hca.SetLink(1, true)
		w.turns(100)
	default: // nothing has changed, or the port is up again before its grace period ends
		if r.reaction == portUp {
			w.turns(3)
			a.hca.SetLink(1, true)
		}
		w.stays(a)
		return
	}
	w.recovers()
}

// stays shows that the connection has survived an event.
func (w *world) stays(a *testRank) {
	w.t.Helper()
	w.until("completions", a.isIdle)
	w.turns(100)
	require.Empty(w.t, a.failed)
	w.works()
}

// TestGIDChanges: connections from a GID that the port has lost fail. New connections use the new
// GID.
func TestGIDChanges(t *testing.T) {
	bothWays(t, Config{}, func(t *testing.T, w *world, a, _ *testRank) {
		gid := a.m.h.gid
		changed := gid.GID
		changed[15] ^= 0x40
		ah := a.m.peers.Of(1)[0].ah
		require.NotNil(t, ah)
		a.hca.ChangeGID(1, gid.Index, changed)
		a.fails(btl.AllPeers, btl.ClassPath, btl.SideLocal, verbs.EventGIDChange.Native())
		require.False(t, a.m.peers.Of(1)[0].ah == ah, "an address handle from before is still in use")
		w.recovers()
		require.Equal(t, changed, a.m.h.gid.GID)
	})
}

// TestDeadline: a request that the device never completes fails the endpoint after Config.Deadline.
func TestDeadline(t *testing.T) {
	bothWays(t, Config{Deadline: 50 * time.Millisecond}, func(t *testing.T, w *world, a, _ *testRank) {
		a.silence()
		require.NoError(t, a.send("never"))
		a.fails(1, btl.ClassTimeout, btl.SideBoth, "")
		w.recovers()
	})
}

// TestDeadlineIgnoresTimeWithoutProgress: time without a progress call does not count as waiting.
func TestDeadlineIgnoresTimeWithoutProgress(t *testing.T) {
	onEachFabric(t, testDeadlineIgnoresTimeWithoutProgress)
}

func testDeadlineIgnoresTimeWithoutProgress(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, Config{})
	w.clock.skip(11 * time.Second)
	require.NoError(t, a.send("after a long time"))
	a.progress()
	require.Empty(t, a.failed, "the send was posted just now")
	w.clock.skip(11 * time.Second)
	a.progress()
	require.Empty(t, a.failed, "there was no progress call meanwhile")
	w.until("the completion", a.isIdle)
	w.works()
}

// TestOneWayCut: packets pass in one direction only. The sender's end fails after its retries, and
// the sender notifies the peer.
func TestOneWayCut(t *testing.T) {
	bothWays(t, Config{AckTimeout: 10, RetryCount: 2}, func(t *testing.T, w *world, a, b *testRank) {
		require.True(t, w.f.Partition(b.m.h.gid.GID, a.m.h.gid.GID, false), "acknowledgements are lost")
		require.NoError(t, a.send("is executed, but not acknowledged"))
		a.fails(1, btl.ClassPath, btl.SideBoth, verbs.StatusRetryExcErr.Native())
		b.fails(0, btl.ClassPath, btl.SideRemote, "")
		w.f.Heal(b.m.h.gid.GID, a.m.h.gid.GID)
		w.recovers()
	})
}

// TestReconnectManyTimes: failed incarnations leave nothing behind.
func TestReconnectManyTimes(t *testing.T) {
	bothWays(t, Config{RecvDepth: 8, SendDepth: 4}, func(t *testing.T, w *world, a, _ *testRank) {
		room, eps := a.m.h.groups[0].room, len(a.m.eps)
		for i := range 500 {
			w.works()
			w.ranks[i%2].ep.Fail(nil)
			w.recovers()
		}
		require.Equal(t, uint32(501), a.ep.Epoch())
		require.Len(t, a.m.h.groups, 1)
		require.Equal(t, room, a.m.h.groups[0].room)
		require.LessOrEqual(t, len(a.m.eps), eps+1)
		require.Len(t, a.m.h.bounceFree, bounceBuffers)
		require.Len(t, a.m.h.free, udSendDepth)
	})
}

// TestCompletionQueuesNeverOverrun: no number of endpoints reserves more entries than a completion
// queue has.
func TestCompletionQueuesNeverOverrun(t *testing.T) {
	onEachFabric(t, testCompletionQueuesNeverOverrun)
}

func testCompletionQueuesNeverOverrun(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, Config{RecvDepth: 4096, SendDepth: 4096})
	for range 3 {
		_, err := a.m.h.reserve(a.m.queueEntries())
		require.NoError(t, err)
	}
	require.Greater(t, len(a.m.h.groups), 1)
	for _, g := range a.m.h.groups {
		require.GreaterOrEqual(t, g.room, 0)
		require.LessOrEqual(t, g.reserved, g.cq.Entries())
	}
	w.works()
}

// TestSendFailsWhilePortIsDown: if a device reports an error completion while its port is down, the
// port is the cause.
func TestSendFailsWhilePortIsDown(t *testing.T) {
	for _, status := range []verbs.Status{verbs.StatusLocQPOpErr, verbs.StatusWRFlushErr} {
		t.Run(status.String(), func(t *testing.T) {
			bothWays(t, Config{PortGrace: time.Hour}, func(t *testing.T, w *world, a, _ *testRank) {
				a.completeWith(simhca.FaultSendStatus, status)
				require.NoError(t, a.send("x"))
				a.hca.SetLink(1, false)
				a.fails(1, btl.ClassPath, btl.SideLocal, status.Native())
				require.ErrorContains(t, a.failed[0], "port 1 of sim0 is down")
				a.hca.SetLink(1, true)
				w.turns(100)
				w.recovers()
			})
		})
	}
}

// TestErrorWhilePortIsDownWithoutEvents: the device raises no events of its port. After an error
// that may come from the port, the rank queries the port and then watches it. Nothing is posted
// while the port is down. Posting continues if the port is up within the grace period. Otherwise
// both ends connect again when it is up.
func TestErrorWhilePortIsDownWithoutEvents(t *testing.T) {
	onEachFabric(t, testErrorWhilePortIsDownWithoutEvents)
}

func testErrorWhilePortIsDownWithoutEvents(t *testing.T, link verbs.LinkLayer) {
	down := func(t *testing.T, cfg Config, status verbs.Status) (w *world, a, b *testRank) {
		w, a, b = connectedWorld(t, link, cfg, simhca.DeviceConfig{NoPortEvents: true}, simhca.DeviceConfig{})
		require.False(t, a.m.h.attr.PortEvents)
		a.completeWith(simhca.FaultSendStatus, status)
		a.hca.SetLink(1, false)
		require.NoError(t, a.send("x"))
		a.fails(1, btl.ClassPath, btl.SideLocal, status.Native())
		require.ErrorContains(t, a.failed[0], "port 1 of sim0 is down")
		return w, a, b
	}
	for _, status := range []verbs.Status{verbs.StatusLocQPOpErr, verbs.StatusWRFlushErr} {
		t.Run(status.String()+"/in-time", func(t *testing.T) {
			w, a, _ := down(t, Config{PortGrace: time.Hour}, status)
			a.hca.SetLink(1, true)
			w.until("the port", func() bool { return a.m.portUp })
			require.Zero(t, a.m.downAt)
			w.recovers()
			require.Len(t, a.failed, 1)
		})
		t.Run(status.String()+"/late", func(t *testing.T) {
			w, a, b := down(t, Config{}, status)
			w.until("the end of the grace period", func() bool { return len(a.drained) == 2 })
			require.Equal(t, btl.AllPeers, a.failed[1].Peer)
			require.ErrorContains(t, a.failed[1], "port 1 of sim0 is down")
			a.hca.SetLink(1, true)
			w.until("the peer to be drained", func() bool {
				if b.ep.State() == btl.Up {
					b.ep.Fail(nil)
				}
				return b.isDrained()
			})
			b.connect() // the rank whose port was down does not ask
			w.until("a connection", b.isReady)
			w.begin()
		})
	}
	t.Run("up", func(t *testing.T) {
		w, a, _ := connectedWorld(t, link, Config{}, simhca.DeviceConfig{NoPortEvents: true}, simhca.DeviceConfig{})
		a.completeWith(simhca.FaultSendStatus, verbs.StatusLocQPOpErr)
		require.NoError(t, a.send("x"))
		a.fails(1, btl.ClassUsage, btl.SideNone, verbs.StatusLocQPOpErr.Native())
		w.recovers()
	})
}

// TestFlushedReceiveFailsForItsCause: an event of the queue pair or the port that arrives after the
// receives that it flushes is the cause. Without such an event, the flush itself is the cause after
// a while.
func TestFlushedReceiveFailsForItsCause(t *testing.T) {
	onEachFabric(t, testFlushedReceiveFailsForItsCause)
}

func testFlushedReceiveFailsForItsCause(t *testing.T, link verbs.LinkLayer) {
	flush := verbs.StatusWRFlushErr.Native()
	for name, c := range map[string]struct {
		cause  func(t *testing.T, w *world, b *testRank)
		class  btl.Class
		side   btl.Side
		native string
		text   string
	}{
		"event": {func(t *testing.T, _ *world, b *testRank) {
			require.True(t, b.hca.RaiseQP(b.end().qpn, verbs.EventQPAccessErr))
		}, btl.ClassUsage, btl.SideNone, verbs.EventQPAccessErr.Native(), ""},
		"port": {func(_ *testing.T, _ *world, b *testRank) {
			b.hca.SetLink(1, false)
		}, btl.ClassPath, btl.SideLocal, flush, "port 1 of sim0 is down"},
		"none": {func(_ *testing.T, w *world, b *testRank) {
			for ; len(b.failed) == 0; w.clock.skip(100 * time.Microsecond) {
				b.m.Progress()
			}
		}, btl.ClassFlushed, btl.SideNone, flush, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, a, b := connectedWorld(t, link, Config{PortGrace: time.Hour})
			b.completeWith(simhca.FaultRecvStatus, verbs.StatusWRFlushErr)
			require.NoError(t, a.send("x"))
			w.deliver()
			at := w.clock.Now()
			b.progress()
			require.Empty(t, b.failed, "the cause may still arrive")
			require.ErrorIs(t, b.send("y"), btl.ErrResource)
			c.cause(t, w, b)
			if c.class == btl.ClassFlushed {
				require.InDelta(t, symptomNanos, w.clock.Now()-at, 8e6)
			}
			b.fails(0, c.class, c.side, c.native)
			require.ErrorContains(t, b.failed[0], c.text)
			b.hca.SetLink(1, true)
			w.turns(100)
			w.recovers()
		})
	}
}

// TestFirstErrorThatIsNoFlush: among error completions that arrive together, the first one of this
// queue pair that is not a flush is the cause, whatever its position.
func TestFirstErrorThatIsNoFlush(t *testing.T) { onEachFabric(t, testFirstErrorThatIsNoFlush) }

func testFirstErrorThatIsNoFlush(t *testing.T, link verbs.LinkLayer) {
	for _, flushed := range []wrType{wrSend, wrRecv} {
		_, a, _ := connectedWorld(t, link, Config{})
		e := a.end()
		require.NoError(t, a.send("x"))
		wc := func(t wrType, entry, qpn uint32, status verbs.Status) verbs.WC {
			return verbs.WC{ID: uint64(makeID(t, e.made, e.number, entry)), QPNum: qpn, Status: status}
		}
		wcs := []verbs.WC{
			wc(flushed, e.sqTail&e.sqMask, e.qpn, verbs.StatusWRFlushErr),
			wc(wrRecv, 1, e.qpn+1, verbs.StatusLocAccessErr), // of another queue pair
			wc(wrRecv, 1, e.qpn, verbs.StatusRemAbortErr),
			wc(wrRecv, 2, e.qpn, verbs.StatusLocLenErr),
			wc(wrRecv, 3, e.qpn, verbs.StatusBadRespErr),
		}
		for i := range wcs {
			a.m.complete(&wcs[i], wcs[i+1:])
		}
		a.fails(1, btl.ClassUsage, btl.SideNone, verbs.StatusLocLenErr.Native())
	}
}

// TestDownOvertakesRefusal: the peer's end fails because of a request of this end, and its DOWN
// arrives before the refusal of the request. The request still ends with a usage error, not with an
// error of the path.
func TestDownOvertakesRefusal(t *testing.T) { onEachFabric(t, testDownOvertakesRefusal) }

func testDownOvertakesRefusal(t *testing.T, link verbs.LinkLayer) {
	for _, refused := range []bool{true, false} {
		w, a, b := connectedWorld(t, link, Config{})
		a.ended = nil
		from, to := a.memory(8, btl.AccessLocal), b.memory(8, btl.AccessRemoteWrite)
		k, ok := parseKey(new(to.Key()))
		require.True(t, ok)
		k.rkey ^= 1 << 31
		if !refused {
			a.silence()
		}
		a.put(from, k.encode(), nil)
		since := w.clock.Now()
		a.m.handle(b.message(msgDOWN, a.ep.Epoch()))
		if refused {
			a.fails(1, btl.ClassUsage, btl.SideNone, verbs.StatusRemAccessErr.Native())
			hasClass(t, btl.ClassUsage, a.ended[0])
		} else {
			a.fails(1, btl.ClassPath, btl.SideRemote, "")
		}
		require.Less(t, w.clock.Now()-since, int64(2*symptomNanos))
		require.Len(t, a.ended, 1)
		b.ep.Fail(nil)
		w.recovers()
	}
}

// TestPortGraceStartsWhenNoticed: the grace period of a port begins when the module notices that
// the port is down.
func TestPortGraceStartsWhenNoticed(t *testing.T) { onEachFabric(t, testPortGraceStartsWhenNoticed) }

func testPortGraceStartsWhenNoticed(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, Config{})
	a.completeWith(simhca.FaultSendStatus, verbs.StatusWRFlushErr)
	require.NoError(t, a.send("x"))
	w.deliver()
	w.clock.skip(time.Second)
	a.hca.SetLink(1, false)
	a.m.Progress()
	a.hca.SetLink(1, true)
	w.turns(200)
	for _, err := range a.failed {
		require.Equal(t, 1, err.Peer, "%v", err)
	}
	w.recovers()
}

// TestPortGraceEndsWithDevice: the grace period of a port does not continue when the device is
// opened again.
func TestPortGraceEndsWithDevice(t *testing.T) { onEachFabric(t, testPortGraceEndsWithDevice) }

func testPortGraceEndsWithDevice(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, Config{})
	a.hca.SetLink(1, false)
	a.progress()
	require.NotZero(t, a.m.downAt)
	a.hca.Raise(verbs.EventDeviceFatal, 0)
	a.fails(btl.AllPeers, btl.ClassDevice, btl.SideLocal, verbs.EventDeviceFatal.Native())
	a.hca.SetLink(1, true)
	a.hca.Revive()
	w.recovers()
	w.clock.skip(time.Second)
	w.turns(200)
	require.Len(t, a.failed, 1)
}

// TestCloseReportsNothing: Close neither delivers fragments that have arrived nor reports failures.
func TestCloseReportsNothing(t *testing.T) { onEachFabric(t, testCloseReportsNothing) }

func testCloseReportsNothing(t *testing.T, link verbs.LinkLayer) {
	w, a, b := connectedWorld(t, link, Config{})
	require.NoError(t, b.send("x"))
	w.deliver()
	a.ep.Fail(nil)
	arrived, failed := len(a.arrived), len(a.failed)
	require.NoError(t, a.m.Close())
	require.Len(t, a.arrived, arrived)
	require.Len(t, a.failed, failed)
}

// TestFailureIsReportedBeforeOperationsEnd: no operation ends with an error before the failure of
// its endpoint is reported, even if the failure was deferred before.
func TestFailureIsReportedBeforeOperationsEnd(t *testing.T) {
	onEachFabric(t, testFailureIsReportedBeforeOperationsEnd)
}

func testFailureIsReportedBeforeOperationsEnd(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, Config{})
	a.completeWith(simhca.FaultSendStatus, verbs.StatusRetryExcErr)
	reported := -1
	require.NoError(t, a.post(a.ep.Send, new(btl.Op), func(error) { reported = len(a.failed) }))
	a.end().failDeferred(a.m.NewError(1, btl.ClassPath, btl.SideNone, "", btl.ErrInjected))
	w.deliver()
	w.until("the end", a.isIdle)
	require.Equal(t, 1, reported)
	require.ErrorIs(t, a.failed[0], btl.ErrInjected)
}

// TestNoLongSleepWhileFailing: no rank sleeps beyond the end of a port's grace period or of a
// drain.
func TestNoLongSleepWhileFailing(t *testing.T) { onEachFabric(t, testNoLongSleepWhileFailing) }

func testNoLongSleepWhileFailing(t *testing.T, link verbs.LinkLayer) {
	_, a, _ := connectedWorld(t, link, Config{Wakeup: progress.NewChanWakeup()})
	require.True(t, a.m.Arm())
	a.hca.SetLink(1, false)
	a.progress()
	require.False(t, a.m.Arm(), "a port that is down")
	a.hca.SetLink(1, true)
	a.progress()
	require.True(t, a.m.Arm())
	a.ep.Fail(nil)
	require.False(t, a.m.Arm(), "a drain")
}
