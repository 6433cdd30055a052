package comm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// TestCheckedEmptyMessageHasNoType: this holds for all kinds of sends and receives.
func TestCheckedEmptyMessageHasNoType(t *testing.T) {
	type call = func(w *comm.Comm) error
	waited := func(r request.Request, err error) error {
		if err == nil {
			_, err = r.Wait()
		}
		return err
	}
	started := func(r request.Request, err error) error {
		if err == nil {
			err = r.Start()
		}
		if err = waited(r, err); err == nil {
			err = r.Free()
		}
		return err
	}
	recv := receives[float64](t, 4, "")
	for name, send := range map[string]call{
		"send": sends[int32](0),
		"of nothing": func(w *comm.Comm) error {
			return comm.Send(w, make([]struct{}, 3), 1, 1)
		},
		"isend":     func(w *comm.Comm) error { return waited(comm.Isend(w, []int32{}, 1, 1)) },
		"ssend":     func(w *comm.Comm) error { return comm.Ssend[int32](w, nil, 1, 1) },
		"send init": func(w *comm.Comm) error { return started(comm.SendInit(w, []int32{}, 1, 1)) },
		"sendrecv": func(w *comm.Comm) error {
			_, err := comm.Sendrecv(w, []int32{}, 1, 1, []int64{}, comm.ProcNull, 1)
			return err
		},
		"isendrecv": func(w *comm.Comm) error {
			return waited(comm.Isendrecv(w, []int32{}, 1, 1, []int64{}, comm.ProcNull, 1))
		},
	} {
		t.Run(name, func(t *testing.T) { exchange(t, send, recv) })
	}
	for name, recv := range map[string]call{
		"irecv":     func(w *comm.Comm) error { return waited(comm.Irecv(w, make([]float64, 2), 0, 1)) },
		"recv init": func(w *comm.Comm) error { return started(comm.RecvInit(w, make([]float64, 2), 0, 1)) },
		"mrecv": func(w *comm.Comm) error {
			m, _, err := w.Mprobe(0, 1)
			if err == nil {
				_, err = comm.Mrecv(m, make([]float64, 2))
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { exchange(t, sends[int32](0), recv) })
	}
	t.Run("into nothing", func(t *testing.T) {
		exchange(t, sends[int32](2), func(w *comm.Comm) error {
			_, err := comm.Recv(w, []float64{}, 0, 1)
			assert.ErrorIs(t, err, comm.ErrTruncate)
			return nil
		})
	})
}

// partsOf exchanges parts of type T between ranks 1 and 2. Rank 0 has none.
func partsOf[T any](w, g *comm.Comm) (calls map[string]func() error) {
	me := w.Rank()
	counts := []int{0, 1, 1}
	pair := [][]int{{0, 0, 0}, {0, 0, 1}, {0, 1, 0}}[me] // of ranks 1 and 2
	own := make([]T, counts[me])
	return map[string]func() error{
		"alltoallv": func() error { return comm.Alltoallv(w, own, pair, nil, make([]T, counts[me]), pair, nil) },
		"neighboralltoallv": func() error {
			return comm.NeighborAlltoallv(g, own, pair, nil, make([]T, counts[me]), pair, nil)
		},
		"gatherv": func() error {
			in, at := make([]T, []int{0, 2, 3}[me]), []int{0, 2, 3}
			return comm.Gatherv(w, in, make([]T, 5), at, nil, 1)
		},
		"scatterv": func() error {
			at := []int{0, 2, 3}
			return comm.Scatterv(w, make([]T, 5), make([]T, at[me]), at, nil, 1)
		},
	}
}

// TestCheckedEmptyPartsHaveNoType: ranks compare the types only of parts that they exchange.
func TestCheckedEmptyPartsHaveNoType(t *testing.T) {
	for _, name := range []string{"alltoallv", "neighboralltoallv", "gatherv", "scatterv"} {
		t.Run(name, func(t *testing.T) {
			inCheckedMode(t, 3, func(w *comm.Comm) error {
				g := must(w.Graph([]int{0, 1, 2}, []int{0, 1, 2}))
				calls := partsOf[float64](w, g)
				if w.Rank() == 0 {
					calls = partsOf[int32](w, g)
				}
				if err := calls[name](); err != nil {
					return err
				}
				if w.Rank() == 2 {
					calls = partsOf[int64](w, g)
				}
				err := calls[name]()
				assert.ErrorIs(t, err, comm.ErrType)
				assert.ErrorIs(t, err, comm.ErrComm)
				text := "rank 2 sends []int64 to rank 1, which expects []float64"
				if name == "scatterv" {
					text = "rank 1 sends []float64 to rank 2, which expects []int64"
				}
				assert.ErrorContains(t, err, text)
				return g.Free()
			})
		})
	}
	// Calls whose ranks agree on a length.
	for name, f := range map[string]func(w *comm.Comm, isOdd bool) error{
		"bcast": func(w *comm.Comm, isOdd bool) error {
			if isOdd {
				return comm.Bcast(w, []int32{}, 0)
			}
			return comm.Bcast(w, []float64{}, 0)
		},
		"allreduce": func(w *comm.Comm, isOdd bool) error {
			if isOdd {
				return comm.Allreduce(w, []int32{}, nil, comm.Sum)
			}
			return comm.Allreduce(w, []float64{}, nil, comm.Sum)
		},
		"alltoall": func(w *comm.Comm, isOdd bool) error {
			if isOdd {
				return comm.Alltoall(w, []int32{}, nil)
			}
			return comm.Alltoall(w, []byte{}, nil)
		},
		"reducescatter": func(w *comm.Comm, isOdd bool) error {
			none := make([]int, w.Size())
			if isOdd {
				return comm.ReduceScatter(w, []int32{}, nil, none, comm.Sum)
			}
			return comm.ReduceScatter(w, []float64{}, nil, none, comm.Sum)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for odd := range 3 {
				inCheckedMode(t, 3, func(w *comm.Comm) error { return f(w, w.Rank() == odd) })
			}
		})
	}
}
