package pml

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/request"
)

// crowds are the numbers of receives, or messages, with other tags.
var crowds = []int{10, 1000, 100_000}

// lone is rank 0 of two. Rank 1 sends it any number of messages with one tag.
type lone struct {
	p    *PML
	c    *Context
	h    matchHdr
	frag []byte
	out  []byte
}

func newLone(b *testing.B, tag int) *lone {
	w, c := newWire(b, 2)
	l := &lone{p: w.pmls[0], c: c[0], h: matchHdr{tag: int32(tag)}, out: make([]byte, 8)}
	l.frag = append(make([]byte, matchBytes), 1, 2, 3, 4, 5, 6, 7, 8)
	return l
}

func (l *lone) arrive(tag int) {
	l.h.tag = int32(tag)
	l.h.encode(l.frag)
	l.p.Arrived(nil, 1, tagMatch, l.frag)
	l.h.seq++
}

// BenchmarkMatch measures one match, among receives that are posted for other tags, or messages
// that have arrived with other tags.
func BenchmarkMatch(b *testing.B) {
	const tag = 1 << 20
	for name, source := range map[string]int{"posted": 1, "posted with wildcards": request.AnySource} {
		for _, n := range crowds {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				l := newLone(b, tag)
				for i := range n {
					l.p.Irecv(l.c, nil, 1, source, i, "recv")
				}
				if source == request.AnySource {
					l.p.Irecv(l.c, nil, 1, 0, request.AnyTag, "recv")
				}
				b.ReportAllocs()
				for b.Loop() {
					r := l.p.Irecv(l.c, l.out, 1, 1, tag, "recv")
					l.arrive(tag)
					_, _ = r.Take()
				}
				require.EqualValues(b, b.N, l.p.Stats().Received)
			})
		}
	}
	for _, n := range crowds {
		b.Run(fmt.Sprintf("unexpected/%d", n), func(b *testing.B) {
			l := newLone(b, tag)
			for i := range n {
				l.arrive(i)
			}
			b.ReportAllocs()
			for b.Loop() {
				l.arrive(tag)
				_, _ = l.p.Irecv(l.c, l.out, 1, 1, tag, "recv").Take()
			}
			require.EqualValues(b, b.N, l.p.Stats().Received)
		})
	}
	for _, n := range crowds {
		b.Run(fmt.Sprintf("new tags/%d", n), func(b *testing.B) {
			// Every message has a new tag, after n receives with different tags.
			l := newLone(b, tag)
			burst := make([]*RecvRequest, n)
			for i := range burst {
				burst[i] = l.p.Irecv(l.c, nil, 1, 1, i, "recv")
			}
			for _, r := range burst {
				r.Cancel()
				_, _ = r.Take()
			}
			next := tag
			b.ReportAllocs()
			for b.Loop() {
				next++
				r := l.p.Irecv(l.c, l.out, 1, 1, next, "recv")
				l.arrive(next)
				_, _ = r.Take()
			}
		})
	}
}

// BenchmarkPath measures the cost of a message of 8 bytes in this package, both sides together. The
// transport only copies.
func BenchmarkPath(b *testing.B) {
	w, c := newQuiet(b, Auto)
	in, out := pattern(8, 1), make([]byte, 8)
	receive := func() *RecvRequest { return w.pmls[1].Irecv(c[1], out, 1, 0, 3, "recv") }
	send := func() {
		if s := w.pmls[0].Send(c[0], in, 1, 3, Standard, "send"); s != nil {
			_, _ = s.Take()
		}
	}
	b.Run("expected", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r := receive()
			send()
			_, _ = r.Take()
		}
	})
	b.Run("unexpected", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			send()
			_, _ = receive().Take()
		}
	})
	require.Equal(b, in, out)
}
