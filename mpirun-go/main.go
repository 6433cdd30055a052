package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/mpigo/mpigo/internal/bench"
	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
	"github.com/mpigo/mpigo/mpirun-go/internal/doctor"
	"github.com/mpigo/mpigo/mpirun-go/internal/info"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
	"github.com/mpigo/mpigo/mpirun-go/internal/remote"
)

// watchdogName is argv[0] of the launcher's watchdog process. It is not an argument, so no PROGRAM
// can be mistaken for it.
const watchdogName = "mpigo-watchdog"

// Exit statuses of the launcher itself.
const (
	statusFailed        = 1   // a failure of the launcher, a package that does not build
	statusUsage         = 2   // a bad command line or tunable
	statusNotExecutable = 126 // as in shells
	statusNotFound      = 127 // as in shells
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
	if len(os.Args) == 2 && os.Args[1] == doctor.RankArg {
		os.Exit(doctor.RunRank(os.Stdout))
	}
	if len(os.Args) == 4 && os.Args[1] == doctor.PeerArg {
		os.Exit(doctor.RunPeer(os.Args[2], os.Args[3]))
	}
	if len(os.Args) > 1 && os.Args[1] == benchArg {
		os.Exit(bench.Main(os.Args[2:]))
	}
	con := newConsole()
	os.Exit(con.finish(run(con, os.Args[1:])))
}

// run runs the launcher and returns its exit status.
func run(con *console, args []string) int {
	if len(args) > 0 && args[0] == "help" {
		args = helpOf(args[1:])
	}
	if len(args) > 0 && args[0] == "info" {
		return runInfo(con, args[1:])
	}
	if len(args) > 0 && args[0] == "version" {
		return runVersion(con, args[1:])
	}
	if len(args) > 0 && args[0] == "doctor" {
		return runDoctor(con, args[1:])
	}
	if len(args) > 0 && args[0] == "top" {
		return runTop(con, args[1:])
	}
	if len(args) > 0 && args[0] == "diagnose" {
		return runDiagnose(con, args[1:])
	}
	if len(args) > 0 && args[0] == "merge" {
		return runMerge(con, args[1:])
	}
	if len(args) > 0 && args[0] == "dlv" {
		return runDlv(con, args[1:])
	}
	if len(args) > 0 && args[0] == "bench" {
		cmd, err := parseBench(args[1:])
		return launch(con, cmd, err, "mpirun-go bench --help")
	}
	cmd, err := cli.Parse(args)
	return launch(con, cmd, err, "mpirun-go --help")
}

func printVersion() {
	fmt.Printf("mpirun-go %s %s %s/%s\n", info.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
