package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/trace"
)

// dataOf returns the page of a job, and its data.
func dataOf(t require.TestingT, j *Job, maxCalls, maxMessages int) (page string, d pageData) {
	var b bytes.Buffer
	require.NoError(t, j.html(&b, maxCalls, maxMessages))
	_, rest, _ := strings.Cut(b.String(), `<script type="application/json" id="data">`)
	text, _, isThere := strings.Cut(rest, "</script>")
	require.True(t, isThere)
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	return b.String(), d
}

func TestPageHasCallsAndMessages(t *testing.T) {
	j := pingPong(5e9, 0, 0)
	j.Missing, j.Why = []int{2, 3}, []string{"rank 3: not a trace"}
	f := j.Files[0]
	f.Command, f.Dropped, f.Error = []string{"solver", "</script><b>"}, 7, "context <canceled>"
	f.Events = append(f.Events,
		trace.Event{Type: trace.Call, At: 1_990_000, Nanos: 50, Name: "irecv", Peer: 1, Tag: 3, Request: 1, Line: "main.go:8", Comm: "world"},
		trace.Event{Type: trace.Observed, At: 1_990_700, Track: -1, Request: 1},
		trace.Event{Type: trace.Rail, At: 1_995_000, Track: -1, Name: "rail tcp0 to rank 1 failed", Peer: 1},
		trace.Event{Type: trace.Call, At: 1_990_010, Nanos: 500, Track: 2, Name: "barrier", Peer: -1, Tag: -1, Open: true})
	page, d := dataOf(t, j, maxCalls, maxMessages)

	require.Equal(t, "solver </script><b>", d.Command)
	require.Contains(t, page, "<title>mpigo trace: solver &lt;/script&gt;&lt;b&gt;</title>")
	require.Equal(t, []string{
		"No trace of ranks 2, 3.", "rank 3: not a trace", "Rank 0 failed: context <canceled>",
		"The ranks dropped 7 older events (tunable trace.events).",
	}, d.Notes)
	require.Len(t, d.Rows, 3)
	require.Len(t, d.Rows[0].At, 201)
	require.Equal(t, []int{0, 2}, []int{d.Rows[1].Rank, d.Rows[1].Thread})
	require.Equal(t, kind{Name: "Barrier", Peer: -1, Tag: -1, Open: true}, d.Kinds[d.Rows[1].Kind[0]])
	require.Equal(t, kind{Name: "Irecv", Peer: 1, Tag: 3, Comm: "world", Line: "main.go:8"}, d.Kinds[d.Rows[0].Kind[200]])
	require.EqualValues(t, 700, d.Rows[0].Until[200])
	require.Len(t, d.Messages.At, 200)
	require.Equal(t, []int{0, 2, 2, 0}, []int{d.Messages.From[0], d.Messages.To[0], d.Messages.From[1], d.Messages.To[1]})
	at := int64(0)
	for i, ns := range d.Messages.Nanos {
		require.InDelta(t, 1000, ns, 1, "clocks are aligned")
		require.GreaterOrEqual(t, d.Messages.At[i], int64(0))
		at += d.Messages.At[i]
	}
	require.EqualValues(t, 1000+99*10_000+3000-900, at, "the last message, since the first call")
	require.Equal(t, []railAt{{0, 1_994_100, "rail tcp0 to rank 1 failed"}}, d.Rails)
}

func TestPageLoadsNothing(t *testing.T) {
	page, _ := dataOf(t, pingPong(0, 0), maxCalls, maxMessages)
	require.NotContains(t, page, "{{")
	require.NotRegexp(t, regexp.MustCompile(`https?://|\bsrc=|<link|@import|url\(|fetch\(|XMLHttpRequest|WebSocket`), page)
}

func TestPageLeavesOutShortCallsAndSaysSo(t *testing.T) {
	j := pingPong(0, 0)
	_, d := dataOf(t, j, 150, 30)
	calls := 0
	for _, r := range d.Rows {
		for _, ns := range r.Nanos {
			require.GreaterOrEqual(t, ns, int64(3700), "only the longest of three lengths fit")
			calls++
		}
	}
	require.Equal(t, 100, calls)
	require.Len(t, d.Messages.At, 30)
	require.Equal(t, []string{
		"300 calls are left out of this page, each shorter than 1001 ns; trace.json has them.",
		"170 messages that arrived soonest are left out of this page; trace.json has them.",
	}, d.Notes)
}

func TestPageOfRankWithoutCalls(t *testing.T) {
	_, d := dataOf(t, &Job{Size: 1, Files: []*trace.File{{Rank: 0, Size: 1, Host: "a", Written: 5}}}, 10, 10)
	require.Len(t, d.Rows, 1)
	require.EqualValues(t, 1, d.End)
}

// manyCalls makes a job whose ranks have many short calls.
func manyCalls(ranks, calls int) *Job {
	j := &Job{Size: ranks}
	for rank := range ranks {
		f := &trace.File{Rank: rank, Size: ranks, Host: "a", Written: int64(calls) * 2000}
		for i := range calls {
			at := int64(i) * 2000
			f.Events = append(f.Events, trace.Event{Type: trace.Call, At: at, Nanos: 900, Name: []string{"send", "recv", "allreduce"}[i%3], Peer: (rank + 1) % ranks, Tag: 7, Line: "main.go:9"})
		}
		j.Files = append(j.Files, f)
	}
	return j
}

// browse opens the page of a job in a browser, and returns the document after its program and
// script have run. What follows # in the address is at.
func browse(t *testing.T, j *Job, at, script string) string {
	browser := ""
	for _, name := range []string{"chromium", "chromium-headless-shell", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		t.Skip("no browser here")
	}
	dir := t.TempDir()
	page, err := j.Write(t.Context(), dir)
	require.NoError(t, err)
	f, err := os.OpenFile(page, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString("<script>" + script + "</script>")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,600",
		"--user-data-dir="+filepath.Join(dir, "browser"), "--virtual-time-budget=2000", "--dump-dom", "file://"+page+"#"+at)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	text, err := cmd.Output()
	require.NoError(t, err)
	return string(text)
}

func TestBrowserDrawsPage(t *testing.T) {
	t.Run("whole", func(t *testing.T) {
		text := browse(t, pingPong(0, 0), "search=send,%20peer%201", "")
		require.Contains(t, text, "rows 1–2 of 2: 400 calls, 200 messages.")
		require.Contains(t, text, ">100 calls</span>", "the calls that the search has found")
	})
	t.Run("part", func(t *testing.T) {
		text := browse(t, pingPong(0, 0), "from=0&to=9000", "")
		require.Contains(t, text, "9 µs shown, rows 1–2 of 2: 4 calls, 2 messages.")
	})
	t.Run("hover", func(t *testing.T) {
		text := browse(t, pingPong(0, 0), "from=0&to=9000", `$("tip").textContent = describe(x(1500), y(0) + 11) + "|" + describe(x(600), y(1))`)
		require.Contains(t, text, "Recv, rank 0 on a\npeer 1\ntag 0\nbegins at 400 ns\ntakes 3.8 µs|")
		require.Contains(t, text, "|message from rank 0 to rank 1\n0 bytes\nsent at 100 ns\nmatched 1 µs later")
	})
	t.Run("zoom, move and next call", func(t *testing.T) {
		text := browse(t, pingPong(0, 0), "search=recv,%20rank%201", `
			const press = key => canvas.dispatchEvent(new KeyboardEvent("keydown", {key}));
			const enter = shiftKey => $("search").dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", shiftKey}));
			const seen = [];
			enter(); enter(); enter(); enter(true); seen.push($("found").textContent, Math.round(view.t1 - view.t0));
			press("+"); seen.push(Math.round(view.t1 - view.t0));
			press("0"); seen.push(view.t0, view.t1 === data.end);
			press("+"); press("ArrowRight"); seen.push((view.t0 / data.end).toFixed(2));
			canvas.dispatchEvent(new WheelEvent("wheel", {deltaY: -1000, cancelable: true})); seen.push(view.t1 - view.t0 < data.end / 4);
			$("tip").textContent = seen.join(" ")`)
		require.Contains(t, text, ">call 2 of 100 40000 20000 0 true 0.35 true</div>")
	})
	t.Run("large", func(t *testing.T) {
		text := browse(t, manyCalls(4, 50_000), "", `let bars = 0;
			pen.fillRect = () => bars++;
			draw();
			$("tip").textContent = bars <= 4 * width() + 100 ? "one bar in each pixel" : bars + " bars"`)
		require.Contains(t, text, ">one bar in each pixel</div>")
		require.Contains(t, text, "rows 1–4 of 4: 200000 calls, 0 messages. 200000 calls are narrower than a pixel.")
	})
}

func TestWriteWritesPageAndJSON(t *testing.T) {
	dir := t.TempDir()
	page, err := pingPong(0, 0).Write(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, dir+"/trace.html", page)
	for _, name := range []string{"trace.html", "trace.json"} {
		require.FileExists(t, fmt.Sprintf("%s/%s", dir, name))
	}
}
