package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
)

// Libraries.
const (
	mpigo   = "mpigo"
	openMPI = "Open MPI"
	mpich   = "MPICH"
)

// contender is a library in one configuration.
type contender struct {
	name    string
	library string
	program string
	flags   []string // of the program, in experiments with sizes
	env     []string
	tcp     bool // messages go by TCP
	// launch returns the part of the command line before the program.
	launch func(ranks int, at place) []string
}

// Names of contenders.
const (
	ours          = "mpigo"
	oursAlloc     = "mpigo, Alloc memory"
	openMPISingle = "Open MPI, single copy"
	openMPITwo    = "Open MPI, two copies"
	mpichSingle   = "MPICH, single copy"
	mpichTwo      = "MPICH, two copies"
	channel       = "Go channel"
	oursTCP       = "mpigo, TCP"
	openMPITCP    = "Open MPI, TCP"
	mpichTCP      = "MPICH, TCP"
)

// place describes the machine and how ranks run on it.
type place struct {
	cores int
	bind  string
	root  bool // the user is root, whom Open MPI refuses without a flag
}

// Ways to bind.
const (
	bindCore    = "core"
	bindDefault = "default"
)

func (p place) crowded(ranks int) bool { return ranks > p.cores }
func (p place) bound(ranks int) bool   { return p.bind == bindCore && !p.crowded(ranks) }

// contenders lists all contenders. The directory dir holds their programs. By default both peers
// copy long messages once, from the memory of the other process by process_vm_readv (CMA). Without
// it they copy them twice, through shared memory. Over TCP all use the loopback interface only.
func contenders(dir string) []contender {
	prog := func(name string) string { return filepath.Join(dir, name) }
	mine := func(name string, options ...string) contender {
		return contender{name: name, library: mpigo, program: prog("bench"), launch: launchMpigo(prog("mpirun-go"), options...)}
	}
	open := func(name string, options ...string) contender {
		return contender{name: name, library: openMPI, program: prog(peerPrograms[openMPI]), launch: launchOpenMPI(options...)}
	}
	hydra := func(name string, env ...string) contender {
		return contender{name: name, library: mpich, program: prog(peerPrograms[mpich]), launch: launchMPICH, env: env}
	}
	alloc := mine(oursAlloc)
	alloc.flags = []string{"--alloc"}
	return []contender{
		mine(ours),
		alloc,
		open(openMPISingle, "--mca", "btl_vader_single_copy_mechanism", "cma"),
		open(openMPITwo, "--mca", "btl_vader_single_copy_mechanism", "none"),
		hydra(mpichSingle),
		hydra(mpichTwo, "UCX_TLS=posix,self"),
		overTCP(mine(oursTCP, "--btl", "self,tcp", "--set", "tcp.include=lo")),
		overTCP(open(openMPITCP, "--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo")),
		overTCP(hydra(mpichTCP, "UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo")),
	}
}

func overTCP(c contender) contender {
	c.tcp = true
	return c
}

func launchMpigo(mpirun string, options ...string) func(ranks int, at place) []string {
	return func(ranks int, at place) []string {
		args := append([]string{mpirun, "-n", strconv.Itoa(ranks)}, options...)
		if at.bound(ranks) {
			args = append(args, "--bind-to", "core")
		}
		if at.crowded(ranks) {
			args = append(args, "--oversubscribe")
		}
		return args
	}
}

func launchOpenMPI(options ...string) func(ranks int, at place) []string {
	return func(ranks int, at place) []string {
		args := append([]string{"mpirun.openmpi", "-n", strconv.Itoa(ranks)}, options...)
		if at.root {
			args = append(args, "--allow-run-as-root")
		}
		if at.bound(ranks) {
			args = append(args, "--bind-to", "core")
		}
		if at.crowded(ranks) {
			args = append(args, "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1")
		}
		return args
	}
}

func launchMPICH(ranks int, at place) []string {
	args := []string{"mpiexec.hydra", "-n", strconv.Itoa(ranks)}
	if at.bound(ranks) {
		args = append(args, "-bind-to", "core")
	}
	return args
}

// takesPart reports whether a contender takes part in an experiment. In an experiment without
// messages, or if the way of copying makes no difference, each library has one contender.
func (c contender) takesPart(e experiment) bool {
	switch {
	case c.tcp != e.tcp:
		return false
	case e.kind == goroutines:
		return c.name == ours
	case e.kind == wholeJob, e.sizes == "":
		return c.name == ours || c.name == openMPISingle || c.name == mpichSingle
	case e.name == isendName, e.busy, isCollective(e.name) && e.name != "allreduce":
		return c.name != oursAlloc
	}
	return true
}

// Numbers of iterations where ranks share cores. A wait may take a time slice there. The warm-up is
// needed because calls take up to twice as long in the first milliseconds of a job.
const (
	crowdedIterations, crowdedWarmUp = 500, 1000
	// MPICH never yields the processor, so each wait takes time slices.
	spinningIterations, spinningWarmUp = 10, 2
)

// command returns the whole command line.
func (c contender) command(e experiment, at place, quick bool) []string {
	var argv []string
	if e.kind != goroutines {
		argv = c.launch(e.ranks, at)
	}
	argv = append(argv, c.program)
	argv = append(argv, e.command(quick)...)
	if e.sizes != "" {
		argv = append(argv, c.flags...)
	}
	if e.kind == inside && at.crowded(e.ranks) {
		iterations, warmUp := crowdedIterations, crowdedWarmUp
		if c.library == mpich {
			iterations, warmUp = spinningIterations, spinningWarmUp
		}
		argv = append(argv, "-i", strconv.Itoa(iterations), "-x", strconv.Itoa(warmUp))
	}
	return argv
}

// tools returns the commands that a library needs: its compiler, and its launcher.
func tools(library string) []string {
	switch library {
	case openMPI:
		return []string{"mpicc.openmpi", "mpirun.openmpi"}
	case mpich:
		return []string{"mpicc.mpich", "mpiexec.hydra"}
	}
	return []string{"go"}
}

// missing returns an error if a library is not installed.
func missing(library string) error {
	for _, tool := range tools(library) {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is left out: %s is not installed", library, tool)
		}
	}
	return nil
}
