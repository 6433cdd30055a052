package btltest

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// TestReceiveShort checks that to takes the expected fragment and no other. to is the peer's end of
// from. slotBytes is the longest fragment that fits into a slot of the transport. longest is the
// longest fragment of all, at least 1,100. Both include the header. arrive makes one progress call
// at to, and returns the last fragment that it handed up, or nil if there was none.
func TestReceiveShort(t *testing.T, from btl.ShortSender, to btl.ShortReceiver, slotBytes, longest int, arrive func() []byte) {
	const header, tag, first, second = 16, 3, 0x1122334455667788, 0x99aabbccddeeff00
	room := make([]byte, longest)
	require.Equal(t, -1, to.ReceiveShort(5, tag, first, second, room), "nothing is there")
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
		{"the longest that fits a slot", slotBytes - header, slotBytes, tag, first, second, true},
		{"one byte more", slotBytes - header + 1, slotBytes, tag, first, second, true},
		{"the longest", longest - header, longest, tag, first, second, true},
		{"another tag", 8, 8, tag + 1, first, second, false},
		{"another first word", 8, 8, tag, first + 1, second, false},
		{"another second word", 8, 8, tag, first, second ^ 1<<63, false},
		{"too long for the buffer", 9, 8, tag, first, second, false},
		{"long, another tag", 1000, 1000, tag + 1, first, second, false},
		{"long, another second word", 1000, 1000, tag, first, second + 1, false},
		{"long, too long for the buffer", 1000, 999, tag, first, second, false},
	} {
		payload := bytes.Repeat([]byte{byte(c.bytes + 1)}, c.bytes)
		require.True(t, from.SendShort(c.tag, c.first, c.second, payload), c.name)
		clear(room)
		n := to.ReceiveShort(5, tag, first, second, room[:c.room])
		frag := arrive()
		if c.taken {
			require.Equal(t, c.bytes, n, c.name)
			require.Equal(t, payload, room[:n], c.name)
			require.Nil(t, frag, c.name)
			continue
		}
		require.Equal(t, -1, n, c.name)
		require.Equal(t, make([]byte, c.room), room[:c.room], c.name)
		require.Len(t, frag, header+c.bytes, c.name)
		require.Equal(t, c.first, binary.LittleEndian.Uint64(frag), c.name)
		require.Equal(t, c.second, binary.LittleEndian.Uint64(frag[8:]), c.name)
		require.Equal(t, payload, frag[header:], c.name)
	}
	require.False(t, from.SendShort(tag, first, second, make([]byte, longest)), "longer than a fragment")
}
