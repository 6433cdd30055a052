package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// measurement is a measurement under way.
type measurement struct {
	opts        options
	at          place
	contenders  []contender
	experiments []experiment
	launcher    *launcher
	res         *results
	failed      map[string]bool // by experiment and contender; these are not run again
	began       time.Time
	done        int // runs so far
	all         int // runs to do
	terminal    bool
}

// measure builds the programs and runs them, round after round. After an interrupt it returns the
// results so far.
func measure(ctx context.Context, opts options) (*results, error) {
	dir, err := os.MkdirTemp("", "mpigo-compare-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	m := &measurement{
		opts: opts, at: place{cores: runtime.NumCPU(), bind: opts.bind, root: os.Geteuid() == 0},
		launcher: newLauncher(opts.timeout),
		res:      &results{session: session{Begun: time.Now().UTC().Truncate(time.Second), Bind: opts.bind}},
		failed:   map[string]bool{}, terminal: isTerminal(os.Stderr),
	}
	defer m.launcher.sweep()
	if err := m.choose(ctx, dir); err != nil {
		return nil, err
	}
	m.res.Machine = describeMachine(ctx)
	m.watchIdle()
	m.began = time.Now()
	for round := 1; round <= opts.rounds && ctx.Err() == nil; round++ {
		share, known := watchOthers(func() {
			m.limits()
			m.round(ctx, round)
		})
		if ctx.Err() == nil {
			m.res.Rounds = round
			if known {
				m.keepOthers(round, share)
			}
		}
	}
	m.say("")
	if ctx.Err() != nil {
		if m.res.Rounds == 0 {
			return nil, context.Cause(ctx)
		}
		m.problem("interrupted in round %d", m.res.Rounds+1)
	}
	m.res.Ended = time.Now().UTC().Truncate(time.Second)
	m.res.Machine.LoadAtEnd = loadAverage()
	return m.res, nil
}

// choose builds the programs of the contenders that -contenders names and that are installed, and
// chooses the experiments.
func (m *measurement) choose(ctx context.Context, dir string) error {
	built := map[string]error{}
	for _, c := range contenders(dir) {
		if !m.opts.contenders.MatchString(c.name) {
			continue
		}
		err, known := built[c.library]
		if !known {
			if err = missing(c.library); err == nil {
				fmt.Fprintf(os.Stderr, "building for %s\n", c.library)
				err = build(ctx, c.library, dir)
			}
			if built[c.library] = err; err != nil {
				if c.library == mpigo {
					return err
				}
				m.problem("%v", err)
			}
		}
		if err == nil {
			m.contenders = append(m.contenders, c)
			m.res.Contenders = append(m.res.Contenders, described{c.name, strings.Join(append(c.env,
				shorten(c.command(experiments()[0], m.at, m.opts.quick), dir)...), " ")})
		}
	}
	for _, e := range experiments() {
		if m.opts.experiments.MatchString(e.name) && (!m.opts.quick || e.quick != "") {
			if m.opts.quick { // all sizes in one run
				m.experiments = append(m.experiments, e)
				continue
			}
			for _, part := range e.split(m.opts.sizes) {
				if !m.opts.marks || isTarget(part) {
					m.experiments = append(m.experiments, part)
				}
			}
		}
	}
	switch {
	case len(m.contenders) == 0:
		return errors.New("nothing to run: -contenders matches no contender")
	case len(m.experiments) == 0:
		var names []string
		for _, e := range experiments() {
			names = append(names, e.name)
		}
		return fmt.Errorf("nothing to run: -only matches none of %q, or with -marks none that has a target",
			slices.Compact(names))
	}
	for _, e := range m.experiments {
		for _, c := range m.contenders {
			if c.takesPart(e) {
				m.all += m.opts.rounds
			}
		}
	}
	return nil
}

// shorten removes the temporary directory from a command line.
func shorten(argv []string, dir string) []string {
	out := make([]string, len(argv))
	for i, arg := range argv {
		out[i] = strings.TrimPrefix(arg, dir+"/")
	}
	return out
}

// round runs every experiment once with every contender. Each round begins with another contender.
func (m *measurement) round(ctx context.Context, round int) {
	for _, e := range m.experiments {
		for i := range m.contenders {
			c := m.contenders[(i+round-1)%len(m.contenders)]
			if !c.takesPart(e) || ctx.Err() != nil {
				continue
			}
			m.progress(round, e, c)
			m.done++
			key := fmt.Sprintf("%s, %d ranks, %s", e.name, e.ranks, c.name)
			if m.failed[key] {
				continue
			}
			if err := m.one(ctx, e, c); err != nil && ctx.Err() == nil {
				m.failed[key] = true
				m.problem("%s: %v", key, err)
			}
		}
		if e.kind == goroutines {
			m.channel(e)
		}
	}
}

func (m *measurement) one(ctx context.Context, e experiment, c contender) error {
	if e.busy {
		stop, err := m.launcher.occupy(m.at.cores)
		if err != nil {
			return err
		}
		defer stop()
	}
	out, took, err := m.launcher.run(ctx, c.command(e, m.at, m.opts.quick), c.env)
	if err != nil {
		return err
	}
	if e.kind == wholeJob {
		m.res.add(point{e.name, e.ranks, 0, "ms"}, c.name, float64(took.Microseconds())/1000)
		return nil
	}
	all, err := readings(out, e.ranks)
	for _, r := range all {
		m.res.add(point{e.name, e.ranks, r.Size, r.Unit}, c.name, r.Value)
	}
	return err
}

func (m *measurement) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	m.res.Problems = append(m.res.Problems, text)
	m.warn(text)
}

// warn prints a warning, unless it is empty.
func (m *measurement) warn(text string) {
	if text == "" {
		return
	}
	m.say("")
	fmt.Fprintf(os.Stderr, "compare: %s\n", text)
}

// progress shows the current run and the time that is left.
func (m *measurement) progress(round int, e experiment, c contender) {
	left := ""
	if m.done > 0 {
		d := time.Since(m.began) / time.Duration(m.done) * time.Duration(m.all-m.done)
		left = fmt.Sprintf(", %v to go", d.Round(time.Second))
	}
	m.say(fmt.Sprintf("round %d/%d, %d/%d%s: %s, %d ranks, %s", round, m.opts.rounds, m.done+1, m.all, left, e.name, e.ranks, c.name))
}

// say shows a line. On a terminal it replaces the line before.
func (m *measurement) say(line string) {
	if m.terminal {
		fmt.Fprintf(os.Stderr, "\r%-78.78s\r", line)
	} else if line != "" {
		fmt.Fprintln(os.Stderr, line)
	}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
