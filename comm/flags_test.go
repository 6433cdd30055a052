package comm_test

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm"
)

// TestParseFlagsPrintsAtRank0AndReturnsOneError: whichever rank has -h or a mistake, all ranks get
// the same error, and rank 0 alone prints.
func TestParseFlagsPrintsAtRank0AndReturnsOneError(t *testing.T) {
	const usage = "Usage of p:\n  -n int\n    \ta number (default 1)\n"
	for _, c := range []struct {
		args    []string // of each rank
		printed string
		want    string // the error; "" for none
	}{
		{[]string{"-n 3", "-n 3", ""}, "", ""},
		{[]string{"-help", "-help", "-h"}, usage, flag.ErrHelp.Error()},
		{[]string{"-n -1", "-n -1"}, "-n is negative\n" + usage, "-n is negative"},
		{[]string{"", "-x", "-help"}, "rank 1: flag provided but not defined: -x\n" + usage, "rank 1: flag provided but not defined: -x"},
		{[]string{"", "-help", "-x"}, usage, flag.ErrHelp.Error()},
		{[]string{"-y"}, "flag provided but not defined: -y\n" + usage, "flag provided but not defined: -y"},
	} {
		for _, handling := range []flag.ErrorHandling{flag.ContinueOnError, flag.ExitOnError, flag.PanicOnError} {
			outs := make([]bytes.Buffer, len(c.args))
			errs := make([]error, len(c.args))
			assert.NoError(t, comm.RunLocal(len(c.args), func(world *comm.Comm) error {
				me := world.Rank()
				fs := flag.NewFlagSet("p", handling)
				fs.SetOutput(&outs[me])
				n := fs.Int("n", 1, "a number")
				errs[me] = comm.ParseFlags(world, fs, strings.Fields(c.args[me]), func() error {
					if *n < 0 {
						return errors.New("-n is negative")
					}
					return nil
				})
				assert.Equal(t, handling, fs.ErrorHandling())
				return nil
			}))
			for rank := range c.args {
				if rank == 0 {
					assert.Equal(t, c.printed, outs[0].String(), c.args)
				} else {
					assert.Empty(t, outs[rank].String(), "rank %d, %q", rank, c.args)
				}
				if c.want == "" {
					assert.NoError(t, errs[rank], c.args)
				} else {
					assert.EqualError(t, errs[rank], c.want, c.args)
				}
				assert.Equal(t, c.want == flag.ErrHelp.Error(), errors.Is(errs[rank], flag.ErrHelp), c.args)
			}
		}
	}
}

func TestParseFlagsWithoutUsagePrintsDefaults(t *testing.T) {
	var out bytes.Buffer
	assert.NoError(t, comm.RunLocal(1, func(world *comm.Comm) error {
		var fs flag.FlagSet
		fs.Init("p", flag.ContinueOnError)
		fs.SetOutput(&out)
		fs.Int("n", 1, "a number")
		assert.ErrorIs(t, comm.ParseFlags(world, &fs, []string{"-h"}), flag.ErrHelp)
		return nil
	}))
	assert.Equal(t, "Usage of p:\n  -n int\n    \ta number (default 1)\n", out.String())
}
