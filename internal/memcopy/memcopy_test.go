package memcopy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAllWaysMoveEveryByteAndNoOther(t *testing.T) {
	const room = 70 << 10
	rng := rand.New(rand.NewPCG(1, 2))
	src, dst, want := make([]byte, room), make([]byte, room), make([]byte, room)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	lengths := []int{minBytes, minBytes + 1, 1<<16 + 1}
	for range 200 {
		lengths = append(lengths, minBytes+rng.IntN(1<<16-minBytes))
	}
	for by := range ways {
		for _, n := range lengths {
			from, to := rng.IntN(130), rng.IntN(130)
			clear(dst)
			clear(want)
			copy(want[to:], src[from:from+n])
			copyBy(by, dst[to:], src[from:from+n])
			require.True(t, bytes.Equal(want, dst), "way %d: %d bytes from offset %d to %d", by, n, from, to)
		}
	}
}

func TestWriterCopiesAllLengths(t *testing.T) {
	w := Writer{Span: span}
	var answer uint64
	rng := rand.New(rand.NewPCG(3, 4))
	src := make([]byte, 3*minBytes)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	for range 5000 {
		n := rng.IntN(len(src) + 1)
		dst := make([]byte, n+8)
		if serial := w.Copy(dst, src[:n], &answer); serial != 0 && rng.IntN(4) != 0 {
			answer = Answer(serial, uint64(rng.IntN(10_000)))
		}
		require.True(t, bytes.Equal(src[:n], dst[:n]))
		require.Equal(t, make([]byte, 8), dst[n:])
	}
}

// reader is a Writer with a reader that takes a given number of ticks for copies by each way.
type reader struct {
	Writer
	answer uint64
	ticks  [ways]uint64
	timed  int
}

func (r *reader) copies(n int) {
	src, dst := make([]byte, minBytes), make([]byte, minBytes)
	for range n {
		if serial := r.Copy(dst, src, &r.answer); serial != 0 {
			r.timed++
			r.answer = Answer(serial, r.ticks[r.by])
		}
	}
}

// many copies, in which each way is tried some times.
const (
	span = 4 * timedEvery * minBytes
	many = 8 * int(ways) * (betweenSpans + trialSpans) * span / minBytes
)

func TestWriterTakesTheCheapestWay(t *testing.T) {
	if !Measures {
		return // there is one
	}
	const fast, slow = 1e11, 2e11 // the writer's own ticks are nothing against these
	r := reader{Writer: Writer{Span: span}}
	for _, best := range []way{stream, plain, str, plain, stream, str} {
		r.ticks = [ways]uint64{slow, slow, slow}
		r.ticks[best] = fast
		r.copies(many)
		require.Equal(t, best, r.best)
		r.timed = 0
		r.copies(many)
		require.InDelta(t, many/timedEvery, r.timed, 1)
		r.ticks = [ways]uint64{fast, fast, fast}
		r.ticks[best] += fast / 10
		r.copies(many)
		require.Equal(t, best, r.best, "the difference is not worth a change")
	}
}

func TestWriterIgnoresInterruptedCopies(t *testing.T) {
	if !Measures {
		return
	}
	r := reader{Writer: Writer{Span: span}, ticks: [ways]uint64{1e10, 2e10, 2e10}}
	r.copies(many)
	require.Equal(t, plain, r.best)
	for range 100 {
		r.ticks[plain] = 1e12
		r.copies(timedEvery)
		r.ticks[plain] = 1e10
		r.copies(3 * timedEvery)
		require.Equal(t, plain, r.best)
	}
}

// TestImpossibleTimesCostMost: the time stamp may go back while a copy is measured, at either end.
func TestImpossibleTimesCostMost(t *testing.T) {
	const most, back = 1<<64 - 1, 1 << 63
	for _, ticks := range [][2]uint64{{most, 1}, {1, most}, {most, most}, {back - 1, back}, {1 << 48, 1 << 48}} {
		var w Writer
		for range 3 {
			require.True(t, w.hear(Answer(w.ask(ticks[0], minBytes), ticks[1])))
		}
		require.Greater(t, w.cost(plain), uint64(maxTicks))
	}
}

// TestWriterWithoutAnswers: a reader that does not answer, or answers for another copy, changes
// nothing.
func TestWriterWithoutAnswers(t *testing.T) {
	w := Writer{Span: span}
	src, dst := make([]byte, minBytes), make([]byte, minBytes)
	asked := 0
	for i := range 8 * forgetAfter {
		answer := uint64(i) // of serial number 0
		if w.Copy(dst, src, &answer) != 0 {
			asked++
		}
	}
	require.Equal(t, plain, w.best)
	if Measures {
		require.InDelta(t, 8, asked, 1, "it asks again after some time")
	}
	for range many {
		answer := ^uint64(0)
		w.Copy(dst, src, &answer)
	}
}

func TestWriterAllocatesNothing(t *testing.T) {
	r := reader{Writer: Writer{Span: span}}
	src, dst := make([]byte, minBytes), make([]byte, minBytes)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if serial := r.Copy(dst, src, &r.answer); serial != 0 {
			r.answer = Answer(serial, 1)
		}
	}))
}

func BenchmarkCopy(b *testing.B) {
	for _, n := range []int{8 << 10, 32 << 10, 1 << 20} {
		dst, src := make([]byte, n+64), make([]byte, n+64)
		for by, name := range []string{"copy", "string", "stream"} {
			b.Run(fmt.Sprintf("%s/bytes=%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for range b.N {
					copyBy(way(by), dst, src[:n])
				}
			})
		}
	}
}

// TestSerialNumbersWrap: no serial number is 0, which stands for a copy that is not measured.
func TestSerialNumbersWrap(t *testing.T) {
	w := Writer{serial: 1<<16 - 3}
	for range 6 {
		serial := w.ask(100, 1<<20)
		if serial == 0 || !w.hear(Answer(serial, 100)) || w.waits {
			t.Fatalf("serial number %d", serial)
		}
	}
}
