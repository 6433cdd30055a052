package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fault is the running fault program.
type fault struct {
	injector *injector

	mu     sync.Mutex
	broken time.Time // guarded by mu: the first time
	mended time.Time // guarded by mu: the last time
	over   bool      // guarded by mu
	err    error     // guarded by mu: how the program ended
}

// startFault starts the program. pids are the ranks' process ids.
func startFault(program, name string, pids []int, injector *injector) (*fault, error) {
	cmd := exec.Command(program, name, strconv.Itoa(pids[0]), strconv.Itoa(pids[1]))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f := &fault{injector: injector}
	go func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			f.handle(in.Text())
		}
		_, _ = io.Copy(io.Discard, out) // after a line that is too long
		err := cmd.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.over, f.err = true, err
	}()
	return f, nil
}

// handle acts on a line of the program's output.
func (f *fault) handle(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what, rest, _ := strings.Cut(line, " ")
	if what == "inject" {
		f.injector.inject(rest)
		return
	}
	at := time.Now()
	if us, err := strconv.ParseInt(rest, 10, 64); err == nil {
		at = time.UnixMicro(us)
	}
	switch {
	case what == "broken" && f.broken.IsZero():
		f.broken = at
	case what == "mended":
		f.mended = at
	}
}

func (f *fault) isOver() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

func (f *fault) mendedAt() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mended
}
