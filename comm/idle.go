package comm

import (
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
)

// idlePolicy says how a waiting rank waits, given how many ranks share how many cores. The user's
// settings have precedence.
func idlePolicy(settings tunable.Set, ranks, cores int) progress.Config {
	cfg := progress.Config{
		SpinTurns:  spinTurns,
		YieldNanos: yieldNanos,
		NoSleep:    !settings.Bool("progress.sleep"),
	}
	crowded := ranks > cores
	if crowded {
		cfg.SpinTurns = crowdedSpinTurns
	}
	if n := settings.Int("progress.spin"); n >= 0 {
		cfg.SpinTurns = int(n)
	}
	if _, origin := settings.Text("progress.yield"); crowded || origin != tunable.FromDefault {
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
