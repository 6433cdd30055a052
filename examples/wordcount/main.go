// Wordcount counts the identifiers in a tree of Go source and prints the most frequent ones.
//
//	mpirun-go -n 4 ./examples/wordcount -top 20
//	mpirun-go -n 4 ./examples/wordcount -ext .go,.s DIR
//
// Rank 0 lists the files and hands them out in spans, on demand, so a rank with long files gets
// fewer of them. Every rank counts. Then the ranks send each word to its owner, which the word's
// hash selects. The owner adds up the counts, and sends its most frequent words to rank 0. The
// output does not depend on the number of ranks.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/mpigo/mpigo/comm"
)

// config holds the flags' values.
type config struct {
	root     string    // directory to count in
	exts     []string  // of the files to count
	top      int       // how many words to print
	progress io.Writer // where rank 0 reports progress; nil for nowhere
}

const (
	tagAsk   = iota + 1 // a worker asks for a span
	tagSpan             // a span for a worker
	tagPart             // words that the sender has counted and the receiver owns
	tagWords            // the most frequent words of an owner
)

func main() {
	var cfg config
	flags := flag.NewFlagSet("wordcount", flag.ContinueOnError)
	flags.IntVar(&cfg.top, "top", 20, "number of words to print")
	ext := flags.String("ext", ".go", "endings of the files to count, separated by commas")
	verbose := flags.Bool("v", false, "report progress on standard error, as on a terminal")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Usage: wordcount [flags] [DIR]     (default: Go's own source)\n")
		flags.PrintDefaults()
	}
	check := func() error {
		switch {
		case flags.NArg() > 1:
			return fmt.Errorf("unexpected argument %q", flags.Arg(1))
		case cfg.top < 0:
			return fmt.Errorf("-top is %d: it cannot be negative", cfg.top)
		}
		cfg.exts = strings.Split(*ext, ",")
		cfg.root = flags.Arg(0)
		if *verbose || isTerminal(os.Stderr) {
			cfg.progress = os.Stderr
		}
		return nil
	}
	comm.Run(func(world *comm.Comm) error {
		if err := comm.ParseFlags(world, flags, os.Args[1:], check); err != nil {
			return err
		}
		return run(world, cfg, os.Stdout)
	})
}

// run is the program of one rank. Only rank 0 writes to out.
func run(world *comm.Comm, cfg config, out io.Writer) error {
	var files []file
	if world.Rank() == 0 {
		var err error
		if files, err = list(cfg.root, cfg.exts); err != nil {
			return err
		}
	}
	paths, err := sharePaths(world, files)
	if err != nil {
		return err
	}
	words, mine, err := countAll(world, cut(files), paths, cfg.progress)
	if err != nil {
		return err
	}
	owned, err := exchange(world, words)
	if err != nil {
		return err
	}

	mine.Distinct = int64(len(owned)) // each word has one owner
	sum := make([]int64, totalsLen)
	if err := comm.Reduce(world, mine.slice(), sum, comm.Sum, 0); err != nil {
		return err
	}
	best, err := collectTop(world, owned, cfg.top)
	if err != nil || world.Rank() != 0 {
		return err
	}
	return report(out, totalsOf(sum), best)
}

// report prints the result.
func report(out io.Writer, t totals, best []word) error {
	var b strings.Builder
	fmt.Fprintf(&b, "files        %12d\nlines        %12d\nbytes        %12d\nidentifiers  %12d\ndistinct     %12d\n\n",
		t.Files, t.Lines, t.Bytes, t.Words, t.Distinct)
	for i, w := range best {
		fmt.Fprintf(&b, "%5d  %10d  %s\n", i+1, w.Count, w.Text)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// goSource returns the directory of Go's own source.
func goSource() (string, error) {
	root := ""
	if out, err := exec.Command("go", "env", "GOROOT").Output(); err == nil {
		root = strings.TrimSpace(string(out))
	}
	if root == "" {
		//lint:ignore SA1019 without a go command there is no other way
		root = runtime.GOROOT()
	}
	if root == "" {
		return "", errors.New("the source of Go was not found: name a directory to count in")
	}
	return root + "/src", nil
}

func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
