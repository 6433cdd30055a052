package comm

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/cgroup"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/progress"
)

const (
	// If every rank has a core, a waiting rank spins for this many turns (some tens of
	// microseconds, about the time of an answer), and then yields for this time.
	spinTurns  = 2000
	yieldNanos = int64(time.Millisecond)
	// With fewer cores, a spinning rank may keep the rank that it waits for from running. With two
	// and four ranks a core, four turns cost a tenth of a barrier's time, and 64 turns twice that.
	crowdedSpinTurns = 0
	// crowdedYieldNanos is the time for which a rank then yields. A process that wakes has to wait
	// for the processes that yield on its core. Meanwhile other ranks wait for it, and go to sleep
	// too. With sixteen ranks on two cores over TCP, a barrier takes 2 to 10 ms if ranks sleep
	// after 100 us to 2 ms, and 0.3 to 0.6 ms if they sleep after 20 ms. Processes that compute
	// lose little, because a yield gives them the core.
	crowdedYieldNanos = int64(20 * time.Millisecond)
	// aloneQuickYields applies to a rank that is alone in its scheduling group. It sleeps after
	// this many yields in a row that gave the core to nobody, some 100 us. Other ranks do not sleep
	// so early: with sixteen ranks on two cores, in four groups, an Allreduce over TCP would take
	// 2.3 ms instead of 0.4 ms.
	aloneQuickYields = 64
	// crowdedLocalYieldNanos is crowdedYieldNanos for ranks that are goroutines, which wake at
	// once.
	crowdedLocalYieldNanos = int64(100 * time.Microsecond)
)

// idlePolicy says how a rank waits, given the numbers of ranks and of the cores that they share,
// and the time for which it yields if there are fewer cores than ranks. The user's settings have
// precedence.
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
// may use, or as many as the quota of the control group allows to use all the time.
func coresOfProcesses() int {
	cores := min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getppid(), &set); err == nil {
		cores = max(cores, set.Count())
	}
	return cgroup.CPUs("/", cores)
}

// isAloneInGroup reports whether this process may be alone in its scheduling group. The kernel
// chooses among groups first, and a process that yields does so to its own group only. Linux makes
// a group for each session (autogroup) and for each cgroup with a CPU controller.
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

// aloneInGroup is isAloneInGroup given the session of a process, its cgroup and the cgroup of its
// parent. A launcher may give each rank a session or a cgroup. In a container, the parent of the
// first process has no number.
func aloneInGroup(pid, sid, parent int, own, parents string) bool {
	return sid == pid || parent == 0 || own != parents
}
