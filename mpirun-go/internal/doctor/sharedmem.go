package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// PeerArg is the first argument of the process that tries to reach the shared memory of a rank. The
// others are the rank's process and its descriptor.
const PeerArg = "mpigo-doctor-peer"

const (
	sharedBytes = 1 << 20
	sharedMark  = 0x5a
)

// trySharedMemory does what ranks of one host do: one process creates memory, and another maps it
// by its name in /proc. It returns the reason why that fails, or "".
func trySharedMemory() string {
	// The same calls as in btl/sm.
	fd, err := unix.MemfdCreate("mpigo-doctor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Sprintf("make an anonymous file (memfd_create): %v", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Ftruncate(fd, sharedBytes); err != nil {
		return fmt.Sprintf("give it %d bytes: %v", sharedBytes, err)
	}
	if _, err := unix.Pwrite(fd, []byte{sharedMark}, sharedBytes-1); err != nil {
		return fmt.Sprintf("write to it: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", PeerArg, strconv.Itoa(os.Getpid()), strconv.Itoa(fd))
	out, err := cmd.CombinedOutput()
	if err != nil {
		why, _, _ := strings.Cut(string(out), "\n")
		return strings.TrimSpace(fmt.Sprintf("%v: %s", err, why))
	}
	return ""
}

// RunPeer is the process with PeerArg. It returns its exit status.
func RunPeer(pid, fd string) int {
	if err := reach("/proc/" + pid + "/fd/" + fd); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// reach maps the memory of another process.
func reach(name string) error {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	mem, err := unix.Mmap(fd, 0, sharedBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %s: %w", name, err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	if mem[sharedBytes-1] != sharedMark {
		return fmt.Errorf("%s is not the memory of the rank", name)
	}
	return nil
}
