package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

const dlvHelp = `Usage: mpirun-go dlv [--rank RANK|all] [flags] PROGRAM [ARG...] [: ...]

Runs a job with one rank (default 0), or all, in the debugger Delve. Delve stops the
rank before its first instruction, prints "API server listening at: ADDRESS", and waits
until you run, in another terminal on this machine: dlv connect ADDRESS
A PROGRAM that is a Go package is built without optimizations.

  --rank RANK|all         the ranks to debug; they must run on this machine
  flags                   those of mpirun-go; --tag-output is on, --hang-after off,
                          and tcp.deadline and ibverbs.deadline are 1h
`

// runDlv runs mpirun-go dlv and returns the exit status.
func runDlv(con *console, args []string) int {
	cmd, err := cli.ParseDebug(args)
	if errors.Is(err, cli.ErrHelp) {
		fmt.Print(dlvHelp)
		return 0
	}
	if err == nil {
		cmd.TagOutput = true // shows which rank has printed an address
		// A rank that stands in the debugger is neither a hang nor a lost peer.
		cmd.HangAfter = 0
		cmd.Settings = append(debugSettings(), cmd.Settings...)
		if _, err := findDlv(); err != nil {
			return reportStart(con, err)
		}
	}
	return launch(con, cmd, err, "mpirun-go dlv --help")
}

// debugSettings returns the time limits within which a rank must answer a connection request.
func debugSettings() []cli.Setting {
	return []cli.Setting{{Key: "tcp.deadline", Value: "1h"}, {Key: "ibverbs.deadline", Value: "1h"}}
}

// findDlv returns the absolute path of Delve's command.
func findDlv() (string, error) {
	path, err := exec.LookPath("dlv")
	if err != nil {
		return "", &statusError{statusNotFound, errors.New("dlv: Delve is not in PATH; to install it, run go install github.com/go-delve/delve/cmd/dlv@latest")}
	}
	return filepath.Abs(path)
}

// debugFlags returns the variable that has go build a program without optimizations.
func debugFlags() string {
	return strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")) + " '-gcflags=all=-N -l'"
}

// debug puts Delve before the program of each rank that is to be debugged.
func debug(con *console, cmd *cli.Command, specs []procs.Spec, hs *hostSet) error {
	dlv, err := findDlv()
	if err != nil {
		return err
	}
	for rank := range specs {
		if cmd.DebugRank != cli.DebugAll && cmd.DebugRank != rank {
			continue
		}
		spec := &specs[rank]
		if host := hs.requested[spec.Host]; !host.Local {
			return usageError(fmt.Errorf("dlv: rank %d runs on %s, and only ranks of this machine can be debugged; name a rank that runs here by --rank", rank, host.Name))
		}
		spec.Args = slices.Concat([]string{dlv, "exec", "--headless", "--listen=127.0.0.1:0", spec.Path, "--"}, spec.Args[1:])
		spec.Path = dlv
	}
	con.logf("Delve prints an address for each rank in the debugger; in another terminal, run dlv connect ADDRESS")
	return nil
}
