package simhca

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// TestResolveTakesTime: RoCE resolves a path once, and again after the port was down. InfiniBand
// resolves none.
func TestResolveTakesTime(t *testing.T) {
	for _, link := range []verbs.LinkLayer{verbs.LinkEthernet, verbs.LinkInfiniBand} {
		f := NewFabric(Config{Virtual: true, Link: link, ResolveTime: time.Second})
		node := f.NewNode(DeviceConfig{Name: "sim0"})
		dev, err := node.Open("sim0")
		require.NoError(t, err)
		pd, err := dev.AllocPD()
		require.NoError(t, err)
		ended := 0
		resolve := func() {
			pd.Resolve(verbs.AHAttr{Port: 1, IsGlobal: true, DGID: verbs.GID{15: 9}}, func(err error) {
				require.NoError(t, err)
				ended++
			})
		}
		isTimed := link == verbs.LinkEthernet
		for range 2 {
			before := ended
			resolve()
			require.Equal(t, isTimed, ended == before)
			require.Equal(t, isTimed, f.Advance())
			require.Equal(t, before+1, ended)
			resolve()
			require.Equal(t, before+2, ended)
			node.HCA("sim0").SetLink(1, false)
			node.HCA("sim0").SetLink(1, true)
		}
		require.Equal(t, map[bool]time.Duration{true: 2 * time.Second}[isTimed], f.Now())
		resolve()
		require.NoError(t, pd.Dealloc())
		require.Equal(t, 5, ended, "Dealloc ends what is left")
		require.False(t, f.Advance())
	}
}
