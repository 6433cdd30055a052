package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
	"github.com/mpigo/mpigo/mpirun-go/internal/job"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
	"github.com/mpigo/mpigo/mpirun-go/internal/remote"
	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
	"github.com/mpigo/mpigo/mpirun-go/internal/stdin"
)

// newIdentity returns an identity with a unique job ID, which is not secret, and a new secret.
func newIdentity(size int) (job.Identity, error) {
	secret, err := wireup.NewSecret()
	if err != nil {
		return job.Identity{}, err
	}
	unique := make([]byte, 8)
	_, _ = rand.Read(unique) // never fails
	jobID := fmt.Sprintf("mpigo-%d-%s", os.Getpid(), hex.EncodeToString(unique))
	return job.Identity{JobID: jobID, Secret: secret, Size: size}, nil
}

// plan returns the Spec of each rank, without Path and Args, and the index of each rank's group.
func plan(cmd *cli.Command, places []slots.Place, id job.Identity, set tunable.Set, hs *hostSet) ([]procs.Spec, []int, error) {
	inputs := rankInputs(cmd.Stdin, id.Size)
	bases, oversubscribed := make([][]string, len(hs.hosts)), make([]bool, len(hs.hosts))
	gomaxprocs := crowdedProcs(places)
	for i, h := range hs.requested {
		ranks, cpus := ranksOn(places, i), hs.machines[i].CPUs()
		environ := os.Environ()
		if !h.Local {
			environ = remote.Environ(environ)
		}
		bases[i] = rankEnviron(environ, ranks > cpus, gomaxprocs)
		oversubscribed[i] = ranks > h.SlotCount(cpus) || ranks > cpus
	}
	var specs []procs.Spec
	var appNum []int
	for index, g := range cmd.Groups {
		changes := set.Environ()
		for _, v := range g.Env {
			if v.FromLauncher {
				value, ok := os.LookupEnv(v.Name)
				if !ok {
					return nil, nil, usageError(fmt.Errorf("-x %s: the variable is not set in the environment", v.Name))
				}
				v.Value = value
			}
			changes = append(changes, v.Name+"="+v.Value)
		}
		localDir, remoteDir, err := hs.workDirs(g.Dir, places[len(specs):len(specs)+g.Ranks])
		if err != nil {
			return nil, nil, usageError(err)
		}
		for range g.Ranks {
			place := places[len(specs)]
			id.Oversubscribed = oversubscribed[place.Host]
			dir, changes := localDir, changes
			if !hs.requested[place.Host].Local {
				dir = remoteDir
			}
			if dir != "" {
				changes = append(slices.Clip(changes), "PWD="+dir)
			}
			shares := 0
			if cmd.BindTo == cli.BindAuto {
				shares = place.LocalSize
			}
			specs = append(specs, procs.Spec{
				Rank: place.Rank, Host: place.Host,
				Env: job.RankEnv(id, place.Rank, place.LocalRank, place.LocalSize, bases[place.Host], changes),
				Dir: dir, Stdin: inputs[place.Rank], CPUs: place.CPUs, Share: place.LocalRank, Shares: shares,
				TimerSlack: set.Duration("progress.timerslack"),
			})
			appNum = append(appNum, index)
		}
	}
	return specs, appNum, nil
}

// crowdedProcs is the GOMAXPROCS of ranks that share processors. With more threads, idle threads
// that look for work would take processor time from other ranks. With one, a goroutine that
// computes or starts a program delays the messages of its rank. So two are better, except between
// hosts, where two make a wakeup too slow (docs/evidence/performance.md).
func crowdedProcs(places []slots.Place) string {
	for _, place := range places {
		if place.Host != places[0].Host {
			return "1"
		}
	}
	return "2"
}

// gomaxprocsMarker names the GOMAXPROCS that a launcher has set. This launcher may be a rank of
// that launcher's job.
const gomaxprocsMarker = "MPIGO_OWN_GOMAXPROCS="

// rankEnviron returns environ, with GOMAXPROCS added if the host has fewer processors than
// ranks. It keeps a GOMAXPROCS that the user has set, and removes one that another launcher has
// set.
func rankEnviron(environ []string, cpusShort bool, gomaxprocs string) []string {
	if i := slices.IndexFunc(environ, func(pair string) bool { return strings.HasPrefix(pair, gomaxprocsMarker) }); i >= 0 {
		marker, own := environ[i], "GOMAXPROCS="+strings.TrimPrefix(environ[i], gomaxprocsMarker)
		environ = slices.DeleteFunc(slices.Clone(environ), func(pair string) bool { return pair == marker || pair == own })
	}
	isProcs := func(pair string) bool { return strings.HasPrefix(pair, "GOMAXPROCS=") && pair != "GOMAXPROCS=" }
	if !cpusShort || slices.ContainsFunc(environ, isProcs) {
		return environ
	}
	return slices.Concat(environ, []string{"GOMAXPROCS=" + gomaxprocs, gomaxprocsMarker + gomaxprocs})
}

// workDirs returns the working directory of a group's ranks on this machine, where "" is the
// launcher's own, and on other hosts. Daemons check whether the directory exists on other hosts.
func (hs *hostSet) workDirs(dir string, places []slots.Place) (localDir, remoteDir string, err error) {
	if slices.ContainsFunc(places, func(place slots.Place) bool { return hs.requested[place.Host].Local }) {
		if localDir, err = workDir(dir); err != nil {
			return "", "", err
		}
	}
	if hs.cluster != nil {
		remoteDir, err = filepath.Abs(dir)
	}
	return localDir, remoteDir, err
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

// rankInputs returns the standard input of each rank. A single reading rank inherits the launcher's
// standard input, so it consumes only what it reads itself. Ranks get a pipe if several ranks read,
// or if the input is a terminal.
func rankInputs(reader, size int) []procs.Stdin {
	inputs := make([]procs.Stdin, size) // StdinNull
	kind := procs.StdinInherit
	if stdin.IsTerminal(os.Stdin) || reader == cli.StdinAll && size > 1 {
		kind = procs.StdinPipe
	}
	for rank := range inputs {
		if reader == cli.StdinAll || reader == rank {
			inputs[rank] = kind
		}
	}
	return inputs
}
