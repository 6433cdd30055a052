package loop

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
)

// lastFragment keeps the fragment that arrived last.
type lastFragment struct {
	*side
	frag []byte
}

func (l *lastFragment) Arrived(_ btl.Module, _ int, _ btl.Tag, frag []byte) {
	l.frag = slices.Clone(frag)
}

func TestReceiveShortTakesOnlyTheExpectedFragment(t *testing.T) {
	const tag, first, second, longest = 3, 1, 2, 1100
	rail := RailConfig{EagerBytes: longest, MaxSendBytes: longest, InlineBytes: longest}
	a, b := pairOfSides(t, Config{Rail: []RailConfig{rail}, Slots: 4})
	b.mod.Progress() // learns of the lane
	last := &lastFragment{side: b}
	b.mod.Events = last
	btltest.TestReceiveShort(t, a.ep, b.ep, slotBytes, longest, func() []byte {
		last.frag = nil
		b.mod.Progress()
		return last.frag
	})

	room := make([]byte, longest)
	require.True(t, a.ep.SendStale(a.ep.Epoch()-1, tag, make([]byte, 24)))
	require.Equal(t, -1, b.ep.ReceiveShort(5, tag, 0, 0, room), "of an earlier incarnation")
	b.mod.Progress()
	require.EqualValues(t, 1, b.mod.Stale)

	for range 4 {
		require.True(t, a.ep.SendShort(tag, first, second, nil))
	}
	require.False(t, a.ep.SendShort(tag, first, second, nil), "no slot is free")
	b.ep.Fail(nil)
	require.Equal(t, -1, b.ep.ReceiveShort(5, tag, first, second, room), "the endpoint has failed")
	require.False(t, b.ep.SendShort(tag, first, second, nil), "the endpoint has failed")
}
