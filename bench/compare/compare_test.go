package main

import (
	"context"
	"encoding/xml"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/svg"
)

func TestParse(t *testing.T) {
	opts, err := parse(strings.Fields("-quick -only ^latency$ -o out"))
	require.NoError(t, err)
	assert.Equal(t, 1, opts.rounds)
	assert.True(t, opts.experiments.MatchString("latency"))
	assert.False(t, opts.experiments.MatchString("platency"))
	opts, err = parse(nil)
	require.NoError(t, err)
	assert.Equal(t, 5, opts.rounds)
	for args, want := range map[string]string{
		"more":          `unexpected argument "more"`,
		"-rounds -1":    "-rounds is -1: it must be at least 1",
		"-rounds 0":     "-rounds is 0: it must be at least 1",
		"-timeout 0s":   "-timeout is 0s: it must be positive",
		"-bind socket":  `-bind is "socket": it must be core or default`,
		"-only (":       "-only: ",
		"-contenders [": "-contenders: ",
		"-quick -o a b": `unexpected argument "b"`,
		"-sizes 8,,1K":  `-sizes is 8,,1K: "" is not a size such as 8, 64K or 1M`,
		"-sizes 8:1K":   `"8:1K" is not a size`,
		"-sizes 0":      `"0" is not a size`,

		"-quick -sizes 8":                 "omit either -quick or -sizes",
		"-from results.csv -only latency": "-from measures nothing: omit -only",
	} {
		_, err := parse(strings.Fields(args))
		require.Error(t, err, args)
		assert.Contains(t, err.Error(), want)
		assert.NotContains(t, err.Error(), "\n")
	}
}

func TestSplit(t *testing.T) {
	opts, err := parse(strings.Fields("-sizes 8,64K"))
	require.NoError(t, err)
	var commands []string
	for _, e := range []experiment{
		{args: []string{"latency"}, sizes: "1:4M"},
		{args: []string{"barrier"}},
		{args: []string{"latency"}, sizes: "8", kind: goroutines, ranks: 2},
	} {
		for _, one := range e.split(opts.sizes) {
			commands = append(commands, strings.Join(one.command(false), " "))
		}
	}
	assert.Equal(t, []string{"latency -m 8 --json", "latency -m 64K --json", "barrier --json", "latency -m 8 --local 2 --json"}, commands)
	assert.Len(t, experiment{sizes: "1:4M"}.split(nil), 1)
}

func TestUsageOfOthers(t *testing.T) {
	const stat = "cpu  100 50 150 600 100 10 20 70 5 5\ncpu0 1 2 3 4 5 6 7 8\n"
	u, err := parseStat(stat)
	require.NoError(t, err)
	assert.InDelta(t, 11, u.all, 1e-9)
	assert.InDelta(t, 7, u.idle, 1e-9)
	for _, text := range []string{"", "cpu 1 2 3 4 5 6 7\n", "intr 1 2 3 4 5 6 7 8\n", "cpu 1 2 3 4 5 6 7 x\n", "cpu 1 2 3 4 5 6 7 -8\n"} {
		_, err := parseStat(text)
		assert.Error(t, err, text)
	}
	before := usage{all: 100, idle: 50, own: 20}
	assert.InDelta(t, 0.3, usage{all: 110, idle: 52, own: 25}.othersSince(before), 1e-9)
	assert.Zero(t, usage{all: 110, idle: 55, own: 26}.othersSince(before), "this process's own time is counted finer")
	assert.Zero(t, before.othersSince(before))

	assert.Empty(t, busy(0.05, "in round 1"))
	assert.Equal(t, "the machine is busy: others used 42 % of its cores' time in round 2, which makes figures worse; "+
		"measure while nothing else runs", busy(0.42, "in round 2"))
	m := &measurement{res: &results{}}
	m.keepOthers(1, 0.05)
	m.keepOthers(2, 0.42)
	assert.Equal(t, []string{"5 %", "42 %"}, m.res.Machine.OthersDuring)

	// On this machine.
	share, known := watchOthers(func() { time.Sleep(20 * time.Millisecond) })
	assert.True(t, known)
	assert.True(t, share >= 0 && share <= 1, share)
}

// command returns what a contender runs for an experiment on two cores.
func command(t *testing.T, contender, experiment string, ranks int, bind string, quick bool) string {
	t.Helper()
	for _, e := range experiments() {
		for _, c := range contenders("/d") {
			if e.name == experiment && e.ranks == ranks && c.name == contender {
				require.True(t, c.takesPart(e))
				return strings.Join(append(c.env, c.command(e, place{cores: 2, bind: bind, root: true}, quick)...), " ")
			}
		}
	}
	t.Fatalf("%s does not run %s with %d ranks", contender, experiment, ranks)
	return ""
}

func TestCommands(t *testing.T) {
	assert.Equal(t, "/d/mpirun-go -n 2 --bind-to core /d/bench latency -m 1,8,64,512,1K,4K,8K,16K,32K,64K,256K,1M,4M --json",
		command(t, ours, "latency", 2, bindCore, false))
	assert.Equal(t, "/d/mpirun-go -n 2 /d/bench bw -m 8,8K,64K,1M --json --alloc",
		command(t, oursAlloc, "bw", 2, bindDefault, true))
	assert.Equal(t, "/d/mpirun-go -n 8 --oversubscribe /d/bench barrier --json -i 500 -x 1000",
		command(t, ours, "barrier", 8, bindCore, true))
	assert.Equal(t, "mpirun.openmpi -n 2 --mca btl_vader_single_copy_mechanism none --allow-run-as-root --bind-to core "+
		"/d/peer-openmpi latency --fresh -m 8,1K,8K,64K,1M --json",
		command(t, openMPITwo, "latency, fresh buffers", 2, bindCore, false))
	assert.Equal(t, "mpirun.openmpi -n 8 --mca btl_vader_single_copy_mechanism cma --allow-run-as-root --oversubscribe "+
		"--bind-to none --mca mpi_yield_when_idle 1 /d/peer-openmpi allreduce -m 8,1K,64K,1M --json -i 500 -x 1000",
		command(t, openMPISingle, "allreduce", 8, bindCore, false))
	assert.Equal(t, "UCX_TLS=posix,self mpiexec.hydra -n 4 /d/peer-mpich allreduce -m 8,1K,64K,1M --json -i 10 -x 2",
		command(t, mpichTwo, "allreduce", 4, bindCore, false))
	assert.Equal(t, "mpiexec.hydra -n 2 -bind-to core /d/peer-mpich empty",
		command(t, mpichSingle, startName, 2, bindCore, true))
	assert.Equal(t, "/d/mpirun-go -n 2 --btl self,tcp --set tcp.include=lo --bind-to core /d/bench latency -m 8,1K,64K,1M --json",
		command(t, oursTCP, latencyTCP, 2, bindCore, true))
	assert.Equal(t, "mpirun.openmpi -n 2 --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include lo --allow-run-as-root --bind-to core "+
		"/d/peer-openmpi bw -m 64K,1M --json",
		command(t, openMPITCP, bwTCP, 2, bindCore, true))
	assert.Equal(t, "UCX_TLS=tcp,self UCX_NET_DEVICES=lo mpiexec.hydra -n 2 -bind-to core /d/peer-mpich bw -m 64K,1M --json",
		command(t, mpichTCP, bwTCP, 2, bindCore, true))
	assert.Equal(t, "/d/bench latency -m 8 --local 2 --json",
		command(t, ours, goroutinesName, 2, bindCore, true))
}

// TestEveryTargetIsMeasured checks that each target belongs to an experiment and to contenders that
// take part in it.
func TestEveryTargetIsMeasured(t *testing.T) {
	res := &results{}
	for _, e := range experiments() {
		unit := "us"
		switch {
		case e.kind == wholeJob:
			unit = "ms"
		case strings.HasPrefix(e.name, "bw"):
			unit = "MB/s"
		case e.name == overlapTCP:
			unit = "%"
		case strings.HasSuffix(e.name, "_persistent"):
			unit = toNonblocking
		}
		for _, size := range []int{0, 8, 64, 1 << 10, 8 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20} {
			for _, c := range contenders("") {
				if c.takesPart(e) {
					res.add(point{e.name, e.ranks, size, unit}, c.name, 1)
				}
			}
		}
	}
	res.add(point{goroutinesName, 2, 8, "us"}, channel, 1)
	all := targets()
	assert.Len(t, judge(res, all), len(all))
}

func TestJudge(t *testing.T) {
	res := &results{}
	lat, bw := point{"latency", 2, 8, "us"}, point{"bw", 2, 8, "MB/s"}
	for _, v := range []float64{0.05, 0.04, 0.09} {
		res.add(lat, ours, v)
	}
	for _, v := range []float64{0.2, 0.12, 0.3} {
		res.add(lat, openMPISingle, v)
	}
	for _, v := range []float64{0.14, 0.13, 0.16} {
		res.add(lat, mpichTwo, v)
	}
	res.add(bw, ours, 200)
	res.add(bw, mpichSingle, 150)
	res.add(bw, openMPITwo, 160)

	out := judge(res, targets())
	require.Len(t, out, 2)
	assert.Equal(t, "latency 8 B", out[0].name)
	assert.Equal(t, mpichTwo, out[0].other, "the best median")
	assert.InDelta(t, 0.05/0.14, out[0].ratio, 1e-9)
	assert.InDelta(t, 0.04/0.12, out[0].best, 1e-9, "the best value is another contender's")
	assert.InDelta(t, 0.05/0.14, out[0].paired, 1e-9, "the ratios are 0.36, 0.31 and 0.56")
	assert.True(t, out[0].reached)
	assert.Equal(t, "bw 8 B", out[1].name)
	assert.Equal(t, openMPITwo, out[1].other)
	assert.InDelta(t, 200.0/160, out[1].ratio, 1e-9)
	assert.False(t, out[1].reached, "1.25 is not 1.3")
	assert.InDelta(t, 200.0/160, out[1].paired, 1e-9)

	assert.EqualError(t, missed(out), "1 of 2 targets missed: bw 8 B: 1.25, target 1.3")
	assert.NoError(t, missed(out[:1]))
	assert.ErrorContains(t, missed(nil), "no target was measured")

	overlap := &results{}
	overlap.add(point{overlapTCP, 2, 1 << 20, "%"}, oursTCP, 85)
	overlap.add(point{overlapTCP, 2, 1 << 20, "us"}, oursTCP, 900)
	of := judge(overlap, targets())
	require.Len(t, of, 1)
	assert.InDelta(t, 0.85, of[0].judged(), 1e-9)
	assert.True(t, of[0].reached)

	res.add(bw, openMPITwo, 170)
	assert.Zero(t, judge(res, targets())[1].paired, "the numbers of rounds differ")
}

func TestSummarize(t *testing.T) {
	time := series{point{Unit: "us"}, ours, []float64{5, 1, 3, 2}}
	assert.Equal(t, summary{median: 2.5, best: 1}, summarize(time))
	rate := series{point{Unit: "MB/s"}, ours, []float64{5, 1, 3}}
	assert.Equal(t, summary{median: 3, best: 5}, summarize(rate))
}

func TestReadings(t *testing.T) {
	all, err := readings([]byte("WARNING of a library\n"+`{"bench":"bw","size":8,"value":1e3,"unit":"MB/s","ranks":2,"btl":"sm"}`+"\n"), 2)
	require.NoError(t, err)
	assert.Equal(t, []reading{{8, 1000, "MB/s", 2}}, all)
	for out, want := range map[string]string{
		"":              "no results",
		"{\"size\":\n":  "unexpected end",
		`{"ranks":1}`:   "a job of 1 ranks, not 2",
		"# a table\n8 ": "no results",
	} {
		_, err := readings([]byte(out), 2)
		require.Error(t, err, out)
		assert.Contains(t, err.Error(), want)
	}
}

func TestLauncherRun(t *testing.T) {
	l := newLauncher(time.Minute)
	out, took, err := l.run(t.Context(), []string{"sh", "-c", "echo $A"}, []string{"A=b"})
	require.NoError(t, err)
	assert.Equal(t, "b\n", string(out))
	assert.Positive(t, took)
	_, _, err = l.run(t.Context(), []string{"sh", "-c", "echo why >&2; exit 3"}, nil)
	assert.EqualError(t, err, "exit status 3: why")
	_, _, err = l.run(t.Context(), []string{"/nowhere"}, nil)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestLauncherTimeoutKillsAllProcesses checks that a process in a session of its own is killed,
// too.
func TestLauncherTimeoutKillsAllProcesses(t *testing.T) {
	t.Parallel()
	l := newLauncher(3 * time.Second) // in which a busy machine starts the processes
	file := filepath.Join(t.TempDir(), "pid")
	_, _, err := l.run(t.Context(), []string{"sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $! >" + file + "; wait"}, nil)
	assert.EqualError(t, err, "no end after 3s")
	pid, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		env, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "environ"))
		return err != nil || !strings.Contains(string(env), l.tag)
	}, 10*time.Second, 10*time.Millisecond)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = l.run(ctx, []string{"sleep", "600"}, nil)
	assert.Error(t, err)
}

// countTagged counts the processes of a launcher.
func countTagged(t *testing.T, l *launcher) (n int) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, dir := range dirs {
		if env, err := os.ReadFile(filepath.Join(dir, "environ")); err == nil && strings.Contains(string(env), l.tag) {
			n++
		}
	}
	return n
}

func TestOccupy(t *testing.T) {
	l := newLauncher(time.Minute)
	stop, err := l.occupy(3)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return countTagged(t, l) == 3 }, 10*time.Second, time.Millisecond)
	stop()
	require.Zero(t, countTagged(t, l))
}

// TestOccupyEndsWithItsParent: for the kernel, the parent ends when the thread that started the
// process ends.
func TestOccupyEndsWithItsParent(t *testing.T) {
	l := newLauncher(time.Minute)
	stops := make(chan func())
	var start func()
	start = func() {
		runtime.LockOSThread() // so the thread ends with this goroutine, unless it is the first one
		if syscall.Gettid() == os.Getpid() {
			go start() // on another thread, because this one is locked until the test has ended
			<-t.Context().Done()
			return
		}
		stop, err := l.occupy(1)
		assert.NoError(t, err)
		stops <- stop
	}
	go start()
	stop := <-stops
	defer stop()
	require.Eventually(t, func() bool { return countTagged(t, l) == 0 }, 10*time.Second, time.Millisecond)
}

// some returns results to write and draw.
func some() *results {
	res := &results{session: session{Begun: time.Unix(0, 0).UTC(), Ended: time.Unix(90, 0).UTC(), Rounds: 2, Bind: bindCore,
		Problems: []string{"MPICH | is left out"}, Machine: machine{CPU: "CPU", Cores: 2, Kernel: "Linux"},
		Contenders: []described{{ours, "mpirun-go"}}}}
	for _, size := range []int{8, 1 << 10, 64 << 10, 1 << 20} {
		for i := range 2 {
			f := float64(size) * float64(i+1)
			res.add(point{"latency", 2, size, "us"}, ours, f/1000)
			res.add(point{"latency", 2, size, "us"}, oursAlloc, f/2000)
			res.add(point{"latency", 2, size, "us"}, openMPITwo, f/1500)
			res.add(point{"bw", 2, size, "MB/s"}, ours, 5*f)
			res.add(point{latencyTCP, 2, size, "us"}, oursTCP, f/100)
			res.add(point{latencyTCP, 2, size, "us"}, mpichTCP, f/200)
			res.add(point{bwTCP, 2, size, "MB/s"}, oursTCP, f)
		}
	}
	res.add(point{limitsName, 2, 64, "ns"}, lineName, 47)
	return res
}

func TestTables(t *testing.T) {
	text := tables(some())
	for _, want := range []string{
		"# Measurements of 1970-01-01\n",
		"| processor | CPU, 2 cores, cache  |\n",
		"| rounds | 2, interleaved, in 1m30s |\n",
		"| problem | MPICH / is left out |\n",
		"0 of 10 reached.",
		"## latency, TCP, 2 ranks (us)\n\n| size | mpigo, TCP | MPICH, TCP | mpigo to best peer |\n",
		"| latency 8 B | 0.012 (0.008) us | 0.008 (0.005) us | Open MPI, two copies | 1.50 (1.50) | 1.50 | ≤ 0.55 | **no** |\n",
		"| a cache line to another core | 47.0 ns | 47.0 ns |\n",
		"## latency, 2 ranks (us)\n\n| size | mpigo | mpigo, Alloc memory | Open MPI, two copies | mpigo to best peer |\n",
		"| 1 KiB | 1.54 (1.02) | 0.768 (0.512) | 1.02 (0.683) | 1.50 (1.50), Alloc 0.75 (0.75) |\n",
		"## bw, 2 ranks (MB/s)\n\n| size | mpigo |\n",
		"| mpigo | `mpirun-go` |\n",
	} {
		assert.Contains(t, text, want)
	}
}

// The limits of an axis are ticks at or beyond the values.
func TestTicksOfAxis(t *testing.T) {
	for v, want := range map[float64][2]float64{
		0.03: {0.02, 0.05}, 0.5: {0.5, 0.5}, 0.7: {0.5, 1}, 1: {1, 1}, 1.5: {1, 2}, 4: {2, 5}, 20: {20, 20}, 999: {500, 1000},
	} {
		require.InDelta(t, want[0], 1/svg.Ceil(1/v), want[0]*1e-9, "below %v", v)
		require.InDelta(t, want[1], svg.Ceil(v), want[1]*1e-9, "above %v", v)
	}
}

func TestPlots(t *testing.T) {
	for _, p := range plots() {
		svg, ok := p.draw(some())
		require.True(t, ok)
		var parsed struct {
			Lines []struct {
				Points string `xml:"points,attr"`
			} `xml:"polyline"`
		}
		require.NoError(t, xml.Unmarshal([]byte(svg), &parsed))
		assert.Len(t, parsed.Lines, map[string]int{"latency": 3, "bw": 1, latencyTCP: 2, bwTCP: 1}[p.experiment])
		for _, line := range parsed.Lines {
			assert.Len(t, strings.Fields(line.Points), 4)
		}
		assert.NotContains(t, svg, "NaN")
		_, ok = p.draw(&results{})
		assert.False(t, ok)
	}
	one := &results{}
	one.add(point{"latency", 2, 8, "us"}, ours, 1)
	svg, ok := plots()[0].draw(one)
	assert.True(t, ok)
	assert.NotContains(t, svg, "NaN")
	assert.NotContains(t, svg, "Inf")
}

func TestWriteAndReadResults(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, write(dir, some()))
	again, err := readResults(filepath.Join(dir, resultsFile))
	require.NoError(t, err)
	assert.Equal(t, some(), again)
	for _, name := range []string{"tables.md", "latency.svg", "bandwidth.svg"} {
		assert.FileExists(t, filepath.Join(dir, name))
	}
	for text, want := range map[string]string{
		"":                           "unexpected end of JSON input",
		"# {\n":                      "unexpected end of JSON input",
		"# {}\na,b\n":                "the first columns are not",
		"# {}\n" + columns + "\nx\n": "wrong number of fields",
		"# {}\n" + columns + ",x\ny,2,8,us,1 z\n": `parsing "z"`,
	} {
		_, err := parseResults(text)
		assert.ErrorContains(t, err, want, text)
	}
}

// TestRunOfOwnPrograms builds and runs mpigo's programs, measures the limits, and writes
// everything.
func TestRunOfOwnPrograms(t *testing.T) {
	opts, err := parse(strings.Fields("-quick -only ^barrier|goroutines -contenders ^mpigo$"))
	require.NoError(t, err)
	opts.out = t.TempDir()
	require.NoError(t, run(t.Context(), opts))
	res, err := readResults(filepath.Join(opts.out, resultsFile))
	require.NoError(t, err)
	assert.Equal(t, 1, res.Rounds)
	assert.NotEmpty(t, res.Machine.OthersBefore)
	assert.Len(t, res.Machine.OthersDuring, 1)
	assert.Equal(t, len(allowedCPUs()) < 2, len(res.Problems) > 0, "%v", res.Problems)
	seen := map[string]bool{}
	for _, s := range res.Series {
		seen[s.Experiment+"/"+s.Contender] = true
		assert.Len(t, s.Values, 1)
		assert.Positive(t, s.Values[0], s)
	}
	for _, want := range []string{"barrier/" + ours, goroutinesName + "/" + ours, goroutinesName + "/" + channel} {
		assert.True(t, seen[want], want)
	}
	assert.Equal(t, len(allowedCPUs()) > 1, seen[limitsName+"/"+copyFar])

	opts.experiments = opts.contenders
	assert.ErrorContains(t, run(t.Context(), opts), "nothing to run")
}

func TestMarksMeasureOnlyTargets(t *testing.T) {
	measured := map[point]bool{}
	for _, e := range experiments() {
		for _, part := range e.split(nil) {
			if isTarget(part) {
				measured[point{part.name, part.ranks, 0, part.sizes}] = true
			}
		}
	}
	assert.True(t, measured[point{"latency", 2, 0, "64K"}])
	assert.True(t, measured[point{"barrier", 8, 0, ""}])
	assert.False(t, measured[point{"latency", 2, 0, "512"}], "a size without a target")
	assert.True(t, measured[point{"bcast_persistent", 4, 0, "1K"}])
	assert.False(t, measured[point{"bcast_persistent", 4, 0, "1M"}], "a size without a target")
	assert.False(t, measured[point{"ibcast", 4, 0, "8"}], "a benchmark without a target")
	assert.False(t, measured[point{"bibw", 2, 0, "8"}], "a benchmark without a target")
	for _, e := range targets() {
		size := ""
		if e.at.Size > 0 {
			size = sizeOption(e.at.Size)
		}
		found := measured[point{e.at.Experiment, e.at.Ranks, 0, size}] || e.at.Experiment == goroutinesName
		assert.True(t, found, "%s: no experiment measures it", e.name)
	}
}

func TestLimitsAloneAreNoResult(t *testing.T) {
	r := &results{session: session{Contenders: []described{{Name: ours}}}}
	r.add(point{"limits of the machine", 2, 64, "ns"}, "a cache line to another core", 40)
	assert.False(t, r.hasContender())
	r.add(point{"latency", 2, 8, "us"}, ours, 0.1)
	assert.True(t, r.hasContender())
}
