package ibverbs

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// TestRegionOutlivesDevice: memory that was registered with a lost device can be used again when
// the device is back, at both ends of a read. An old key is recognized: it fails the operation, not
// the connection.
func TestRegionOutlivesDevice(t *testing.T) { onEachFabric(t, testRegionOutlivesDevice) }

func testRegionOutlivesDevice(t *testing.T, link verbs.LinkLayer) {
	w, a, b := connectedWorld(t, link, Config{})
	const access = btl.AccessLocal | btl.AccessRemoteRead
	regions := [2]*region{a.memory(2000, access), b.memory(2000, access)}
	get := func(r *testRank, key btl.Key) error {
		r.ended = nil
		r.get(regions[r.rank], key, nil)
		w.until("the end of a get", func() bool { return len(r.ended) == 1 })
		return r.ended[0]
	}
	read := func(r *testRank, value byte) {
		t.Helper()
		from := regions[r.other().rank]
		from.mem[7] = value
		require.NoError(t, get(r, from.Key()))
		require.Equal(t, value, regions[r.rank].mem[7])
	}
	read(a, 1)
	read(b, 2)

	stale := regions[0].Key()
	a.losesDevice()
	require.Equal(t, stale, regions[0].Key(), "no device is open that could give another")
	a.hca.Revive()
	a.failed = nil
	w.recovers()

	err := get(b, stale)
	hasClass(t, btl.ClassUsage, err)
	require.ErrorIs(t, err, errReopened)
	require.NotEqual(t, stale, regions[0].Key())
	read(a, 3)
	read(b, 4)
	require.Empty(t, a.failed)
	w.works()
	for _, r := range regions {
		require.NoError(t, r.Release())
	}
}

// TestReadsOfDevices: by default, a module uses reads on all devices except soft-RoCE. It uses
// writes on all devices.
func TestReadsOfDevices(t *testing.T) { onEachFabric(t, testReadsOfDevices) }

func testReadsOfDevices(t *testing.T, link verbs.LinkLayer) {
	const anyVendor = 0x2c9
	for _, c := range []struct {
		reads  Reads
		vendor uint32
		want   btl.Caps
	}{
		{"", anyVendor, btl.CapGet | btl.CapPut},
		{"", verbs.VendorSoftRoCE, btl.CapPut},
		{ReadsAuto, 0, btl.CapGet | btl.CapPut},
		{ReadsAuto, verbs.VendorSoftRoCE, btl.CapPut},
		{ReadsOn, verbs.VendorSoftRoCE, btl.CapGet | btl.CapPut},
		{ReadsOff, anyVendor, btl.CapPut},
	} {
		_, a, b := newWorld(t, link, Config{Reads: c.reads}, simhca.DeviceConfig{VendorID: c.vendor}, simhca.DeviceConfig{})
		require.Equal(t, c.want, a.m.Attrs().Caps, "%+v", c)
		if c.reads != ReadsOff {
			require.Equal(t, btl.CapGet|btl.CapPut, b.m.Attrs().Caps, "%+v: the other device", c)
		}
	}
	_, err := New(Config{Size: 1, Events: new(testRank), Provider: simhca.NewFabric(simhca.Config{}).NewNode(), Device: "sim0", Reads: "sometimes"})
	require.ErrorContains(t, err, "reads")
}

// TestPutLongerThanMaxMsg: an operation that is longer than a message of the port fails alone.
func TestPutLongerThanMaxMsg(t *testing.T) { onEachFabric(t, testPutLongerThanMaxMsg) }

func testPutLongerThanMaxMsg(t *testing.T, link verbs.LinkLayer) {
	w, a, b := connectedWorld(t, link, Config{})
	from, to := a.memory(2000, btl.AccessLocal), b.memory(2000, btl.AccessRemoteWrite)
	a.m.h.port.MaxMsg = 1000
	a.ended = nil
	a.put(from, to.Key(), nil)
	w.until("its end", func() bool { return len(a.ended) == 1 })
	hasClass(t, btl.ClassUsage, a.ended[0])
	w.works()
}

// TestRebind: the device reads a Put from the caller's memory until the Put ends, so it cannot be
// rebound. A fragment was copied, so it can. If the device completes nothing, the deadline ends
// both.
func TestRebind(t *testing.T) { onEachFabric(t, testRebind) }

func testRebind(t *testing.T, link verbs.LinkLayer) {
	for name, silent := range map[string]bool{"arrives": false, "never completes": true} {
		t.Run(name, func(t *testing.T) {
			w, a, b := newWorld(t, link, Config{Deadline: 50 * time.Millisecond})
			w.connect()
			from, to := a.memory(64<<10, btl.AccessLocal), b.memory(64<<10, btl.AccessRemoteWrite)
			src := from.mem
			for i := range src {
				src[i] = byte(i >> 4)
			}
			want := bytes.Clone(src)
			if silent {
				a.silence()
			}

			put := &btl.Op{Payload: src, Local: from, Remote: to.Key()}
			frag := &btl.Op{Payload: bytes.Repeat([]byte{7}, 3000)}
			require.NoError(t, a.post(a.end().Put, put, nil))
			require.NoError(t, a.post(a.end().Send, frag, nil))
			require.False(t, a.ep.Rebind(put, bytes.Clone(src)), "the device reads it")
			require.True(t, &put.Payload[0] == &src[0])
			old := frag.Payload
			require.True(t, a.ep.Rebind(frag, bytes.Clone(old)))
			clear(old)

			w.until("the end of both", a.isIdle)
			clear(src)
			if silent {
				require.Error(t, a.ended[0])
				a.fails(1, btl.ClassTimeout, btl.SideBoth, "")
				return
			}
			require.Equal(t, []error{nil, nil}, a.ended)
			require.True(t, bytes.Equal(want, to.mem))
			w.until("the fragment", func() bool { return len(b.arrived) == 1 })
			require.Equal(t, string(frag.Payload), b.arrived[0])
		})
	}
}
