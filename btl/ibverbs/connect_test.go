package ibverbs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// TestConnectToSilentPeerFails: a request for a connection that is never answered fails.
func TestConnectToSilentPeerFails(t *testing.T) { onEachFabric(t, testConnectToSilentPeerFails) }

func testConnectToSilentPeerFails(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{ConnectTimeout: 300 * time.Millisecond})
	w.cut()
	a.connect()
	require.NoError(t, a.send("waits for the connection"))
	a.fails(1, btl.ClassPath, btl.SideRemote, "")
	require.ErrorIs(t, a.failed[0], errNoAnswer)
	require.ErrorContains(t, a.failed[0], fmt.Sprintf("nothing from %v to %v for 300ms", b.m.h.address(), a.m.h.address()))
	w.heal()
	b.connect()
	w.recovers()
}

// TestConnectDespiteLostDatagrams: the loss of any connection message does not prevent the
// connection.
func TestConnectDespiteLostDatagrams(t *testing.T) { onEachFabric(t, testConnectDespiteLostDatagrams) }

func testConnectDespiteLostDatagrams(t *testing.T, link verbs.LinkLayer) {
	for lost := range 6 {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			w, _, _ := newWorld(t, link, Config{})
			for i, r := range w.ranks {
				r.hca.Inject(simhca.Fault{Kind: simhca.FaultPacketLost, QPN: r.m.h.ud.Num(), After: lost / 2, Count: 1 + i*(lost%2)})
			}
			w.connect()
			w.works()
		})
	}
}

var errUnreachableNet error = verbs.NewCallError("ibv_create_ah", unix.ENETUNREACH, "")

// TestConnectWithoutRoute: a connection to a peer fails soon if the system has no route to it. If a
// route appears before that, the connection is made.
func TestConnectWithoutRoute(t *testing.T) { onEachFabric(t, testConnectWithoutRoute) }

func testConnectWithoutRoute(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{})
	pd, restore := a.faultPD()
	pd.createAH = func(verbs.AHAttr) (verbs.AH, error) { return nil, errUnreachableNet }
	a.connect()
	at := w.clock.Now()
	a.fails(1, btl.ClassPath, btl.SideRemote, "")
	require.ErrorIs(t, a.failed[0], errUnreachableNet)
	require.ErrorContains(t, a.failed[0], fmt.Sprintf("there is no route to the peer, from %v to %v", a.m.h.address(), b.m.h.address()))
	require.InDelta(t, noRouteNanos, w.clock.Now()-at, 0.5e9)

	a.connect()
	w.turns(2 * attendEvery)
	require.Len(t, a.failed, 1)
	restore()
	b.connect()
	w.begin()
}

// TestFaultOfPath: if the system finds no address or route, the peer's side is at fault, whichever
// call reports it, because this rank's port leads to others. Other errors of such calls are errors
// of the device.
func TestFaultOfPath(t *testing.T) { onEachFabric(t, testFaultOfPath) }

func testFaultOfPath(t *testing.T, link verbs.LinkLayer) {
	for _, errno := range []unix.Errno{
		unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EHOSTDOWN, unix.ETIMEDOUT, // the peer's
		unix.ENOMEM, unix.EINVAL, unix.EIO, unix.ENODEV, unix.EADDRNOTAVAIL, unix.ENETDOWN, unix.EPERM,
	} {
		class, side, text := btl.ClassDevice, btl.SideLocal, "the device cannot look up the path to the peer, from "
		switch errno {
		case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EHOSTDOWN, unix.ETIMEDOUT:
			class, side, text = btl.ClassPath, btl.SideRemote, "there is no route to the peer, from "
		}
		for _, call := range []string{"ibv_create_ah", "ibv_modify_qp"} {
			t.Run(unix.ErrnoName(errno)+"/"+call, func(t *testing.T) {
				_, a, b := newWorld(t, link, Config{})
				cause := verbs.NewCallError(call, errno, "")
				pd, _ := a.faultPD()
				if call == "ibv_create_ah" {
					pd.createAH = func(verbs.AHAttr) (verbs.AH, error) { return nil, cause }
				} else {
					text = "connection: "
					pd.createQP = func(init verbs.QPInit) (verbs.QP, error) {
						real, err := pd.PD.CreateQP(init)
						qp := newFaultyQP(real)
						qp.modify = func(attr *verbs.QPAttr, mask verbs.AttrMask) error {
							if mask&verbs.AttrAV != 0 {
								return cause
							}
							return real.Modify(attr, mask)
						}
						return qp, err
					}
				}
				a.connect()
				b.m.Progress()
				a.fails(1, class, side, "")
				require.ErrorIs(t, a.failed[0], errno)
				require.ErrorContains(t, a.failed[0], text)
			})
		}
	}
}

// withoutBuffers takes all send buffers from the endpoint until free is called, as if other
// connections had the common ones, and its own messages the rest.
func (e *endpoint) withoutBuffers() (free func()) {
	own, common := e.share.own, e.m.h.bounceFree
	e.share.own, e.m.h.bounceFree = 0, nil
	return func() { e.share.own, e.m.h.bounceFree = own, common }
}

// TestEarlySendsWaitForBuffers: sends accepted before the connection are posted when there are
// buffers again, although nothing else happens on the connection.
func TestEarlySendsWaitForBuffers(t *testing.T) { onEachFabric(t, testEarlySendsWaitForBuffers) }

func testEarlySendsWaitForBuffers(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{})
	a.connect()
	require.NoError(t, a.send(strings.Repeat("x", 1000)))
	free := a.end().withoutBuffers()
	w.until("a connection", a.isReady)
	w.turns(50)
	require.Empty(t, b.arrived)
	free()
	w.until("the fragment", func() bool { return len(b.arrived) == 1 })
	w.until("its completion", a.isIdle)
	a.carries("a later one")
}

// TestEarlySendsWaitForPort: sends accepted before the connection are posted when the port is up
// again.
func TestEarlySendsWaitForPort(t *testing.T) { onEachFabric(t, testEarlySendsWaitForPort) }

func testEarlySendsWaitForPort(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{})
	a.connect()
	require.NoError(t, a.send("early"))
	w.deliver()
	b.progress()
	w.deliver() // the answer is in a's queue
	a.hca.SetLink(1, false)
	a.progress()
	require.True(t, a.isReady())
	a.hca.SetLink(1, true)
	w.until("the fragment", func() bool { return len(b.arrived) == 1 })
	require.Empty(t, a.failed)
}

// TestAnswerBeforeTimeWithoutProgress: a peer is not late if its answer is in the queue behind
// other messages while this rank makes no progress.
func TestAnswerBeforeTimeWithoutProgress(t *testing.T) {
	onEachFabric(t, testAnswerBeforeTimeWithoutProgress)
}

func testAnswerBeforeTimeWithoutProgress(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{})
	a.connect()
	w.deliver()
	p := b.m.peer(0, a.m.me, a.m.h.address())
	for range pollBatch + 4 {
		b.m.tell(p, &message{kind: msgDOWNACK, epoch: 1})
	}
	b.progress()
	w.deliver()
	w.clock.skip(11 * time.Second)
	a.progress()
	require.Empty(t, a.failed)
	require.True(t, a.isReady())
	b.connect()
	w.works()
}

// TestDownOfLaterEpoch: a DOWN of a later incarnation also ends this one at the peer.
func TestDownOfLaterEpoch(t *testing.T) { onEachFabric(t, testDownOfLaterEpoch) }

func testDownOfLaterEpoch(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{})
	w.connect()
	w.turns(2 * attendEvery)
	free := a.m.h.free
	require.Len(t, free, udSendDepth)
	a.m.h.free = nil // no message can be sent from now on
	a.ep.Fail(nil)
	w.until("Drained", a.isDrained)
	a.connect()
	a.m.h.free = free
	a.ep.Fail(nil)
	require.Len(t, a.m.unackedFailures, 2)
	a.m.unackedFailures = a.m.unackedFailures[1:] // the second arrives first; its DOWNACK ends both
	w.until("the peer to know", b.isDrained)
	w.recovers()
}

// TestPeerClosesDuringConnect: a rank that waits for a connection learns at once that the peer has
// closed.
func TestPeerClosesDuringConnect(t *testing.T) { onEachFabric(t, testPeerClosesDuringConnect) }

func testPeerClosesDuringConnect(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{})
	a.connect()
	w.deliver()
	b.progress()
	require.NotNil(t, b.m.peers.Of(0)[0].ep)
	require.NoError(t, b.m.Close())
	w.f.Advance() // delivers the datagram before any timeout
	a.progress()
	a.fails(1, btl.ClassClosed, btl.SideRemote, "")
}

// TestConnectToFailedIncarnation: Connect returns an endpoint that the peer asked for and that has
// since failed. Its failure is reported afterwards.
func TestConnectToFailedIncarnation(t *testing.T) { onEachFabric(t, testConnectToFailedIncarnation) }

func testConnectToFailedIncarnation(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{})
	a.connect()
	w.until("a connection", a.isReady)
	w.turns(50)
	b.m.peers.Of(0)[0].ep.Fail(nil)
	require.Empty(t, b.failed, "the layer above does not know the endpoint")
	b.connect()
	require.Equal(t, btl.Failed, b.ep.State())
	w.until("Drained", func() bool { return len(b.drained) == 1 })
	require.Len(t, b.failed, 1)
	w.recovers()
}

// TestReplayedMessagesMoveNoAddress: replayed messages of earlier incarnations do not change the
// peer's address, whatever they contain.
func TestReplayedMessagesMoveNoAddress(t *testing.T) {
	onEachFabric(t, testReplayedMessagesMoveNoAddress)
}

func testReplayedMessagesMoveNoAddress(t *testing.T, link verbs.LinkLayer) {
	w, a, b := connectedWorld(t, link, Config{})
	p := b.m.peers.Of(0)[0]
	known := p.address
	replay := func(kind kind, epoch uint32) {
		t.Helper()
		msg := a.message(kind, epoch)
		msg.end, msg.toQPN = a.end().end(), b.end().qpn
		msg.address.qkey ^= 1 // its address before its device was opened again
		b.m.handle(msg)
		require.Equal(t, known, p.address, "%v, %v", kind, b.ep.State())
	}
	replayAll := func() {
		t.Helper()
		for _, kind := range []kind{msgREQ, msgREP, msgNAK, msgDOWN, msgDOWNACK} {
			replay(kind, p.epoch-1)
		}
	}
	b.ep.Fail(nil)
	w.recovers()
	replayAll()
	b.ep.Fail(nil)
	w.until("Drained", b.isDrained)
	replay(msgREQ, p.epoch)
	replayAll()
	w.recovers()
}

// TestRepeatedREQ: a REQ of the current incarnation is answered again, and changes no address.
func TestRepeatedREQ(t *testing.T) { onEachFabric(t, testRepeatedREQ) }

func testRepeatedREQ(t *testing.T, link verbs.LinkLayer) {
	w, _, _ := connectedWorld(t, link, Config{})
	for _, b := range w.ranks {
		a := b.other()
		p := b.m.peers.Of(a.rank)[0]
		known := p.address
		msg := a.message(msgREQ, b.ep.Epoch())
		msg.address, msg.end = known, a.end().end()
		msg.address.qkey ^= 1
		b.m.handle(msg)
		require.Equal(t, known, p.address)
	}
	w.works()
}

// TestREQFromNewAddressOfOldEpoch: a peer that asks from a new address for an earlier epoch gets
// its answer at that address.
func TestREQFromNewAddressOfOldEpoch(t *testing.T) { onEachFabric(t, testREQFromNewAddressOfOldEpoch) }

func testREQFromNewAddressOfOldEpoch(t *testing.T, link verbs.LinkLayer) {
	w, a, b := connectedWorld(t, link, Config{})
	a.losesDevice()
	a.hca.Revive()
	b.ep.Fail(nil)
	w.until("Drained", b.isDrained)
	b.m.peers.Of(0)[0].epoch = 9 // a has missed some
	a.connect()
	w.until("a connection", a.isReady)
	require.Equal(t, uint32(10), a.ep.Epoch())
}

// TestMessageForOtherModuleIsIgnored: a message must name both modules, and ranks of the job.
func TestMessageForOtherModuleIsIgnored(t *testing.T) {
	onEachFabric(t, testMessageForOtherModuleIsIgnored)
}

func testMessageForOtherModuleIsIgnored(t *testing.T, link verbs.LinkLayer) {
	_, a, b := connectedWorld(t, link, Config{})
	for name, change := range map[string]func(msg *message){
		"module of the sender":    func(msg *message) { msg.fromNonce[0]++ },
		"module of the recipient": func(msg *message) { msg.toNonce[0]++ },
		"recipient":               func(msg *message) { msg.to = 0 },
		"sender":                  func(msg *message) { msg.from = 2 },
		"sender is the recipient": func(msg *message) { msg.from = 1 },
	} {
		msg := a.message(msgDOWN, a.ep.Epoch())
		change(msg)
		b.m.handle(msg)
		require.Equal(t, btl.Up, b.ep.State(), name)
	}
	b.m.handle(a.message(msgDOWN, a.ep.Epoch()))
	require.NotEqual(t, btl.Up, b.ep.State())
}

// TestFailedDatagramStopsNoOther: the datagram queue pair leaves SQE after a failed send.
func TestFailedDatagramStopsNoOther(t *testing.T) { onEachFabric(t, testFailedDatagramStopsNoOther) }

func testFailedDatagramStopsNoOther(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{})
	for _, r := range []*testRank{a, b} {
		r.hca.Inject(simhca.Fault{Kind: simhca.FaultSendStatus, QPN: r.m.h.ud.Num(), Status: verbs.StatusLocQPOpErr})
	}
	w.begin()
	require.Equal(t, []int{1, 1}, []int{a.hca.Fired(), b.hca.Fired()})
}

// TestFirstMessageIsDOWN: a peer whose first message ends a connection can be asked for a new one.
func TestFirstMessageIsDOWN(t *testing.T) { onEachFabric(t, testFirstMessageIsDOWN) }

func testFirstMessageIsDOWN(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{})
	b.m.handle(a.message(msgDOWN, 1))
	b.connect()
	w.until("a connection", b.isReady)
}

// losesDevice makes the rank's device fail, and waits until the module has closed it.
func (r *testRank) losesDevice() {
	r.w.t.Helper()
	r.hca.Raise(verbs.EventDeviceFatal, 0)
	r.w.until("the device to be closed", func() bool { return r.isDrained() && r.m.h == nil })
}

// withSiblings gives each rank a second module, on a network of its own, which is another world.
func (w *world) withSiblings(cfg Config) (other *world) {
	w.t.Helper()
	link := verbs.LinkInfiniBand
	if w.ranks[0].m.h.roce {
		link = verbs.LinkEthernet
	}
	other, _, _ = newWorld(w.t, link, cfg)
	for rank, r := range w.ranks {
		second := other.ranks[rank].m
		second.me[0] ^= 0x80 // both worlds have the same random numbers
		c, ok := parseRailAddress(second.Address())
		require.True(w.t, ok)
		c.nonce = second.me
		copy(second.Address(), c.encode())
		s := new(Siblings)
		for _, m := range []*module{r.m, second} {
			m.cfg.Siblings = s
			s.add(m)
		}
	}
	return other
}

// TestBothEndsLoseTheirDevices: both ends of a rail open their devices again, at other addresses
// than the published ones. They find each other over another rail.
func TestBothEndsLoseTheirDevices(t *testing.T) { onEachFabric(t, testBothEndsLoseTheirDevices) }

func testBothEndsLoseTheirDevices(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{})
	other := w.withSiblings(Config{})
	w.begin()
	other.connect()
	for _, r := range w.ranks {
		r.hca.Raise(verbs.EventDeviceFatal, 0)
	}
	w.until("both devices to be closed", func() bool {
		return a.isDrained() && b.isDrained() && a.m.h == nil && b.m.h == nil
	})
	for _, r := range w.ranks {
		r.hca.Revive()
		r.ended = nil
		r.connect()
	}
	w.until("a connection", func() bool {
		other.turn()
		return a.isReady() && b.isReady()
	})
	w.works()
	other.works()
}

// TestPeerMovesAndMissesEpochs: a rank has a new address because it lost its device. It asks for an
// earlier epoch than its peer, which asks at the old address. They find each other without other
// rails.
func TestPeerMovesAndMissesEpochs(t *testing.T) { onEachFabric(t, testPeerMovesAndMissesEpochs) }

func testPeerMovesAndMissesEpochs(t *testing.T, link verbs.LinkLayer) {
	w, a, b := connectedWorld(t, link, Config{})
	b.losesDevice()
	for range 3 {
		a.ep.Fail(nil)
		w.until("Drained", a.isDrained)
		a.connect()
	}
	b.hca.Revive()
	b.connect()
	require.Less(t, b.ep.Epoch(), a.ep.Epoch())
	w.until("a connection", func() bool { return a.isReady() && b.isReady() })
	for _, r := range w.ranks {
		r.ended = nil
	}
	w.works()
}

// usesMTU expects both ends of the connection to use an MTU, in their queue pairs.
func (w *world) usesMTU(mtu verbs.MTU) {
	w.t.Helper()
	for _, r := range w.ranks {
		attr, err := r.end().qp.Query()
		require.NoError(w.t, err)
		require.Equal(w.t, mtu, attr.PathMTU, "rank %d", r.rank)
		require.Equal(w.t, mtu, r.end().mtu, "rank %d", r.rank)
	}
}

// long is a fragment of several packets.
var long = strings.Repeat("0123456789abcdef", 500)

// carriesLong shows that long fragments arrive in both directions.
func (w *world) carriesLong() {
	w.t.Helper()
	for _, r := range w.ranks {
		r.carries(long)
	}
	w.until("completions", func() bool { return w.ranks[0].isIdle() && w.ranks[1].isIdle() })
}

// TestReconnectAfterMTUChange: the MTU of a port becomes smaller, and no event reports that. The
// connection fails at the next long packet. The next incarnation uses the new MTU, whichever end
// asks for it. When the port's MTU is larger again, the following incarnation uses it.
func TestReconnectAfterMTUChange(t *testing.T) { onEachFabric(t, testReconnectAfterMTUChange) }

func testReconnectAfterMTUChange(t *testing.T, link verbs.LinkLayer) {
	for asker := range 2 {
		w, a, b := newWorld(t, link, Config{})
		w.connect()
		w.usesMTU(verbs.MTU4096)
		w.carriesLong()
		a.hca.SetMTU(1, verbs.MTU1024)
		require.NoError(t, a.send(long))
		a.fails(1, btl.ClassPath, btl.SideBoth, verbs.StatusRetryExcErr.Native())
		w.until("the peer to know", b.isDrained)
		for _, r := range w.ranks {
			r.ended, r.failed, r.drained = nil, nil, nil
		}
		first := w.ranks[asker]
		first.connect()
		w.until("the asker's end", first.isReady)
		first.other().connect()
		w.until("the other end", first.other().isReady)
		w.usesMTU(verbs.MTU1024)
		w.carriesLong()

		a.hca.SetMTU(1, verbs.MTU4096)
		w.carriesLong()
		w.usesMTU(verbs.MTU1024)
		b.ep.Fail(nil)
		w.recovers()
		w.usesMTU(verbs.MTU4096)
	}
}

// TestConnectWithDifferentMTUs: both ends use the smaller MTU, even if both ask at once.
func TestConnectWithDifferentMTUs(t *testing.T) { onEachFabric(t, testConnectWithDifferentMTUs) }

func testConnectWithDifferentMTUs(t *testing.T, link verbs.LinkLayer) {
	for _, mtus := range [][2]verbs.MTU{{verbs.MTU512, verbs.MTU2048}, {verbs.MTU2048, verbs.MTU512}} {
		w, a, b := newWorld(t, link, Config{})
		a.hca.SetMTU(1, mtus[0])
		b.hca.SetMTU(1, mtus[1])
		w.connect()
		w.usesMTU(verbs.MTU512)
		w.carriesLong()
	}
}

// TestAnswerWithLongerMTUFails: an answer must not have a larger MTU than this end has offered.
func TestAnswerWithLongerMTUFails(t *testing.T) { onEachFabric(t, testAnswerWithLongerMTUFails) }

func testAnswerWithLongerMTUFails(t *testing.T, link verbs.LinkLayer) {
	_, a, b := newWorld(t, link, Config{})
	a.hca.SetMTU(1, verbs.MTU1024)
	a.connect()
	msg := b.message(msgREP, a.ep.Epoch())
	msg.toQPN, msg.end = a.end().qpn, qpEnd{qpn: 77, mtu: verbs.MTU2048, recvDepth: minRecvDepth}
	a.m.handle(msg)
	a.fails(1, btl.ClassProtocol, btl.SideRemote, "")
}
