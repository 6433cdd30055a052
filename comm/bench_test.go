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

// BenchmarkSelf sends messages to the same rank: the cost of the calls, without a wait.
func BenchmarkSelf(b *testing.B) {
	one := func(b *testing.B, exchange func(w *comm.Comm) error) {
		err := comm.RunLocal(1, func(w *comm.Comm) error {
			b.ReportAllocs()
			for b.Loop() {
				if err := exchange(w); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	bytes, points := make([]byte, 8), make([]point, 1)
	b.Run("byte", func(b *testing.B) {
		one(b, func(w *comm.Comm) error {
			if err := comm.Send(w, bytes, 0, 1); err != nil {
				return err
			}
			_, err := comm.Recv(w, bytes, 0, 1)
			return err
		})
	})
	b.Run("struct", func(b *testing.B) {
		one(b, func(w *comm.Comm) error {
			if err := comm.Send(w, points, 0, 1); err != nil {
				return err
			}
			_, err := comm.Recv(w, points, 0, 1)
			return err
		})
	})
	b.Run("nonblocking", func(b *testing.B) {
		one(b, func(w *comm.Comm) error {
			r, err := comm.Irecv(w, bytes, 0, 1)
			if err != nil {
				return err
			}
			s, err := comm.Isend(w, bytes, 0, 1)
			if err != nil {
				return err
			}
			return request.WaitAll(r, s)
		})
	})
}

func BenchmarkPingPong(b *testing.B) {
	for _, n := range []int{0, 8, 1 << 10, 8 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(2 * n))
			done := false
			err := comm.RunLocal(2, func(w *comm.Comm) error {
				buf := make([]byte, n)
				if w.Rank() == 0 {
					for b.Loop() {
						if err := comm.Send(w, buf, 1, 1); err != nil {
							return err
						}
						if _, err := comm.Recv(w, buf, 1, 1); err != nil {
							return err
						}
					}
					return comm.Send(w, buf, 1, 2)
				}
				for {
					st, err := comm.Recv(w, buf, 0, comm.AnyTag)
					if err != nil || st.Tag == 2 {
						done = true
						return err
					}
					if err := comm.Send(w, buf, 0, 1); err != nil {
						return err
					}
				}
			})
			if err != nil || !done {
				b.Fatal(err)
			}
		})
	}
}
