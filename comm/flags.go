package comm

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
)

// ParseFlags parses args, usually os.Args[1:], into fs, and then calls the checks, which may refuse
// the values. All ranks call it together, each with its own args and, in RunLocal, its own fs.
//
// If any rank has -h, -help or a mistake, all ranks get the same error, and rank 0 alone prints the
// mistake and the usage to fs.Output(). The error is that of the lowest of these ranks:
// flag.ErrHelp, or one with the text of the mistake. ParseFlags never ends the process, whatever
// the error handling of fs is.
//
// A body that returns the error to Run ends the job without another message, with exit status 0
// after -h, and 2 after a mistake.
func ParseFlags(world *Comm, fs *flag.FlagSet, args []string, checks ...func() error) error {
	mine := parseSilently(fs, args, checks)

	// The ranks agree on the lowest rank with -h or a mistake: its number times 2, plus 1 for a
	// mistake.
	const fine = math.MaxInt
	least := []int{fine}
	switch {
	case errors.Is(mine, flag.ErrHelp):
		least[0] = 2 * world.Rank()
	case mine != nil:
		least[0] = 2*world.Rank() + 1
	}
	if err := Allreduce(world, nil, least, Min); err != nil {
		return err
	}
	rank, isMistake := least[0]/2, least[0]%2 == 1
	switch {
	case least[0] == fine:
		return nil
	case !isMistake:
		printUsage(world, fs)
		return flag.ErrHelp
	}
	text, err := shareMistake(world, rank, mine)
	if err != nil {
		return err
	}
	if world.Rank() == 0 {
		fmt.Fprintln(fs.Output(), text)
	}
	printUsage(world, fs)
	return &flagMistake{text}
}

// parseSilently parses the flags of this rank, and prints nothing.
func parseSilently(fs *flag.FlagSet, args []string, checks []func() error) error {
	usage, out, handling := fs.Usage, fs.Output(), fs.ErrorHandling()
	defer func() {
		fs.Usage = usage
		fs.SetOutput(out)
		fs.Init(fs.Name(), handling)
	}()
	fs.Usage = func() {}
	fs.SetOutput(io.Discard)
	fs.Init(fs.Name(), flag.ContinueOnError)
	if err := fs.Parse(args); err != nil {
		return err
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// shareMistake sends the text of the mistake from its rank to all ranks.
func shareMistake(world *Comm, rank int, mine error) (string, error) {
	var text []byte
	if world.Rank() == rank {
		text = []byte(mine.Error())
		if rank != 0 {
			text = fmt.Appendf(nil, "rank %d: %v", rank, mine)
		}
	}
	length := []int{len(text)}
	if err := Bcast(world, length, rank); err != nil {
		return "", err
	}
	if text == nil {
		text = make([]byte, length[0])
	}
	err := Bcast(world, text, rank)
	return string(text), err
}

// printUsage prints the usage, at rank 0.
func printUsage(world *Comm, fs *flag.FlagSet) {
	switch {
	case world.Rank() != 0:
	case fs.Usage != nil:
		fs.Usage()
	default:
		fmt.Fprintf(fs.Output(), "Usage of %s:\n", fs.Name())
		fs.PrintDefaults()
	}
}

// flagMistake is a mistake in the arguments, which rank 0 has printed.
type flagMistake struct{ text string }

func (e *flagMistake) Error() string { return e.text }

// statusOfFlags is the exit status of a program that ends with an error of ParseFlags. ok is false
// for all other errors.
func statusOfFlags(err error) (status int, ok bool) {
	var mistake *flagMistake
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0, true
	case errors.As(err, &mistake):
		return 2, true // like the status of package flag
	}
	return 0, false
}
