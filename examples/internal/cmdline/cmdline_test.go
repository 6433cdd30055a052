package cmdline

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm"
)

// parse runs Parse with a rank for each of args. It returns the output, how many ranks go on, and
// the error of the job.
func parse(args ...string) (printed string, goOn int32, err error) {
	var out bytes.Buffer // written to by one rank
	var on atomic.Int32
	err = comm.RunLocal(len(args), func(world *comm.Comm) error {
		flags := flag.NewFlagSet("p", flag.ContinueOnError)
		n := flags.Int("n", 1, "a number")
		ok, err := Parse(world, flags, strings.Fields(args[world.Rank()]), func() error {
			if *n < 0 {
				return errors.New("-n is negative")
			}
			return nil
		}, &out)
		if ok {
			on.Add(1)
		}
		return err
	})
	return out.String(), on.Load(), err
}

func TestParse(t *testing.T) {
	const usage = "Usage of p:\n  -n int\n    \ta number (default 1)\n"
	for _, c := range []struct {
		args    []string
		printed string
		goOn    int32
		want    string // in the error
		not     string
	}{
		{[]string{"-n 3", "-n 3", ""}, "", 3, "", ""},
		{[]string{"-help", "-help", "-h"}, usage, 0, "", ""},
		{[]string{"-n -1", "-n -1"}, "", 0, "rank 0: -n is negative", "rank 1: -n"},
		{[]string{"", "-x", "-help"}, "", 0, "rank 1: flag provided but not defined: -x", "rank 0: flag"},
		{[]string{"", "-help", "-x"}, usage, 0, "", ""},
		{[]string{"-n x"}, "", 0, `invalid value "x" for flag -n`, ""},
	} {
		printed, goOn, err := parse(c.args...)
		assert.Equal(t, c.printed, printed, c.args)
		assert.Equal(t, c.goOn, goOn, c.args)
		if c.want == "" {
			assert.NoError(t, err, c.args)
			continue
		}
		assert.ErrorContains(t, err, c.want, c.args)
		if c.not != "" {
			assert.NotContains(t, err.Error(), c.not, c.args)
		}
	}
}
