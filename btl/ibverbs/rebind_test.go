package ibverbs

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
)

// TestRebindOfPut: what the device was told to read it reads where it was told to, until the
// operation is called back; a fragment it has in a buffer of ours. If nothing completes, the
// deadline ends that.
func TestRebindOfPut(t *testing.T) {
	for name, silent := range map[string]bool{"arrives": false, "never completes": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{Deadline: 50 * time.Millisecond})
			w.connect()
			a, b := w.ranks[0], w.ranks[1]
			src, dst := make([]byte, 64<<10), make([]byte, 64<<10)
			for i := range src {
				src[i] = byte(i >> 4)
			}
			want := bytes.Clone(src)
			from, err := a.m.Register(src, btl.AccessLocal)
			require.NoError(t, err)
			to, err := b.m.Register(dst, btl.AccessRemoteWrite)
			require.NoError(t, err)
			if silent {
				a.hca.Inject(simhca.Fault{Kind: simhca.FaultSilence, QPN: a.end().qpn})
			}

			put, frag := a.newOp(), a.newOp()
			put.Payload, put.Local, put.Remote = src, from, to.Key()
			frag.Payload = bytes.Repeat([]byte{7}, 3000)
			a.under += 2
			require.NoError(t, a.ep.(btl.Putter).Put(put))
			require.NoError(t, a.ep.Send(frag))
			require.False(t, a.ep.Rebind(put, bytes.Clone(src)), "the device reads it")
			require.True(t, &put.Payload[0] == &src[0])
			old := frag.Payload
			require.True(t, a.ep.Rebind(frag, bytes.Clone(old)))
			clear(old)

			w.until("the end of both", func() bool { return a.under == 0 })
			clear(src)
			if silent {
				require.Error(t, a.ended[0])
				a.fails(1, btl.ClassTimeout, btl.SideBoth, "")
			} else {
				require.Equal(t, []error{nil, nil}, a.ended)
				require.True(t, bytes.Equal(want, dst))
				w.until("the fragment", func() bool { return len(b.arrived) == 1 })
				require.Equal(t, string(bytes.Repeat([]byte{7}, 3000)), b.arrived[0])
			}
			require.NoError(t, from.Release())
			require.NoError(t, to.Release())
		})
	}
}
