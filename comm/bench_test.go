package comm_test

import (
	"fmt"
	"testing"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

type point struct {
	X, Y float64
	ID   int32
}

// sendToSelf sends b from rank 0 to itself.
func sendToSelf[T any](w *comm.Comm, b []T) {
	check(comm.Send(w, b, 0, 1))
	must(comm.Recv(w, b, 0, 1))
}

// BenchmarkSelf sends messages to the same rank: the cost of the calls, without a wait.
func BenchmarkSelf(b *testing.B) {
	bytes, points := make([]byte, 8), make([]point, 1)
	for name, exchange := range map[string]func(w *comm.Comm){
		"byte":   func(w *comm.Comm) { sendToSelf(w, bytes) },
		"struct": func(w *comm.Comm) { sendToSelf(w, points) },
		"nonblocking": func(w *comm.Comm) {
			r := must(comm.Irecv(w, bytes, 0, 1))
			check(request.WaitAll(r, must(comm.Isend(w, bytes, 0, 1))))
		},
	} {
		b.Run(name, func(b *testing.B) {
			run(b, 1, func(_ rank, w *comm.Comm) {
				b.ReportAllocs()
				for b.Loop() {
					exchange(w)
				}
			})
		})
	}
}

func BenchmarkPingPong(b *testing.B) {
	for _, n := range []int{0, 8, 1 << 10, 8 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(2 * n))
			run(b, 2, func(_ rank, w *comm.Comm) {
				buf := make([]byte, n)
				if w.Rank() == 0 {
					for b.Loop() {
						check(comm.Send(w, buf, 1, 1))
						must(comm.Recv(w, buf, 1, 1))
					}
					check(comm.Send(w, buf, 1, 2))
					return
				}
				for must(comm.Recv(w, buf, 0, comm.AnyTag)).Tag != 2 {
					check(comm.Send(w, buf, 0, 1))
				}
			})
		})
	}
}
