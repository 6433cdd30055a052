package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/mpigo/mpigo"

// build puts the programs of a library into dir.
func build(ctx context.Context, library, dir string) error {
	switch library {
	case mpigo:
		for _, pkg := range []string{"mpirun-go", "bench"} {
			if err := quietly(ctx, "go", "build", "-o", filepath.Join(dir, pkg), module+"/"+pkg); err != nil {
				return err
			}
		}
		return nil
	case openMPI:
		return buildPeer(ctx, dir, "openmpi")
	default:
		return buildPeer(ctx, dir, "mpich")
	}
}

func buildPeer(ctx context.Context, dir, name string) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", module+"/bench").Output()
	if err != nil {
		return fmt.Errorf("find %s/bench: %w", module, err)
	}
	return quietly(ctx, filepath.Join(strings.TrimSpace(string(out)), "peers", "build.sh"), dir, name)
}

// quietly runs a command whose output is of interest only if it fails.
func quietly(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lastLines(string(out), 5))
	}
	return nil
}

// lastLines is the end of a text, in one line.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "; ")
}
