// Command failover is a job of two ranks that keeps two rails busy with messages of all kinds and sizes, checks every word of
// them, and measures what a fault does to it: a program, run by rank 0 with the name of the case and the process ids of both ranks,
// breaks rails and mends them, and says when.
// Rank 0 prints one line of figures; what is not as it should be is an error.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/request"
)

var (
	name    = flag.String("case", "none", "what the fault is to be")
	breaker = flag.String("fault", "./fault", "the program that does it")
	label   = flag.String("label", "", "what the case is called")
	calm    = flag.Duration("calm", 3*time.Second, "traffic before the fault, and after all is well again")
	retry   = flag.Duration("retry", 500*time.Millisecond, "how long the devices try again before a connection fails")
	back    = flag.Duration("back", 20*time.Second, "how long rails may take to come back before the case has failed")
	lost    = flag.Bool("lost", false, "the peer is to be lost for good")
	grace   = flag.Duration("grace", 10*time.Second, "pml.grace, within which that has to be said")
	unhurt  = flag.Bool("unhurt", false, "no rail need fail")
	goesOn  = flag.Bool("goes-on", false, "there is traffic while the fault is there")
	mute    = flag.Bool("mute", false, "rank 0 sends nothing while the fault is there, and rank 1 only waits for it")
	strict  = flag.Bool("marks", false, "over a mark, the case has failed; else that is only told: a busy machine is slow")
	devices = flag.String("netdevs", "r0,r1", "network devices of the rails, whose counters tell whether they are used")
)

func main() {
	flag.Parse()
	news := listen()
	world, err := comm.Init(observe.NewOption(hook).(comm.Option))
	if err != nil {
		fatal(err)
	}
	go stalls.watch()
	r := &run{world: world, me: world.Rank(), peer: 1 - world.Rank(), news: news, begin: time.Now()}
	line, err := r.run()
	if err != nil {
		news.dump(r.me)
		fmt.Fprintf(terminal, "case %s, rank %d: %v\n", *name, r.me, err)
		world.Abort(1)
	}
	if err := world.Finalize(); err != nil && !*lost {
		fatal(err)
	}
	if line != "" {
		fmt.Println(line)
	}
}

func fatal(err error) {
	fmt.Fprintln(terminal, "failover:", err)
	os.Exit(1)
}

// terminal is standard error; os.Stderr is read by news.
var terminal = os.Stderr

// news is what the job says of its rails on standard error, with the time.
type news struct {
	mu    sync.Mutex
	lines []stamped
}

type stamped struct {
	at   time.Time
	text string
}

func listen() *news {
	n := new(news)
	r, w, err := os.Pipe()
	if err != nil {
		fatal(err)
	}
	os.Stderr = w
	go func() {
		for in := bufio.NewScanner(r); in.Scan(); {
			n.add(time.Now(), in.Text())
		}
	}()
	return n
}

func (n *news) add(at time.Time, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, stamped{at, text})
}

func (n *news) dump(rank int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lines {
		fmt.Fprintf(terminal, "%d: %s %s\n", rank, l.at.Format("05.000"), l.text)
	}
}

// after is the first line since a time that has a text, the last if want is so.
func (n *news) after(since time.Time, text string, last bool) (found time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lines {
		if strings.Contains(l.text, text) && !l.at.Before(since) && (found.IsZero() || last) {
			found = l.at
		}
	}
	return found
}

// stalls is when this process did not run though it wanted to: what the machine, which may be busy and emulated, adds to all times.
var stalls watch

type watch struct {
	mu   sync.Mutex
	seen []piece // of 10⁻⁹ s
}

func (w *watch) watch() {
	for {
		before := time.Now()
		time.Sleep(time.Millisecond)
		if d := time.Since(before); d > 5*time.Millisecond {
			w.mu.Lock()
			w.seen = append(w.seen, piece{time.Now(), int(d)})
			w.mu.Unlock()
		}
	}
}

// stall is the longest one in a time.
func (r *run) stall(from, to time.Time) (most time.Duration) {
	stalls.mu.Lock()
	defer stalls.mu.Unlock()
	for _, p := range stalls.seen {
		if p.at.After(from) && p.at.Before(to) {
			most = max(most, time.Duration(p.bytes))
		}
	}
	return most
}

// run is one rank's part.
type run struct {
	world    *comm.Comm
	me, peer int
	news     *news
	begin    time.Time
	round    int
	done     []piece // what was received, in the order of time

	send, recv request.Request // persistent
	out, in    []uint64
}

type piece struct {
	at    time.Time
	bytes int
}

// What rank 0 has the other one do.
const (
	goOn uint64 = iota
	stop
)

func (r *run) run() (string, error) {
	if r.world.Size() != 2 {
		return "", errors.New("it takes two ranks")
	}
	r.out, r.in = make([]uint64, 12_500), make([]uint64, 12_500)
	var err error
	if r.send, err = comm.SendInit(r.world, r.out, r.peer, 1000); err != nil {
		return "", err
	}
	if r.recv, err = comm.RecvInit(r.world, r.in, r.peer, 1000); err != nil {
		return "", err
	}
	pids := make([]int, 2)
	if err := comm.Allgather(r.world, []int{os.Getpid()}, pids); err != nil {
		return "", err
	}
	var f *fault
	var well time.Time // since when all has been
	var before map[string]int64
	for {
		if err := r.traffic(); err != nil {
			if *lost {
				return r.isLost(err, f)
			}
			return "", err
		}
		if r.me == 0 && f == nil && time.Since(r.begin) > *calm {
			if f, err = start(r.news, pids); err != nil {
				return "", err
			}
			if err := r.sendNothing(f); err != nil {
				return r.isLost(err, f)
			}
		}
		up := []uint64{0}
		if r.me == 1 || f != nil && f.isOver() {
			up[0] = r.allUp()
		}
		if err := comm.Allreduce(r.world, nil, up, comm.Min); err != nil {
			if *lost {
				return r.isLost(err, f)
			}
			return "", err
		}
		say := []uint64{goOn}
		if r.me == 0 && f != nil && f.isOver() {
			switch {
			case up[0] == 0:
				well = time.Time{}
				if time.Since(f.mended()) > *back {
					return "", fmt.Errorf("a rail is not back %v after all was mended: %+v", *back, r.world.Rails())
				}
			case well.IsZero():
				well = time.Now()
				before = counters()
			case time.Since(well) > *calm:
				say[0] = stop
			}
		}
		if err := comm.Bcast(r.world, say, 0); err != nil {
			if *lost {
				return r.isLost(err, f)
			}
			return "", err
		}
		if say[0] == stop {
			return r.report(f, well, before)
		}
	}
}

// sendNothing has the other rank wait for this one with nothing under way, while the fault comes and goes. Of one that does not go this one
// waits for the other as well.
func (r *run) sendNothing(f *fault) error {
	if *mute && *lost {
		_, err := comm.Recv(r.world, make([]uint64, 1), r.peer, 3000)
		return err
	}
	for *mute && !f.isOver() {
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// allUp is 1 if every rail to the peer is up.
func (r *run) allUp() uint64 {
	for _, rail := range r.world.Rails() {
		if rail.Peer == r.peer && rail.State != "up" {
			return 0
		}
	}
	return 1
}

// fault is the process that breaks rails.
type fault struct {
	mu         sync.Mutex
	began, end time.Time // of the last mend
	over       bool
	err        error
}

func start(n *news, pids []int) (*fault, error) {
	cmd := exec.Command(*breaker, *name, strconv.Itoa(pids[0]), strconv.Itoa(pids[1]))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = terminal
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f := new(fault)
	go func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			what, micros, _ := strings.Cut(in.Text(), " ")
			us, err := strconv.ParseInt(micros, 10, 64)
			if err != nil {
				us = time.Now().UnixMicro()
			}
			at := time.UnixMicro(us)
			n.add(at, "fault: "+in.Text())
			f.mu.Lock()
			switch what {
			case "broken":
				if f.began.IsZero() {
					f.began = at
				}
			case "mended":
				f.end = at
			case "inject":
				spoil(micros)
			}
			f.mu.Unlock()
		}
		_, _ = io.Copy(io.Discard, out)
		err := cmd.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.over, f.err = true, err
	}()
	return f, nil
}

func (f *fault) isOver() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

func (f *fault) mended() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end
}
