package ibverbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// TestInfiniBand: connections between ports of InfiniBand, of which none, one or both require a
// global route. Datagrams and connections are global if either does.
func TestInfiniBand(t *testing.T) {
	for _, required := range [][2]bool{{false, false}, {true, true}, {true, false}, {false, true}} {
		var devices [2]simhca.DeviceConfig
		for i := range devices {
			devices[i] = simhca.DeviceConfig{Link: verbs.LinkInfiniBand, GRHRequired: required[i]}
		}
		w := newWorldOf(t, Config{AckTimeout: 10, RetryCount: 1}, devices)
		w.connect()
		w.works()
		for _, r := range w.ranks {
			attr, err := r.end().qp.Query()
			require.NoError(t, err)
			require.Equal(t, required[0] || required[1], attr.AH.IsGlobal, "%v", required)
			require.NotZero(t, attr.AH.DLID)
		}
		w.ranks[0].ep.Fail(nil)
		w.mend()
	}
}

// TestGlobalRouteWithoutGID: a port that requires a global route and has no GID says so.
func TestGlobalRouteWithoutGID(t *testing.T) {
	w := newWorldOf(t, Config{}, [2]simhca.DeviceConfig{{Link: verbs.LinkInfiniBand, GRHRequired: true}, {Link: verbs.LinkInfiniBand}})
	w.connect()
	a := w.ranks[0]
	a.hca.ChangeGID(1, 0, verbs.GID{})
	a.fails(btl.AllPeers, btl.ClassPath, btl.SideLocal, verbs.EventGIDChange.Native())
	require.ErrorIs(t, a.failed[0], errNoGID)
	require.ErrorContains(t, a.failed[0], "requires a global route")
}
