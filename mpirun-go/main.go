package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
	"github.com/mpigo/mpigo/mpirun-go/internal/info"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
	"github.com/mpigo/mpigo/mpirun-go/internal/remote"
)

// guardName is the name that the launcher gives itself when it starts its guard
// process. It is no argument, so that no PROGRAM can be taken for it.
const watchdogName = "mpigo-watchdog"

// Exit statuses of the launcher's own.
const (
	statusFailed        = 1 // the launcher's own failure, a package that does not build
	statusUsage         = 2 // bad command line or tunables
	statusNotExecutable = 126
	statusNotFound      = 127
)

func main() {
	if os.Args[0] == watchdogName {
		procs.RunWatchdog()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == remote.DaemonArg {
		os.Exit(remote.Daemon([]string{watchdogName}))
	}
	if len(os.Args) == 4 && os.Args[1] == remote.InstallArg {
		os.Exit(remote.Install(os.Args[2], os.Args[3]))
	}
	os.Exit(run(os.Args[1:]))
}

// run is the whole program: it returns its exit status.
func run(args []string) int {
	if len(args) > 0 && args[0] == "info" {
		return runInfo(args[1:])
	}
	if len(args) > 0 && args[0] == "bench" {
		cmd, err := parseBench(args[1:])
		return launch(cmd, err, "mpirun-go bench --help")
	}
	cmd, err := cli.Parse(args)
	return launch(cmd, err, "mpirun-go --help")
}

// complain prints one line of the launcher's own.
func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "mpirun-go: "+format+"\n", args...)
}

func printVersion() {
	fmt.Printf("mpirun-go %s %s %s/%s\n", info.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
