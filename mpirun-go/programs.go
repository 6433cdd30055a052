package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/mpigo/mpigo/mpirun-go/internal/build"
	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// interruptedError means that a signal interrupted the launcher's work before or after the job.
type interruptedError struct{ signal syscall.Signal }

func (e *interruptedError) Error() string {
	return fmt.Sprintf("got signal %d (%v)", int(e.signal), e.signal)
}

// status is the launcher's exit status.
func (e *interruptedError) status() int { return 128 + int(e.signal) }

// buildPrograms finds each group's program, builds those that are Go packages into a temporary
// directory, each once, and completes the specs. The caller calls cleanUp when the programs are no
// longer needed, also after an error.
func buildPrograms(con *console, cmd *cli.Command, specs []procs.Spec, appNum []int, jobID string, host *procs.Local, signals <-chan os.Signal) (cleanUp func(), err error) {
	b := builder{con: con, jobID: jobID, tags: cmd.Tags, debug: cmd.Debug, host: host, signals: signals, binaries: map[string]string{}}
	paths := make([]string, len(cmd.Groups))
	for i, g := range cmd.Groups {
		if paths[i], err = b.resolve(g.Program); err != nil {
			return b.cleanUp, err
		}
	}
	if cmd.Tags != "" && len(b.binaries) == 0 {
		con.logf("warning: --tags %s has no effect: no PROGRAM is a Go package, so none is built", cmd.Tags)
	}
	for rank := range specs {
		g := cmd.Groups[appNum[rank]]
		name := g.Program
		if _, isBuilt := b.binaries[name]; isBuilt {
			name = paths[appNum[rank]]
		}
		specs[rank].Path = paths[appNum[rank]]
		specs[rank].Args = append([]string{name}, g.Args...)
	}
	return b.cleanUp, nil
}

type builder struct {
	con      *console
	jobID    string
	host     *procs.Local
	signals  <-chan os.Signal
	tags     string            // value of --tags
	debug    bool              // build for a debugger
	dir      string            // temporary directory; "" before the first build
	binaries map[string]string // path of the binary of each package
}

func (b *builder) cleanUp() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// resolve returns the path of a program. It builds the program if it is a package.
func (b *builder) resolve(name string) (string, error) {
	program, err := build.Find(name)
	if err != nil {
		return "", programError(name, err)
	}
	if program.Package == "" {
		return program.Path, nil
	}
	if path, ok := b.binaries[name]; ok {
		return path, nil
	}
	if b.dir == "" {
		if b.dir, err = tempDir(); err != nil {
			return "", err
		}
		b.host.RemoveIfKilled(b.dir)
	}
	outDir := filepath.Join(b.dir, fmt.Sprint(len(b.binaries)))
	if err := os.Mkdir(outDir, 0o700); err != nil {
		return "", err
	}
	path, err := b.build(program.Package, outDir)
	if err != nil {
		return "", programError(name, err)
	}
	b.binaries[name] = path
	return path, nil
}

// tempDir creates the directory for binaries. Its name is absolute, because go, the ranks and the
// watchdog run in other directories.
func tempDir() (string, error) {
	parent, from, set := os.TempDir(), "the default of TMPDIR", "TMPDIR"
	for _, variable := range []string{"TMPDIR", "GOTMPDIR"} { // the latter is for executable files
		if value := os.Getenv(variable); value != "" {
			parent, from, set = value, "from "+variable, variable
		}
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(parent, "mpirun-go-")
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return "", fmt.Errorf("the package cannot be built: no directory can be made in %s (%s): %w; set %s to a directory that exists and can be written", parent, from, path.Err, set)
	}
	return dir, err
}

// build builds a package. A signal that ends the launcher interrupts the build.
func (b *builder) build(pkg, outDir string) (string, error) {
	// If the launcher is killed, the watchdog finds the compilers by PMI_JOBID and kills them, and
	// removes the directory.
	env := []string{"PMI_JOBID=" + b.jobID, "GOTMPDIR=" + b.dir}
	if b.debug {
		env = append(env, debugFlags())
	}
	path := ""
	err := interruptible(b.signals, func(ctx context.Context) (err error) {
		path, err = build.Build(ctx, pkg, b.tags, outDir, env, b.con)
		return err
	})
	return path, err
}

// programError adds the exit status to an error of package build about a program.
func programError(name string, err error) error {
	switch {
	case errors.Is(err, build.ErrNotFound):
		if slices.Contains(subcommands(), name) {
			err = fmt.Errorf("%w; the flags of mpirun-go %s come after that word", err, name)
		}
		return &statusError{statusNotFound, err}
	case errors.Is(err, build.ErrNotExecutable):
		return &statusError{statusNotExecutable, err}
	}
	return err
}
