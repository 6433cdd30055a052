package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mpigo/mpigo/comm"
)

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

// leastMB goes by each rail once all is well again: what a busy machine gets through in seconds.
const leastMB = 0.1

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
			if mb < leastMB {
				return "", fmt.Errorf("rail by %s carries next to nothing: %.3f MB", d, mb)
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
	bad(*goesOn && a.During+b.During == 0, "no traffic meanwhile")
	// A switch needs another rail that is up, and some turns of both ranks, which a mute one does
	// not make.
	maySwitch := !strings.HasPrefix(*name, "both") && !*mute
	over(maySwitch && swap > 50*time.Millisecond+2*stall, "switched after %v", swap)
	over(maySwitch && gap > quiet+*retry+100*time.Millisecond+stall, "a gap of %v", gap)
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
	failed, which, mark := r.news.after(r.begin, "no other rail there is up", false), "last", *grace+time.Second
	if failed.IsZero() { // they fail in turns, and come back, each with the same message; the device notices the last time late
		failed, which, mark = r.news.after(r.begin, " failed: ", false), "first", mark+*retry
	}
	took := at.Sub(failed)
	verdict := "ok"
	switch late := fmt.Sprintf("told only %v after the %s rail had failed", took, which); {
	case failed.IsZero() || took > 3**grace || *strict && took > mark:
		return "", fmt.Errorf("%s: %w", late, err)
	case took > mark:
		verdict += "; over the mark: " + late
	}
	if !strings.Contains(err.Error(), "rank "+strconv.Itoa(r.peer)) && e.Peer != r.peer {
		return "", fmt.Errorf("the peer is not named: %w", err)
	}
	return fmt.Sprintf("| %s, rank %d | lost %.0f ms after its %s rail failed: %v | %s |", *name, r.me, float64(took)/1e6, which, err, verdict), nil
}
