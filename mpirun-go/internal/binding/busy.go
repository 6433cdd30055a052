package binding

import (
	"strconv"
	"strings"
	"time"
)

// lookTime is the time between two looks at what the processors do. The kernel counts in units of
// 10 ms.
const lookTime = 40 * time.Millisecond

// busyProcessors returns the processors that are busy. A process of another container may be bound
// to them.
func busyProcessors() map[int]bool {
	before := readStat()
	time.Sleep(lookTime)
	return busyBetween(before, readStat())
}

// busyBetween returns the processors that were idle for less than half of the time between two
// texts of /proc/stat (proc_stat(5)).
func busyBetween(before, after string) map[int]bool {
	busy := map[int]bool{}
	first := parseStat(before)
	for cpu, t := range parseStat(after) {
		idle, all := t.idle-first[cpu].idle, t.all-first[cpu].all
		if _, known := first[cpu]; known && all > 0 && 2*idle < all {
			busy[cpu] = true
		}
	}
	return busy
}

// times are the times of a processor in units of 10 ms.
type times struct{ idle, all int64 }

// parseStat returns the times of each processor. The time of guests is contained in that of users,
// and does not count twice.
func parseStat(text string) map[int]times {
	const idle, iowait, steal = 3, 4, 7 // positions of the columns
	parsed := map[int]times{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		name, isCPU := strings.CutPrefix(fields[0], "cpu")
		cpu, err := strconv.Atoi(name)
		if !isCPU || err != nil { // the first line is the sum of all
			continue
		}
		var t times
		for i, field := range fields[1:] {
			n, _ := strconv.ParseInt(field, 10, 64)
			if i <= steal {
				t.all += n
			}
			if i == idle || i == iowait {
				t.idle += n
			}
		}
		parsed[cpu] = t
	}
	return parsed
}
