package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/mpigo/mpigo"

// build builds the programs of a library into dir.
func build(ctx context.Context, library, dir string) error {
	if library != mpigo {
		return buildPeer(ctx, library, dir)
	}
	for _, pkg := range []string{"mpirun-go", "bench"} {
		if err := quietly(ctx, "go", "build", "-o", filepath.Join(dir, pkg), module+"/"+pkg); err != nil {
			return err
		}
	}
	return nil
}

// peerPrograms maps each library to the program of bench/peers for it.
var peerPrograms = map[string]string{openMPI: "peer-openmpi", mpich: "peer-mpich"} // never written

func buildPeer(ctx context.Context, library, dir string) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", module+"/bench").Output()
	if err != nil {
		return fmt.Errorf("find %s/bench: %w", module, err)
	}
	// MPICH's MPI_STATUSES_IGNORE is not an array, which gcc warns about.
	return quietly(ctx, tools(library)[0], "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wno-stringop-overflow",
		"-o", filepath.Join(dir, peerPrograms[library]),
		filepath.Join(strings.TrimSpace(string(out)), "peers", "peer.c"))
}

// quietly runs a command and reports its output only if it fails.
func quietly(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lastLines(string(out), 5))
	}
	return nil
}

// lastLines returns the last lines of a text as one line.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "; ")
}
