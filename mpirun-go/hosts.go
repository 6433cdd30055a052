package main

import (
	"context"
	"fmt"
	"os"
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

// askedHosts are the hosts that the command line names, or else the Slurm allocation that this runs in, and the agent that reaches those that
// are not this machine. Of an allocation there are to be no more ranks than slots, unless that is asked for: others may have the rest of its nodes.
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
	// Who names only this machine and all the same an agent wants to see it at work.
	onlyNames := len(requests) > 0 && slots.AllLocal(m, requests) && (cmd.Agent != nil || cmd.Launcher != "")
	hosts := slots.Merge(m, requests, onlyNames)
	if err := cmd.SetHostCount(len(hosts)); err != nil {
		return nil, remote.Agent{}, err
	}
	if total, known := slots.TotalSlots(requests); allocated && known && cmd.Size() > total && !cmd.Oversubscribe {
		return nil, remote.Agent{}, fmt.Errorf("%s are more than the %s of the Slurm allocation (--oversubscribe starts them all the same)",
			slots.Plural(cmd.Size(), "rank"), slots.Plural(total, "slot"))
	}
	return hosts, newAgent(launcher, cmd.Agent), nil
}

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

// agent is the command of a launcher, or the user's own.
func newAgent(launcher string, words []string) remote.Agent {
	if len(words) > 0 && strings.ContainsRune(words[0], '/') {
		if path, err := filepath.Abs(words[0]); err == nil { // where other hosts are to use it, the directory is another one
			words = slices.Concat([]string{path}, words[1:])
		}
	}
	switch {
	case launcher == "slurm":
		if words == nil {
			words = []string{"srun"}
		}
		// One daemon on each node, bound to nothing, with its output as it comes.
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

// places is where a job runs: its hosts, those that were asked for and are needed, in order.
type hostSet struct {
	requested []slots.Host
	machines  []slots.Machine
	hosts     []job.Host
	local     *procs.Local // this machine, also if it has no ranks
	cluster   *remote.Cluster
	remotes   map[int]*remote.Host // by number
	notices   chan string
}

// openHosts makes ready what the ranks will run on. The caller calls close, also on error.
func openHosts(cmd *cli.Command, requested []slots.Host, agent remote.Agent, id job.Identity, machine slots.Machine, signals <-chan os.Signal) (*hostSet, error) {
	p := &hostSet{remotes: map[int]*remote.Host{}, notices: make(chan string, 256)}
	needed, err := slots.HostsNeeded(id.Size, requested, cmd.MapBy)
	if err != nil {
		return p, usageError(err)
	}
	if needed != nil {
		kept := 0
		for i, h := range requested {
			if needed[i] {
				requested[kept] = h
				kept++
			}
		}
		requested = requested[:kept]
	}
	p.requested = requested
	if p.local, err = procs.NewLocal(machine.Name, id.JobID, []string{watchdogName}); err != nil {
		return p, err
	}
	var names []string
	for _, h := range requested {
		if !h.Local {
			names = append(names, h.Name)
		}
	}
	var remoteHosts []*remote.Host
	if len(names) > 0 {
		p.cluster, err = connect(remote.Config{
			Agent: agent, Names: names, Secret: id.Secret, JobID: id.JobID, Timeout: cmd.ConnectTimeout,
			Notify: func(host, line string) {
				select {
				case p.notices <- host + ": " + line:
				default: // nobody reads; the agent is not to wait
				}
			},
		}, signals)
		if err != nil {
			return p, err
		}
		remoteHosts = p.cluster.Hosts()
	}
	for i, h := range requested {
		if h.Local {
			p.hosts, p.machines = append(p.hosts, p.local), append(p.machines, machine)
			continue
		}
		p.hosts = append(p.hosts, remoteHosts[0])
		p.machines = append(p.machines, slots.Machine{Name: h.Name, Cores: remoteHosts[0].Cores})
		p.remotes[i] = remoteHosts[0]
		remoteHosts = remoteHosts[1:]
	}
	return p, nil
}

func (p *hostSet) close() {
	if p.cluster != nil {
		p.cluster.Close()
	}
	if p.local != nil {
		p.local.Close()
	}
	for {
		select {
		case line := <-p.notices:
			fmt.Fprintln(os.Stderr, line)
		default:
			return
		}
	}
}

// universe is how many ranks there is room for.
func (p *hostSet) universe() int {
	n := 0
	for i, h := range p.requested {
		n += h.SlotCount(p.machines[i].CPUs())
	}
	return n
}

// connect reaches the hosts, until that is done or a signal comes that ends the launcher.
func connect(cfg remote.Config, signals <-chan os.Signal) (*remote.Cluster, error) {
	var cluster *remote.Cluster
	err := interruptible(signals, func(ctx context.Context) (err error) {
		cluster, err = remote.Connect(ctx, cfg)
		return err
	})
	return cluster, err
}

// interruptible calls f with a context that ends, with an *interruptedError, when a signal comes that ends the launcher.
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

// provide sees to it that every remote host has the programs of its ranks, and says in the specs where.
func (p *hostSet) ensurePrograms(specs []procs.Spec, signals <-chan os.Signal) error {
	if p.cluster == nil {
		return nil
	}
	return interruptible(signals, func(ctx context.Context) error {
		programs := map[string]int{} // the number of each path
		var all []remote.Program
		numbersOf := map[int]map[int]bool{} // of each host, the numbers
		for _, spec := range specs {
			if p.remotes[spec.Host] == nil {
				continue
			}
			number, known := programs[spec.Path]
			if !known {
				program, err := remote.NewProgram(spec.Path)
				if err != nil {
					return &statusError{statusNotExecutable, err}
				}
				number = len(all)
				programs[spec.Path] = number
				all = append(all, program)
			}
			if numbersOf[spec.Host] == nil {
				numbersOf[spec.Host] = map[int]bool{}
			}
			numbersOf[spec.Host][number] = true
		}
		type result struct {
			host, number int
			path         string
			err          error
		}
		count := 0
		results := make(chan result)
		for host, numbers := range numbersOf {
			for number := range numbers {
				count++
				go func() {
					path, err := p.remotes[host].EnsureProgram(number, all[number])
					select {
					case results <- result{host, number, path, err}:
					case <-ctx.Done():
					}
				}()
			}
		}
		paths := map[[2]int]string{}
		var first error
		for range count {
			select {
			case r := <-results:
				paths[[2]int{r.host, r.number}] = r.path
				if first == nil {
					first = r.err
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		for i := range specs {
			if p.remotes[specs[i].Host] != nil && first == nil {
				specs[i].Path = paths[[2]int{specs[i].Host, programs[specs[i].Path]}]
			}
		}
		return first
	})
}
