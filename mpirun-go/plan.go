package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
	"github.com/mpigo/mpigo/mpirun-go/internal/job"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
	"github.com/mpigo/mpigo/mpirun-go/internal/stdin"
	"github.com/mpigo/mpigo/tunable"
	"github.com/mpigo/mpigo/wireup"
)

// findHost is the host that the command line names: this machine, so far.
func findHost(cmd *cli.Command, m slots.Machine) (slots.Host, error) {
	var hosts []slots.Host
	if cmd.Hostfile != "" {
		f, err := os.Open(cmd.Hostfile)
		if err != nil {
			return slots.Host{}, fmt.Errorf("host file: %w", err)
		}
		defer f.Close()
		if hosts, err = slots.ParseFile(cmd.Hostfile, f); err != nil {
			return slots.Host{}, err
		}
	}
	if cmd.Hosts != "" {
		listed, err := slots.ParseList(cmd.Hosts)
		if err != nil {
			return slots.Host{}, err
		}
		hosts = append(hosts, listed...)
	}
	return slots.Here(m, hosts)
}

// newIdentity names the job. The name is not secret, but no other job has it.
func newIdentity(size int, here slots.Host, m slots.Machine) (job.Identity, error) {
	secret, err := wireup.NewSecret()
	if err != nil {
		return job.Identity{}, err
	}
	unique := make([]byte, 8)
	_, _ = rand.Read(unique) // never fails
	return job.Identity{
		JobID:          fmt.Sprintf("mpigo-%d-%s", os.Getpid(), hex.EncodeToString(unique)),
		Secret:         secret,
		Size:           size,
		Oversubscribed: size > here.Slots || size > m.CPUs(),
	}, nil
}

// plan makes the Spec of each rank, as yet without Path and Args, and the index
// of each rank's group. crowded says that there are more ranks than processors.
func plan(cmd *cli.Command, places []slots.Place, id job.Identity, set tunable.Set, crowded bool) ([]procs.Spec, []int, error) {
	inputs := rankInputs(cmd.Stdin, id.Size)
	base := rankEnviron(os.Environ(), crowded)
	var specs []procs.Spec
	var appNum []int
	for index, g := range cmd.Groups {
		changes := set.Environ()
		for _, v := range g.Env {
			if v.FromLauncher {
				value, ok := os.LookupEnv(v.Name)
				if !ok {
					return nil, nil, usage(fmt.Errorf("-x %s: there is no such variable in the environment", v.Name))
				}
				v.Value = value
			}
			changes = append(changes, v.Name+"="+v.Value)
		}
		dir, err := workDir(g.Dir)
		if err != nil {
			return nil, nil, usage(err)
		}
		if dir != "" {
			changes = append(changes, "PWD="+dir)
		}
		for range g.Ranks {
			at := places[len(specs)]
			specs = append(specs, procs.Spec{
				Rank:  at.Rank,
				Env:   job.RankEnv(id, at.Rank, at.LocalRank, at.LocalSize, base, changes),
				Dir:   dir,
				Stdin: inputs[at.Rank],
				CPUs:  at.CPUs,
			})
			appNum = append(appNum, index)
		}
	}
	return specs, appNum, nil
}

// ownProcs says that GOMAXPROCS was set by a launcher, which this one may be a rank of.
const ownProcs = "MPIGO_OWN_GOMAXPROCS=1"

// rankEnviron is environ with GOMAXPROCS=1 if crowded: threads of a rank that look for work keep other
// ranks from working. What the user has set holds, what another launcher has set does not.
func rankEnviron(environ []string, crowded bool) []string {
	isProcs := func(pair string) bool { return strings.HasPrefix(pair, "GOMAXPROCS=") && pair != "GOMAXPROCS=" }
	if slices.Contains(environ, ownProcs) {
		environ = slices.DeleteFunc(slices.Clone(environ), func(pair string) bool { return pair == ownProcs || pair == "GOMAXPROCS=1" })
	}
	if !crowded || slices.ContainsFunc(environ, isProcs) {
		return environ
	}
	return slices.Concat(environ, []string{"GOMAXPROCS=1", ownProcs})
}

func workDir(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", fmt.Errorf("--wdir: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("--wdir: %s is not a directory", dir)
	}
	return filepath.Abs(dir)
}

// rankInputs says what each rank's standard input is. A single rank inherits the
// launcher's, so that it takes from it only what it reads itself, unless that
// is a terminal.
func rankInputs(who, size int) []procs.Stdin {
	inputs := make([]procs.Stdin, size) // StdinNull
	kind := procs.StdinInherit
	if stdin.IsTerminal(os.Stdin) || who == cli.StdinAll && size > 1 {
		kind = procs.StdinPipe
	}
	for rank := range inputs {
		if who == cli.StdinAll || who == rank {
			inputs[rank] = kind
		}
	}
	return inputs
}
