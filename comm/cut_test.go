package comm_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/comm"
)

// TestMessagesSurviveBrokenConnections: three processes with two rails each break more than thirty
// of their connections under traffic. All bytes are right, and no descriptor or goroutine of a
// broken connection is left.
func TestMessagesSurviveBrokenConnections(t *testing.T) {
	launch := launcher(t)
	got := launch(3, "cut", "--btl", "self,tcp", "--set", "tcp.include=127.0.0.1,127.0.0.2", "--set", "pml.notices=false")
	require.Equal(t, 0, got.status, got.stderr)
	require.Empty(t, got.stderr)
	require.Contains(t, got.stdout, " cuts, ")
	t.Log(strings.TrimSpace(got.stdout))
}

// cutsEach is how many connections each rank of cutProgram breaks.
const cutsEach = 34

// cutProgram exchanges messages of all sizes round a ring while connections break.
func cutProgram(w *comm.Comm) error {
	var rounds, cuts atomic.Int64
	for range 10 { // so that all connections are made
		ringRound(w, int(rounds.Add(1)))
	}
	descriptors, goroutines := openFiles(), runtime.NumGoroutine()
	go cutConnections(uint64(w.Rank()), &rounds, &cuts)
	for done := []int{0}; done[0] == 0; {
		ringRound(w, int(rounds.Add(1)))
		if cuts.Load() == cutsEach {
			done[0] = 1
		}
		check(comm.Allreduce(w, nil, done, comm.Min))
	}
	// A rail may be up at one end only, or be probed. That takes one more connection and one more
	// timer.
	rails := len(w.Rails())
	if now := openFiles(); now > descriptors+2*rails {
		return fmt.Errorf("%d descriptors are open, %d were before %d cuts", now, descriptors, cutsEach)
	}
	for begin := time.Now(); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			return fmt.Errorf("%d goroutines, %d were before %d cuts", runtime.NumGoroutine(), goroutines, cutsEach)
		}
	}
	st := w.Stats()
	sum := []uint64{st.RailsFailed, st.RailsReturned, st.Malformed + st.Illegal}
	check(comm.Allreduce(w, nil, sum, comm.Sum))
	if sum[0] < cutsEach || sum[1] == 0 || sum[2] != 0 {
		return fmt.Errorf("%d failures, %d returns, %d malformed or illegal", sum[0], sum[1], sum[2])
	}
	if w.Rank() == 0 {
		fmt.Printf("%d cuts, %d failures of rails, %d returns\n", cutsEach*w.Size(), sum[0], sum[1])
	}
	return nil
}

// ringRound sends a message of some size to the next rank, and compares every byte of the one that
// it receives.
func ringRound(w *comm.Comm, round int) {
	me, n := w.Rank(), w.Size()
	size := []int{1, 100, 5000, 70_000, 300_000, 3_000_000}[round%6]
	out, in := pattern(size, round*n+me), make([]byte, size)
	must(comm.Sendrecv(w, out, (me+1)%n, 1, in, (me+n-1)%n, 1))
	if want := pattern(size, round*n+(me+n-1)%n); string(in) != string(want) {
		failf("round %d: %d bytes differ", round, size)
	}
}

// cutConnections breaks random connections of this process, by a shutdown or a reset.
func cutConnections(seed uint64, rounds, cuts *atomic.Int64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	for cuts.Load() < cutsEach {
		list := connections()
		if len(list) == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		fd := list[rng.IntN(len(list))]
		var err error
		if rng.IntN(2) == 0 {
			err = unix.Shutdown(fd, []int{unix.SHUT_RD, unix.SHUT_WR, unix.SHUT_RDWR}[rng.IntN(3)])
		} else { // a reset
			var none unix.RawSockaddrInet4 // of family 0, which disconnects
			_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none))
			if errno != 0 {
				err = errno
			}
		}
		if err == nil {
			cuts.Add(1)
		}
		for until := rounds.Load() + rng.Int64N(3); rounds.Load() < until && cuts.Load() < cutsEach; {
			time.Sleep(time.Millisecond)
		}
	}
}

// openFiles counts the descriptors of this process.
func openFiles() int { return len(must(os.ReadDir("/proc/self/fd"))) }

// connections lists the sockets of the TCP connections of this process.
func connections() (list []int) {
	for _, f := range must(os.ReadDir("/proc/self/fd")) {
		fd := must(strconv.Atoi(f.Name()))
		peer, err := unix.Getpeername(fd)
		if _, isIP := peer.(*unix.SockaddrInet4); err == nil && isIP {
			list = append(list, fd)
		}
	}
	return list
}

// TestNoRailNoticeWhenARankEnds: when a rank is killed or aborts the job, or the job is ended, the
// other ranks print no line about the rails to it.
func TestNoRailNoticeWhenARankEnds(t *testing.T) {
	launch := launcher(t)
	for _, how := range []string{"rank is killed", "rank aborts", "job is ended"} {
		got := launch(3, how, "--btl", "self,tcp", "--set", "tcp.include=127.0.0.1")
		require.NotZero(t, got.status, how)
		require.NotContains(t, got.stderr, "rail tcp", "%s: %s", how, got.stderr)
	}
}

// endProgram is a job whose rank 1 ends, in one of several ways, while the others wait for it.
func endProgram(end func(w *comm.Comm)) func(w *comm.Comm) error {
	return func(w *comm.Comm) error {
		for range 10 { // so that all connections are made
			ringRound(w, 1)
		}
		if w.Rank() == 1 {
			end(w)
			select {}
		}
		_, err := comm.Recv(w, make([]int, 1), 1, 99)
		return err
	}
}
