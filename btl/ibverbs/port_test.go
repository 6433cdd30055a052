package ibverbs

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/progress"
)

func TestParsePorts(t *testing.T) {
	for _, c := range []struct {
		list  string
		local int
		want  []PortName
	}{
		{"mlx5_0", 0, []PortName{{"mlx5_0", 1}}},
		{"mlx5_0, mlx5_1:2", 3, []PortName{{"mlx5_0", 1}, {"mlx5_1", 2}}},
		{"a|b", 0, []PortName{{"a", 1}}},
		{"a|b", 1, []PortName{{"b", 1}}},
		{"a|b:2,c|d", 3, []PortName{{"b", 2}, {"d", 1}}},
	} {
		got, err := ParsePorts(strings.Split(c.list, ","), c.local)
		require.NoError(t, err, c.list)
		require.Equal(t, c.want, got, c.list)
	}
	const badNumber = "number from 1 to 255"
	for list, what := range map[string]string{
		"": "empty name", "a,": "empty name", "a,b,a": "a:1 twice",
		"a:0": badNumber, "a:x": badNumber, "a:256": badNumber,
	} {
		_, err := ParsePorts(strings.Split(list, ","), 0)
		require.ErrorIs(t, err, verbs.ErrInvalid, list)
		require.ErrorContains(t, err, what, list)
	}
}

func TestChooseGID(t *testing.T) {
	linkLocal, global := verbs.GID{0xfe, 0x80, 15: 1}, verbs.GID{0x20, 1, 15: 1}
	ipv4 := verbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}
	table := []verbs.GIDEntry{
		{Index: 0, GID: linkLocal, Type: verbs.GIDTypeRoCEv1}, {Index: 1, GID: linkLocal, Type: verbs.GIDTypeRoCEv2},
		{Index: 2, GID: ipv4, Type: verbs.GIDTypeRoCEv1}, {Index: 3, GID: global, Type: verbs.GIDTypeRoCEv2},
		{Index: 4, GID: ipv4, Type: verbs.GIDTypeRoCEv2},
	}
	for n, want := range []int{-1, 0, 1, 1, 3, 4} {
		g, ok := chooseGID(table[:n], nil, true)
		require.Equal(t, want >= 0, ok)
		if ok {
			require.Equal(t, want, g.Index, "of the first %d", n)
		}
	}
	for _, index := range []int{0, 2} {
		g, ok := chooseGID(table, &index, true)
		require.True(t, ok)
		require.Equal(t, index, g.Index, "the index that was asked for")
	}
	_, ok := chooseGID(table, new(9), true)
	require.False(t, ok)
	g, _ := chooseGID(table, nil, false)
	require.Equal(t, 0, g.Index, "InfiniBand: the port's first")
}

// TestInfiniBand: connections between InfiniBand ports use a global route if one of the ports
// requires it.
func TestInfiniBand(t *testing.T) {
	for _, required := range [][2]bool{{false, false}, {true, true}, {true, false}, {false, true}} {
		w, a, _ := connectedWorld(t, verbs.LinkInfiniBand, Config{AckTimeout: 10, RetryCount: 1},
			simhca.DeviceConfig{GRHRequired: required[0]},
			simhca.DeviceConfig{GRHRequired: required[1]})
		for _, r := range w.ranks {
			attr, err := r.end().qp.Query()
			require.NoError(t, err)
			require.Equal(t, required[0] || required[1], attr.AH.IsGlobal, "%v", required)
			require.NotZero(t, attr.AH.DLID)
		}
		a.ep.Fail(nil)
		w.recovers()
	}
}

// TestGlobalRouteWithoutGID: if a port requires a global route but has no GID, the error says so.
func TestGlobalRouteWithoutGID(t *testing.T) {
	_, a, _ := connectedWorld(t, verbs.LinkInfiniBand, Config{},
		simhca.DeviceConfig{GRHRequired: true},
		simhca.DeviceConfig{})
	a.hca.ChangeGID(1, 0, verbs.GID{})
	a.fails(btl.AllPeers, btl.ClassPath, btl.SideLocal, verbs.EventGIDChange.Native())
	require.ErrorIs(t, a.failed[0], errNoGID)
	require.ErrorContains(t, a.failed[0], "requires a global route")
}

// TestNewWithUnusedGIDIndexFails: the error lists the entries that the port has.
func TestNewWithUnusedGIDIndexFails(t *testing.T) {
	node := simhca.NewFabric(simhca.Config{Virtual: true}).NewNode(simhca.DeviceConfig{Name: "sim0"})
	cfg := Config{Size: 1, Events: new(testRank), Provider: node, Device: "sim0", GIDIndex: new(5)}
	_, err := New(cfg)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorContains(t, err, "nothing in entry 5 of its GIDs, it has 0 (fe80::")
	require.ErrorContains(t, err, "), 1 (::ffff:10.")
	for i := range 2 {
		node.HCA("sim0").ChangeGID(1, i, verbs.GID{})
	}
	_, err = New(cfg)
	require.ErrorContains(t, err, "nothing in entry 5 of its GIDs, it has none: ")
}

// TestPortLosesItsAddress: a port without an address may be about to be removed, and the removal
// waits until no process has the device open. Therefore the rail fails once, whatever the device
// reports afterwards, and the device is closed.
func TestPortLosesItsAddress(t *testing.T) {
	for _, goesDown := range []bool{false, true} {
		w, a, b := connectedWorld(t, verbs.LinkEthernet, Config{})
		gids, err := a.m.h.dev.GIDs(1)
		require.NoError(t, err)
		a.hca.SetLink(1, !goesDown)
		for i := range gids { // the best comes last
			a.hca.ChangeGID(1, gids[len(gids)-1-i].Index, verbs.GID{})
		}
		a.fails(btl.AllPeers, btl.ClassPath, btl.SideLocal, verbs.EventGIDChange.Native())
		require.NotNil(t, a.m.h, "Drained is reported before")
		if goesDown {
			a.hca.SetLink(1, true)
			a.hca.Raise(verbs.EventSMChange, 1)
			a.hca.SetLink(1, false)
		}
		w.until("the device to be closed", func() bool { return a.m.h == nil })
		require.Len(t, a.failed, 1)
		require.Len(t, a.drained, 1)
		a.hca.SetLink(1, true)
		_, err = a.m.Connect(btl.Path{Peer: 1}, b.m.Address())
		require.ErrorIs(t, err, errNoGID)
		for _, gid := range gids {
			a.hca.ChangeGID(1, gid.Index, gid.GID)
		}
		w.recovers()
	}
}

// TestConnectWithLittleInline: connections use as many bytes inline as the device grants, down to
// none.
func TestConnectWithLittleInline(t *testing.T) { onEachFabric(t, testConnectWithLittleInline) }

func testConnectWithLittleInline(t *testing.T, link verbs.LinkLayer) {
	for _, c := range []struct{ most, unit, granted int }{
		{256, 1, 128}, {256, 100, 200}, {128, 1, 128}, {127, 1, 96}, {101, 1, 96}, {96, 1, 96}, {60, 1, 32},
		{60, 24, 48}, {16, 1, 16}, {15, 1, 0}, {-1, 1, 0},
	} {
		t.Run(fmt.Sprintf("%d-%d", c.most, c.unit), func(t *testing.T) {
			device := simhca.DeviceConfig{MaxInline: c.most, InlineUnit: c.unit}
			w, a, _ := connectedWorld(t, link, Config{}, device, device)
			require.Equal(t, c.granted, a.end().maxInline)
			inline, longest := 0, 0
			qp := a.faultQP()
			qp.postSend = func(wrs []verbs.SendWR) (int, error) {
				for i := range wrs {
					if wrs[i].Flags&verbs.SendInline != 0 {
						inline++
						longest = max(longest, int(wrs[i].SGE[0].Length))
					}
				}
				return qp.QP.PostSend(wrs)
			}
			for n := range 2 * inlineSizes[0] {
				a.carries(x(n))
			}
			require.Equal(t, c.granted, longest)
			if c.granted == 0 {
				require.Zero(t, inline)
			}
			a.ep.Fail(nil)
			w.recovers()
		})
	}
}

// TestQueuePairIsRefused: the error is the error for the first size of inline data. Smaller sizes
// are tried only if the error may concern sizes. The next connection asks for the first size again.
func TestQueuePairIsRefused(t *testing.T) { onEachFabric(t, testQueuePairIsRefused) }

func testQueuePairIsRefused(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{})
	for _, c := range []struct {
		err   error
		asked []int
	}{
		{verbs.NewCallError("ibv_create_qp", 22, ""), inlineSizes[:]},
		{verbs.NewCallError("ibv_create_qp", 12, ""), inlineSizes[:]},
		{errors.New("no"), inlineSizes[:1]},
	} {
		var asked []int
		pd, restore := a.faultPD()
		pd.createQP = func(init verbs.QPInit) (verbs.QP, error) {
			asked = append(asked, init.Cap.MaxInlineData)
			return nil, c.err
		}
		_, err := a.m.Connect(btl.Path{Peer: 1}, b.m.Address())
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.asked, asked)
		restore()
	}
	w.begin()
	require.Equal(t, inlineSizes[0], a.end().maxInline)
}

// setting returns settings in which the user has set one tunable.
func setting(t *testing.T, key, value string) tunable.Set {
	t.Helper()
	set, err := tunable.Set{}.With(key, value, tunable.FromCommandLine)
	require.NoError(t, err)
	return set
}

var errLocked = errors.New("the user must be able to write to /dev/infiniband/uverbs*")

// oneLocked is a node whose device "locked" cannot be opened.
type oneLocked struct{ *simhca.Node }

func (n oneLocked) Open(name string) (verbs.Device, error) {
	if name == "locked" {
		return nil, errLocked
	}
	return n.Node.Open(name)
}

// openSome opens the ports of a node with two good devices, one with a port that is down, one
// without datagrams, and one that cannot be opened. If good is not set, the good ones lack
// datagrams too.
func openSome(t *testing.T, devices string, good bool) (transport.Opened, error) {
	f := simhca.NewFabric(simhca.Config{})
	t.Cleanup(f.Close)
	node := oneLocked{f.NewNode(
		simhca.DeviceConfig{Name: "locked"}, simhca.DeviceConfig{Name: "one", NoDatagrams: !good},
		simhca.DeviceConfig{Name: "iwarp", NoDatagrams: true}, simhca.DeviceConfig{Name: "down"},
		simhca.DeviceConfig{Name: "two", NoDatagrams: !good},
	)}
	node.HCA("down").SetLink(1, false)
	opened, err := openPorts(envOf(t, devices), node)
	for _, rail := range opened.Modules {
		t.Cleanup(func() { require.NoError(t, rail.Module.Close()) })
	}
	return opened, err
}

// envOf makes the Env from which the rails of a rank are opened. devices is the tunable
// ibverbs.devices.
func envOf(t *testing.T, devices string) *transport.Env {
	wakeup, err := progress.NewPipeWakeup()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, wakeup.Close()) })
	return &transport.Env{
		Size: 1, Settings: setting(t, "ibverbs.devices", devices), Events: new(testRank), Wakeup: wakeup,
		AsyncProgress: func() func() { return func() {} },
	}
}

// TestOpenLeavesOutUnusablePorts: ports that cannot be used are left out, and the reason is given
// unless a port is merely down.
func TestOpenLeavesOutUnusablePorts(t *testing.T) {
	opened, err := openSome(t, "all", true)
	require.NoError(t, err)
	var ports []string
	for _, rail := range opened.Modules {
		ports = append(ports, rail.Port)
	}
	require.Equal(t, []string{"one/1", "two/1"}, ports)
	require.Len(t, opened.LeftOut, 2)
	require.ErrorIs(t, opened.LeftOut[0], errLocked)
	require.ErrorContains(t, opened.LeftOut[0], "locked: ")
	require.ErrorContains(t, opened.LeftOut[1], "rail ibverbs:iwarp/1: device iwarp: datagrams: ibv_create_qp: ")
}

// TestOpenWithoutUsablePort: the error says in one line what is wrong with each port.
func TestOpenWithoutUsablePort(t *testing.T) {
	opened, err := openSome(t, "all", false)
	require.Empty(t, opened.Modules)
	require.ErrorIs(t, err, errLocked)
	require.NotContains(t, err.Error(), "\n")
	require.Regexp(t, "^rail ibverbs: no RDMA port can be used: locked: .*; rail ibverbs:one/1: .*; "+
		"rail ibverbs:iwarp/1: .*; rail ibverbs:two/1: ", err.Error())
}

// TestOpenNamedPortThatIsUnusable: a port that the user has named must work.
func TestOpenNamedPortThatIsUnusable(t *testing.T) {
	opened, err := openSome(t, "one,iwarp,two", true)
	require.ErrorContains(t, err, "rail ibverbs:iwarp/1: device iwarp: ")
	require.Empty(t, opened.Modules)
	require.Empty(t, opened.LeftOut)
}

// TestSettings: the user can choose the GID entry 0; by default the module chooses an entry. The
// user's keep-alive of 0 disables probing, whereas 0 in Config means the default.
func TestSettings(t *testing.T) {
	require.Nil(t, configOf(tunable.Set{}).GIDIndex)
	require.Equal(t, ReadsAuto, configOf(tunable.Set{}).Reads)
	require.Equal(t, ReadsOff, configOf(setting(t, "ibverbs.reads", "off")).Reads)
	require.Equal(t, new(0), configOf(setting(t, "ibverbs.gid", "0")).GIDIndex)
	require.Equal(t, netip.Prefix{}, configOf(tunable.Set{}).GIDNetwork)
	require.Equal(t, netip.MustParsePrefix("10.0.0.0/8"), configOf(setting(t, "ibverbs.gid.network", "10.1.2.3/8")).GIDNetwork)
	require.Zero(t, configOf(tunable.Set{}).PKey)
	require.Equal(t, uint16(0x8001), configOf(setting(t, "ibverbs.pkey", "0x8001")).PKey)
	require.False(t, configOf(tunable.Set{}).GlobalRoute)
	require.True(t, configOf(setting(t, "ibverbs.global", "on")).GlobalRoute)
	require.Equal(t, uint8(5), configOf(setting(t, "ibverbs.sl", "5")).ServiceLevel)
	require.Equal(t, uint8(96), configOf(setting(t, "ibverbs.tclass", "96")).TrafficClass)
	require.Equal(t, uint8(64), configOf(tunable.Set{}).HopLimit)
	require.Equal(t, uint8(3), configOf(setting(t, "ibverbs.hops", "3")).HopLimit)
	require.Equal(t, 2*time.Second, configOf(tunable.Set{}).KeepAlive)
	require.Equal(t, 30*time.Millisecond, configOf(setting(t, "ibverbs.keepalive", "30ms")).KeepAlive)
	require.Negative(t, configOf(setting(t, "ibverbs.keepalive", "0")).KeepAlive)
}

// TestLauncherParsesSamePorts: the launcher, which does not import this package, refuses the same
// lists of ports (package tunable).
func TestLauncherParsesSamePorts(t *testing.T) {
	lists := "a a:2 a,b a|b:2,c|d a|b,b|a a|b,c|b a,b|c|a a,a:1 a:0 a:x a: :1 a| a:1:2 a:+1 a:01"
	for _, list := range strings.Fields(lists) {
		set, err := tunable.Set{}.With("ibverbs.devices", list, tunable.FromCommandLine)
		ports := strings.Split(list, ",")
		if err == nil {
			ports = set.List("ibverbs.devices")
		}
		var refused error
		for local := range 6 {
			_, err := ParsePorts(ports, local)
			refused = errors.Join(refused, err)
		}
		require.Equal(t, err != nil, refused != nil, "%s: %v, %v", list, err, refused)
	}
}
