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
	// With a core for every rank, a waiting rank spins this many turns (some tens of
	// microseconds, what an answer takes) and then yields for this long.
	spinTurns  = 2000
	yieldNanos = int64(time.Millisecond)
	// With fewer cores whoever spins keeps the one it waits for from running. Measured with two and
	// four ranks a core, four turns cost a tenth of a barrier's time, and 64 as much again.
	crowdedSpinTurns = 0
)

// idlePolicy decides what a waiting rank does, when ranks of the job share cores. Settings
// of the user's win.
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

// coresOfProcesses is the number of cores that the ranks of this machine share. A
// launcher may have bound each to a core of its own: what its own process may use is then
// what they share.
func coresOfProcesses() int {
	cores := min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getppid(), &set); err == nil {
		cores = max(cores, set.Count())
	}
	return cores
}
