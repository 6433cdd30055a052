package ibverbs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
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
		w, a, _ := connectedWorld(t, Config{AckTimeout: 10, RetryCount: 1},
			simhca.DeviceConfig{Link: verbs.LinkInfiniBand, GRHRequired: required[0]},
			simhca.DeviceConfig{Link: verbs.LinkInfiniBand, GRHRequired: required[1]})
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

// TestGlobalRouteWithoutGID: the error of a port that requires a global route but has no GID says
// so.
func TestGlobalRouteWithoutGID(t *testing.T) {
	_, a, _ := connectedWorld(t, Config{},
		simhca.DeviceConfig{Link: verbs.LinkInfiniBand, GRHRequired: true},
		simhca.DeviceConfig{Link: verbs.LinkInfiniBand})
	a.hca.ChangeGID(1, 0, verbs.GID{})
	a.fails(btl.AllPeers, btl.ClassPath, btl.SideLocal, verbs.EventGIDChange.Native())
	require.ErrorIs(t, a.failed[0], errNoGID)
	require.ErrorContains(t, a.failed[0], "requires a global route")
}

// TestPortLosesItsAddress: a port without an address may be about to be removed, which waits until
// no process has the device open. So the rail fails once, whatever the device reports after that,
// and the device is closed.
func TestPortLosesItsAddress(t *testing.T) {
	for _, goesDown := range []bool{false, true} {
		w, a, b := connectedWorld(t, Config{})
		gids, err := a.m.h.dev.GIDs(1)
		require.NoError(t, err)
		a.hca.SetLink(1, !goesDown)
		for i := range gids { // the best last
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
		_, err = a.m.Connect(1, b.m.Address())
		require.ErrorIs(t, err, errNoGID)
		for _, gid := range gids {
			a.hca.ChangeGID(1, gid.Index, gid.GID)
		}
		w.recovers()
	}
}

// TestConnectWithLittleInline: connections use as many bytes inline as the device grants, down to
// none.
func TestConnectWithLittleInline(t *testing.T) {
	for _, c := range []struct{ most, unit, granted int }{
		{256, 1, 128}, {256, 100, 200}, {128, 1, 128}, {127, 1, 96}, {101, 1, 96}, {96, 1, 96}, {60, 1, 32},
		{60, 24, 48}, {16, 1, 16}, {15, 1, 0}, {-1, 1, 0},
	} {
		t.Run(fmt.Sprintf("%d-%d", c.most, c.unit), func(t *testing.T) {
			device := simhca.DeviceConfig{MaxInline: c.most, InlineUnit: c.unit}
			w, a, _ := connectedWorld(t, Config{}, device, device)
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

// TestQueuePairIsRefused: the error is that of the first size of inline data. Smaller sizes are
// tried only if the error may be about sizes. The next connection asks for the first size again.
func TestQueuePairIsRefused(t *testing.T) {
	w, a, b := newWorld(t, Config{})
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
		_, err := a.m.Connect(1, b.m.Address())
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.asked, asked)
		restore()
	}
	w.begin()
	require.Equal(t, inlineSizes[0], a.end().maxInline)
}
