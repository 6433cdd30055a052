package comm

import (
	"fmt"
	"testing"
)

// BenchmarkCollectives measures collectives between goroutines over btl/loop: the cost of the
// schedules and of the layers below, not of a transport.
func BenchmarkCollectives(b *testing.B) {
	for _, n := range []int{2, 4} {
		for name, call := range map[string]func(w *Comm, in, out []int64) error{
			"barrier":   func(w *Comm, in, out []int64) error { return w.Barrier() },
			"bcast":     func(w *Comm, in, out []int64) error { return Bcast(w, in, 0) },
			"allreduce": func(w *Comm, in, out []int64) error { return Allreduce(w, in, out, Sum) },
		} {
			for _, count := range []int{1, 8 << 10, 128 << 10} {
				if name == "barrier" && count > 1 {
					continue
				}
				b.Run(fmt.Sprintf("%s/ranks=%d/bytes=%d", name, n, 8*count), func(b *testing.B) {
					b.ReportAllocs()
					run(b, n, func(w *Comm) {
						in, out := make([]int64, count), make([]int64, count)
						for range b.N {
							check(call(w, in, out))
						}
					})
				})
			}
		}
		b.Run(fmt.Sprintf("sendrecv/ranks=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			run(b, n, func(w *Comm) {
				in, out := make([]int64, 1), make([]int64, 1)
				to, from := (w.Rank()+1)%n, (w.Rank()+n-1)%n
				for range b.N {
					must(Sendrecv(w, in, to, 0, out, from, 0))
				}
			})
		})
	}
}
