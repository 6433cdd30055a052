package sm

import (
	"bytes"
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// shortPair makes two modules whose endpoints are open in both directions.
func shortPair(t testing.TB) (a, b *module, ja, jb *journal, ea, eb *endpoint) {
	a, b, ja, jb = twoTest(t)
	ea, eb = connect(t, a, 1, b.Address()), connect(t, b, 0, a.Address())
	until(t, "both directions", func() bool { return ea.SendInline(1, nil, []byte("x")) }, a, b)
	until(t, "both directions", func() bool { return eb.SendInline(1, nil, []byte("x")) }, a, b)
	until(t, "arrivals", func() bool { return ja.arrived == 1 && jb.arrived == 1 }, a, b)
	return
}

func TestReceiveShortTakesOnlyTheExpectedFragment(t *testing.T) {
	const tag, first, second = 3, 0x1122334455667788, 0x99aabbccddeeff00
	_, b, _, jb, ea, eb := shortPair(t)
	longest := int(ea.m.own.longest)
	room := make([]byte, longest)
	require.Equal(t, -1, eb.ReceiveShort(5, tag, first, second, room), "nothing is there")
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
		{"the longest that fits a slot", slotData - shortHeader, slotData, tag, first, second, true},
		{"one byte more", slotData - shortHeader + 1, slotData, tag, first, second, true},
		{"the longest", longest - shortHeader, longest, tag, first, second, true},
		{"another tag", 8, 8, tag + 1, first, second, false},
		{"another first word", 8, 8, tag, first + 1, second, false},
		{"another second word", 8, 8, tag, first, second ^ 1<<63, false},
		{"too long for the buffer", 9, 8, tag, first, second, false},
		{"long, another tag", 1000, 1000, tag + 1, first, second, false},
		{"long, another second word", 1000, 1000, tag, first, second + 1, false},
		{"long, too long for the buffer", 1000, 999, tag, first, second, false},
	} {
		payload := bytes.Repeat([]byte{byte(c.bytes + 1)}, c.bytes)
		require.True(t, ea.SendShort(c.tag, c.first, c.second, payload), c.name)
		arrived := jb.arrived
		clear(room)
		n := eb.ReceiveShort(5, tag, first, second, room[:c.room])
		if c.taken {
			require.Equal(t, c.bytes, n, c.name)
			require.Equal(t, payload, room[:n], c.name)
			require.Zero(t, b.Progress(), c.name)
			continue
		}
		require.Equal(t, -1, n, c.name)
		require.Equal(t, make([]byte, c.room), room[:c.room], c.name)
		until(t, "the fragment", func() bool { return jb.arrived > arrived }, b)
		frag := jb.frags[len(jb.frags)-1]
		require.Equal(t, c.first, binary.LittleEndian.Uint64(frag), c.name)
		require.Equal(t, c.second, binary.LittleEndian.Uint64(frag[8:]), c.name)
		require.Equal(t, payload, frag[shortHeader:], c.name)
	}
	require.False(t, ea.SendShort(tag, first, second, make([]byte, longest)), "longer than a fragment")
}

// The ring is used many times over: what ReceiveShort takes makes room again.
func TestReceiveShortMakesRoom(t *testing.T) {
	for _, bytes := range []int{8, 3000} {
		_, _, _, _, ea, eb := shortPair(t)
		sent, got := make([]byte, bytes), make([]byte, bytes)
		for i := range uint64(5000) {
			binary.LittleEndian.PutUint64(sent, i)
			// SendShort does not always look how far the receiver has come.
			if !ea.SendShort(1, i, ^i, sent) {
				hdr := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, i), ^i)
				require.True(t, ea.SendInline(1, hdr, sent))
			}
			require.Equal(t, bytes, eb.ReceiveShort(1, 1, i, ^i, got))
			require.Equal(t, sent, got)
		}
	}
}

// ReceiveShort leaves a descriptor that cannot be right to progress, which fails the endpoint.
func TestReceiveShortLeavesCorruptDescriptor(t *testing.T) {
	_, b, _, _, ea, eb := shortPair(t)
	require.True(t, ea.SendShort(1, 2, 3, make([]byte, 3000)))
	*(*uint64)(unsafe.Add(unsafe.Pointer(eb.p.in.word), 16)) = eb.m.own.longest + 1
	require.Equal(t, -1, eb.ReceiveShort(1, 1, 2, 3, make([]byte, 1<<20)))
	b.Progress()
	require.NotEqual(t, btl.Up, eb.State())
}

// A fragment of an earlier incarnation is never taken, and an endpoint that has failed takes and
// sends nothing.
func TestShortPathsOfFailedEndpoint(t *testing.T) {
	a, b, _, _, ea, eb := shortPair(t)
	for i, bytes := range []int{8, 3000} {
		require.True(t, ea.SendStale(ea.Epoch()-1, 1, make([]byte, shortHeader+bytes)))
		require.Equal(t, -1, eb.ReceiveShort(1, 1, 0, 0, make([]byte, bytes)))
		until(t, "the stale fragment", func() bool { return int(b.Stale) == i+1 }, b)
	}

	require.True(t, ea.SendShort(1, 0, 0, make([]byte, 8)))
	eb.Fail(errEnough)
	require.False(t, eb.SendShort(1, 0, 0, nil))
	require.Equal(t, -1, eb.ReceiveShort(1, 1, 0, 0, make([]byte, 8)))
	until(t, "the end of both", func() bool { return ea.State() == btl.Drained && eb.State() == btl.Drained }, a, b)
	require.False(t, ea.SendShort(1, 0, 0, nil))
	require.NoError(t, b.Close())
	require.Equal(t, -1, eb.ReceiveShort(1, 1, 0, 0, make([]byte, 8)))
}
