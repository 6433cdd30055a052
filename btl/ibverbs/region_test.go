package ibverbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// get reads from a's memory to b's and gives back how that ended.
func (r *rankOf) get(into []byte, local btl.Region, remote btl.Key) error {
	r.w.t.Helper()
	r.ended = nil
	op := r.newOp()
	r.under++
	op.Payload, op.Local, op.Remote = into, local, remote
	require.NoError(r.w.t, r.ep.(btl.Getter).Get(op))
	r.w.until("the end of a get", func() bool { return len(r.ended) == 1 })
	return r.ended[0]
}

// TestRegionOutlivesDevice: memory that was registered with a device that was lost is of use again
// when the device is, at both ends of a read, and a key from before is told from those since: it
// costs the operation, not the connection.
func TestRegionOutlivesDevice(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a, b := w.ranks[0], w.ranks[1]
	var mem [2][]byte
	var regions [2]btl.Region
	for i, r := range w.ranks {
		mem[i] = make([]byte, 2000)
		var err error
		regions[i], err = r.m.Register(mem[i], btl.AccessLocal|btl.AccessRemoteRead)
		require.NoError(t, err)
	}
	read := func(r *rankOf, value byte) {
		t.Helper()
		other := 1 - r.rank
		mem[other][7] = value
		require.NoError(t, r.get(mem[r.rank], regions[r.rank], regions[other].Key()))
		require.Equal(t, value, mem[r.rank][7])
	}
	read(a, 1)
	read(b, 2)

	stale := regions[0].Key()
	a.hca.Raise(verbs.EventDeviceFatal, 0)
	w.until("Drained", func() bool { return a.ep.State() == btl.Drained && a.m.h == nil })
	require.Equal(t, stale, regions[0].Key(), "there is no device that could give another")
	a.hca.Revive()
	a.failed = nil
	w.mend()

	err := b.get(mem[1], regions[1], stale)
	var be *btl.Error
	require.ErrorAs(t, err, &be)
	require.Equal(t, btl.ClassUsage, be.Class)
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
