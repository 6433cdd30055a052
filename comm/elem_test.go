package comm_test

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
)

type (
	celsius float64
	inner   struct {
		A int8
		B [3]uint16
	}
	good struct {
		inner
		C complex64
		D [2]inner
		_ struct{}
	}
	named struct {
		ID   int
		Name string
	}
	deep struct {
		A int
		B [4]struct {
			C struct{ D []byte }
		}
	}
)

func accepts[T any](t *testing.T, w *comm.Comm) {
	t.Helper()
	assert.NoError(t, comm.Send(w, make([]T, 2), comm.ProcNull, 0), "%T", *new(T))
}

func refuses[T any](t *testing.T, w *comm.Comm, message string) {
	t.Helper()
	for range 2 { // the second time, the cache has the type
		err := comm.Send(w, []T(nil), comm.ProcNull, 0)
		assert.ErrorIs(t, err, comm.ErrType)
		assert.ErrorContains(t, err, message)
	}
	// The type is checked before the communicator.
	assert.ErrorContains(t, comm.Send[T](nil, nil, -7, -7), message)
}

func TestElementTypesWithPointersFail(t *testing.T) {
	run(t, 1, func(_ rank, w *comm.Comm) {
		accepts[bool](t, w)
		accepts[int8](t, w)
		accepts[uint16](t, w)
		accepts[rune](t, w)
		accepts[uint64](t, w)
		accepts[uintptr](t, w)
		accepts[float32](t, w)
		accepts[complex128](t, w)
		accepts[celsius](t, w)
		accepts[struct{}](t, w)
		accepts[[4]int](t, w)
		accepts[[0]*int](t, w)
		accepts[good](t, w)

		refuses[string](t, w, "invalid type string: it holds a pointer")
		refuses[*int](t, w, "invalid type *int: it holds a pointer")
		refuses[[]byte](t, w, "[]uint8")
		refuses[map[int]int](t, w, "map[int]int")
		refuses[chan int](t, w, "chan int")
		refuses[func()](t, w, "func()")
		refuses[any](t, w, "interface {}")
		refuses[error](t, w, "error")
		refuses[unsafe.Pointer](t, w, "unsafe.Pointer")
		refuses[named](t, w, "type comm_test.named: field Name (string) holds a pointer")
		refuses[deep](t, w, "type comm_test.deep: field B[0].C.D ([]uint8) holds a pointer")
		refuses[[2]named](t, w, "element [0].Name (string) holds a pointer")
	})
}

// TestElementTypesAreCheckedConcurrently: ranks and goroutines meet new types at the same time.
func TestElementTypesAreCheckedConcurrently(t *testing.T) {
	run(t, 1, func(r rank, w *comm.Comm) {
		done := make(chan error)
		check := func(f func() error) { go func() { done <- f() }() }
		for range 8 {
			check(func() error { return comm.Send(w, []celsius{1}, comm.ProcNull, 0) })
			check(func() error { return comm.Send(w, []good{{}}, comm.ProcNull, 0) })
			check(func() error { return comm.Send(w, [][7]int{{}}, comm.ProcNull, 0) })
			check(func() error {
				if err := comm.Send(w, []named{{}}, comm.ProcNull, 0); err == nil {
					return fmt.Errorf("a string was taken")
				}
				return nil
			})
		}
		for range 32 {
			require.NoError(r, <-done)
		}
	})
}

// TestStructsKeepAllBytes: messages include padding.
func TestStructsKeepAllBytes(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		want := []good{{inner: inner{A: -3, B: [3]uint16{1, 2, 3}}, C: 1 + 2i}, {D: [2]inner{{A: 4}, {B: [3]uint16{9, 8, 7}}}}}
		if w.Rank() == 0 {
			require.NoError(t, comm.Send(w, want, 1, 0))
			return
		}
		got := make([]good, 3)
		st := must(comm.Recv(w, got, 0, 0))
		assert.Equal(t, want, got[:2])
		assert.Equal(t, 2, st.Count)
		assert.Equal(t, int64(2*unsafe.Sizeof(good{})), st.Bytes)
	})
}

// TestRecvAsAnotherTypeKeepsBytes: messages do not carry their type.
func TestRecvAsAnotherTypeKeepsBytes(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		require.NoError(t, comm.Send(w, []uint16{0x0102, 0x0304, 0x0506}, 0, 0))
		got := make([]uint32, 2)
		st := must(comm.Recv(w, got, 0, 0))
		assert.Equal(t, uint32(0x03040102), got[0])
		assert.Equal(t, 1, st.Count, "whole elements")
		assert.Equal(t, int64(6), st.Bytes)
	})
}
