package ibverbs

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// TestDepthsFitDevice: connections use shorter queues on a device that does not support longer
// ones.
func TestDepthsFitDevice(t *testing.T) { onEachFabric(t, testDepthsFitDevice) }

func testDepthsFitDevice(t *testing.T, link verbs.LinkLayer) {
	for _, c := range []struct {
		device     simhca.DeviceConfig
		send, recv int
	}{
		{simhca.DeviceConfig{}, 128, 64},
		{simhca.DeviceConfig{MaxQPWR: 100}, 94, 64},
		{simhca.DeviceConfig{MaxQPWR: 32}, 26, 27},
		{simhca.DeviceConfig{MaxQPWR: 13}, 7, 8},
		{simhca.DeviceConfig{MaxCQE: 1 << 7}, 78, 38},
		{simhca.DeviceConfig{MaxCQE: 24}, 4, 8},
		{simhca.DeviceConfig{MaxQPWR: 20, MaxCQE: 40}, 14, 14},
	} {
		w, a, _ := newWorld(t, link, Config{}, c.device, simhca.DeviceConfig{})
		require.Equal(t, []int{c.send, c.recv}, []int{a.m.cfg.SendDepth, a.m.cfg.RecvDepth}, "%+v", c.device)
		w.begin()
		a.ep.Fail(nil)
		w.recovers()
		for range 4 {
			w.works()
		}
		for i := range 3 * c.send {
			if a.send(x(i)) != nil {
				w.until("completions", a.isIdle)
			}
		}
		w.until("completions", a.isIdle)
		require.Empty(t, a.failed[1:])
	}
}

// TestNewOnTooSmallDeviceFails: the error says in one line which limit of which device is too low,
// and for what.
func TestNewOnTooSmallDeviceFails(t *testing.T) {
	for want, c := range map[string]struct {
		device simhca.DeviceConfig
		cfg    Config
	}{
		"max_qp is 1, a rank needs 2": {device: simhca.DeviceConfig{MaxQP: 1}},
		"max_qp_wr is 12, max_cqe is 4194304, too little for ibverbs.send.depth 4 and ibverbs.recv.depth 8, the minimum; name another device in ibverbs.devices": {device: simhca.DeviceConfig{MaxQPWR: 12}},
		"max_qp_wr is 16384, max_cqe is 23, too little for ibverbs.send.depth 4 and ibverbs.recv.depth 8, the minimum":                                           {device: simhca.DeviceConfig{MaxCQE: 23}},
		"max_msg_sz is 4096, ibverbs.frag.bytes needs 6016":                                             {device: simhca.DeviceConfig{MaxMsgBytes: 4096}, cfg: Config{FragBytes: 6000}},
		"max_mr_size is 1048576, buffers of ibverbs.frag.bytes need 1546112; reduce ibverbs.frag.bytes": {device: simhca.DeviceConfig{MaxMRBytes: 1 << 20}, cfg: Config{FragBytes: 6000}},
		"buffers of ibverbs.frag.bytes need 2364480; reduce ibverbs.frag.bytes or ibverbs.recv.depth":   {device: simhca.DeviceConfig{MaxMRBytes: 1 << 20}, cfg: Config{FragBytes: 500, RecvDepth: 4096}},
	} {
		c.device.Name = "sim0"
		c.cfg.Rail, c.cfg.Size, c.cfg.Events, c.cfg.Device = "ibverbs", 1, new(testRank), "sim0"
		c.cfg.Provider = simhca.NewFabric(simhca.Config{Virtual: true}).NewNode(c.device)
		_, err := New(c.cfg)
		require.ErrorIs(t, err, errLimit)
		require.ErrorContains(t, err, "rail ibverbs: device sim0: limit of the device: ")
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n")
	}
}

// TestMorePeersThanQueuePairs: the error of a connection for which the device has no queue pair
// names the limit, if the job may need more queue pairs than the device has.
func TestMorePeersThanQueuePairs(t *testing.T) {
	few := simhca.DeviceConfig{MaxQP: 2}
	_, a, b := newWorld(t, verbs.LinkInfiniBand, Config{}, few, few, few)
	_, err := a.m.Connect(btl.Path{Peer: 1}, b.m.Address())
	require.NoError(t, err)
	_, err = a.m.Connect(btl.Path{Peer: 2}, a.w.ranks[2].m.Address())
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	require.ErrorContains(t, err, "max_qp of device sim0 is 2, and a job of 3 ranks may need as many; name more devices in ibverbs.devices to share them")
	h := hca{attr: verbs.DeviceAttr{MaxQP: 3}}
	require.Equal(t, verbs.ErrNoMemory, h.noQueuePair(&a.m.cfg, verbs.ErrNoMemory), "the job needs no more")
}

// TestDeviceWithoutReads: if the device of one rank has no remote reads, ranks do not read memory,
// and the connection stays up.
func TestDeviceWithoutReads(t *testing.T) { onEachFabric(t, testDeviceWithoutReads) }

func testDeviceWithoutReads(t *testing.T, link verbs.LinkLayer) {
	none := simhca.DeviceConfig{MaxReads: -1}
	w, a, b := connectedWorld(t, link, Config{}, simhca.DeviceConfig{}, none)
	require.NotZero(t, a.m.Attrs().Caps&btl.CapGet)
	require.Zero(t, b.m.Attrs().Caps&btl.CapGet)
	for _, r := range w.ranks {
		r.ended = nil
		into, from := r.memory(64, btl.AccessLocal), r.other().memory(64, btl.AccessRemoteRead)
		r.get(into, from.Key(), nil)
		w.until("the end", r.isIdle)
		hasClass(t, btl.ClassUsage, r.ended[0])
		require.ErrorIs(t, r.ended[0], errNoReads)
		require.Empty(t, r.failed)
	}
	w.works()
}

// TestConnectFromPortWithoutMTUFails: a port that reports no MTU connects to no peer.
func TestConnectFromPortWithoutMTUFails(t *testing.T) {
	_, a, b := newWorld(t, verbs.LinkInfiniBand, Config{})
	real := a.m.h.dev
	a.m.h.dev = withoutMTU{real}
	_, err := a.m.Connect(btl.Path{Peer: 1}, b.m.Address())
	require.ErrorContains(t, err, "port 1 reports no MTU")
	a.m.h.dev = real
}

// withoutMTU is a device whose ports report no MTU.
type withoutMTU struct{ verbs.Device }

func (d withoutMTU) QueryPort(port int) (verbs.PortAttr, error) {
	p, err := d.Device.QueryPort(port)
	p.ActiveMTU = 0
	return p, err
}

// TestGIDNetwork: the GID is an address of the given network. If the port has none there, the error
// lists its GIDs.
func TestGIDNetwork(t *testing.T) {
	network := netip.MustParsePrefix("192.168.0.0/16")
	gid := verbs.GID{10: 0xff, 11: 0xff, 12: 192, 13: 168, 15: 9}
	node := simhca.NewFabric(simhca.Config{Virtual: true}).NewNode(simhca.DeviceConfig{Name: "sim0"})
	cfg := Config{Rail: "ibverbs", Size: 1, Events: new(testRank), Provider: node, Device: "sim0", GIDNetwork: network}
	_, err := New(cfg)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorContains(t, err, "device sim0: port 1 has no GID in 192.168.0.0/16 (ibverbs.gid.network), it has 0 (fe80::")
	require.ErrorContains(t, err, "), 1 (::ffff:10.")
	node.HCA("sim0").ChangeGID(1, 5, gid)
	uses := func(want int) {
		t.Helper()
		m, err := New(cfg)
		require.NoError(t, err)
		require.Equal(t, want, m.(*module).h.gid.Index)
		require.NoError(t, m.Close())
	}
	uses(5)
	cfg.GIDNetwork = netip.MustParsePrefix("fe80::/10")
	uses(0)
	cfg.GIDNetwork = netip.Prefix{}
	uses(1)
	cfg.GIDNetwork, cfg.GIDIndex = network, new(1)
	_, err = New(cfg)
	require.ErrorContains(t, err, "port 1 has no GID in 192.168.0.0/16 (ibverbs.gid.network)")
	cfg.GIDIndex = new(5)
	uses(5)
}

// TestReadsFitBothDevices: a rank has no more outstanding reads than its device permits, and than
// the peer's device answers.
func TestReadsFitBothDevices(t *testing.T) {
	for _, c := range [][3]int{{2, 0, 2}, {0, 2, 2}, {1, 3, 1}, {0, 0, maxReads}} {
		_, a, _ := connectedWorld(t, verbs.LinkInfiniBand, Config{}, simhca.DeviceConfig{MaxReads: c[0]}, simhca.DeviceConfig{MaxReads: c[1]})
		attr, err := a.end().qp.Query()
		require.NoError(t, err)
		require.EqualValues(t, c[2], attr.MaxRdAtomic)
	}
}
