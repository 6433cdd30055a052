package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/mpigo/mpigo/mpirun-go/internal/records"
)

// runMerge runs mpirun-go merge and returns the exit status. It does what a job does at its end,
// for jobs that another launcher has started, or whose launcher was killed.
func runMerge(args []string) int {
	switch {
	case len(args) == 1 && (args[0] == "-h" || args[0] == "-help" || args[0] == "--help"):
		fmt.Print(mergeHelp)
		return 0
	case len(args) != 1 || strings.HasPrefix(args[0], "-"):
		logf("merge: want one directory (mpirun-go merge --help)")
		return statusUsage
	}
	if err := mergeDir(args[0]); err != nil {
		logf("merge: %v", err)
		return statusFailed
	}
	return 0
}

// mergeDir makes a profile and a trace of the files of ranks in a directory.
func mergeDir(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	isEmpty := true
	for _, kind := range []records.Kind{records.Profile, records.Trace} {
		size, err := kind.JobSize(dir)
		if err != nil {
			return err
		}
		if size == 0 {
			continue
		}
		isEmpty = false
		line, err := merge(kind, dir, size)
		if err != nil {
			return err
		}
		logf("%s", line)
	}
	if isEmpty {
		return fmt.Errorf("%s has no profile and no trace of a rank", dir)
	}
	return nil
}
