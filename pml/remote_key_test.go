package pml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// exposed lists the regions of a rank that its peers can access.
func exposed(w *wire, rank int) (regions []*wireRegion) {
	for _, r := range w.regions {
		if r.m.rank == rank && r.access != btl.AccessLocal {
			regions = append(regions, r)
		}
	}
	return regions
}

// TestAddedMemoryIsExposedForOneUse: a peer that may read a message cannot write, and a peer that
// may write cannot read, also in added memory, which stays registered.
func TestAddedMemoryIsExposedForOneUse(t *testing.T) {
	for protocol, access := range map[Protocol]btl.Access{Get: btl.AccessRemoteRead, Put: btl.AccessRemoteWrite} {
		w, c := newWire(t, 2, withRemote(getPut), withProtocol(protocol))
		exposes := map[Protocol]int{Get: 0, Put: 1}[protocol]
		bufs := [2][]byte{pattern(5000, 1), make([]byte, 5000)}
		for rank, p := range w.pmls {
			p.AddMemory(bufs[rank])
		}
		for range 3 {
			s := w.pmls[0].Isend(c[0], bufs[0][1000:3000], 1, 1, Standard, "send")
			r := w.pmls[1].Irecv(c[1], bufs[1][:3000], 1, 0, 1, "recv")
			w.settle()
			requireSuccess(t, s, r)
			require.Equal(t, bufs[0][1000:3000], bufs[1][:2000])
			require.Empty(t, exposed(w, 1-exposes), "%v", protocol)
			regions := exposed(w, exposes)
			require.Len(t, regions, 1, "%v", protocol)
			require.Equal(t, access, regions[0].access, "%v", protocol)
			require.Len(t, w.regions, 2, "one region at each rank")
		}
		// In the other direction the same memory has another use.
		s := w.pmls[1].Isend(c[1], bufs[1], 0, 1, Standard, "send")
		r := w.pmls[0].Irecv(c[0], bufs[0], 1, 1, 1, "recv")
		w.settle()
		requireSuccess(t, s, r)
		require.Len(t, w.regions, 4)
		for rank, p := range w.pmls {
			p.RemoveMemory(bufs[rank])
		}
		require.Empty(t, w.regions)
	}
}

// TestReceiveBufferIsExposedOnlyForMessageLength: at each start of the receive, the peer can write
// only the bytes of the message.
func TestReceiveBufferIsExposedOnlyForMessageLength(t *testing.T) {
	w, c := newWire(t, 2, withRemote(getPut), withProtocol(Put))
	out := make([]byte, 4000)
	r := w.pmls[1].RecvInit(c[1], out, 1, 0, 1, "recv init")
	for i, n := range []int{1000, 3000, 3000, 2000, 5000} {
		start(r)
		in := pattern(n, i)
		s := w.pmls[0].Isend(c[0], in, 1, 1, Standard, "send")
		w.step(0) // RNDV
		regions := exposed(w, 1)
		require.Len(t, regions, 1)
		fits := min(n, len(out))
		require.Len(t, regions[0].mem, fits)
		w.settle()
		requireSuccess(t, s)
		st, err := r.Take()
		require.Equal(t, n > len(out), err != nil)
		require.EqualValues(t, fits, st.Bytes)
		require.Equal(t, in[:fits], out[:fits])
	}
	require.Zero(t, w.pmls[0].Stats().Unwritten)
	require.EqualValues(t, 5, w.pmls[0].Stats().SentPut)
	r.Abandon()
	require.Empty(t, w.regions)
}
