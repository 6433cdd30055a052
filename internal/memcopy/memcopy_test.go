package memcopy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCopiesMoveEveryByteAndNoOther(t *testing.T) {
	const room = 70 << 10
	rng := rand.New(rand.NewPCG(1, 2))
	src, dst, want := make([]byte, room), make([]byte, room), make([]byte, room)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	lengths := []int{0, 1, 7, 8, 63, 64, 65, 1<<16 + 1}
	lengths = append(lengths, minBytes-1, minBytes, minBytes+1)
	for range 200 {
		lengths = append(lengths, rng.IntN(1<<16))
	}
	for _, f := range []func(dst, src []byte) int{ToShared, stringCopy} {
		for _, n := range lengths {
			from, to := rng.IntN(130), rng.IntN(130)
			dstBytes, srcBytes := n, n
			switch rng.IntN(3) { // the shorter slice decides
			case 0:
				dstBytes += rng.IntN(100)
			case 1:
				srcBytes += rng.IntN(100)
			}
			clear(dst)
			clear(want)
			copy(want[to:to+n], src[from:from+n])
			require.Equal(t, n, f(dst[to:to+dstBytes], src[from:from+srcBytes]))
			require.True(t, bytes.Equal(want, dst), "%d bytes from offset %d to %d", n, from, to)
		}
	}
}

func BenchmarkCopy(b *testing.B) {
	for _, n := range []int{1 << 10, 4 << 10, 32 << 10, 1 << 20} {
		dst, src := make([]byte, n+64), make([]byte, n+64)
		for name, f := range map[string]func(dst, src []byte) int{
			"copy": func(dst, src []byte) int { return copy(dst, src) }, "string": stringCopy,
		} {
			b.Run(fmt.Sprintf("%s/bytes=%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for range b.N {
					f(dst[:n], src[:n])
				}
			})
		}
	}
}
