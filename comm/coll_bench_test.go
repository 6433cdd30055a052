package comm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mpigo/mpigo/request"
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

// BenchmarkPersistentCollectives compares persistent collectives with nonblocking ones in
// alternating batches. It reports the median times of a call, and the median of the ratios.
func BenchmarkPersistentCollectives(b *testing.B) {
	const batch = 200
	for _, n := range []int{2, 4} {
		for _, count := range []int{1, 128, 8 << 10} {
			for _, name := range []string{"barrier", "bcast", "allreduce"} {
				if name == "barrier" && count > 1 {
					continue
				}
				b.Run(fmt.Sprintf("%s/ranks=%d/bytes=%d", name, n, 8*count), func(b *testing.B) {
					var nonblocking, persistent, ratios []float64
					run(b, n, func(w *Comm) {
						in, out := make([]int64, count), make([]int64, count)
						begin, initialize := w.Ibarrier, w.BarrierInit
						switch name {
						case "bcast":
							begin = func() (request.Request, error) { return Ibcast(w, in, 0) }
							initialize = func() (request.Request, error) { return BcastInit(w, in, 0) }
						case "allreduce":
							begin = func() (request.Request, error) { return Iallreduce(w, in, out, Sum) }
							initialize = func() (request.Request, error) { return AllreduceInit(w, in, out, Sum) }
						}
						kept := must(initialize())
						times := func(call func()) float64 {
							check(w.Barrier())
							start := time.Now()
							for range batch {
								call()
							}
							return float64(time.Since(start).Nanoseconds()) / batch
						}
						for range b.N {
							i := times(func() { must(must(begin()).Wait()) })
							p := times(func() {
								check(kept.Start())
								must(kept.Wait())
							})
							if w.Rank() == 0 {
								nonblocking, persistent, ratios = append(nonblocking, i), append(persistent, p), append(ratios, p/i)
							}
						}
						check(kept.Free())
					})
					for unit, all := range map[string][]float64{"ns/nonblocking": nonblocking, "ns/persistent": persistent, "ratio": ratios} {
						slices.Sort(all)
						b.ReportMetric(all[len(all)/2], unit)
					}
				})
			}
		}
	}
}
