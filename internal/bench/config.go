package bench

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// config holds the values of the command line.
type config struct {
	bench      benchmark
	sizes      []int
	iterations int // of each size; 0: as many as the benchmark's counts say
	warmUp     int // iterations before; −1: as many as the benchmark's counts say
	window     int // messages under way at one time
	poolBytes  int // size of the memory that fresh buffers are taken from
	unexpected int // percentage of messages that arrive before their receive is posted
	goroutines int // of each rank, at once
	tests      int // calls of Test during the computation
	local      int // number of ranks as goroutines; 0: the ranks of the job

	alloc, fresh, twoComms, isend, validate bool
	json                                    bool
}

const (
	defaultWindow    = 64        // as OSU's
	defaultPoolBytes = 128 << 20 // more than the caches hold
	minPoolBytes     = 64 << 10  // less is a typing error

	// Larger values are typing errors.
	maxIterations = 1 << 40
	maxWindow     = 1 << 16
	maxLocal      = 1 << 10
	maxGoroutines = 1 << 10
	maxTests      = 1 << 20
)

var errHelp = errors.New("help requested")

// parse reads the command line: the name of a benchmark, then flags.
func parse(args []string) (config, error) {
	if len(args) == 0 {
		return config{}, errors.New("NAME is missing: mpirun-go bench latency, for example")
	}
	name, args := args[0], args[1:]
	if slices.Contains([]string{"-h", "-help", "--help"}, name) {
		return config{}, errHelp
	}
	b, ok := find(name)
	if !ok {
		return config{}, fmt.Errorf("there is no benchmark %q; the benchmarks are %s", name, strings.Join(names(), " "))
	}
	cfg := config{bench: b, window: defaultWindow, poolBytes: defaultPoolBytes}
	if err := cfg.parseFlags(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			err = errHelp
		}
		return config{}, fmt.Errorf("%s: %w", name, err)
	}
	return cfg, nil
}

func (cfg *config) parseFlags(args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	sizes, pool := "", ""
	flags.StringVar(&sizes, "m", "", "")
	flags.IntVar(&cfg.iterations, "i", 0, "")
	flags.IntVar(&cfg.warmUp, "x", -1, "")
	flags.IntVar(&cfg.window, "W", defaultWindow, "")
	flags.BoolVar(&cfg.alloc, "alloc", false, "")
	flags.BoolVar(&cfg.json, "json", false, "")
	flags.BoolVar(&cfg.fresh, "fresh", false, "")
	flags.StringVar(&pool, "pool", "", "")
	flags.IntVar(&cfg.unexpected, "unexpected", 0, "")
	flags.IntVar(&cfg.goroutines, "goroutines", 1, "")
	flags.IntVar(&cfg.tests, "t", 0, "")
	flags.BoolVar(&cfg.twoComms, "two-comms", false, "")
	flags.BoolVar(&cfg.isend, "isend", false, "")
	flags.BoolVar(&cfg.validate, "validate", false, "")
	flags.IntVar(&cfg.local, "local", 0, "")
	if err := flags.Parse(args); err != nil {
		return reword(err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q after NAME and flags", flags.Arg(0))
	}
	given := map[string]bool{}
	var err error
	flags.Visit(func(f *flag.Flag) {
		given[f.Name] = true
		if err == nil && !cfg.bench.takes(f.Name) {
			err = fmt.Errorf("it does not take %s; these do: %s", spell(f.Name), strings.Join(takers(f.Name), " "))
		}
	})
	if err != nil {
		return err
	}
	if err := cfg.check(given); err != nil {
		return err
	}
	if given["pool"] {
		if cfg.poolBytes, err = parseSize(pool); err != nil {
			return fmt.Errorf("--pool %w", err)
		}
		if cfg.poolBytes < minPoolBytes {
			return fmt.Errorf("--pool is %s: a pool has at least 64K", pool)
		}
	}
	return cfg.setSizes(sizes, given["m"])
}

// check returns an error if a number is out of its range.
func (cfg *config) check(given map[string]bool) error {
	for _, f := range []struct {
		name             string
		value, min, most int
	}{
		{"i", cfg.iterations, 1, maxIterations},
		{"x", cfg.warmUp, 0, maxIterations},
		{"W", cfg.window, 1, maxWindow},
		{"unexpected", cfg.unexpected, 0, 100},
		{"goroutines", cfg.goroutines, 1, maxGoroutines},
		{"t", cfg.tests, 0, maxTests},
		{"local", cfg.local, 1, maxLocal},
	} {
		if given[f.name] && (f.value < f.min || f.value > f.most) {
			return fmt.Errorf("%s %d: it must be from %d to %d", spell(f.name), f.value, f.min, f.most)
		}
	}
	if given["pool"] && !cfg.fresh {
		return errors.New("--pool needs --fresh, which takes buffers from the pool")
	}
	return nil
}

func (cfg *config) setSizes(text string, given bool) error {
	b := cfg.bench
	if !b.takes("m") {
		cfg.sizes = []int{0}
		return nil
	}
	if !given {
		text = ":"
	}
	var err error
	if cfg.sizes, err = parseSizes(text, span{b.unit, b.max}, b.unit); err != nil {
		return fmt.Errorf("-m %w", err)
	}
	return nil
}

// checkRanks returns an error if the benchmark does not work with this number of ranks.
func (cfg *config) checkRanks(ranks int) error {
	b := cfg.bench
	how := fmt.Sprintf("mpirun-go bench -n %d %s", max(b.ranks.min, 2), b.name)
	if cfg.local > 0 {
		if ranks > 1 {
			return fmt.Errorf("%s: --local makes all ranks in one process, but the job has %d: mpirun-go bench -n 1 %s --local %d",
				b.name, ranks, b.name, cfg.local)
		}
		ranks, how = cfg.local, fmt.Sprintf("mpirun-go bench -n 1 %s --local %d", b.name, max(b.ranks.min, 2))
	}
	switch r := b.ranks; {
	case ranks < r.min || r.max > 0 && ranks > r.max:
		return fmt.Errorf("%s: it takes %s, not %d: %s", b.name, r, ranks, how)
	case r.even && ranks%2 != 0:
		return fmt.Errorf("%s: it takes an even number of ranks, not %d: %s", b.name, ranks, how)
	}
	return nil
}

// iterationsAt returns how many iterations of a size are measured, and how many come before them.
func (cfg *config) iterationsAt(bytes int) (iterations, warmUp int) {
	c := cfg.bench.counts
	iterations, warmUp = c.small, c.smallWarmUp
	if bytes > largeBytes {
		iterations, warmUp = c.large, c.largeWarmUp
	}
	if cfg.iterations > 0 {
		iterations = cfg.iterations
	}
	if cfg.warmUp >= 0 {
		warmUp = cfg.warmUp
	}
	return iterations, warmUp
}

// spell returns a flag as the user writes it.
func spell(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// reword puts an error of package flag into the form of all other messages.
func reword(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	if name, unknown := strings.CutPrefix(text, "flag provided but not defined: -"); unknown {
		if name == "n" || name == "np" {
			return fmt.Errorf("-%s is a flag of mpirun-go, before NAME: mpirun-go bench -n 4 barrier", name)
		}
		return fmt.Errorf("no such flag: %s", spell(name))
	}
	if name, bare := strings.CutPrefix(text, "flag needs an argument: -"); bare {
		return fmt.Errorf("%s needs a value", spell(name))
	}
	for _, kind := range []struct{ before, between, want string }{
		{"invalid value ", " for flag -", "a number"},
		{"invalid boolean value ", " for -", "true or false"},
	} {
		value, rest, is := strings.Cut(text, kind.between)
		if is && strings.HasPrefix(value, kind.before) {
			name, _, _ := strings.Cut(rest, ":")
			return fmt.Errorf("%s %s: want %s", spell(name), value[len(kind.before):], kind.want)
		}
	}
	return errors.New(text)
}

func helpText() string {
	return `Usage: mpirun-go bench [-n RANKS] NAME [flags]

RANKS is 2 by default. Other flags of mpirun-go go before NAME, too.

NAME: ` + strings.Join(names(), " ") + `

  -m MIN:MAX      sizes in bytes: MIN and its doublings up to MAX (8:64K, 8: or :64K); also
                  a single size, and a list of sizes and ranges (8,64,1K:4K)
  -i ITERATIONS   measured iterations of each size (default: OSU's, fewer above 8K)
  -x WARMUP       iterations before the measured ones
  -W WINDOW       messages under way at one time: bw, bibw, mbw_mr (default 64)
  -t CALLS        calls of Test while the program computes: ibarrier and its like (default 0)
  --alloc         buffers from comm.Alloc instead of Go's heap
  --json          one object a line
  --local RANKS   ranks as goroutines of one process (mpirun-go bench -n 1 NAME --local RANKS)

Variants:
  --fresh         another buffer for each message, from a pool larger than the cache
  --pool SIZE     size of that pool (default 128M)
  --unexpected P  P percent of the messages arrive before their receive is posted
  --goroutines G  G goroutines of each rank send at once: mbw_mr
  --two-comms     two communicators in turn
  --isend         latency by Isend, Irecv and Wait
  --validate      check the received data, in iterations after the measured ones
`
}
