package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/mpitest"
)

// mainVariable is an environment variable that has this test binary run Main instead of the tests.
const mainVariable = "BENCH_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		os.Exit(Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// local runs a benchmark with ranks as goroutines and returns what rank 0 prints.
func local(t *testing.T, ranks int, args string) string {
	t.Helper()
	cfg, err := parse(append(strings.Fields(args), "--local", fmt.Sprint(ranks)))
	require.NoError(t, err)
	require.NoError(t, cfg.checkRanks(1))
	var out bytes.Buffer
	mpitest.Run(t, ranks, func(t testing.TB, world *comm.Comm) {
		require.NoError(t, run(world, cfg, &out))
	}, comm.WithSetting("check", "false")) // windows of receives share a buffer, as OSU's
	return out.String()
}

// TestEveryBenchmarkWithEveryFlag checks that the right bytes arrive and that a line is printed for
// each size.
func TestEveryBenchmarkWithEveryFlag(t *testing.T) {
	for _, b := range table() {
		if b.open == nil {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			check := func(ranks int, flags string, sizes int) {
				t.Helper()
				args := b.name + " -i 2 -x 1 " + flags
				if b.takes("W") && !strings.Contains(flags, "-W") {
					args += " -W 8"
				}
				if b.takes("m") {
					args += " --validate"
				}
				got, lines := local(t, ranks, args), 2+sizes
				if strings.Contains(flags, "--json") {
					lines = 0
					for _, c := range b.columns {
						if c.part == value {
							lines += sizes
						}
					}
				}
				assert.Equal(t, lines, strings.Count(got, "\n"), "%d ranks, %s:\n%s", ranks, args, got)
			}
			sizes, large := "", ""
			one := 1
			if b.takes("m") {
				sizes, large = fmt.Sprintf("-m 0:%d ", 4*b.unit), "-m 40000:40000 "
				one = 4
			}
			check(b.ranks.min, sizes, one)
			check(b.ranks.min, large+"--json", 1)
			for _, f := range b.flags {
				switch f {
				case "W":
					check(b.ranks.min, large+"-W 1", 1)
				case "unexpected":
					check(b.ranks.min, large+"--unexpected 30", 1)
					check(b.ranks.min, sizes+"--unexpected 100 --two-comms --fresh --pool 256K", one)
				case "fresh":
					check(b.ranks.min, large+"--fresh --pool 64K", 1)
					check(b.ranks.min, sizes+"--fresh --pool 64K --alloc", one)
				case "goroutines":
					check(b.ranks.min, large+"--goroutines 4", 1)
					check(b.ranks.min, sizes+"--goroutines 3 --unexpected 30 --two-comms --fresh", one)
				case "t":
					check(b.ranks.min, large+"-t 3", 1)
				case "alloc", "two-comms", "isend":
					check(b.ranks.min, large+spell(f), 1)
				}
			}
			if b.ranks.max == 0 {
				check(4, large, 1)
			}
			if b.ranks.max == 0 && !b.ranks.even {
				check(3, sizes, one)
			}
		})
	}
}

// TestCheckWithoutIterationFails checks that missing data is detected.
func TestCheckWithoutIterationFails(t *testing.T) {
	for _, b := range table() {
		if !b.takes("validate") {
			continue
		}
		args := []string{b.name, "-m", "4K:4K"}
		if b.takes("goroutines") {
			args = append(args, "--goroutines", "2")
		}
		cfg, err := parse(args)
		require.NoError(t, err)
		var mu sync.Mutex
		noticed := 0
		mpitest.Run(t, 2, func(t testing.TB, world *comm.Comm) {
			ex, err := cfg.bench.open(&job{cfg: cfg, world: world, comms: [2]*comm.Comm{world, world}})
			require.NoError(t, err)
			require.NoError(t, ex.resize(4<<10))
			ex.fill(1)
			if ex.check(1) != nil {
				mu.Lock()
				noticed++
				mu.Unlock()
			}
			require.NoError(t, ex.close())
		})
		assert.Positive(t, noticed, b.name)
	}
}

// TestLoopsDoNotAllocate checks that 100 more iterations of the timed loops allocate less than once
// each. No rank sleeps here: a rank that goes to sleep twice in one collective sends a mismatch
// probe, which allocates, and on a busy machine that happens.
func TestLoopsDoNotAllocate(t *testing.T) {
	t.Setenv("MPIGO_PROGRESS_SLEEP", "false")
	mallocs := func(args string, iterations int) uint64 {
		cfg, err := parse(strings.Fields(fmt.Sprintf("%s -i %d -x 20", args, iterations)))
		require.NoError(t, err)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.NoError(t, comm.RunLocal(2, func(world *comm.Comm) error { return run(world, cfg, io.Discard) }))
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	for _, b := range table() {
		flags := ""
		if b.takes("m") {
			flags += " -m 64:64"
		}
		if b.takes("W") {
			flags += " -W 8"
		}
		variants := []string{flags}
		if b.takes("unexpected") {
			variants = append(variants, flags+" --unexpected 20 --two-comms --fresh --pool 1M")
		}
		for _, v := range variants {
			if b.open == nil {
				continue
			}
			const more = 100
			few := mallocs(b.name+v, 1)
			many := mallocs(b.name+v, 1+more)
			assert.Less(t, many, few+more, "%s%s", b.name, v)
		}
	}
}

func TestEverySpreadsPercentage(t *testing.T) {
	for percent := range 101 {
		e := every{percent: percent}
		n := 0
		for range 1000 {
			if e.due() {
				n++
			}
		}
		assert.Equal(t, 10*percent, n)
	}
}

func TestReportCollectiveOverAllRanks(t *testing.T) {
	mpitest.Run(t, 2, func(t testing.TB, world *comm.Comm) {
		mine := measured{iterations: 1, elapsed: time.Duration(1+world.Rank()) * time.Microsecond}
		values, err := reportCollective(&job{world: world}, mine)
		require.NoError(t, err)
		if world.Rank() == 0 {
			assert.Equal(t, []float64{1.5, 1, 2}, values)
		}
	})
}

func TestReportOverlapOfMeans(t *testing.T) {
	mpitest.Run(t, 2, func(t testing.TB, world *comm.Comm) {
		micros := func(n int) time.Duration { return 2 * time.Duration(n+world.Rank()) * time.Microsecond }
		mine := measured{iterations: 2, elapsed: micros(7), parts: parts{compute: micros(5), pure: micros(4)}}
		values, err := reportOverlap(&job{world: world}, mine)
		require.NoError(t, err)
		if world.Rank() == 0 {
			assert.InDeltaSlice(t, []float64{7.5, 5.5, 4.5, 100 * (1 - 2/4.5)}, values, 1e-9)
		}
	})
	assert.InDelta(t, 100, overlap(5, 5, 4), 1e-9, "all of the call is hidden")
	assert.InDelta(t, 0, overlap(9, 5, 4), 1e-9)
	assert.Zero(t, overlap(20, 5, 4), "slower than without a computation")
	assert.Zero(t, overlap(1, 1, 0))
}

// TestComputationCallsTestAsOftenAsAsked also checks the duration of the computation.
func TestComputationCallsTestAsOftenAsAsked(t *testing.T) {
	const target = time.Millisecond
	for _, tests := range []int{0, 1, 7} {
		e := &nonblockingExercise[byte]{collectiveExercise: &collectiveExercise[byte]{j: &job{cfg: config{tests: tests}}, epoch: time.Now()}}
		began, calls := time.Now(), 0
		_, err := e.computeAndTest(target, func() error { calls++; return nil })
		require.NoError(t, err)
		assert.Equal(t, tests, calls)
		// Each part is rounded down.
		assert.GreaterOrEqual(t, time.Since(began), target-time.Duration(tests))
	}
}

// TestFreshBuffersUseWholePool checks that fresh buffers do not overlap, and that all of the pool
// is used before a buffer is used again.
func TestFreshBuffersUseWholePool(t *testing.T) {
	mpitest.Run(t, 1, func(t testing.TB, world *comm.Comm) {
		p, err := newPool[byte](&job{cfg: config{fresh: true, poolBytes: 1 << 20}, world: world}, 10_000)
		require.NoError(t, err)
		for _, n := range []int{1, 100, 10_000} {
			p.resize(n)
			seen := map[*byte]bool{}
			for first := &p.take()[0]; ; {
				b := p.take()
				require.Len(t, b, n)
				if &b[0] == first {
					break
				}
				require.False(t, seen[&b[0]])
				seen[&b[0]] = true
			}
			assert.InDelta(t, (1<<20)/freshStride(n), len(seen)+1, 1)
		}
		require.NoError(t, p.free())
	})
}

// TestProcesses checks that processes print figures on standard output, and each mistake once, with
// its exit status. They run this test binary.
func TestProcesses(t *testing.T) {
	mpirun := filepath.Join(t.TempDir(), "mpirun-go")
	out, err := exec.Command("go", "build", "-o", mpirun, "../../mpirun-go").CombinedOutput()
	require.NoError(t, err, "%s", out)
	bench, err := os.Executable()
	require.NoError(t, err)
	t.Setenv(mainVariable, "true")
	launch := func(args ...string) (status int, stdout, stderr string) {
		cmd := exec.Command(args[0], args[1:]...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
			require.NoError(t, err)
		}
		return cmd.ProcessState.ExitCode(), out.String(), errs.String()
	}
	with := func(ranks, args string) []string {
		return append([]string{mpirun, "-n", ranks, "--oversubscribe", "--timeout", "3m", bench}, strings.Fields(args)...)
	}

	status, stdout, stderr := launch(with("2", "latency -m 8:64K -i 5 -x 1 --validate")...)
	assert.Equal(t, 0, status, stderr)
	assert.Contains(t, stdout, "# mpigo latency, 2 ranks, sm, validated\n# Size          Latency (us)\n8    ")
	assert.Equal(t, 2+14, strings.Count(stdout, "\n"))

	status, stdout, stderr = launch(with("4", "allreduce -m 8:8 -i 5 -x 1 --json --validate")...)
	assert.Equal(t, 0, status, stderr)
	assert.Regexp(t, `^{"bench":"allreduce","size":8,"value":[0-9.e+]+,"min":.*,"max":.*,"unit":"us","ranks":4,"btl":"sm","variants":\["validated"\]}\n$`, stdout)

	status, stdout, stderr = launch(with("2", "empty")...)
	assert.Equal(t, []any{0, "", ""}, []any{status, stdout, stderr})

	for args, want := range map[string]string{
		"latency -m 8:4": "bench: latency: -m \"8:4\": the range from 8 to 4 bytes is empty (mpirun-go bench --help)\n",
		"latency":        "bench: latency: it takes 2 ranks, not 3: mpirun-go bench -n 2 latency (mpirun-go bench --help)\n",
	} {
		status, stdout, stderr = launch(with("3", args)...)
		assert.Equal(t, statusUsage, status)
		assert.Empty(t, stdout)
		assert.Equal(t, 1, strings.Count(stderr, "bench: "), stderr)
		assert.Contains(t, stderr, want)
	}
	// Without a launcher.
	status, stdout, _ = launch(bench, "barrier", "--local", "3", "-i", "5", "-x", "1")
	assert.Equal(t, 0, status)
	assert.Contains(t, stdout, "# mpigo barrier, 3 ranks, loop\n")
	status, _, stderr = launch(bench, "nothing")
	assert.Equal(t, statusUsage, status)
	assert.Equal(t, 1, strings.Count(stderr, "\n"))
}

// unmeasured are the collectives without a row of their own. Never written.
var unmeasured = []calls.ID{
	calls.Scan, calls.Exscan, calls.ReduceScatterBlock, calls.Gatherv, calls.Scatterv, calls.Allgatherv, calls.Alltoallv,
	calls.NeighborAllgather, calls.NeighborAllgatherv, calls.NeighborAlltoall, calls.NeighborAlltoallv,
}

func TestEveryCollectiveIsMeasured(t *testing.T) {
	measured := make(map[calls.ID]bool)
	for _, c := range collectives() {
		measured[c.id] = true
	}
	for _, id := range calls.All() {
		if id.HasAllForms() && id.Form() == calls.Blocking {
			require.NotEqual(t, measured[id], slices.Contains(unmeasured, id),
				"%s needs a row in collectives (collectives.go), or a place in unmeasured (bench_test.go)", id.Go())
		}
	}
}
