package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mpigo/mpigo/comm"
)

// sentBytes returns what each rail's network device has sent.
func sentBytes(devices string) map[string]int64 {
	all := map[string]int64{}
	for device := range strings.SplitSeq(devices, ",") {
		text, err := os.ReadFile("/sys/class/net/" + device + "/statistics/tx_bytes")
		if err == nil {
			all[device], _ = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		}
	}
	return all
}

// leastMB is what each rail must carry once all rails are back: a busy machine gets that much
// through in seconds.
const leastMB = 0.1

// usedRails describes what each rail carried since all rails were back.
func (r *run) usedRails() (string, error) {
	now := sentBytes(r.devices)
	var used []string
	for device := range strings.SplitSeq(r.devices, ",") {
		mb := float64(now[device]-r.before[device]) / 1e6
		if mb < leastMB {
			return "", fmt.Errorf("the rail by %s carries next to nothing: %.3f MB", device, mb)
		}
		used = append(used, fmt.Sprintf("%s %.1f MB", device, mb))
	}
	return strings.Join(used, ", "), nil
}

// times are the moments of a run in microseconds of the system's clock. Rank 0 sends them to rank
// 1.
type times struct{ Broken, Mended, Well, End int64 }

// micros returns a time in microseconds, and 0 for the zero time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// figures are one rank's. Rank 1 sends them to rank 0.
type figures struct {
	Failed, Returned, Resent, Restarts, Malformed, Illegal uint64

	Switch, Stall         time.Duration
	GapBefore, Gap        time.Duration
	Detected, Back        int64   // microseconds of the system's clock; 0 for never
	Before, During, After float64 // MB/s

	// The most that the machine stalled in a time as long as Switch, as Gap, and as the way back.
	SwitchStalled, GapStalled, BackStalled time.Duration
}

// report collects the figures of both ranks and returns rank 0's row.
func (r *run) report(end time.Time) (string, error) {
	const tagTimes, tagFigures = 1, 2
	if r.me == 1 {
		t, _, err := comm.RecvValue[times](r.world, 0, tagTimes)
		if err != nil {
			return "", err
		}
		return "", comm.SendValue(r.world, r.figures(t), 0, tagFigures)
	}
	if r.fault.err != nil {
		return "", fmt.Errorf("the fault program: %w", r.fault.err)
	}
	used, err := r.usedRails()
	if err != nil {
		return "", err
	}
	t := times{micros(r.fault.broken), micros(r.fault.mended), micros(r.well), micros(end)}
	if err := comm.SendValue(r.world, t, 1, tagTimes); err != nil {
		return "", err
	}
	theirs, _, err := comm.RecvValue[figures](r.world, 1, tagFigures)
	if err != nil {
		return "", err
	}
	return r.row(t, r.figures(t), theirs, used), nil
}

func (r *run) figures(t times) figures {
	broken, mended := time.UnixMicro(t.Broken), time.UnixMicro(t.Mended)
	well, end := time.UnixMicro(t.Well), time.UnixMicro(t.End)
	steady := r.line.Begin.Add(r.calm / 3) // the first messages are slower
	failed := r.line.FirstFailure(r.line.Begin)
	if failed.IsZero() || failed.After(broken) {
		failed = broken
	}
	s := r.world.Stats()
	gap, swap, back := r.line.LongestGap(broken, well), time.Duration(s.SwitchNanos), r.line.LastReturn(broken)
	f := figures{
		Failed: s.RailsFailed, Returned: s.RailsReturned, Resent: s.Resent, Restarts: s.Restarts,
		Malformed: s.Malformed, Illegal: s.Illegal, Switch: swap,
		Stall: r.stalls.longest(broken, well), SwitchStalled: r.stalls.within(swap, failed, well), GapStalled: r.stalls.within(gap, failed, well),
		GapBefore: r.line.LongestGapWithin(steady, broken),
		Gap:       gap, Detected: micros(r.line.FirstFailure(broken)),
		Back: micros(back), BackStalled: r.stalls.within(back.Sub(mended), mended, end), Before: r.line.Rate(steady, broken),
		During: r.line.Rate(broken, mended), After: r.line.Rate(well, end),
	}
	if r.verbose {
		fmt.Fprintf(os.Stderr, "rank %d: %+v\n", r.me, f)
	}
	return f
}

// row returns the figures of both ranks as a row of a table. Its last cell says whether they are as
// they must be.
func (r *run) row(t times, a, b figures, used string) string {
	detected, returned := max(a.Detected, b.Detected), max(a.Back, b.Back)
	if a.Detected > 0 && b.Detected > 0 {
		detected = min(a.Detected, b.Detected)
	}
	stall, swap := max(a.Stall, b.Stall), max(a.Switch, b.Switch)
	gapBefore, gap := max(a.GapBefore, b.GapBefore), max(a.Gap, b.Gap)

	var wrong, slow []string
	must := func(holds bool, format string, args ...any) {
		if !holds {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	limit := func(holds bool, format string, args ...any) {
		if !holds {
			slow = append(slow, fmt.Sprintf(format, args...))
		}
	}
	must(a.Malformed+b.Malformed+a.Illegal+b.Illegal == 0, "malformed fragments or illegal transitions")
	must(r.mayStayUp || a.Failed+b.Failed > 0, "no rail has failed")
	must(!r.goesOn || a.During+b.During > 0, "no traffic during the fault")
	limit(a.Failed == a.Returned && b.Failed == b.Returned,
		"fewer rails returned than failed: %d of %d, %d of %d", a.Returned, a.Failed, b.Returned, b.Failed)
	if hasPath := !strings.HasPrefix(r.name, "both") && !r.silent; hasPath {
		// A switch needs another rail that is up at both ends, and some turns of both ranks. A
		// silent rank makes none.
		for _, f := range []figures{a, b} {
			limit(r.name == "crossed" || f.Switch-f.SwitchStalled <= 50*time.Millisecond,
				"switched after %v, of which %v were stalls", f.Switch, f.SwitchStalled)
			limit(f.Gap-f.GapStalled <= gapBefore+r.retry+100*time.Millisecond, "a gap of %v, of which %v were stalls", f.Gap, f.GapStalled)
		}
	}
	for _, f := range []figures{a, b} {
		back := time.Duration(f.Back-t.Mended) * time.Microsecond
		limit(f.Back == 0 || back-f.BackStalled <= 2*time.Second, "back only after %v, of which %v were stalls", back, f.BackStalled)
	}
	if r.marks {
		wrong, slow = append(wrong, slow...), nil
	}
	result := "ok, " + used
	if len(slow) > 0 {
		result += "; above the limit: " + strings.Join(slow, ", ")
	}
	if len(wrong) > 0 {
		result = "FAIL: " + strings.Join(wrong, "; ")
	}

	ms := func(d time.Duration) string { return fmt.Sprintf("%.0f", float64(d)/1e6) }
	msFrom := func(from, to int64) string {
		if to == 0 {
			return "-"
		}
		return ms(time.Duration(to-from) * time.Microsecond)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %.1f | %.1f | %.1f | %s | %d | %d | %d | %s |",
		r.label, msFrom(t.Broken, detected), ms(swap), ms(stall), ms(gapBefore), ms(gap),
		a.Before+b.Before, a.During+b.During, a.After+b.After, msFrom(t.Mended, returned),
		a.Failed+b.Failed, a.Resent+b.Resent, a.Restarts+b.Restarts, result)
}

// namesRank reports whether the text of an error names a rank.
func namesRank(err error, rank int) bool {
	return strings.Contains(err.Error(), "rank "+strconv.Itoa(rank))
}
