package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/jobsocket"
)

// fakeJob answers with the same members each time, and counts the questions.
type fakeJob struct {
	members []introspect.Member
	asked   int
}

func (f *fakeJob) Info() jobsocket.Info {
	info := someJob()
	info.Command = "./solver \"a\\b\"\nc"
	return info
}

func (f *fakeJob) Ask(_ context.Context, want introspect.Want) []introspect.Member {
	f.asked++
	if want != introspect.WantMetrics {
		return nil
	}
	return f.members
}

var (
	commentLine = regexp.MustCompile(`^# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$`)
	sampleLine  = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)+)\})? (\S+)$`)
)

// parse parses Prometheus' text format strictly: HELP and TYPE of a metric once and before its
// samples, which stand together; no series twice. It returns the values by series.
func parse(text string) (map[string]float64, error) {
	values, kinds, ended := map[string]float64{}, map[string]string{}, map[string]bool{}
	current, helped := "", ""
	if !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("no newline at the end")
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if m := commentLine.FindStringSubmatch(line); m != nil {
			switch {
			case m[1] == "HELP":
				ended[current] = true
				if current, helped = m[2], m[2]; ended[current] {
					return nil, fmt.Errorf("%s comes twice", current)
				}
			case m[2] != helped || kinds[m[2]] != "" || m[3] != "counter" && m[3] != "gauge":
				return nil, fmt.Errorf("bad TYPE: %s", line)
			default:
				kinds[m[2]] = m[3]
			}
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("bad line: %s", line)
		}
		if m[1] != current || kinds[current] == "" {
			return nil, fmt.Errorf("a sample outside of its metric: %s", line)
		}
		if (kinds[current] == "counter") != strings.HasSuffix(current, "_total") {
			return nil, fmt.Errorf("only counters end in _total: %s", line)
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, err
		}
		series := strings.TrimSuffix(line, " "+m[3])
		if _, twice := values[series]; twice {
			return nil, fmt.Errorf("a series comes twice: %s", line)
		}
		values[series] = value
	}
	return values, nil
}

func TestServeBoundsSilentConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer Serve(l, &fakeJob{}, nil)()
	var silent []net.Conn
	for i := range 3 * maxClients {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		if i%2 == 0 { // the beginning of a request
			_, err = conn.Write([]byte("G"))
			require.NoError(t, err)
		}
		silent = append(silent, conn)
	}
	client := http.Client{Transport: &http.Transport{}} // with a connection of its own
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + l.Addr().String() + "/metrics")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
	open := 0
	for _, conn := range silent {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Millisecond)))
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			open++
		}
	}
	assert.Less(t, open, maxClients)
}

func TestServeWritesTextForPrometheus(t *testing.T) {
	job := &fakeJob{members: []introspect.Member{
		answered(0, 4000, rail("sm", "up", 1000, ""), introspect.Rail{Name: "tcp:eth0", Peer: -1, State: "up", Health: 1000, Count: 5}, rail("tcp:eth0", "down", 0, "cut")),
		answered(1, 500),
		{Rank: 2, Host: "n2", State: introspect.StateSilent},
	}}
	job.members[0].Metrics.RailBytes = map[string]uint64{"tcp:eth0": 4321}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer Serve(l, job, nil)()
	get := func(path string) (*http.Response, string) {
		resp, err := http.Get("http://" + l.Addr().String() + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp, string(text)
	}
	resp, text := get("/metrics")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "text/plain; version=0.0.4; charset=utf-8", resp.Header.Get("Content-Type"))
	values, err := parse(text)
	require.NoError(t, err, text)
	for series, want := range map[string]float64{
		`mpigo_sent_bytes_total{rank="0"}`:                                 4000,
		`mpigo_received_bytes_total{rank="0"}`:                             2000,
		`mpigo_sent_messages_total{rank="0"}`:                              40,
		`mpigo_received_messages_total{rank="1"}`:                          2,
		`mpigo_operations_total{rank="0"}`:                                 80,
		`mpigo_up{rank="0",host="n1"}`:                                     1,
		`mpigo_up{rank="2",host="n2"}`:                                     0,
		`mpigo_unexpected_bytes{rank="1"}`:                                 7,
		`mpigo_rail_errors_total{rank="1",side="path"}`:                    2,
		`mpigo_rail_health{rank="0",rail="sm"}`:                            1,
		`mpigo_rail_health{rank="0",rail="tcp:eth0"}`:                      0,
		`mpigo_rail_bytes_total{rank="0",rail="tcp:eth0"}`:                 4321,
		`mpigo_rails_up{rank="0",rail="tcp:eth0"}`:                         5,
		`mpigo_rails_down{rank="0",rail="tcp:eth0"}`:                       1,
		`mpigo_job_ranks`:                                                  3,
		`mpigo_job_info{job="mpigo-17-ab",command="./solver \"a\\b\"\nc"}`: 1,
		`mpigo_job_start_time_seconds`:                                     float64(started.Unix()),
	} {
		got, known := values[series]
		assert.True(t, known, "%s in:\n%s", series, text)
		assert.Equal(t, want, got, series)
	}

	resp, _ = get("/")
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
}

func TestRanksAreAskedOnceASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := &fakeJob{members: []introspect.Member{answered(0, 4000)}}
		e := NewExporter(job)
		first := e.metrics(t.Context())
		time.Sleep(freshness - 1)
		assert.Equal(t, first, e.metrics(t.Context()))
		assert.Equal(t, 1, job.asked)
		time.Sleep(time.Nanosecond)
		e.metrics(t.Context())
		assert.Equal(t, 2, job.asked)
	})
}

func TestMetricsOfAJobWithoutAnswersParse(t *testing.T) {
	values, err := parse(string(NewExporter(&fakeJob{}).metrics(t.Context())))
	require.NoError(t, err)
	assert.Contains(t, values, "mpigo_job_ranks")
}

func TestParseRejectsWhatIsNoMetric(t *testing.T) {
	for _, text := range []string{
		"", "x 1", "x 1\n", "# HELP x y\nx 1\n", "# HELP x y\n# TYPE x counter\nx 1\n", "# HELP x y\n# TYPE x gauge\nx{a=\"b\"c} 1\n",
		"# HELP x y\n# TYPE x gauge\nx 1\nx 2\n", "# HELP x y\n# TYPE x gauge\nx{a=\"\\z\"} 1\n", "# HELP x y\n# TYPE x gauge\nx one\n",
	} {
		_, err := parse(text)
		assert.Error(t, err, text)
	}
}
