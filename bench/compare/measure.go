package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// session is a measurement under way.
type session struct {
	opts     options
	at       place
	who      []contender
	what     []experiment
	launcher *launcher
	res      *results
	failed   map[string]bool // experiment and contender: they are not tried again
	began    time.Time
	done     int
	all      int
	terminal bool
}

// measure builds what there is and runs it, round after round. When it is interrupted it
// returns what it has so far.
func measure(ctx context.Context, opts options) (*results, error) {
	dir, err := os.MkdirTemp("", "mpigo-compare-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s := &session{
		opts:     opts,
		at:       place{cores: runtime.NumCPU(), bind: opts.bind, root: os.Geteuid() == 0},
		launcher: newLauncher(opts.timeout),
		res:      &results{Begun: time.Now().UTC().Truncate(time.Second), Bind: opts.bind},
		failed:   map[string]bool{},
		terminal: isTerminal(os.Stderr),
	}
	defer s.launcher.sweep()
	if err := s.choose(ctx, dir); err != nil {
		return nil, err
	}
	s.res.Machine = describeMachine(ctx)
	s.lookAround()
	s.began = time.Now()
	for round := 1; round <= opts.rounds && ctx.Err() == nil; round++ {
		share, known := watchOthers(func() {
			s.limits()
			s.round(ctx, round)
		})
		if ctx.Err() == nil {
			s.res.Rounds = round
			if known {
				s.lookBack(round, share)
			}
		}
	}
	s.say("")
	if ctx.Err() != nil {
		if s.res.Rounds == 0 {
			return nil, context.Cause(ctx)
		}
		s.problem("interrupted in round %d", s.res.Rounds+1)
	}
	s.res.Ended = time.Now().UTC().Truncate(time.Second)
	s.res.Machine.LoadAtEnd = loadAverage()
	return s.res, nil
}

// choose builds the programs of the contenders that are wanted and there, and chooses experiments.
func (s *session) choose(ctx context.Context, dir string) error {
	built := map[string]error{}
	for _, c := range contenders(dir) {
		if !s.opts.who.MatchString(c.name) {
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
				s.problem("%v", err)
			}
		}
		if err == nil {
			s.who = append(s.who, c)
			s.res.Contenders = append(s.res.Contenders, described{c.name, strings.Join(append(c.env,
				shorten(c.command(experiments()[0], s.at, s.opts.quick), dir)...), " ")})
		}
	}
	for _, e := range experiments() {
		if s.opts.only.MatchString(e.name) && (!s.opts.quick || e.quick != "") {
			s.what = append(s.what, e.split(s.opts.sizes)...)
		}
	}
	if len(s.who) == 0 || len(s.what) == 0 {
		return fmt.Errorf("nothing to run: of %d contenders and %d experiments none match", len(contenders(dir)), len(experiments()))
	}
	for _, e := range s.what {
		for _, c := range s.who {
			if c.takesPart(e) {
				s.all += s.opts.rounds
			}
		}
	}
	return nil
}

// shorten takes the temporary directory out of a command line.
func shorten(argv []string, dir string) []string {
	out := make([]string, len(argv))
	for i, arg := range argv {
		out[i] = strings.TrimPrefix(arg, dir+"/")
	}
	return out
}

// round has every contender run every experiment once. Each round begins with another one.
func (s *session) round(ctx context.Context, round int) {
	for _, e := range s.what {
		for i := range s.who {
			c := s.who[(i+round-1)%len(s.who)]
			if !c.takesPart(e) || ctx.Err() != nil {
				continue
			}
			s.progress(round, e, c)
			s.done++
			key := fmt.Sprintf("%s, %d ranks, %s", e.name, e.ranks, c.name)
			if s.failed[key] {
				continue
			}
			if err := s.one(ctx, e, c); err != nil && ctx.Err() == nil {
				s.failed[key] = true
				s.problem("%s: %v", key, err)
			}
		}
		if e.kind == goroutines {
			s.channel(e)
		}
	}
}

func (s *session) one(ctx context.Context, e experiment, c contender) error {
	out, took, err := s.launcher.run(ctx, c.command(e, s.at, s.opts.quick), c.env)
	if err != nil {
		return err
	}
	if e.kind == wholeJob {
		s.res.add(point{e.name, e.ranks, 0, "ms"}, c.name, float64(took.Microseconds())/1000)
		return nil
	}
	all, err := readings(out, e.ranks)
	for _, r := range all {
		s.res.add(point{e.name, e.ranks, r.Size, r.Unit}, c.name, r.Value)
	}
	return err
}

func (s *session) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.res.Problems = append(s.res.Problems, text)
	s.warn(text)
}

// warn tells what is no problem of a contender, if it is something.
func (s *session) warn(text string) {
	if text == "" {
		return
	}
	s.say("")
	fmt.Fprintf(os.Stderr, "compare: %s\n", text)
}

// progress says what is being run, and when it may be over.
func (s *session) progress(round int, e experiment, c contender) {
	left := ""
	if s.done > 0 {
		d := time.Since(s.began) / time.Duration(s.done) * time.Duration(s.all-s.done)
		left = fmt.Sprintf(", %v to go", d.Round(time.Second))
	}
	s.say(fmt.Sprintf("round %d/%d, %d/%d%s: %s, %d ranks, %s", round, s.opts.rounds, s.done+1, s.all, left, e.name, e.ranks, c.name))
}

// say shows a line: on a terminal, in place of the one before.
func (s *session) say(line string) {
	if s.terminal {
		fmt.Fprintf(os.Stderr, "\r%-78.78s\r", line)
	} else if line != "" {
		fmt.Fprintln(os.Stderr, line)
	}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
