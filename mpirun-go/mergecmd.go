package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mpigo/mpigo/mpirun-go/internal/records"
)

// runMerge runs mpirun-go merge and returns the exit status. It merges the records of jobs that
// another launcher has started, or whose launcher was killed. For other jobs, mpirun-go does so at
// the end.
func runMerge(con *console, args []string) int {
	switch {
	case len(args) == 1 && (args[0] == "-h" || args[0] == "-help" || args[0] == "--help"):
		fmt.Print(mergeHelp)
		return 0
	case len(args) != 1 || strings.HasPrefix(args[0], "-"):
		con.logf("merge: want one directory (mpirun-go merge --help)")
		return statusUsage
	}
	if err := mergeDir(context.Background(), con, args[0]); err != nil {
		con.logf("merge: %v", oneLine(err))
		return statusFailed
	}
	return 0
}

// mergeDir makes a profile and a trace of the files of ranks in a directory. If it cannot make one,
// it still makes the other.
func mergeDir(ctx context.Context, con *console, dir string) error {
	if info, err := os.Stat(dir); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	isEmpty := true
	var errs []error
	for _, kind := range []records.Kind{records.Profile, records.Trace} {
		line, err := merge(ctx, kind, dir, records.Job{})
		if none := (*records.NoneError)(nil); errors.As(err, &none) {
			continue
		}
		isEmpty = false
		if err != nil {
			errs = append(errs, err)
			continue
		}
		con.logf("%s", line)
	}
	if isEmpty {
		return fmt.Errorf("%s has no profile and no trace of a rank", dir)
	}
	return errors.Join(errs...)
}
