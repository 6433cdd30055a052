package sm

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
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
	_, b, _, jb, ea, eb := shortPair(t)
	btltest.TestReceiveShort(t, ea, eb, slotData, int(ea.m.own.longest), func() []byte {
		arrived := jb.arrived
		b.Progress()
		if jb.arrived == arrived {
			return nil
		}
		return jb.frags[len(jb.frags)-1]
	})
}

// The ring is used many times over: fragments that ReceiveShort takes make room again.
func TestReceiveShortMakesRoom(t *testing.T) {
	for _, bytes := range []int{8, 3000} {
		_, _, _, _, ea, eb := shortPair(t)
		sent, got := make([]byte, bytes), make([]byte, bytes)
		for i := range uint64(5000) {
			binary.LittleEndian.PutUint64(sent, i)
			// SendShort does not always check how far the receiver has read.
			if !ea.SendShort(1, i, ^i, sent) {
				hdr := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, i), ^i)
				require.True(t, ea.SendInline(1, hdr, sent))
			}
			require.Equal(t, bytes, eb.ReceiveShort(1, 1, i, ^i, got))
			require.Equal(t, sent, got)
		}
	}
}

// ReceiveShort leaves an impossible descriptor to the next progress call, which fails the endpoint.
func TestReceiveShortLeavesCorruptDescriptor(t *testing.T) {
	_, b, _, _, ea, eb := shortPair(t)
	require.True(t, ea.SendShort(1, 2, 3, make([]byte, 3000)))
	*(*uint64)(unsafe.Add(unsafe.Pointer(eb.p.in.word), 16)) = eb.m.own.longest + 1
	require.Equal(t, -1, eb.ReceiveShort(1, 1, 2, 3, make([]byte, 1<<20)))
	b.Progress()
	require.NotEqual(t, btl.Up, eb.State())
}

// ReceiveShort never takes a fragment of an earlier incarnation, and a failed endpoint takes and
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

// oneRun is a btl.Run of one fragment.
type oneRun struct{ bytes int }

func (r *oneRun) Taken(n int) ([]byte, bool) {
	r.bytes = n
	return nil, false
}

// A run takes only the expected fragment, and never one that is not in its slot or belongs to
// another incarnation. Fragments that it takes make room again.
func TestRunTakesOnlyExpectedFragments(t *testing.T) {
	_, b, _, jb, ea, eb := shortPair(t)
	room := make([]byte, 16)
	take := func(tag btl.Tag, first, second uint64, buf []byte) int {
		run := oneRun{-1}
		n := eb.ReceiveRun(3, 10, tag, first, second, buf, &run)
		require.Equal(t, run.bytes >= 0, n == 1)
		require.GreaterOrEqual(t, n, 0)
		return run.bytes
	}
	require.Equal(t, -1, take(1, 2, 3, room), "nothing is there")
	for i := range uint64(5000) {
		payload := binary.LittleEndian.AppendUint64(nil, i)[:i%9]
		if !ea.SendShort(1, i, 3, payload) {
			hdr := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, i), 3)
			require.True(t, ea.SendInline(1, hdr, payload))
		}
		require.Equal(t, -1, take(2, i, 3, room), "tag")
		require.Equal(t, -1, take(1, i+1, 3, room), "first word")
		require.Equal(t, -1, take(1, i, 4, room), "second word")
		if len(payload) > 0 {
			require.Equal(t, -1, take(1, i, 3, room[:len(payload)-1]), "no room")
		}
		require.Equal(t, len(payload), take(1, i, 3, room))
		require.Equal(t, payload, room[:len(payload)])
	}
	for name, put := range map[string]func(){
		"too short":  func() { require.True(t, ea.SendInline(1, nil, make([]byte, shortHeader-1))) },
		"in data":    func() { require.True(t, ea.SendShort(1, 0, 0, make([]byte, 3000))) },
		"old epoch":  func() { require.True(t, ea.SendStale(ea.Epoch()-1, 1, make([]byte, shortHeader+8))) },
		"other kind": func() { require.True(t, ea.SendShort(1, 1, 0, nil)) },
	} {
		put()
		require.Equal(t, -1, take(1, 0, 0, make([]byte, 4000)), name)
		arrived, stale := jb.arrived, b.Stale
		until(t, name, func() bool { return jb.arrived > arrived || b.Stale > stale }, b)
	}
	require.True(t, ea.SendShort(1, 0, 0, make([]byte, 8)))
	eb.Fail(errEnough)
	require.Equal(t, -1, eb.ReceiveRun(3, 10, 1, 0, 0, room, &oneRun{}))
}
