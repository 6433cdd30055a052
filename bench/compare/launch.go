package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// launcher runs jobs, and ends each after a timeout.
type launcher struct {
	timeout time.Duration
	// tag is in the environment of every process of every job. It identifies processes that an MPI
	// launcher leaves running.
	tag string
}

func newLauncher(timeout time.Duration) *launcher {
	return &launcher{timeout, fmt.Sprintf("BENCH_COMPARE=%d.%d", os.Getpid(), time.Now().UnixNano())}
}

// grace is the time that an MPI launcher has to end its job.
const grace = 5 * time.Second

// run runs a command. It returns the standard output, and the time from start to end.
func (l *launcher) run(ctx context.Context, argv, env []string) ([]byte, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(append(os.Environ(), env...), l.tag)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if err == nil {
		return stdout.Bytes(), took, nil
	}
	l.sweep()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, 0, fmt.Errorf("no end after %v", l.timeout)
	}
	return nil, 0, fmt.Errorf("%w: %s", err, lastLines(stderr.String(), 3))
}

// occupy starts a process that computes for each core. stop ends them.
func (l *launcher) occupy(cores int) (stop func(), err error) {
	var all []*exec.Cmd
	stop = func() {
		for _, cmd := range all {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	for range cores {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		cmd.Env = append(os.Environ(), l.tag)
		// The kernel ends it if this process is killed.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			stop()
			return nil, fmt.Errorf("start a process that computes: %w", err)
		}
		all = append(all, cmd)
	}
	return stop, nil
}

// sweep kills all processes that jobs have left running.
func (l *launcher) sweep() {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(env, []byte(l.tag+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// reading is one line of a program's output.
type reading struct {
	Size  int     `json:"size"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Ranks int     `json:"ranks"`
}

// readings parses the output of a program. It skips lines that are not readings.
func readings(out []byte, ranks int) ([]reading, error) {
	var all []reading
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var r reading
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		if r.Ranks != ranks {
			return nil, fmt.Errorf("a job of %d ranks, not %d: is it the right launcher?", r.Ranks, ranks)
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no results: %q", lastLines(string(out), 3))
	}
	return all, nil
}
