package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/jobsocket"
	"github.com/mpigo/mpigo/mpirun-go/internal/live"
)

// topEvery is the time between two views.
const topEvery = time.Second

// runTop runs mpirun-go top and returns the exit status.
func runTop(con *console, args []string) int {
	asJSON, name, err := parseTop(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(topHelp)
		return 0
	}
	if err != nil {
		con.logf("top: %v", err)
		return statusUsage
	}
	if name == "" {
		if name, err = onlyJob(); err != nil {
			con.logf("top: %v", err)
			return statusFailed
		}
	}
	client, err := jobsocket.Dial(name)
	if err != nil {
		con.logf("top: %v", err)
		return statusFailed
	}
	defer client.Close()
	w := &watcher{client: client}
	switch {
	case asJSON:
		err = w.stream(os.Stdout)
	case canDraw(os.Stdin, os.Stdout):
		err = w.show(os.Stdin, os.Stdout)
	default:
		err = w.print(os.Stdout)
	}
	switch {
	case errors.Is(err, syscall.EPIPE): // the reader has closed the output
		return 0
	case errors.Is(err, errJobEnded):
		con.logf("top: %v", err)
		return 0
	case err != nil:
		con.logf("top: %v", err)
		return statusFailed
	}
	return 0
}

func parseTop(args []string) (asJSON bool, job string, err error) {
	flags := flag.NewFlagSet("top", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.BoolVar(&asJSON, "json", false, "")
	for first := true; first || flags.NArg() > 0; first = false {
		if !first { // flags may follow JOB
			if job != "" {
				return asJSON, job, fmt.Errorf("unexpected argument %q", flags.Arg(0))
			}
			job, args = flags.Arg(0), flags.Args()[1:]
		}
		if err := flags.Parse(args); err != nil {
			return asJSON, job, err
		}
	}
	return asJSON, job, nil
}

// canDraw reports whether both files are terminals, which know control sequences.
func canDraw(in, out *os.File) bool {
	return os.Getenv("TERM") != "dumb" && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}

// watcher asks a job repeatedly.
type watcher struct {
	client  *jobsocket.Client
	tracker live.Tracker
	views   int
}

var errJobEnded = errors.New("the job has ended")

// next asks the job, and returns what it does.
func (w *watcher) next() (live.View, error) {
	a, err := w.client.Ask(introspect.WantActivity, 2*introspect.AnswerTimeout)
	if err != nil {
		// The first question checks that the job answers.
		if w.views > 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
			err = errJobEnded
		}
		return live.View{}, err
	}
	w.views++
	return w.tracker.Update(a.Job, a.Members, time.Now()), nil
}

// stream writes a view each second, as a JSON object on a line, until the job has ended.
func (w *watcher) stream(out io.Writer) error {
	for {
		v, err := w.next()
		if err != nil {
			return err
		}
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if _, err := out.Write(append(text, '\n')); err != nil {
			return err
		}
		time.Sleep(topEvery)
	}
}

// print writes one view, of the ranks' activity within one second.
func (w *watcher) print(out io.Writer) error {
	if _, err := w.next(); err != nil {
		return err
	}
	time.Sleep(topEvery)
	v, err := w.next()
	if err != nil {
		return err
	}
	const wide, all = 200, 1 << 20
	lines := live.Screen(v, wide, all, live.Style{})
	_, err = fmt.Fprintln(out, strings.Join(lines[:len(lines)-1], "\n")) // without the help
	return err
}

// Control sequences of a terminal (ECMA-48, and xterm's alternate screen).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	goHome      = "\x1b[H"
	endLine     = "\x1b[K\r\n"
	eraseRest   = "\x1b[K\x1b[J"
)

// show displays views on a terminal until the user presses q or Ctrl-C, or the job has ended.
func (w *watcher) show(in, out *os.File) error {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	defer func() { _ = term.Restore(int(in.Fd()), before) }()
	views, stop := paint(out)
	defer stop()

	resized, ended := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	quit := make(chan struct{})
	go func() {
		defer close(quit)
		waitForQuit(in)
	}()
	type result struct {
		view live.View
		err  error
	}
	results := make(chan result)
	ask := func() {
		v, err := w.next()
		results <- result{v, err}
	}
	go ask()
	var last live.View
	tick := time.NewTimer(0)
	<-tick.C
	for {
		select {
		case <-quit:
			return nil
		case <-ended:
			return nil
		case <-resized:
			views.show(last)
		case r := <-results:
			if r.err != nil {
				return r.err
			}
			last = r.view
			views.show(last)
			tick.Reset(topEvery)
		case <-tick.C:
			go ask()
		}
	}
}

// frames passes views to the goroutine that draws them, because a stopped terminal (Ctrl-S) blocks
// its writers.
type frames chan live.View

// show passes a view on, unless another view still waits to be drawn.
func (f frames) show(v live.View) {
	select {
	case f <- v:
	default:
	}
}

// paint starts to draw on a terminal's alternate screen. stop restores the normal screen. It waits
// for at most stuckOutputGrace.
func paint(out *os.File) (f frames, stop func()) {
	f = make(frames, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.WriteString(out, enterScreen)
		for v := range f {
			draw(out, v)
		}
		_, _ = io.WriteString(out, leaveScreen)
	}()
	return f, func() {
		close(f)
		select {
		case <-done:
		case <-time.After(stuckOutputGrace):
		}
	}
}

// draw draws a view on the whole terminal with one write.
func draw(out *os.File, v live.View) {
	if v.Job.Name == "" {
		return // nothing is known yet
	}
	columns, lines, err := term.GetSize(int(out.Fd()))
	if err != nil || columns <= 0 || lines <= 0 {
		columns, lines = 80, 24
	}
	text := strings.Join(live.Screen(v, columns, lines, live.Style{Color: os.Getenv("NO_COLOR") == "", History: true}), endLine)
	_, _ = io.WriteString(out, goHome+text+eraseRest)
}

// waitForQuit reads keys until one that quits, or until the terminal is gone. In raw mode Ctrl-C is
// a key.
func waitForQuit(in io.Reader) {
	keys := bufio.NewReader(in)
	for {
		switch key, err := keys.ReadByte(); {
		case err != nil, key == 'q', key == 'Q', key == 3, key == 4: // Ctrl-C, Ctrl-D
			return
		}
	}
}
