package ibverbs

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// world is two ranks on a simulated network in virtual time, each with a device of one port, and
// what they were told.
type world struct {
	t     *testing.T
	f     *simhca.Fabric
	clock fabricClock
	ranks [2]*rankOf
}

type rankOf struct {
	w    *world
	rank int
	m    *module
	ep   btl.Endpoint
	hca  *simhca.HCA
	node *simhca.Node

	arrived []string
	failed  []*btl.Error // one for each Failed, with AllPeers for the rail
	drained []int        // peers
	ended   []error      // of operations, in order
	under   int          // operations under way
}

func (r *rankOf) Arrived(_ btl.Module, _ int, _ btl.Tag, frag []byte) {
	r.arrived = append(r.arrived, string(frag))
}

func (r *rankOf) Failed(_ btl.Module, _ int, err *btl.Error) { r.failed = append(r.failed, err) }

func (r *rankOf) Drained(_ btl.Module, peer int) { r.drained = append(r.drained, peer) }

func newWorld(t *testing.T, cfg Config) *world { return newWorldOf(t, cfg, [2]simhca.DeviceConfig{}) }

// newWorldOf is newWorld with devices of a kind.
func newWorldOf(t *testing.T, cfg Config, devices [2]simhca.DeviceConfig) *world {
	w := &world{t: t, f: simhca.NewFabric(simhca.Config{Virtual: true})}
	w.clock = fabricClock{w.f, new(int64)}
	for rank, device := range devices {
		device.Name = "sim0"
		r := &rankOf{w: w, rank: rank, node: w.f.NewNode(device)}
		w.ranks[rank] = r
		r.hca = r.node.HCA("sim0")
		c := cfg
		c.Rank, c.Size, c.Events, c.Provider, c.Device, c.Secret = rank, 2, r, r.node, "sim0", testSecret
		c.Clock, c.Pass, c.Random = w.clock, w.clock.pass, &zeros{byte(rank)}
		m, err := New(c)
		require.NoError(t, err)
		r.m = m.(*module)
	}
	t.Cleanup(func() {
		for _, r := range w.ranks {
			require.NoError(t, r.m.Close())
			require.Zero(t, r.under, "operations under way after Close")
		}
		w.f.Close()
	})
	return w
}

// turn drives both ranks once, and time if nothing happens.
func (w *world) turn() {
	n := 0
	for _, r := range w.ranks {
		n += r.m.Progress()
	}
	if n == 0 {
		w.clock.pass()
	}
}

// until drives until cond holds.
func (w *world) until(what string, cond func() bool) {
	w.t.Helper()
	for range 200000 {
		if cond() {
			return
		}
		w.turn()
	}
	for _, r := range w.ranks {
		w.t.Logf("rank %d: arrived %d, failed %v, drained %v, ended %v, under way %d", r.rank, len(r.arrived), r.failed, r.drained, r.ended, r.under)
	}
	require.FailNow(w.t, "waited too long for "+what)
}

func (w *world) turns(n int) {
	for range n {
		w.turn()
	}
}

// connect connects a rank to the other one.
func (r *rankOf) connect() {
	r.w.t.Helper()
	ep, err := r.m.Connect(1-r.rank, r.w.ranks[1-r.rank].m.Address())
	require.NoError(r.w.t, err)
	r.ep = ep
}

// connect connects both, and waits until both can send.
func (w *world) connect() {
	w.t.Helper()
	for _, r := range w.ranks {
		r.connect()
	}
	w.until("a connection", func() bool {
		for _, r := range w.ranks {
			if r.end().phase != phaseReady {
				return false
			}
		}
		return true
	})
	w.turns(50)
}

// end is the rank's end of the connection.
func (r *rankOf) end() *endpoint { return r.ep.(*endpoint) }

func (r *rankOf) newOp() *btl.Op {
	return &btl.Op{Done: func(_ *btl.Op, err error) {
		r.ended = append(r.ended, err)
		r.under--
	}}
}

// send posts a fragment.
func (r *rankOf) send(text string) error {
	op := r.newOp()
	op.Payload = []byte(text)
	r.under++
	err := r.ep.Send(op)
	if err != nil {
		r.under--
	}
	return err
}

// works shows that bytes go both ways.
func (w *world) works() {
	w.t.Helper()
	for _, r := range w.ranks {
		other := w.ranks[1-r.rank]
		before := len(other.arrived)
		text := fmt.Sprintf("from %d, after %d", r.rank, before)
		require.NoError(w.t, r.send(text))
		w.until("a fragment", func() bool { return len(other.arrived) > before })
		require.Equal(w.t, text, other.arrived[before])
	}
	w.until("completions", func() bool { return w.ranks[0].under+w.ranks[1].under == 0 })
}

// mend connects anew what has failed, and shows that it works.
func (w *world) mend() {
	w.t.Helper()
	w.until("both ends to be drained", func() bool {
		for _, r := range w.ranks {
			if r.ep.State() == btl.Up && w.ranks[1-r.rank].ep.State() != btl.Up {
				r.ep.Fail(nil) // as the layer above does, which knows from the other rank
			}
			if r.ep.State() != btl.Drained || r.m.RailError() != nil || r.m.reopen {
				return false
			}
		}
		return true
	})
	for _, r := range w.ranks {
		r.ended = nil
	}
	w.connect()
	w.works()
}

// fails expects the rank's endpoint, or rail, to have failed once for that, and to be Drained, with
// every operation called back.
func (r *rankOf) fails(peer int, class btl.Class, side btl.Side, native string) {
	w := r.w
	w.t.Helper()
	w.until("the failure", func() bool { return len(r.failed) > 0 })
	require.Len(w.t, r.failed, 1)
	err := r.failed[0]
	require.Equal(w.t, []any{peer, class, side, native}, []any{err.Peer, err.Class, err.Side, err.Native}, "%v", err)
	w.until("Drained", func() bool { return len(r.drained) > 0 })
	require.Equal(w.t, []int{peer}, r.drained)
	require.Equal(w.t, btl.Drained, r.ep.State())
	require.Zero(w.t, r.under, "operations under way after Drained")
}

// TestEveryStatus: each status, as the end of a send, is the typed error that the table of results
// has; everything is called back, and the next incarnation works.
func TestEveryStatus(t *testing.T) { eachWay(t, testEveryStatus) }

func testEveryStatus(t *testing.T, way func(Config) Config) {
	for _, info := range verbs.Statuses() {
		t.Run(info.Name, func(t *testing.T) {
			w := newWorld(t, way(Config{}))
			w.begin()
			a := w.ranks[0]
			v := resultOf(info.Status, true)
			if info.Status == verbs.StatusRemAbortErr {
				v = impossible
			}
			a.ended = nil
			a.hca.Inject(simhca.Fault{Kind: simhca.FaultSendStatus, QPN: a.end().qpn, After: 1, Status: info.Status})
			for i := range 4 {
				require.NoError(t, a.send(fmt.Sprint(i)))
			}
			if v.goesOn {
				w.until("completions", func() bool { return len(a.ended) == 4 })
				w.turns(100)
				require.Empty(t, a.failed)
				return
			}
			a.fails(1, v.class, v.side, info.Status.Native())
			require.Len(t, a.ended, 4)
			require.NoError(t, a.ended[0], "what was before it")
			for i, err := range a.ended[1:] {
				var be *btl.Error
				require.ErrorAs(t, err, &be)
				want := v.class
				if i > 0 {
					want = btl.ClassFlushed
				}
				require.Equal(t, want, be.Class, "operation %d: %v", i+1, err)
			}
			w.mend()
		})
	}
}

// TestEveryStatusOfAReceive: likewise, at the end that receives.
func TestEveryStatusOfAReceive(t *testing.T) { eachWay(t, testEveryStatusOfAReceive) }

func testEveryStatusOfAReceive(t *testing.T, way func(Config) Config) {
	for _, info := range verbs.Statuses()[1:] {
		t.Run(info.Name, func(t *testing.T) {
			w := newWorld(t, way(Config{}))
			w.begin()
			a, b := w.ranks[0], w.ranks[1]
			v := resultOf(info.Status, true)
			b.hca.Inject(simhca.Fault{Kind: simhca.FaultRecvStatus, QPN: b.end().qpn, Status: info.Status})
			require.NoError(t, a.send("x"))
			if v.goesOn {
				w.until("the completion", func() bool { return a.under == 0 })
				w.turns(100)
				require.Empty(t, b.failed)
				return
			}
			w.until("the failure", func() bool { return len(b.failed) > 0 && len(a.failed) > 0 })
			require.Equal(t, info.Status.Native(), b.failed[0].Native)
			require.Equal(t, []any{v.class, v.side}, []any{b.failed[0].Class, b.failed[0].Side})
			w.mend()
		})
	}
}

// TestEveryEvent: each event makes happen what the table of responses says.
func TestEveryEvent(t *testing.T) { eachWay(t, testEveryEvent) }

func testEveryEvent(t *testing.T, way func(Config) Config) {
	for _, info := range verbs.EventTypes() {
		t.Run(info.Name, func(t *testing.T) {
			w := newWorld(t, way(Config{}))
			w.begin()
			a := w.ranks[0]
			r := respond(info.Type)
			for range 3 {
				require.NoError(t, a.send("under way"))
			}
			a.ended = nil
			switch info.Affiliation {
			case verbs.AffiliationQP:
				require.True(t, a.hca.RaiseQP(a.end().qpn, info.Type))
			case verbs.AffiliationCQ:
				require.True(t, a.hca.BreakCQ(a.end().qpn))
			// There is none that could be raised: as if the device were mistaken.
			case verbs.AffiliationSRQ:
				a.m.react(&verbs.AsyncEvent{Type: info.Type})
			default:
				if info.Type == verbs.EventPortErr || info.Type == verbs.EventPortActive {
					a.hca.SetLink(1, false)
				} else {
					a.hca.Raise(info.Type, 1)
				}
			}
			switch r.reaction {
			case failEndpoint:
				a.fails(1, r.class, r.side, info.Type.Native())
				w.mend()
			case failRail, failDevice:
				a.fails(btl.AllPeers, r.class, r.side, info.Type.Native())
				if r.reaction == failDevice {
					a.hca.Revive()
				}
				w.mend()
			case portDown:
				a.fails(btl.AllPeers, r.class, r.side, info.Type.Native())
				_, err := a.m.Connect(1, w.ranks[1].m.Address())
				require.ErrorContains(t, err, "port 1 of sim0 is down")
				a.hca.SetLink(1, true)
				w.turns(100)
				w.mend()
			case portUp: // within the grace nothing has failed
				w.turns(3)
				a.hca.SetLink(1, true)
				w.until("completions", func() bool { return a.under == 0 })
				require.Empty(t, a.failed)
				w.works()
			case ignore, established, lookAgain: // nothing has changed, so nothing happens
				w.until("completions", func() bool { return a.under == 0 })
				w.turns(100)
				require.Empty(t, a.failed)
				w.works()
			}
		})
	}
}

// TestGIDMoves: connections from an address that the port has no more are given up, and new ones
// are from the new address.
func TestGIDMoves(t *testing.T) { eachWay(t, testGIDMoves) }

func testGIDMoves(t *testing.T, way func(Config) Config) {
	w := newWorld(t, way(Config{}))
	w.begin()
	a := w.ranks[0]
	gid := a.m.h.gid
	moved := gid.GID
	moved[15] ^= 0x40
	a.hca.ChangeGID(1, gid.Index, moved)
	a.fails(btl.AllPeers, btl.ClassPath, btl.SideLocal, verbs.EventGIDChange.Native())
	w.mend()
	require.Equal(t, moved, a.m.h.gid.GID)
}

// TestDeadline: a request that never completes, of which nothing is told, fails the endpoint when
// its time is over.
func TestDeadline(t *testing.T) { eachWay(t, testDeadline) }

func testDeadline(t *testing.T, way func(Config) Config) {
	w := newWorld(t, way(Config{Deadline: 50 * time.Millisecond}))
	w.begin()
	a := w.ranks[0]
	a.hca.Inject(simhca.Fault{Kind: simhca.FaultSilence, QPN: a.end().qpn})
	require.NoError(t, a.send("never"))
	a.fails(1, btl.ClassTimeout, btl.SideBoth, "")
	w.mend()
}

// TestHalfOpen: packets get through one way only. Who sends finds out by its retries, and the other
// end is told.
func TestHalfOpen(t *testing.T) { eachWay(t, testHalfOpen) }

func testHalfOpen(t *testing.T, way func(Config) Config) {
	w := newWorld(t, way(Config{AckTimeout: 10, RetryCount: 2}))
	w.begin()
	a, b := w.ranks[0], w.ranks[1]
	require.True(t, w.f.Partition(b.m.h.gid.GID, a.m.h.gid.GID, false), "answers are lost")
	require.NoError(t, a.send("is executed, and nobody says so"))
	a.fails(1, btl.ClassPath, btl.SideBoth, verbs.StatusRetryExcErr.Native())
	b.fails(0, btl.ClassPath, btl.SideRemote, "")
	w.f.Heal(b.m.h.gid.GID, a.m.h.gid.GID)
	w.mend()
}

// TestNobodyAnswers: a request for a connection that is never answered ends.
func TestNobodyAnswers(t *testing.T) {
	w := newWorld(t, Config{ConnectTimeout: 300 * time.Millisecond})
	a, b := w.ranks[0], w.ranks[1]
	require.True(t, w.f.Partition(a.m.h.gid.GID, b.m.h.gid.GID, true))
	a.connect()
	require.NoError(t, a.send("waits for the connection"))
	a.fails(1, btl.ClassPath, btl.SideRemote, "")
	require.ErrorIs(t, a.failed[0], errNoAnswer)
	require.ErrorContains(t, a.failed[0], "none from 10.1.0.2 to 10.1.0.1 for 300ms")
	w.f.Heal(a.m.h.gid.GID, b.m.h.gid.GID)
	b.connect()
	w.mend()
}

// TestLostDatagrams: whichever message about a connection is lost, it comes about.
func TestLostDatagrams(t *testing.T) {
	for lost := range 6 {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			w := newWorld(t, Config{})
			for i, r := range w.ranks {
				r.hca.Inject(simhca.Fault{Kind: simhca.FaultPacketLost, QPN: r.m.h.ud.Num(), After: lost / 2, Count: 1 + i*(lost%2)})
			}
			w.connect()
			w.works()
		})
	}
}

// TestMakeAndBreak: incarnation after incarnation leaves nothing behind.
func TestMakeAndBreak(t *testing.T) { eachWay(t, testMakeAndBreak) }

func testMakeAndBreak(t *testing.T, way func(Config) Config) {
	w := newWorld(t, way(Config{RecvDepth: 8, SendDepth: 4}))
	w.begin()
	a := w.ranks[0]
	room, eps := a.m.h.groups[0].room, len(a.m.eps)
	for i := range 500 {
		w.works()
		w.ranks[i%2].ep.Fail(nil)
		w.mend()
	}
	require.Equal(t, uint32(501), a.ep.Epoch())
	require.Len(t, a.m.h.groups, 1)
	require.Equal(t, room, a.m.h.groups[0].room)
	require.LessOrEqual(t, len(a.m.eps), eps+1)
	require.Len(t, a.m.h.bounceFree, bounceBuffers)
	require.Len(t, a.m.h.free, udSendDepth)
}

// TestManyPeersManyQueues: queues are made so that no number of endpoints overruns them.
func TestManyPeersManyQueues(t *testing.T) {
	w := newWorld(t, Config{RecvDepth: 4096, SendDepth: 4096})
	w.connect()
	m := w.ranks[0].m
	for range 3 {
		_, err := m.h.reserve(m.queueEntries())
		require.NoError(t, err)
	}
	require.Greater(t, len(m.h.groups), 1)
	for _, g := range m.h.groups {
		require.GreaterOrEqual(t, g.room, 0)
		require.LessOrEqual(t, g.reserved, g.cq.Entries())
	}
	w.works()
}

// TestPortDownIsTheCause: what devices say of requests while the port is down is told as what it
// is.
func TestPortDownIsTheCause(t *testing.T) { eachWay(t, testPortDownIsTheCause) }

func testPortDownIsTheCause(t *testing.T, way func(Config) Config) {
	for _, status := range []verbs.Status{verbs.StatusLocQPOpErr, verbs.StatusWRFlushErr} {
		t.Run(status.String(), func(t *testing.T) {
			w := newWorld(t, way(Config{PortGrace: time.Hour}))
			w.begin()
			a := w.ranks[0]
			a.hca.Inject(simhca.Fault{Kind: simhca.FaultSendStatus, QPN: a.end().qpn, Status: status})
			require.NoError(t, a.send("x"))
			a.hca.SetLink(1, false)
			a.fails(1, btl.ClassPath, btl.SideLocal, status.Native())
			require.ErrorContains(t, a.failed[0], "port 1 of sim0 is down")
			a.hca.SetLink(1, true)
			w.turns(100)
			w.mend()
		})
	}
}
