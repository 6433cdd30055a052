package simhca

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// FuzzWorkRequests checks that work requests with any numbers complete and change no memory outside
// the regions. Inline requests are left out: the caller guarantees their addresses.
func FuzzWorkRequests(f *testing.F) {
	f.Add([]byte{}, uint32(0), uint64(0), uint32(0), uint8(0))
	f.Add(bytes.Repeat([]byte{0xff}, 64), uint32(2), ^uint64(0), ^uint32(0), uint8(2))
	f.Add(bytes.Repeat([]byte{1}, 64), uint32(4), uint64(8), uint32(8), uint8(0))
	f.Fuzz(func(t *testing.T, pieces []byte, opcode uint32, remote uint64, rkey uint32, service uint8) {
		a, b := pair(t, setup{service: services[int(service)%3], memory: 4096, cfg: Config{Seed: uint64(rkey)}})
		const guard = 512
		outer := bytes.Repeat([]byte{0xa5}, 1024+2*guard)
		mr, err := b.pd.RegMR(outer[guard:guard+1024], allAccess)
		require.NoError(t, err)
		sges := func(addr uint64, lkey uint32) (s [verbs.MaxSGE]verbs.SGE, n uint32) {
			p := pieces
			for ; len(p) >= 13 && n < verbs.MaxSGE; n++ {
				s[n] = verbs.SGE{
					Addr: addr + uint64(int64(int32(binary.LittleEndian.Uint32(p)))), Length: binary.LittleEndian.Uint32(p[4:]), LKey: lkey ^ uint32(p[12]),
				}
				p = p[13:]
			}
			return s, n
		}
		wr := verbs.SendWR{ID: 1, Opcode: verbs.Opcode(opcode % 9), Flags: verbs.SendSignaled, RemoteAddr: mr.Addr() + remote, RKey: mr.RKey() ^ rkey}
		wr.SGE, wr.NumSGE = sges(a.mr.Addr(), a.mr.LKey())
		if a.ah != nil {
			wr.AH, wr.RemoteQPN, wr.RemoteQKey = a.ah.Handle(), b.qp.Num(), 0x1234
		}
		recv := verbs.RecvWR{ID: 2}
		recv.SGE, recv.NumSGE = sges(mr.Addr(), mr.LKey())
		_, err = b.qp.PostRecv([]verbs.RecvWR{recv})
		require.NoError(t, err)
		n, err := a.qp.PostSend([]verbs.SendWR{wr})
		a.run()
		if err != nil {
			require.ErrorIs(t, err, verbs.ErrInvalid)
			require.Zero(t, n)
		} else {
			require.Len(t, a.poll(), 1)
		}
		for i, c := range outer {
			require.True(t, c == 0xa5 || i >= guard && i < guard+1024)
		}
	})
}
