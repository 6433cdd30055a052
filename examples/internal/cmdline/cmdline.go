// Package cmdline parses the flags of the examples. All ranks have the same command line, so each
// of them would print the error about a mistake, or the help text. With this package only one rank
// prints it.
package cmdline

import (
	"errors"
	"flag"
	"io"
	"math"

	"github.com/mpigo/mpigo/comm"
)

// Parse parses args into flags and calls check. All ranks call it together. If any rank has -help,
// or a mistake, goOn is false at all ranks:
//
//   - the first rank with -help prints the help text to out;
//   - the first rank with a mistake returns the error. Its program must then end the job; the other
//     ranks wait for that.
func Parse(world *comm.Comm, flags *flag.FlagSet, args []string, check func() error, out io.Writer) (goOn bool, err error) {
	flags.SetOutput(io.Discard)
	err = flags.Parse(args)
	if err == nil {
		err = check()
	}

	// The ranks agree on the lowest rank with -help or a mistake: its number times 2, plus 1 for a
	// mistake.
	const fine = math.MaxInt
	mine := fine
	switch {
	case errors.Is(err, flag.ErrHelp):
		mine = 2 * world.Rank()
	case err != nil:
		mine = 2*world.Rank() + 1
	}
	least := []int{mine}
	if err := comm.Allreduce(world, nil, least, comm.Min); err != nil {
		return false, err
	}
	speaker, isError := least[0]/2, least[0]%2 == 1
	switch {
	case least[0] == fine:
		return true, nil
	case isError && world.Rank() == speaker:
		return false, err
	case isError:
		return false, world.Barrier() // never ends: the speaker ends the job
	case world.Rank() == speaker:
		flags.SetOutput(out)
		flags.Usage()
	}
	return false, nil
}
