package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
	"github.com/mpigo/mpigo/mpirun-go/internal/job"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
	"github.com/mpigo/mpigo/mpirun-go/internal/remote"
	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
)

// requestedHosts returns the hosts of the command line, or else those of the Slurm allocation that
// the launcher runs in, and the agent that connects to other hosts. A job must not have more ranks
// than the allocation has slots, unless --oversubscribe is set: other jobs may use the rest of the
// nodes.
func requestedHosts(cmd *cli.Command, m slots.Machine) ([]slots.Host, remote.Agent, error) {
	requests, err := parseHosts(cmd)
	if err != nil {
		return nil, remote.Agent{}, err
	}
	launcher, allocated := cmd.Launcher, false
	if len(requests) == 0 && launcher != "local" && os.Getenv("SLURM_JOB_ID") != "" && os.Getenv("SLURM_JOB_NODELIST") != "" {
		requests, err = slots.Slurm(os.Getenv("SLURM_JOB_NODELIST"), os.Getenv("SLURM_TASKS_PER_NODE"), os.Getenv("SLURM_JOB_CPUS_PER_NODE"))
		if err != nil {
			return nil, remote.Agent{}, err
		}
		allocated = true
		if launcher == "" && cmd.Agent == nil {
			launcher = "slurm"
		}
	}
	// A user who names only this machine and also an agent wants to see the agent at work.
	onlyNames := len(requests) > 0 && slots.AllLocal(m, requests) && (cmd.Agent != nil || cmd.Launcher != "")
	hosts := slots.Merge(m, requests, onlyNames)
	if err := cmd.SetHostCount(len(hosts)); err != nil {
		return nil, remote.Agent{}, err
	}
	if total, known := slots.TotalSlots(requests); allocated && known && cmd.Size() > total && !cmd.Oversubscribe {
		return nil, remote.Agent{}, fmt.Errorf("%s exceed the %s of the Slurm allocation (--oversubscribe starts them anyway)",
			slots.Plural(cmd.Size(), "rank"), slots.Plural(total, "slot"))
	}
	return hosts, newAgent(launcher, cmd.Agent), nil
}

// parseHosts parses --hostfile and --host.
func parseHosts(cmd *cli.Command) ([]slots.Host, error) {
	var requests []slots.Host
	if cmd.Hostfile != "" {
		f, err := os.Open(cmd.Hostfile)
		if err != nil {
			return nil, fmt.Errorf("host file: %w", err)
		}
		defer f.Close()
		if requests, err = slots.ParseFile(cmd.Hostfile, f); err != nil {
			return nil, err
		}
	}
	if cmd.Hosts != "" {
		listed, err := slots.ParseList(cmd.Hosts)
		if err != nil {
			return nil, err
		}
		requests = append(requests, listed...)
	}
	return requests, nil
}

// newAgent returns the agent for a value of --launcher and the words of --agent.
func newAgent(launcher string, words []string) remote.Agent {
	if len(words) > 0 && strings.ContainsRune(words[0], '/') {
		// Daemons run the agent in other directories.
		if path, err := filepath.Abs(words[0]); err == nil {
			words = slices.Concat([]string{path}, words[1:])
		}
	}
	switch {
	case launcher == "slurm":
		if words == nil {
			words = []string{"srun"}
		}
		// Start one daemon on each node, unbound, with unbuffered output.
		return remote.Agent{Form: remote.FormSlurm, Words: slices.Concat(words, []string{
			"--nodes=1", "--ntasks=1", "--mpi=none", "--input=all", "--unbuffered", "--cpu-bind=none", "--quiet",
		})}
	case launcher == "local":
		return remote.Agent{Form: remote.FormLocal, Words: words}
	case words == nil:
		words = []string{"ssh", "-o", "BatchMode=yes"}
	}
	return remote.Agent{Form: remote.FormShell, Words: words}
}

// hostSet is the set of hosts that a job runs on: the requested hosts that get ranks, in order.
type hostSet struct {
	con       *console
	requested []slots.Host
	machines  []slots.Machine
	hosts     []job.Host
	local     *procs.Local // this machine, even if it has no ranks
	cluster   *remote.Cluster
	remotes   map[int]*remote.Host // by index in requested
	notices   chan string
}

// openHosts connects to the hosts. The caller calls close, also after an error.
func openHosts(con *console, cmd *cli.Command, requested []slots.Host, agent remote.Agent, id job.Identity, machine slots.Machine, signals <-chan os.Signal) (*hostSet, error) {
	hs := &hostSet{con: con, remotes: map[int]*remote.Host{}, notices: make(chan string, 256)}
	needed, err := slots.HostsNeeded(id.Size, requested, cmd.MapBy)
	if err != nil {
		return hs, usageError(err)
	}
	for i, h := range requested {
		if needed == nil || needed[i] {
			hs.requested = append(hs.requested, h)
		}
	}
	watchdog := []string{watchdogName}
	if _, err := os.Lstat("/proc/self/exe"); err != nil {
		con.logf("warning: /proc is not mounted: ranks that use mpigo fail in Init, and nothing cleans up if the launcher is killed; as root: mount -t proc proc /proc")
		watchdog = nil
	}
	if hs.local, err = procs.NewLocal(machine.Name, id.JobID, watchdog); err != nil {
		return hs, err
	}
	var names []string
	for _, h := range hs.requested {
		if !h.Local {
			names = append(names, h.Name)
		}
	}
	var remoteHosts []*remote.Host
	if len(names) > 0 {
		if err := checkSrun(cmd, agent, names); err != nil {
			return hs, usageError(err)
		}
		cfg := remote.Config{
			Agent: agent, Names: names, Secret: id.Secret, JobID: id.JobID, Timeout: cmd.ConnectTimeout,
			Notify: func(host, line string) {
				select {
				case hs.notices <- host + ": " + line:
				default: // the buffer is full; Notify must not block
				}
			},
		}
		err = interruptible(signals, func(ctx context.Context) (err error) {
			hs.cluster, err = remote.Connect(ctx, cfg)
			return err
		})
		if err != nil {
			return hs, ofAllocation(cmd, agent, err)
		}
		remoteHosts = hs.cluster.Hosts()
	}
	for i, h := range hs.requested {
		if h.Local {
			hs.hosts, hs.machines = append(hs.hosts, hs.local), append(hs.machines, machine)
			continue
		}
		hs.hosts = append(hs.hosts, remoteHosts[0])
		hs.machines = append(hs.machines, slots.Machine{Name: h.Name, Cores: remoteHosts[0].Cores, Quota: remoteHosts[0].Quota})
		hs.remotes[i] = remoteHosts[0]
		remoteHosts = remoteHosts[1:]
	}
	return hs, nil
}

// checkSrun returns an error if other hosts come from the variables of a Slurm allocation, not from
// the user's flags, and srun is missing. Slurm's variables are also set in containers and shells
// that have no srun.
func checkSrun(cmd *cli.Command, agent remote.Agent, names []string) error {
	if !isAllocation(cmd, agent) {
		return nil
	}
	if _, err := exec.LookPath(agent.Words[0]); err != nil {
		return fmt.Errorf("SLURM_JOB_ID and SLURM_JOB_NODELIST are set, so the job would run on the nodes of that Slurm allocation (%s, …), but %s is not in PATH: add it to PATH, or run on this machine alone with --launcher local", names[0], agent.Words[0])
	}
	return nil
}

// isAllocation reports whether srun was chosen by the variables of a Slurm allocation, not by the
// user's flags.
func isAllocation(cmd *cli.Command, agent remote.Agent) bool {
	return agent.Form == remote.FormSlurm && cmd.Launcher == ""
}

// ofAllocation adds to a host's error that the host comes from a Slurm allocation, if it does.
func ofAllocation(cmd *cli.Command, agent remote.Agent, err error) error {
	var host *remote.HostError
	if !isAllocation(cmd, agent) || !errors.As(err, &host) {
		return err
	}
	return fmt.Errorf("SLURM_JOB_ID and SLURM_JOB_NODELIST are set, so the job would run on the nodes of that Slurm allocation (--launcher local: on this machine alone): %w", err)
}

func (hs *hostSet) close() {
	if hs.cluster != nil {
		hs.cluster.Close()
	}
	if hs.local != nil {
		hs.local.Close()
	}
	for {
		select {
		case line := <-hs.notices:
			hs.con.stderr.Line(line)
		default:
			return
		}
	}
}

// universe returns the number of slots of all hosts.
func (hs *hostSet) universe() int {
	n := 0
	for i, h := range hs.requested {
		n += h.SlotCount(hs.machines[i].CPUs())
	}
	return n
}

// interruptible calls f with a context. A signal that ends the launcher cancels the context with an
// *interruptedError.
func interruptible(signals <-chan os.Signal, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	watched := make(chan struct{})
	defer func() { <-watched }()
	done := make(chan struct{})
	defer close(done)
	go func() {
		defer close(watched)
		for {
			select {
			case sig := <-signals:
				switch s, _ := sig.(syscall.Signal); s {
				case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
					cancel(&interruptedError{s})
				case syscall.SIGTSTP:
					_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
				}
			case <-done:
				return
			}
		}
	}()
	return f(ctx)
}

// ensurePrograms copies programs to the remote hosts that lack them, and sets the paths in specs.
func (hs *hostSet) ensurePrograms(specs []procs.Spec, signals <-chan os.Signal) error {
	if hs.cluster == nil {
		return nil
	}
	return interruptible(signals, func(ctx context.Context) error {
		type programCopy struct{ host, number int }
		numbers := map[string]int{} // number of the program with a path
		var programs []remote.Program
		paths := map[programCopy]string{} // path of a program on a host
		for _, spec := range specs {
			if hs.remotes[spec.Host] == nil {
				continue
			}
			number, known := numbers[spec.Path]
			if !known {
				program, err := remote.NewProgram(spec.Path)
				if err != nil {
					return &statusError{statusNotExecutable, err}
				}
				number = len(programs)
				numbers[spec.Path] = number
				programs = append(programs, program)
			}
			paths[programCopy{spec.Host, number}] = ""
		}
		type result struct {
			programCopy
			path string
			err  error
		}
		results := make(chan result)
		for c := range paths {
			go func() {
				path, err := hs.remotes[c.host].EnsureProgram(c.number, programs[c.number])
				select {
				case results <- result{c, path, err}:
				case <-ctx.Done():
				}
			}()
		}
		var first error
		for range len(paths) {
			select {
			case r := <-results:
				paths[r.programCopy] = r.path
				if first == nil {
					first = r.err
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		for i, spec := range specs {
			if hs.remotes[spec.Host] != nil && first == nil {
				specs[i].Path = paths[programCopy{spec.Host, numbers[spec.Path]}]
			}
		}
		return first
	})
}
