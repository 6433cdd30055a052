// Command failover is a job of two ranks that keeps two rails busy with messages of all kinds and sizes, checks every word of
// them, and measures what a fault does to it: ./fault CASE, run by rank 0, breaks rails and mends them, and says when.
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
	"github.com/mpigo/mpigo/request"
)

var (
	name    = flag.String("case", "none", "what ./fault is to do")
	label   = flag.String("label", "", "what the case is called")
	calm    = flag.Duration("calm", 3*time.Second, "traffic before the fault, and after all is well again")
	retry   = flag.Duration("retry", 500*time.Millisecond, "how long the devices try again before a connection fails")
	back    = flag.Duration("back", 20*time.Second, "how long rails may take to come back before the case has failed")
	lost    = flag.Bool("lost", false, "the peer is to be lost for good")
	grace   = flag.Duration("grace", 10*time.Second, "pml.grace, within which that has to be said")
	unhurt  = flag.Bool("unhurt", false, "no rail need fail")
	strict  = flag.Bool("marks", false, "over a mark, the case has failed; else that is only told: a busy machine is slow")
	devices = flag.String("netdevs", "r0,r1", "network devices of the rails, whose counters tell whether they are used")
)

func main() {
	flag.Parse()
	news := listen()
	world, err := comm.Init(comm.Observe(hook))
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
			if f, err = start(r.news); err != nil {
				return "", err
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
			return "", err
		}
		if say[0] == stop {
			return r.report(f, well, before)
		}
	}
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

// word is what the i-th word of a message holds.
func word(from, round, tag, i int) uint64 {
	return uint64(from+1)<<60 ^ uint64(round)<<40 ^ uint64(tag)<<32 ^ uint64(i)*0x9e3779b97f4a7c15
}

func fill(b []uint64, from, round, tag int) {
	for i := range b {
		b[i] = word(from, round, tag, i)
	}
}

func check(b []uint64, from, round, tag int) error {
	for i := range b {
		if b[i] != word(from, round, tag, i) {
			return fmt.Errorf("round %d, message %d of %d words: word %d is %#x, not %#x", round, tag, len(b), i, b[i], word(from, round, tag, i))
		}
	}
	return nil
}

// sizes in words; the last one only now and then.
var sizes = []int{1, 25, 500, 1100, 4000, 12_000, 32_768, 131_072, 524_288}

var outs, ins = buffers(), buffers()

func buffers() (all [][]uint64) {
	for _, n := range sizes {
		all = append(all, make([]uint64, n))
	}
	return all
}

// got notes that so much has come.
func (r *run) got(bytes int) { r.done = append(r.done, piece{time.Now(), bytes}) }

// traffic is one round of everything.
func (r *run) traffic() error {
	r.round++
	for _, part := range []func() error{r.mixed, r.persistent, r.small, r.collectives} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// mixed is messages of all sizes both ways at once.
func (r *run) mixed() error {
	n := len(sizes)
	if r.round%8 != 0 {
		n--
	}
	var sends, recvs []request.Request
	for i := range n {
		clear(ins[i])
		req, err := comm.Irecv(r.world, ins[i], r.peer, i)
		if err != nil {
			return err
		}
		recvs = append(recvs, req)
	}
	for i := range n {
		fill(outs[i], r.me, r.round, i)
		req, err := comm.Isend(r.world, outs[i], r.peer, i)
		if err != nil {
			return err
		}
		sends = append(sends, req)
	}
	for i, req := range recvs {
		st, err := req.Wait()
		if err != nil {
			return err
		}
		r.got(int(st.Bytes))
		if int(st.Bytes) != 8*sizes[i] {
			return fmt.Errorf("round %d: %d bytes, not %d", r.round, st.Bytes, 8*sizes[i])
		}
		if err := check(ins[i], r.peer, r.round, i); err != nil {
			return err
		}
	}
	for _, req := range sends {
		if _, err := req.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) persistent() error {
	fill(r.out, r.me, r.round, 100)
	clear(r.in)
	if err := r.recv.Start(); err != nil {
		return err
	}
	if err := r.send.Start(); err != nil {
		return err
	}
	if _, err := r.recv.Wait(); err != nil {
		return err
	}
	r.got(8 * len(r.in))
	if _, err := r.send.Wait(); err != nil {
		return err
	}
	return check(r.in, r.peer, r.round, 100)
}

// small is a ping-pong of single words.
func (r *run) small() error {
	for i := range 20 {
		b := []uint64{word(r.me, r.round, 200+i, 0)}
		if _, err := comm.SendrecvReplace(r.world, b, r.peer, 2000, r.peer, 2000); err != nil {
			return err
		}
		r.got(8)
		if err := check(b, r.peer, r.round, 200+i); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) collectives() error {
	root := r.round % 2
	b := make([]uint64, 8000)
	if r.me == root {
		fill(b, root, r.round, 300)
	}
	if err := comm.Bcast(r.world, b, root); err != nil {
		return err
	}
	if err := check(b, root, r.round, 300); err != nil {
		return err
	}
	sum := make([]uint64, 3000)
	fill(sum, r.me, r.round, 301)
	if err := comm.Allreduce(r.world, nil, sum, comm.Sum); err != nil {
		return err
	}
	for i, v := range sum {
		if want := word(0, r.round, 301, i) + word(1, r.round, 301, i); v != want {
			return fmt.Errorf("round %d: element %d of the sum is %#x, not %#x", r.round, i, v, want)
		}
	}
	out, in := make([]uint64, 2000), make([]uint64, 2000)
	fill(out[:1000], r.me, r.round, 302)
	fill(out[1000:], r.me, r.round, 303)
	if err := comm.Alltoall(r.world, out, in); err != nil {
		return err
	}
	for from := range 2 {
		if err := check(in[1000*from:1000*from+1000], from, r.round, 302+r.me); err != nil {
			return err
		}
	}
	r.got(8 * (3000 + 1000))
	return r.world.Barrier()
}

// fault is the process that breaks rails.
type fault struct {
	mu         sync.Mutex
	began, end time.Time // of the last mend
	over       bool
	err        error
}

func start(n *news) (*fault, error) {
	cmd := exec.Command("./fault", *name)
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

// counters is what has gone out by each rail's network device.
func counters() map[string]int64 {
	all := map[string]int64{}
	for _, d := range strings.Split(*devices, ",") {
		text, err := os.ReadFile("/sys/class/net/" + d + "/statistics/tx_bytes")
		if err == nil {
			all[d], _ = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		}
	}
	return all
}

// rate is the bytes that came in a time, in 10⁶ a second.
func (r *run) rate(from, to time.Time) float64 {
	n := 0
	for _, p := range r.done {
		if p.at.After(from) && p.at.Before(to) {
			n += p.bytes
		}
	}
	return float64(n) / 1e6 / to.Sub(from).Seconds()
}

// gap is the longest time between two messages, one of which came in the given time.
func (r *run) gap(from, to time.Time) (most time.Duration) {
	last := from
	for _, p := range r.done {
		if p.at.After(from) && last.Before(to) {
			most = max(most, p.at.Sub(last))
		}
		last = p.at
	}
	return most
}

// quiet is the longest time between two messages while all was well at first.
func (r *run) quiet(to time.Time) (most time.Duration) {
	last := r.begin.Add(*calm / 3)
	for _, p := range r.done {
		if p.at.After(last) && p.at.Before(to) {
			most = max(most, p.at.Sub(last))
			last = p.at
		}
	}
	return most
}

// figures is what both ranks know of the run.
type figures struct {
	Failed, Returned, Resent, Restarts, Malformed, Illegal uint64
	Switch, Stall                                          time.Duration
	Detected, Back                                         int64 // µs, 0: never
	Quiet, Gap                                             time.Duration
	Before, During, After                                  float64
	Rails                                                  string
}

type times struct{ Began, Mended, Well, End int64 }

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// report compares notes.
func (r *run) report(f *fault, well time.Time, before map[string]int64) (string, error) {
	end := time.Now()
	var used []string
	if r.me == 0 {
		if f.err != nil {
			return "", fmt.Errorf("fault: %w", f.err)
		}
		now := counters()
		for _, d := range strings.Split(*devices, ",") {
			mb := float64(now[d]-before[d]) / 1e6
			used = append(used, fmt.Sprintf("%s %.1f MB", d, mb))
			if mb < 1 {
				return "", fmt.Errorf("rail by %s carries nothing: %.3f MB", d, mb)
			}
		}
	}
	t := times{}
	if r.me == 0 {
		t = times{micros(f.began), micros(f.mended()), micros(well), micros(end)}
		if err := comm.SendValue(r.world, t, 1, 1); err != nil {
			return "", err
		}
	} else {
		var err error
		if t, _, err = comm.RecvValue[times](r.world, 0, 1); err != nil {
			return "", err
		}
	}
	began, mended, allWell := time.UnixMicro(t.Began), time.UnixMicro(t.Mended), time.UnixMicro(t.Well)
	st := r.world.Stats()
	mine := figures{
		Failed: st.RailsFailed, Returned: st.RailsReturned, Resent: st.Resent, Restarts: st.Restarts, Malformed: st.Malformed, Illegal: st.Illegal,
		Switch:   time.Duration(st.SwitchNanos),
		Stall:    r.stall(began, allWell),
		Detected: micros(r.news.after(began, " failed: ", false)), Back: micros(r.news.after(began, "is back", true)),
		Quiet: r.quiet(began), Gap: r.gap(began, allWell),
		Before: r.rate(r.begin.Add(*calm/3), began), During: r.rate(began, mended), After: r.rate(allWell, time.UnixMicro(t.End)),
	}
	for _, rail := range r.world.Rails() {
		mine.Rails += fmt.Sprintf(" %s %s %d", rail.Rail, rail.State, rail.Health)
	}
	if os.Getenv("FAILOVER_VERBOSE") != "" {
		r.news.dump(r.me)
		fmt.Fprintf(terminal, "%d: %+v\n", r.me, mine)
	}
	if r.me == 1 {
		return "", comm.SendValue(r.world, mine, 0, 2)
	}
	theirs, _, err := comm.RecvValue[figures](r.world, 1, 2)
	if err != nil {
		return "", err
	}
	return judge(&mine, &theirs, t, used)
}

// judge says how it went, and whether that is within the marks.
func judge(a, b *figures, t times, used []string) (string, error) {
	first := func(x, y int64) int64 {
		if x == 0 || y != 0 && y < x {
			return y
		}
		return x
	}
	detected, returned := first(a.Detected, b.Detected), max(a.Back, b.Back)
	stall := max(a.Stall, b.Stall)
	swap, gap, quiet := max(a.Switch, b.Switch), max(a.Gap, b.Gap), max(a.Quiet, b.Quiet)
	ms := func(d time.Duration) string { return fmt.Sprintf("%.0f", float64(d)/1e6) }
	millis := func(from, to int64) string {
		if to == 0 {
			return "-"
		}
		return ms(time.Duration(to-from) * time.Microsecond)
	}
	line := fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %.1f | %.1f | %.1f | %s | %d | %d | %d |", *label, millis(t.Began, detected), ms(swap), ms(stall), ms(quiet), ms(gap),
		a.Before+b.Before, a.During+b.During, a.After+b.After, millis(t.Mended, returned), a.Failed+b.Failed, a.Resent+b.Resent, a.Restarts+b.Restarts)
	var wrong, slow []string
	bad := func(is bool, format string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	over := func(is bool, format string, args ...any) {
		if is {
			slow = append(slow, fmt.Sprintf(format, args...))
		}
	}
	bad(a.Malformed+b.Malformed+a.Illegal+b.Illegal > 0, "malformed or illegal")
	over(a.Failed != a.Returned || b.Failed != b.Returned, "not as many returned as failed: %d of %d, %d of %d", a.Returned, a.Failed, b.Returned, b.Failed)
	bad(!*unhurt && a.Failed+b.Failed == 0, "no rail has failed")
	// It takes both ranks some turns.
	over(swap > 50*time.Millisecond+2*stall, "switched after %v", swap)
	over(gap > quiet+*retry+100*time.Millisecond+stall && !strings.HasPrefix(*name, "both"), "a gap of %v", gap)
	over(returned != 0 && returned-t.Mended > 2e6+stall.Microseconds(), "back only after %d ms", (returned-t.Mended)/1000)
	verdict := " ok, " + strings.Join(used, ", ")
	switch {
	case *strict:
		wrong = append(wrong, slow...)
	case len(slow) > 0:
		verdict += "; over the mark: " + strings.Join(slow, ", ")
	}
	if len(wrong) > 0 {
		verdict = " FAIL: " + strings.Join(wrong, "; ")
	}
	return line + verdict + " |", nil
}

// isLost expects a call's error to say who cannot be reached, and why, in time.
func (r *run) isLost(err error, f *fault) (string, error) {
	at := time.Now()
	var e *comm.Error
	if !errors.Is(err, comm.ErrUnreachable) || !errors.As(err, &e) {
		return "", fmt.Errorf("not ErrUnreachable: %w", err)
	}
	failed := r.news.after(r.begin, "no other rail leads there", false)
	took := at.Sub(failed)
	if failed.IsZero() || took > *grace+time.Second {
		return "", fmt.Errorf("told only %v after the last rail had failed: %w", took, err)
	}
	if !strings.Contains(err.Error(), "rank "+strconv.Itoa(r.peer)) && e.Peer != r.peer {
		return "", fmt.Errorf("the peer is not named: %w", err)
	}
	return fmt.Sprintf("| %s, rank %d | lost %.0f ms after its last rail failed: %v | ok |", *name, r.me, float64(took)/1e6, err), nil
}
