package comm

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/progress"
)

const (
	// If every rank has a core, a waiting rank spins for this many turns (some tens of
	// microseconds, about what an answer takes), and then yields for this long.
	spinTurns  = 2000
	yieldNanos = int64(time.Millisecond)
	// With fewer cores, a rank that spins keeps the rank that it waits for from running. With two
	// and four ranks a core, four turns cost a tenth of a barrier's time, and 64 turns twice that.
	crowdedSpinTurns = 0
	// crowdedYieldNanos is how long a rank then yields. A process that wakes has to wait until
	// those that yield on its core have had their turns. Others wait for it meanwhile, and go to
	// sleep too: with sixteen ranks on two cores over TCP, a barrier takes 2 to 10 ms if ranks
	// sleep after 100 us to 2 ms, and 0.3 to 0.6 ms after 20 ms. Processes that compute lose little
	// by it, because a yield gives them the core.
	crowdedYieldNanos = int64(20 * time.Millisecond)
	// aloneQuickYields is after how many yields in a row that gave the core to nobody, some 100 us,
	// a rank sleeps that is alone in its scheduling group. Other ranks do not: sixteen ranks on two
	// cores, in four groups, take 2.3 ms instead of 0.4 for an Allreduce over TCP if they do.
	aloneQuickYields = 64
	// crowdedLocalYieldNanos is the same for ranks that are goroutines, which wake at once.
	crowdedLocalYieldNanos = int64(100 * time.Microsecond)
)

// idlePolicy says how a waiting rank waits, given how many ranks share how many cores, and how long
// it then yields if these are fewer. The user's settings have precedence.
func idlePolicy(settings tunable.Set, ranks, cores int, crowdedYieldNanos int64) progress.Config {
	cfg := progress.Config{
		SpinTurns:  spinTurns,
		YieldNanos: yieldNanos,
		NoSleep:    !settings.Bool("progress.sleep"),
	}
	if ranks > cores {
		cfg.SpinTurns, cfg.YieldNanos = crowdedSpinTurns, crowdedYieldNanos
	}
	if n := settings.Int("progress.spin"); n >= 0 {
		cfg.SpinTurns = int(n)
	}
	if _, origin := settings.Text("progress.yield"); origin != tunable.FromDefault {
		cfg.YieldNanos = int64(settings.Duration("progress.yield"))
	}
	return cfg
}

// coresOfProcesses is the number of cores that the ranks of this machine share. A launcher may have
// bound each rank to a core of its own. The ranks then share the cores that the launcher's process
// may use.
func coresOfProcesses() int {
	cores := min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getppid(), &set); err == nil {
		cores = max(cores, set.Count())
	}
	return cores
}

// isAloneInGroup reports whether this process may be alone in its scheduling group. The kernel
// chooses among groups first, and a process that yields does so to its own group only. Linux has a
// group for each session (autogroup) and for each cgroup with a CPU controller.
func isAloneInGroup() bool {
	sid, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return false
	}
	parents, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", os.Getppid()))
	if err != nil {
		parents = own
	}
	return aloneInGroup(os.Getpid(), sid, os.Getppid(), string(own), string(parents))
}

// aloneInGroup is isAloneInGroup for a process of a session, with the cgroups of it and its parent.
// A launcher may give each rank a session or a cgroup. The parent of a container's first process
// has no number there.
func aloneInGroup(pid, sid, parent int, own, parents string) bool {
	return sid == pid || parent == 0 || own != parents
}
