package bml

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// keyList is a list of remote key descriptors.
func keyList(all ...remoteKey) []byte {
	b := make([]byte, len(all)*remoteKeyBytes)
	for i := range all {
		all[i].encode(b[i*remoteKeyBytes:])
	}
	return b
}

// The layout is the one in the package comment.
func TestRailHeaderLayout(t *testing.T) {
	h := railHeader{sender: 1, receiver: 9, version: 2, gaveUp: true, epoch: 0x03040506, counters: deliveryCounters{0x0708090a, 0x0b0c0d0e, 0x0f101112}, padding: 3}
	var b [railBytes + 3]byte
	h.encode(b[:])
	require.Equal(t, []byte{1, 2, 9, 1, 6, 5, 4, 3, 10, 9, 8, 7, 14, 13, 12, 11, 18, 17, 16, 15, 3, 0, 0, 0}, b[:railBytes])
	var back railHeader
	require.NoError(t, back.decode(b[:], 2))
	require.Equal(t, h, back)
}

func TestRailHeaderRefusesMalformed(t *testing.T) {
	for name, frag := range map[string][]byte{
		"nothing":       nil,
		"short":         make([]byte, railBytes-1),
		"wrong version": func() []byte { b := railMessage(railHeader{}); b[1]++; return b }(),
		"long padding":  append(railMessage(railHeader{padding: 1}), 0),
		"short padding": railMessage(railHeader{padding: 2})[:railBytes+1],
		"huge padding":  func() []byte { b := railMessage(railHeader{}); copy(b[20:], "\xff\xff\xff\xff"); return b }(),
	} {
		require.ErrorIs(t, new(railHeader).decode(frag, testVersion), ErrMalformed, name)
	}
}

func TestRemoteKeyLayout(t *testing.T) {
	k := remoteKey{module: 255, offset: 1<<64 - 2, key: btl.Key{0: 1, 31: 2}}
	b := keyList(k)
	require.Equal(t, []byte{255, 0, 0, 0, 0, 0, 0, 0, 254, 255, 255, 255, 255, 255, 255, 255, 1}, b[:17])
	require.Len(t, b, 48)
	require.EqualValues(t, 2, b[47])
	var back remoteKey
	back.decode(b)
	require.Equal(t, k, back)
}

func TestRemoteKeysOfWrongLengthRefused(t *testing.T) {
	for n, ok := range map[int]bool{
		0: true, remoteKeyBytes: true, maxModules * remoteKeyBytes: true,
		1: false, remoteKeyBytes + 1: false, (maxModules + 1) * remoteKeyBytes: false,
	} {
		err := CheckRemoteKeys(make([]byte, n))
		if ok {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrMalformed)
		}
	}
}

// FuzzRailHeader: encoding a decoded header gives the same bytes.
func FuzzRailHeader(f *testing.F) {
	f.Add(railMessage(railHeader{sender: 3, receiver: 3, epoch: 7, counters: deliveryCounters{epoch: 6, delivered: 1, taken: 1<<32 - 1}}))
	f.Add(railMessage(railHeader{sender: 3, receiver: 3, epoch: 7, padding: 2}))
	f.Add(railMessage(railHeader{padding: 1})[:railBytes])
	f.Add(railMessage(railHeader{sender: 3, receiver: 3, gaveUp: true, epoch: 7}))
	f.Add(railMessage(railHeader{sender: 3, receiver: 3, notNeeded: true, epoch: 7}))
	f.Add(make([]byte, railBytes))
	f.Fuzz(func(t *testing.T, frag []byte) {
		var h railHeader
		if h.decode(frag, testVersion) != nil {
			return
		}
		require.Len(t, frag, railBytes+int(h.padding))
		var back [railBytes]byte
		h.encode(back[:])
		want := slices.Clone(frag[:railBytes])
		want[3] &= 3 // the rest is reserved
		require.Equal(t, want, back[:])
	})
}

// FuzzRailMessages feeds messages about rails, at any moment of a failover, to a rank that has
// fragments and pieces under way. It must not panic, nor make an illegal transition. When the peer
// is lost, everything ends.
func FuzzRailMessages(f *testing.F) {
	for tag := range uint8(4) {
		for _, h := range []railHeader{
			{sender: 0, receiver: 0, epoch: 1}, {sender: 1, receiver: 1, epoch: 1}, {sender: 0, receiver: 0, epoch: 2}, {sender: 7, receiver: 7, epoch: 1}, {gaveUp: true, epoch: 2},
			{sender: 1, receiver: 1, epoch: 1, counters: deliveryCounters{epoch: 1, delivered: 9}, padding: 2},
		} {
			for moment := range uint8(4) {
				f.Add(tag, moment, railMessage(h))
			}
		}
	}
	f.Fuzz(func(t *testing.T, tag, moment uint8, frag []byte) {
		w := newWire(t, 2, withRails(2), mended, withGrace(10*sec))
		r := w.ranks[0]
		w.ranks[1].message = make([]byte, 1000)
		r.send(1, "a")
		m := r.sendLong(1, pattern(1000, 1))
		if moment&1 != 0 {
			w.rails[0][0].fail(1, pathError(0))
		}
		if moment&2 != 0 {
			w.rails[0][0].drain(1)
		}
		w.pass(int64(moment) * msec)
		for range 2 {
			w.arrive(1, 1, 0, TagRailDown+btl.Tag(tag%4), frag)
		}
		w.settle()
		w.pass(10 * msec)
		r.Fail(r.Peer(1), btl.ErrInjected)
		r.Progress()
		for _, rail := range w.rails {
			rail[0].drain(1)
		}
		require.True(t, r.Peer(1).IsLost())
		require.Len(t, r.sent, 1)
		require.Empty(t, m.t.Pieces())
	})
}

// FuzzRemoteKeys: from a list of remote key descriptors, decode takes those of usable rails to this
// peer.
func FuzzRemoteKeys(f *testing.F) {
	f.Add(uint8(0xff), keyList(remoteKey{module: 0, key: btl.Key{1}}, remoteKey{module: 2, offset: 5, key: btl.Key{2}}))
	f.Add(uint8(1), keyList(remoteKey{module: 1}))
	f.Add(uint8(7), keyList(remoteKey{module: 1}, remoteKey{module: 1, offset: 7}))
	f.Add(uint8(7), make([]byte, remoteKeyBytes+1))
	f.Add(uint8(7), make([]byte, (maxModules+1)*remoteKeyBytes))
	w := newWire(f, 2, withRails(3))
	pr := w.ranks[0].Peer(1)
	require.NoError(f, w.ranks[0].Resolve(pr))
	f.Fuzz(func(t *testing.T, usable uint8, list []byte) {
		if CheckRemoteKeys(list) != nil {
			return
		}
		var got remoteKeys
		got.decode(pr, list, RailSet(usable))
		var want remoteKeys
		for i := 0; i < len(list); i += remoteKeyBytes {
			rail := list[i]
			if rail < 3 && usable>>rail&1 != 0 {
				var k remoteKey
				k.decode(list[i:])
				want.set |= 1 << rail
				want.offset[rail], want.key[rail] = k.offset, k.key
			}
		}
		require.Equal(t, want, got)
	})
}
