package live

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/jobsocket"
)

var started = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func someJob() jobsocket.Info {
	return jobsocket.Info{Name: "mpigo-17-ab", PID: 17, Host: "n1", Size: 3, Command: "./solver -n 8", Started: started}
}

// answered is a rank that has sent as many bytes, and received half as many, in messages of 100
// bytes.
func answered(rank int, bytes uint64, rails ...introspect.Rail) introspect.Member {
	return introspect.Member{Rank: rank, Host: "n1", PID: 100 + rank, State: introspect.StateAnswered, Metrics: &introspect.Metrics{
		Rank: rank, Doing: "main.go:46 Recv", Rails: rails, SentMessages: bytes / 100, SentBytes: bytes, Progress: bytes / 50,
		Counters: map[string]uint64{"UnexpectedBytes": 7, "PathErrors": 2, "Received": bytes / 200, "ReceivedBytes": bytes / 2},
	}}
}

func rail(name, state string, health int, err string) introspect.Rail {
	return introspect.Rail{Name: name, Peer: 1, State: state, Health: health, Error: err}
}

func TestUpdateMakesRates(t *testing.T) {
	var tracker Tracker
	v := tracker.Update(someJob(), []introspect.Member{answered(0, 4000), answered(1, 0), answered(2, 0)}, started.Add(2*time.Second))
	require.Len(t, v.Ranks, 3)
	assert.EqualValues(t, 2, v.Seconds)
	assert.EqualValues(t, 2000, v.Ranks[0].OutBytes, "since the job began")
	assert.EqualValues(t, 1000, v.Ranks[0].InBytes)
	assert.EqualValues(t, 10, v.Ranks[0].InMessages)
	assert.EqualValues(t, 40, v.Ranks[0].Operations)
	assert.Zero(t, v.Ranks[2].InBytes)

	// Rank 0 has finalized, and its counters stay.
	v = tracker.Update(someJob(), []introspect.Member{{Rank: 0, State: introspect.StateFinalized}, answered(1, 500), answered(2, 0)}, started.Add(3*time.Second))
	assert.Zero(t, v.Ranks[0].OutBytes)
	assert.EqualValues(t, 250, v.Ranks[1].InBytes)
	assert.EqualValues(t, 500, v.Ranks[1].OutBytes)
	assert.EqualValues(t, 500, v.OutBytes)
	assert.EqualValues(t, 5, v.OutMessages)
	assert.EqualValues(t, 10, v.Operations)
	assert.Equal(t, Fine, v.Ranks[0].Severity)
}

func TestUpdatePutsTheWorstFirst(t *testing.T) {
	var tracker Tracker
	v := tracker.Update(someJob(), []introspect.Member{
		answered(0, 0, introspect.Rail{Name: "sm", Peer: -1, State: "up", Health: 1000, Count: 7}, rail("tcp:eth0", "up", 1000, "")),
		answered(1, 0, rail("tcp:eth0", "up", 300, "rail tcp:eth0: cut"), rail("tcp:eth1", "down", 0, "rail tcp:eth1: no\x1b[2Jlink")),
		{Rank: 2, Host: "n2", State: introspect.StateSilent, Process: "stopped by a signal"},
	}, started.Add(time.Second))
	assert.Equal(t, []int{2, 1, 0}, []int{v.Ranks[0].Rank, v.Ranks[1].Rank, v.Ranks[2].Rank})
	assert.Equal(t, "no answer, stopped by a signal", v.Ranks[0].Trouble)
	assert.Equal(t, "tcp:eth1 to 1 is down: no[2Jlink", v.Ranks[1].Trouble)
	assert.Equal(t, 0, v.Ranks[1].Health)
	assert.Equal(t, 1, v.Ranks[1].RailsUp)
	assert.Equal(t, 2, v.Ranks[1].Rails)
	assert.Equal(t, Fine, v.Ranks[2].Severity)
	assert.Equal(t, 8, v.Ranks[2].Rails)
	assert.Equal(t, 8, v.Ranks[2].RailsUp)
}

func TestSlowRailIsTrouble(t *testing.T) {
	slow := rail("tcp:eth1", "up", 1000, "")
	slow.Slow, slow.Error = true, "rail tcp:eth1 to rank 1: timeout: slow"
	var tracker Tracker
	v := tracker.Update(someJob(), []introspect.Member{answered(0, 0, rail("tcp:eth0", "up", 1000, ""), slow)}, started)
	assert.Equal(t, RailDown, v.Ranks[0].Severity)
	assert.Equal(t, "tcp:eth1 to 1 is slow, so other rails carry its traffic: timeout: slow", v.Ranks[0].Trouble)
	assert.Equal(t, 2, v.Ranks[0].RailsUp)
	assert.Equal(t, 1, v.Ranks[0].RailsSlow)
}

func TestRankOfAnotherVersionIsTrouble(t *testing.T) {
	var tracker Tracker
	v := tracker.Update(someJob(), []introspect.Member{
		answered(0, 0), {Rank: 1, Host: "n2", State: introspect.StateVersion, Error: "introspect: …"},
	}, started.Add(time.Second))
	assert.Equal(t, 1, v.Ranks[0].Rank)
	assert.Contains(t, strings.Join(Screen(v, 80, 24, Style{}), "\n"), "worst: rank 1 on n2: cannot be asked: it uses another version of mpigo\n")
}

func TestScreenNamesRanksThatDoNotAnswerYet(t *testing.T) {
	line := func(members ...introspect.Member) string {
		return Screen(new(Tracker).Update(someJob(), members, started), 80, 24, Style{})[1]
	}
	notInited := introspect.Member{Rank: 1, State: introspect.StateNotInited}
	assert.Equal(t, "all rails are up; all ranks answer", line(answered(0, 0), answered(1, 0)))
	assert.Equal(t, "all rails are up; 1 rank: finalized, 2 ranks: not inited", line(introspect.Member{State: introspect.StateFinalized}, notInited, notInited))
}

func TestScreenFitsATerminal(t *testing.T) {
	var tracker Tracker
	members := []introspect.Member{
		answered(0, 0, rail("tcp:eth0", "up", 1000, "")), answered(1, 0, rail("tcp:eth0", "up", 1000, "")),
		{Rank: 2, Host: "n2", State: introspect.StateSilent, Process: "stopped by a signal"},
	}
	tracker.Update(someJob(), members, started.Add(time.Second))
	members[0] = answered(0, 12_345_678, rail("tcp:eth0", "up", 1000, ""))
	v := tracker.Update(someJob(), members, started.Add(2*time.Second))
	assert.Equal(t, `mpigo-17-ab: 3 ranks, 2 hosts, 2s: ./solver -n 8
worst: rank 2 on n2: no answer, stopped by a signal
together: 12.3MB/s, 123k messages/s, 247k operations/s
 RANK HOST     IN B/s OUT B/s  OPS/s RAILS HEALTH  DOING
    2 n2            0       0      0               no answer, stopped by a sign…
    0 n1        6.17M   12.3M   247k   1/1   100%  main.go:46 Recv
    1 n1            0       0      0   1/1   100%  main.go:46 Recv
q quits`, strings.Join(Screen(v, 80, 24, Style{}), "\n"))
	assert.Equal(t, "q quits; 2 more ranks", Screen(v, 80, 6, Style{})[5])
	assert.Contains(t, Screen(v, 80, 24, Style{Color: true})[4], "\x1b[31m    2 n2")

	members[0].Metrics.RailBytes = map[string]uint64{"tcp:eth0": 3_000_000, "sm": 1000}
	members[1].Metrics.RailBytes = map[string]uint64{"tcp:eth0": 500_000}
	v = tracker.Update(someJob(), members, started.Add(4*time.Second))
	assert.Equal(t, "by rail: tcp:eth0 1.75MB/s, sm 500B/s", Screen(v, 80, 24, Style{})[3])
	members[0].Metrics.RailBytes = map[string]uint64{"tcp:eth0": 3_000_000, "sm": 5000}
	v = tracker.Update(someJob(), members, started.Add(5*time.Second))
	assert.Equal(t, map[string]float64{"tcp:eth0": 0, "sm": 4000}, v.RailBytes)
	assert.Equal(t, "by rail: sm 4.00kB/s, tcp:eth0 0B/s", Screen(v, 80, 24, Style{})[3])

	members = nil
	for rank := range 100 {
		m := answered(rank, 0)
		m.Metrics.RailBytes = map[string]uint64{strings.Repeat("x", rank): 1}
		m.Host, m.Metrics.Doing = strings.Repeat("é", rank), strings.Repeat("ü", rank)
		members = append(members, m)
	}
	tracker = Tracker{}
	tracker.Update(someJob(), members, started)
	v = tracker.Update(someJob(), members, started.Add(time.Second))
	for columns := range 180 {
		for _, lines := range []int{0, 1, 5, 24, 300} {
			for _, style := range []Style{{}, {Color: true, History: true}} {
				drawn := Screen(v, columns, lines, style)
				require.LessOrEqual(t, len(drawn), max(lines, 1))
				for _, line := range drawn {
					require.LessOrEqual(t, utf8.RuneCountInString(colors.ReplaceAllString(line, "")), max(columns, 1))
				}
			}
		}
	}
}

// colors matches the control sequences of colors.
var colors = regexp.MustCompile("\x1b\\[[0-9]*m")

func TestHistoryHasTheLastMinute(t *testing.T) {
	var tracker Tracker
	v := tracker.Update(someJob(), []introspect.Member{answered(0, 5e9)}, started.Add(time.Hour))
	assert.Empty(t, v.History, "an average since the job began")
	sent, second := uint64(5e9), 0
	next := func(bytes uint64) View {
		sent += bytes
		second++
		return tracker.Update(someJob(), []introspect.Member{answered(0, sent), answered(1, 0)}, started.Add(time.Hour+time.Duration(second)*time.Second))
	}
	first := next(50)
	assert.Equal(t, []float64{1}, first.History)
	for i := range 100 {
		v = next(uint64(50 * i))
	}
	require.Len(t, v.History, HistorySeconds)
	assert.EqualValues(t, 99, v.History[HistorySeconds-1])
	assert.EqualValues(t, 40, v.History[0])
	assert.Equal(t, v.History, v.Ranks[0].History)
	assert.EqualValues(t, 0, v.Ranks[1].History[3])
	assert.Equal(t, []float64{1}, first.History, "a view does not change")
	second += 2
	v = next(50 * 30)
	assert.Equal(t, []float64{99, 10, 10, 10}, v.History[HistorySeconds-4:], "a view that took three seconds")
}

func TestScreenDrawsHistory(t *testing.T) {
	var tracker Tracker
	sent := uint64(0)
	var v View
	for i, rate := range []uint64{0, 0, 1, 4, 8, 0, 8} {
		sent += 50 * rate
		v = tracker.Update(someJob(), []introspect.Member{answered(0, sent), answered(1, 0)}, started.Add(time.Duration(i)*time.Second))
	}
	style := Style{History: true}
	assert.Equal(t, "OPS/s, last 50 s: "+strings.Repeat(" ", 45)+"▂▅█ █ up to 8", Screen(v, 80, 24, style)[3])
	assert.Equal(t, []string{
		" RANK HOST     IN B/s OUT B/s  OPS/s RAILS HEALTH  LAST 10 s  DOING",
		"    0 n1          200     400      8                    ▂▅█ █ main.go:46 Recv",
		"    1 n1            0       0      0                          main.go:46 Recv",
	}, Screen(v, 100, 24, style)[4:7])
	assert.NotContains(t, strings.Join(Screen(v, 200, 24, Style{}), ""), "█")
	assert.NotContains(t, strings.Join(Screen(v, 80, 6, style), ""), "█", "ranks come first")
	style.Color = true
	assert.Contains(t, Screen(v, 100, 24, style)[5], "\x1b[36m     ▂▅█ █\x1b[m main.go:46 Recv")
}

func TestScreenOfNarrowTerminalShowsWhatRanksDo(t *testing.T) {
	var tracker Tracker
	v := tracker.Update(someJob(), []introspect.Member{answered(0, 0), {Rank: 1, State: introspect.StateSilent}}, started)
	assert.Equal(t, []string{" RANK  OPS/s  DOING", "    1      0  no answer", "    0      0  main.go:46 Recv", "q quits"}, Screen(v, 40, 24, Style{History: true})[4:])
}

func TestAmountHasThreeDigits(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", 0.4: "0", 7: "7", 999: "999", 999.6: "1.00k", 1000: "1.00k", 12_345: "12.3k", 99_960: "100k", 999_400: "999k", 1e6: "1.00M", 1.5e9: "1.50G", 2e18: "2000P",
	} {
		assert.Equal(t, want, amount(n), fmt.Sprint(n))
	}
}
