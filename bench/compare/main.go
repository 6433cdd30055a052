// Compare measures mpigo beside Open MPI and MPICH with the benchmarks of ../ and ../peers. The
// contenders take short turns, each with one size, in several rounds, so other work on the machine
// affects all of them. Compare writes the results, tables, and plots, and compares the results with
// targets.
//
//	go run ./bench/compare -rounds 5 -o docs/performance
//	go run ./bench/compare -quick
//	go run ./bench/compare -marks
//	go run ./bench/compare -rounds 30 -only TCP -sizes 8,1K,64K,1M
//	go run ./bench/compare -from docs/performance/results.csv -o docs/performance
//
// It needs Go, and for the peers gcc and Debian's openmpi-bin and libopenmpi-dev, mpich and
// libmpich-dev. It leaves out a peer that is not installed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// defaultRounds is the number of rounds without -rounds and -quick.
const defaultRounds = 5

// options holds the values of the command line.
type options struct {
	rounds      int
	quick       bool
	experiments *regexp.Regexp
	contenders  *regexp.Regexp
	out         string
	from        string
	bind        string
	timeout     time.Duration
	sizes       []string
	marks       bool
}

func main() {
	opts, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "compare: %v\n", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, opts); err != nil {
		fmt.Fprintf(os.Stderr, "compare: %v\n", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	opts := options{}
	var only, contenders, sizes string
	flags := flag.NewFlagSet("compare", flag.ExitOnError)
	flags.IntVar(&opts.rounds, "rounds", defaultRounds, "number of rounds (default 5; 1 with -quick)")
	flags.BoolVar(&opts.quick, "quick", false, "few sizes, in under a minute")
	flags.StringVar(&only, "only", "", "run the experiments whose names match this regular expression: 'latency|bw'")
	flags.StringVar(&contenders, "contenders", "", "run the contenders whose names match: 'mpigo|MPICH'")
	flags.StringVar(&sizes, "sizes", "", "measure these sizes instead of each benchmark's own: '8,1K,64K'")
	flags.StringVar(&opts.out, "o", "", "directory for "+resultsFile+", tables.md and plots (default: print the tables)")
	flags.StringVar(&opts.from, "from", "", "measure nothing: make tables and plots of this "+resultsFile)
	flags.StringVar(&opts.bind, "bind", bindCore, "core: bind ranks to cores, if there are enough; "+
		"default: as each launcher does by default")
	flags.DurationVar(&opts.timeout, "timeout", 2*time.Minute, "time limit of one run")
	flags.BoolVar(&opts.marks, "marks", false, "measure only what has a target, and fail if one is missed, or none was measured")
	_ = flags.Parse(args) // exits after a mistake
	if opts.quick && !isSet(flags, "rounds") {
		opts.rounds = 1
	}
	switch {
	case flags.NArg() > 0:
		return opts, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case opts.rounds < 1:
		return opts, fmt.Errorf("-rounds is %d: it must be at least 1", opts.rounds)
	case opts.timeout <= 0:
		return opts, fmt.Errorf("-timeout is %v: it must be positive", opts.timeout)
	case opts.bind != bindCore && opts.bind != bindDefault:
		return opts, fmt.Errorf("-bind is %q: it must be core or default", opts.bind)
	case opts.quick && sizes != "":
		return opts, fmt.Errorf("-quick has sizes of its own: omit either -quick or -sizes")
	}
	if opts.from != "" {
		for _, name := range []string{"rounds", "quick", "only", "contenders", "sizes", "bind", "timeout"} {
			if isSet(flags, name) {
				return opts, fmt.Errorf("-from measures nothing: omit -%s", name)
			}
		}
	}
	if sizes != "" {
		opts.sizes = strings.Split(sizes, ",")
	}
	isSize := regexp.MustCompile(`^[1-9][0-9]*[KM]?$`).MatchString
	for _, size := range opts.sizes {
		if !isSize(size) {
			return opts, fmt.Errorf("-sizes is %s: %q is not a size such as 8, 64K or 1M", sizes, size)
		}
	}
	var err error
	if opts.experiments, err = regexp.Compile(only); err != nil {
		return opts, fmt.Errorf("-only: %w", err)
	}
	if opts.contenders, err = regexp.Compile(contenders); err != nil {
		return opts, fmt.Errorf("-contenders: %w", err)
	}
	return opts, nil
}

func run(ctx context.Context, opts options) error {
	var res *results
	var err error
	if opts.out != "" { // before measuring
		if err := os.MkdirAll(opts.out, 0o777); err != nil {
			return fmt.Errorf("-o: %w", err)
		}
	}
	if opts.from != "" {
		res, err = readResults(opts.from)
	} else {
		res, err = measure(ctx, opts)
	}
	if err != nil {
		return err
	}
	if !res.hasContender() {
		return errors.New("nothing was measured")
	}
	if opts.out == "" {
		_, err = fmt.Print(tables(res))
	} else {
		err = write(opts.out, res)
	}
	if err == nil && opts.marks {
		err = missed(judge(res, targets()))
	}
	return err
}

// isSet reports whether the command line has a flag.
func isSet(flags *flag.FlagSet, name string) (is bool) {
	flags.Visit(func(f *flag.Flag) { is = is || f.Name == name })
	return is
}

const resultsFile = "results.csv"

// write writes results, tables and plots into a directory.
func write(dir string, res *results) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := res.write(filepath.Join(dir, resultsFile)); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "tables.md"), []byte(tables(res)), 0o644); err != nil {
		return err
	}
	for _, p := range plots() {
		svg, ok := p.draw(res)
		if !ok {
			continue // nothing was measured
		}
		if err := os.WriteFile(filepath.Join(dir, p.file), []byte(svg), 0o644); err != nil {
			return err
		}
	}
	return nil
}
