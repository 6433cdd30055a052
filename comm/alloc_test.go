package comm_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
)

func TestAllocGivesZeroedMemory(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		for _, n := range []int{0, 1, 1000, 1 << 20} {
			b, want := must(comm.Alloc[uint32](w, n)), make([]uint32, n)
			require.Equal(t, want, b)
			assert.Equal(t, n, cap(b))
			for i := range b {
				b[i], want[i] = uint32(i+w.Rank()), uint32(i+1-w.Rank())
			}
			must(comm.SendrecvReplace(w, b, 1-w.Rank(), 0, 1-w.Rank(), 0))
			require.Equal(t, want, b)
			require.NoError(t, comm.FreeAlloc(w, b))
		}
	})
}

// TestFreeAllocOfOtherSliceFails: FreeAlloc accepts exactly a slice that Alloc has returned, once.
func TestFreeAllocOfOtherSliceFails(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		b, none := must(comm.Alloc[int64](w, 100)), must(comm.Alloc[int64](w, 0))
		refuses := func(err error) {
			t.Helper()
			assert.ErrorIs(t, err, comm.ErrBuffer)
		}
		refuses(comm.FreeAlloc(w, b[1:]))
		refuses(comm.FreeAlloc(w, b[:99]))
		refuses(comm.FreeAlloc(w, b[:0]))
		refuses(comm.FreeAlloc(w, unsafe.Slice((*int32)(unsafe.Pointer(&b[0])), 200)))
		refuses(comm.FreeAlloc(w, make([]int64, 100)))
		refuses(comm.FreeAlloc[int64](w, nil))
		dup := must(w.Dup())
		require.NoError(t, comm.FreeAlloc(dup, b), "by any communicator of the rank")
		refuses(comm.FreeAlloc(w, b))
		require.NoError(t, comm.FreeAlloc(w, none))
		refuses(comm.FreeAlloc(w, none))
		require.NoError(t, dup.Free())
		empty := must(comm.Alloc[struct{}](w, 3))
		assert.Len(t, empty, 3)
		require.NoError(t, comm.FreeAlloc(w, empty))
	})
}

// TestFreeAllocOfMemoryInUseFails: FreeAlloc of memory that a request or a collective uses changes
// nothing.
func TestFreeAllocOfMemoryInUseFails(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		other := 1 - w.Rank()
		mem := must(comm.Alloc[byte](w, 1<<20))
		inUse := func(by string) {
			t.Helper()
			err := comm.FreeAlloc(w, mem)
			require.ErrorIs(t, err, comm.ErrPending)
			require.ErrorIs(t, err, comm.ErrBuffer)
			require.ErrorContains(t, err, by)
		}
		recv := must(comm.Irecv(w, mem[100:200], other, 1))
		inUse("irecv peer")
		send := must(comm.Issend(w, mem[300_000:700_000], other, 2))
		require.NoError(t, recv.Cancel())
		must(recv.Wait())
		inUse("issend peer")
		must(comm.Recv(w, make([]byte, 400_000), other, 2))
		must(send.Wait())
		refused := false
		check(comm.Allreduce(w, mem[:100], mem[100:200], func(in, inout []byte) {
			inUse("collective")
			refused = true
		}))
		require.True(t, refused)
		require.NoError(t, comm.FreeAlloc(w, mem))
	})
}

// TestFreeAllocAfterFinalizeWorks: Finalize does not release memory of Alloc. FreeAlloc releases it
// afterwards.
func TestFreeAllocAfterFinalizeWorks(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		b := must(comm.Alloc[int64](w, 100))
		require.NoError(t, w.Finalize())
		require.ErrorIs(t, errOf(comm.Alloc[int64](w, 100)), comm.ErrFinalized)
		b[99] = 7
		require.NoError(t, comm.FreeAlloc(w, b))
		require.ErrorIs(t, comm.FreeAlloc(w, b), comm.ErrBuffer)
	})
}

// allocProgram sends from allocated memory to allocated memory and to other memory, whole and in
// part. It uses and frees memory after Finalize.
func allocProgram(w *comm.Comm) error {
	n, me := w.Size(), w.Rank()
	to, from := (me+1)%n, (me+n-1)%n
	const room = 5 << 20
	out, in := must(comm.Alloc[byte](w, room)), must(comm.Alloc[byte](w, room))
	for _, into := range [][]byte{in, make([]byte, room)} {
		for i, length := range []int{1, 1 << 14, 1 << 16, 1<<18 + 1, 1 << 20, 1<<22 + 12345} {
			at := i * 1001
			copy(out[at:], pattern(length, me))
			clear(into)
			must(comm.Sendrecv(w, out[at:at+length], to, 0, into[at/2:at/2+length], from, 0))
			if !bytes.Equal(into[at/2:at/2+length], pattern(length, from)) {
				return fmt.Errorf("%d bytes from rank %d arrived changed", length, from)
			}
			// No rank reads it any more.
			clear(out)
		}
	}
	again := must(comm.Alloc[byte](w, room))
	check(comm.FreeAlloc(w, out))
	must(comm.Sendrecv(w, again, to, 0, in, from, 0))
	check(w.Finalize())
	copy(in, pattern(room, me))
	if !bytes.Equal(in, pattern(room, me)) {
		return errors.New("memory is not what it was after Finalize")
	}
	check(errors.Join(comm.FreeAlloc(w, in), comm.FreeAlloc(w, again)))
	if me == 0 {
		fmt.Println("moved")
	}
	return nil
}

// TestAllocBetweenProcesses: between processes, long messages are read from allocated memory.
func TestAllocBetweenProcesses(t *testing.T) {
	launch := launcher(t)
	for _, n := range []int{2, 3} {
		got := launch(n, "alloc", "--set", "stats=true")
		assert.Equal(t, 0, got.status, got.stderr)
		assert.Equal(t, "moved\n", got.stdout)
		assert.Regexp(t, `(?m)^mpigo: rank 0:   sent get +[1-9][0-9]* messages$`, got.stderr)
	}
	got := launch(2, "alloc", "--set", "pml.protocol=copy")
	assert.Equal(t, outcome{0, "moved\n", ""}, got)
}

func TestAllocWithBadArgumentsFails(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		err := errOf(comm.Alloc[int](w, -1))
		assert.ErrorIs(t, err, comm.ErrCount)
		comm.EqualError(t, err, "world: alloc: invalid count: -1 elements")
		assert.ErrorIs(t, errOf(comm.Alloc[int](w, math.MaxInt/4)), comm.ErrCount)
		assert.ErrorIs(t, errOf(comm.Alloc[byte](w, math.MaxInt)), comm.ErrCount)
		assert.ErrorIs(t, errOf(comm.Alloc[byte](w, 1<<62)), comm.ErrBuffer, "no such memory")
		assert.ErrorIs(t, errOf(comm.Alloc[string](w, -1)), comm.ErrType)
		assert.ErrorIs(t, errOf(comm.Alloc[int](nil, -1)), comm.ErrComm)
		assert.ErrorIs(t, comm.FreeAlloc(w, []string{"x"}), comm.ErrType)
	})
}
