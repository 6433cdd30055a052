package procs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Descriptors returns the number of descriptors that a launcher or daemon needs to start ranks.
// Each rank needs a pidfd, two pipes, two sockets, and perhaps a pipe for its input and two files.
// The constant covers the launcher's own descriptors and connections, and the child's ends while a
// rank starts.
func Descriptors(ranks int) int { return 64 + 8*ranks }

// LeastDescriptors returns the minimum number of descriptors that the launcher needs for ranks that
// run at the same time.
func LeastDescriptors(ranks int) uint64 { return uint64(16 + 5*ranks) }

// CheckDescriptors returns an error if the limit on open files is too low for that many ranks on
// this machine. Without the check, only some of the ranks would start.
func CheckDescriptors(ranks int) error {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil || files.Cur >= LeastDescriptors(ranks) {
		return nil // an unknown limit shows when it is reached
	}
	return ExplainDescriptors(unix.EMFILE, ranks)
}

// ExplainDescriptors adds to an error about too many open files which limit is too low, and which
// limit suffices for the given number of ranks on this machine with any flags of the launcher. It
// does not change other errors, nor one that it has explained before.
func ExplainDescriptors(err error, ranks int) error {
	switch {
	case errors.As(err, new(*DetailedError)):
		return err
	case errors.Is(err, unix.ENFILE):
		return &DetailedError{fmt.Sprintf("%v: this machine allows no more; as root: sysctl fs.file-max shows the limit, and sets it", err), err}
	case !errors.Is(err, unix.EMFILE):
		return err
	}
	need, limit := Descriptors(ranks), "low"
	if files := (unix.Rlimit{}); unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		limit = strconv.FormatUint(files.Cur, 10)
		need = max(need, 2*int(min(files.Cur, 1<<20)))
	}
	return &DetailedError{fmt.Sprintf("%v: the limit on open files is %s, which does not suffice for %d ranks of this host; %d do: run ulimit -n %d before", err, limit, ranks, need, need), err}
}

// ranksOfHost is the number of ranks on the host of a rank with the given environment.
func ranksOfHost(env []string) int {
	for _, pair := range env {
		if text, ok := strings.CutPrefix(pair, "MPI_LOCALNRANKS="); ok {
			n, _ := strconv.Atoi(text)
			return max(1, n)
		}
	}
	return 1
}
