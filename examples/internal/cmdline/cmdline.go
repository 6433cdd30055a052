// Package cmdline reads the flags of the examples. All ranks have a command line, so what
// is wrong with it, and the help, would be printed by each of them; here one rank speaks.
package cmdline

import (
	"errors"
	"flag"
	"io"
	"math"

	"github.com/mpigo/mpigo/comm"
)

// Parse reads args into flags, and lets check look at the result. All ranks call it, and
// all learn whether to go on: not after -help, which the first rank that was asked for it
// prints to out, nor if anything is wrong on any rank; the first of these returns the error,
// with which its program is to end the job, and the others wait for that.
func Parse(world *comm.Comm, flags *flag.FlagSet, args []string, check func() error, out io.Writer) (goOn bool, err error) {
	flags.SetOutput(io.Discard)
	err = flags.Parse(args)
	if err == nil {
		err = check()
	}

	// The least of what the ranks say: the rank, and whether it wants help or is in error.
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
		return false, world.Barrier() // which does not end: the speaker will end the job
	case world.Rank() == speaker:
		flags.SetOutput(out)
		flags.Usage()
	}
	return false, nil
}
