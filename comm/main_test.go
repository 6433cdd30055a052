package comm_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/leaks"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(programVariable); name != "" {
		runProgram(name)
		return
	}
	leaks.Main(m, goleak.Cleanup(func(status int) {
		if dir := launcherDir.Load(); dir != nil {
			check(os.RemoveAll(*dir))
		}
		os.Exit(status)
	}))
}

// rank is the testing.TB of a rank: it adds the rank to failures. A failed require ends the rank,
// and so the job.
type rank struct {
	testing.TB
	w *comm.Comm
}

func (r rank) Errorf(format string, args ...any) {
	r.Helper()
	r.TB.Errorf("rank %d: "+format, append([]any{r.w.Rank()}, args...)...)
}

func (r rank) FailNow() { runtime.Goexit() }

// check panics on an error. At a rank, this ends the job with that error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// must is check for a call that returns a value.
func must[T any](v T, err error) T {
	check(err)
	return v
}

// must2 is check for a call that returns two values.
func must2[T, U any](v T, u U, err error) (T, U) {
	check(err)
	return v, u
}

// errOf and errOf2 return the error of a call.
func errOf[T any](_ T, err error) error          { return err }
func errOf2[T, U any](_ T, _ U, err error) error { return err }

// failf ends the job of the rank that calls it.
func failf(format string, args ...any) { panic(fmt.Errorf(format, args...)) }

// expect ends the job of the rank that calls it unless got equals want.
func expect(want, got any, what ...any) {
	if !reflect.DeepEqual(want, got) {
		failf("%s: got %v, want %v", fmt.Sprint(what...), got, want)
	}
}

// isErrorOf checks the fields of the error of a call in the world.
func isErrorOf(t rank, err error, op string, peer, tag int) {
	t.Helper()
	var e *comm.Error
	require.ErrorAs(t, err, &e)
	assert.Regexp(t, `^\w+_test.go:\d+$`, e.Line)
	assert.Equal(t, comm.Error{Op: op, Comm: "world", Line: e.Line, Peer: peer, Tag: tag, Err: e.Err}, *e)
}

// recv receives n elements.
func recv[T any](c *comm.Comm, n, source, tag int) []T {
	b := make([]T, n)
	must(comm.Recv(c, b, source, tag))
	return b
}

// run runs body as n ranks. It fails the test if a rank fails, or if the ranks hang.
func run(t testing.TB, n int, body func(t rank, w *comm.Comm), opts ...comm.Option) {
	t.Helper()
	require.NoError(t, tryRun(t, n, body, opts...))
}

// tryRun is run, but returns the error of RunLocal.
func tryRun(t testing.TB, n int, body func(t rank, w *comm.Comm), opts ...comm.Option) error {
	t.Helper()
	hang := time.AfterFunc(4*time.Minute, func() {
		fmt.Fprintf(os.Stderr, "%s hangs\n", t.Name())
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		os.Exit(3)
	})
	defer hang.Stop()
	return comm.RunLocal(n, func(w *comm.Comm) error {
		body(rank{t, w}, w)
		return nil
	}, opts...)
}

// awaitFinalize returns when a rank of this process has called Finalize.
func awaitFinalize(w *comm.Comm) {
	for !errors.Is(w.Free(), comm.ErrFinalized) { // the world is not freed
		runtime.Gosched()
	}
}

// sizes of messages, in bytes, on both sides of the limits of the protocols: inline, eager,
// rendezvous in one and in several fragments.
func sizes() []int {
	return []int{0, 1, 8, 40, 64, 65, 100, 4 << 10, 8 << 10, 8<<10 + 1, 64 << 10, 64<<10 + 7, 1 << 20}
}

// pattern returns n bytes that depend on the seed and on their index.
func pattern(n, seed int) []byte {
	b := make([]byte, n+8)
	x := uint64(seed)*0x9e3779b97f4a7c15 + 12345
	for i := 0; i < n; i += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b[i:], x^x>>32)
	}
	return b[:n:n]
}
