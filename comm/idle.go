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
	// crowdedYieldNanos is how long a rank then yields. A process that wakes has to wait until
	// those that yield on its core have had their turns. Others wait for it meanwhile, and go to
	// sleep too: with sixteen ranks on two cores over TCP, a barrier takes 2 to 10 ms if ranks
	// sleep after 100 us to 2 ms, and 0.3 to 0.6 ms after 20 ms. Processes that compute lose little
	// by it, because a yield gives them the core.
	crowdedYieldNanos = int64(20 * time.Millisecond)
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
