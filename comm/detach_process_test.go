package comm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/comm"
)

// Environment variables of stoppedProgram: where to leave files, how many bytes to send, and
// whether the memory is from comm.Alloc or from the heap.
const (
	stoppedDirVariable    = "COMM_TEST_STOPPED_DIR"
	stoppedBytesVariable  = "COMM_TEST_STOPPED_BYTES"
	stoppedMemoryVariable = "COMM_TEST_STOPPED_MEMORY"
)

// stoppedProgram stops rank 1 before any message has arrived. Rank 0 gives up a broadcast to it,
// overwrites its buffer, and lets rank 1 continue. Rank 1 gets the original bytes.
func stoppedProgram(w *comm.Comm) error {
	n := must(strconv.Atoi(os.Getenv(stoppedBytesVariable)))
	file := filepath.Join(os.Getenv(stoppedDirVariable), "pid")
	want := pattern(n, 3)
	if w.Rank() == 1 {
		stopSelf(file)
		got := make([]byte, n)
		if err := comm.Bcast(w, got, 0); err != nil && !errors.Is(err, comm.ErrComm) {
			return fmt.Errorf("broadcast that the root has given up: %w", err)
		}
		// Once the root has given up, it does not send a message of which only the RTS was sent.
		if !bytes.Equal(got, want) && !bytes.Equal(got, make([]byte, n)) {
			return errors.New("bytes came that were not sent")
		}
		if n <= 6000 && !bytes.Equal(got, want) {
			return errors.New("nothing came")
		}
	} else {
		pid := stoppedProcess(file)
		if err := giveUpBcast(w, want); err != nil {
			return err
		}
		check(unix.Kill(pid, unix.SIGCONT))
	}
	// The rails still work.
	other, in := 1-w.Rank(), []int{0}
	must(comm.Sendrecv(w, []int{w.Rank()}, other, 1, in, other, 1))
	expect(other, in[0])
	expect(uint64(0), w.Stats().RailsFailed, "failed rails")
	if w.Rank() == 1 {
		fmt.Println("done")
	}
	return nil
}

// stopSelf writes the number of this process to a file and stops the process.
func stopSelf(file string) {
	check(os.WriteFile(file+".new", []byte(strconv.Itoa(os.Getpid())), 0o600))
	check(os.Rename(file+".new", file))
	check(unix.Kill(os.Getpid(), unix.SIGSTOP))
}

// stoppedProcess waits until the file has a process number, and that process is stopped.
func stoppedProcess(file string) (pid int) {
	for ; ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		check(err)
		stat := must(os.ReadFile(fmt.Sprintf("/proc/%s/stat", text)))
		if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "T") {
			return must(strconv.Atoi(string(text)))
		}
	}
}

// giveUpBcast broadcasts until a message is posted, and then gives up. Afterwards it frees the
// buffer or overwrites it.
func giveUpBcast(w *comm.Comm, want []byte) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for st := (comm.Stats{}); st.SentEager+st.SentRendezvous == 0 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
			st = w.Stats()
		}
		cancel()
	}()
	buf := bytes.Clone(want)
	fromAlloc := os.Getenv(stoppedMemoryVariable) == "alloc"
	if fromAlloc {
		buf = must(comm.Alloc[byte](w, len(want)))
		copy(buf, want)
	}
	if err := comm.Bcast(w.WithContext(ctx), buf, 0); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("broadcast that is given up: %w", err)
	}
	if fromAlloc {
		return comm.FreeAlloc(w, buf)
	}
	copy(buf, bytes.Repeat([]byte{0xee}, len(buf)))
	return nil
}

// TestStoppedPeerGetsBytesOfGivenUpBcast: a peer that is stopped at the first contact gets the
// original bytes when it goes on, even if the buffer was freed or overwritten.
func TestStoppedPeerGetsBytesOfGivenUpBcast(t *testing.T) {
	launch := launcher(t)
	for _, memory := range []string{"alloc", "heap"} {
		for _, n := range []int{100, 6000, 60_000, 3 << 20} {
			t.Run(fmt.Sprintf("%d bytes of %s", n, memory), func(t *testing.T) {
				t.Setenv(stoppedDirVariable, t.TempDir())
				t.Setenv(stoppedBytesVariable, strconv.Itoa(n))
				t.Setenv(stoppedMemoryVariable, memory)
				got := launch(2, "stopped", "--btl", "self,tcp", "--set", "tcp.include=127.0.0.1")
				assert.Equal(t, outcome{0, "done\n", ""}, got)
			})
		}
	}
}
