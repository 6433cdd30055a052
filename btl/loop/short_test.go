package loop

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

func TestReceiveShortTakesOnlyTheExpectedFragment(t *testing.T) {
	const tag, first, second, longest = 3, 0x1122334455667788, 0x99aabbccddeeff00, 1000
	rail := RailConfig{EagerBytes: longest, MaxSendBytes: longest, InlineBytes: longest}
	a, b := pairOfSides(t, Config{Rail: []RailConfig{rail}, Slots: 4})
	b.mod.Progress() // learns of the lane
	room := make([]byte, longest)
	require.Equal(t, -1, b.ep.ReceiveShort(5, tag, first, second, room), "nothing is there")
	for _, c := range []struct {
		name          string
		bytes, room   int
		tag           btl.Tag
		first, second uint64
		taken         bool
	}{
		{"as expected", 8, 8, tag, first, second, true},
		{"empty", 0, 0, tag, first, second, true},
		{"odd length in a larger buffer", 13, 100, tag, first, second, true},
		{"the longest that fits a slot", slotBytes - shortHeader, slotBytes, tag, first, second, true},
		{"one byte more", slotBytes - shortHeader + 1, slotBytes, tag, first, second, true},
		{"the longest", longest - shortHeader, longest, tag, first, second, true},
		{"another tag", 8, 8, tag + 1, first, second, false},
		{"another first word", 8, 8, tag, first + 1, second, false},
		{"another second word", 8, 8, tag, first, second ^ 1<<63, false},
		{"too long for the buffer", 9, 8, tag, first, second, false},
	} {
		payload := bytes.Repeat([]byte{byte(c.bytes + 1)}, c.bytes)
		require.True(t, a.ep.SendShort(c.tag, c.first, c.second, payload), c.name)
		clear(room)
		n := b.ep.ReceiveShort(5, tag, first, second, room[:c.room])
		arrived := b.arrived
		b.mod.Progress()
		if c.taken {
			require.Equal(t, c.bytes, n, c.name)
			require.Equal(t, payload, room[:n], c.name)
			require.Equal(t, arrived, b.arrived, c.name)
		} else {
			require.Equal(t, -1, n, c.name)
			require.Equal(t, make([]byte, c.room), room[:c.room], c.name)
			require.Equal(t, arrived+1, b.arrived, c.name)
		}
	}
	require.False(t, a.ep.SendShort(tag, first, second, make([]byte, longest)), "longer than a fragment")

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
