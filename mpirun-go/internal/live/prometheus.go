package live

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mpigo/mpigo/internal/gate"
	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/jobsocket"
)

// sample is one value of a metric.
type sample struct {
	labels []string // alternating names and values
	value  float64
}

// family is one metric, as Prometheus names it: the base unit in the name, and _total for a counter
// (https://prometheus.io/docs/practices/naming/).
type family struct {
	name, help, kind string
	samples          []sample
}

// counterFamilies are the metrics that are counters of comm.Stats.
var counterFamilies = [...]struct{ name, help, counter string }{
	{"unexpected_messages_total", "Messages that arrived before their receive.", "Unexpected"},
	{"throttled_messages_total", "Short messages that waited because the receiver's window was full.", "Throttled"},
	{"retried_operations_total", "Operations that waited because a rail had no room.", "Retries"},
	{"rails_failed_total", "Rails that failed.", "RailsFailed"},
	{"rails_returned_total", "Rails that came back.", "RailsReturned"},
	{"resent_fragments_total", "Fragments that went again after a rail had taken them.", "Resent"},
	{"restarted_transfers_total", "Long messages that started again because a rail had failed.", "Restarts"},
	{"refused_operations_total", "Operations that every rail refused.", "Refused"},
}

// families returns the metrics of a job, from the latest answers of its ranks.
func families(job jobsocket.Info, members []introspect.Member, known map[int]introspect.Metrics) []family {
	ranks := slices.Sorted(maps.Keys(known))
	perRank := func(value func(rank int, m introspect.Metrics) float64) (list []sample) {
		for _, rank := range ranks {
			list = append(list, sample{[]string{"rank", strconv.Itoa(rank)}, value(rank, known[rank])})
		}
		return list
	}
	totals := totalsOf(known)
	list := []family{
		{"job_info", "The job; the value is 1.", "gauge", []sample{{[]string{"job", job.Name, "command", job.Command}, 1}}},
		{"job_ranks", "Ranks of the job.", "gauge", []sample{{nil, float64(job.Size)}}},
		{"job_start_time_seconds", "When the job began, since the Unix epoch.", "gauge", []sample{{nil, float64(job.Started.UnixMilli()) / 1000}}},
		{"up", "Whether the rank has answered.", "gauge", upSamples(members)},
		{"sent_bytes_total", "Bytes of messages that the rank has sent.", "counter", perRank(func(rank int, _ introspect.Metrics) float64 { return float64(totals[rank].outBytes) })},
		{"received_bytes_total", "Bytes of messages that the rank has received.", "counter", perRank(func(rank int, _ introspect.Metrics) float64 { return float64(totals[rank].inBytes) })},
		{"sent_messages_total", "Messages that the rank has sent.", "counter", perRank(func(rank int, _ introspect.Metrics) float64 { return float64(totals[rank].outMessages) })},
		{"received_messages_total", "Messages that the rank has received.", "counter", perRank(func(rank int, _ introspect.Metrics) float64 { return float64(totals[rank].inMessages) })},
		{"operations_total", "Messages sent and received, and operations completed; it stands still if the rank makes no progress.", "counter", perRank(func(_ int, m introspect.Metrics) float64 { return float64(m.Progress) })},
		{"unexpected_bytes", "Bytes of messages that wait for their receive.", "gauge", perRank(func(_ int, m introspect.Metrics) float64 { return float64(m.Counters["UnexpectedBytes"]) })},
	}
	for _, c := range counterFamilies {
		list = append(list, family{c.name, c.help, "counter", perRank(func(_ int, m introspect.Metrics) float64 { return float64(m.Counters[c.counter]) })})
	}
	list = append(list, family{"rail_errors_total", "Errors of rails, by what they are evidence against.", "counter", errorSamples(ranks, known)})
	list = append(list, family{"rail_bytes_total", "Bytes that the rank has sent, written and read by the rails of a module, with headers.", "counter", railBytesSamples(ranks, known)})
	return append(list, railFamilies(ranks, known)...)
}

func upSamples(members []introspect.Member) (list []sample) {
	for _, m := range members {
		value := 0.0
		if m.State == introspect.StateAnswered {
			value = 1
		}
		list = append(list, sample{[]string{"rank", strconv.Itoa(m.Rank), "host", m.Host}, value})
	}
	return list
}

func errorSamples(ranks []int, known map[int]introspect.Metrics) (list []sample) {
	for _, rank := range ranks {
		for _, side := range []string{"Local", "Path", "Remote"} {
			labels := []string{"rank", strconv.Itoa(rank), "side", strings.ToLower(side)}
			list = append(list, sample{labels, float64(known[rank].Counters[side+"Errors"])})
		}
	}
	return list
}

func railBytesSamples(ranks []int, known map[int]introspect.Metrics) (list []sample) {
	for _, rank := range ranks {
		bytes := known[rank].RailBytes
		for _, name := range slices.Sorted(maps.Keys(bytes)) {
			list = append(list, sample{[]string{"rank", strconv.Itoa(rank), "rail", name}, float64(bytes[name])})
		}
	}
	return list
}

// railFamilies has a series for each rank and module, because there would be too many for each pair
// of ranks. Its health is the lowest of the rails to all peers.
func railFamilies(ranks []int, known map[int]introspect.Metrics) []family {
	health := family{"rail_health", "The least health of the rails of a module of the rank, from 0, down, to 1.", "gauge", nil}
	up := family{"rails_up", "Rails of a module of the rank that are up.", "gauge", nil}
	slow := family{"rails_slow", "Rails of a module of the rank that are up and take no traffic, because others are much faster.", "gauge", nil}
	down := family{"rails_down", "Rails of a module of the rank that are not up.", "gauge", nil}
	for _, rank := range ranks {
		type state struct{ health, up, slow, down int }
		byName := map[string]state{}
		for _, r := range known[rank].Rails {
			s, seen := byName[r.Name]
			if !seen {
				s.health = 1000
			}
			if r.State == "up" {
				s.up += max(r.Count, 1)
				if r.Slow {
					s.slow += max(r.Count, 1)
				}
			} else {
				s.down += max(r.Count, 1)
			}
			s.health = min(s.health, railHealth(r))
			byName[r.Name] = s
		}
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			labels, s := []string{"rank", strconv.Itoa(rank), "rail", name}, byName[name]
			health.samples = append(health.samples, sample{labels, float64(s.health) / 1000})
			up.samples = append(up.samples, sample{labels, float64(s.up)})
			slow.samples = append(slow.samples, sample{labels, float64(s.slow)})
			down.samples = append(down.samples, sample{labels, float64(s.down)})
		}
	}
	return []family{health, up, slow, down}
}

// prefix begins the name of each metric.
const prefix = "mpigo_"

// write writes the family in Prometheus' text format, version 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/).
func (f *family) write(w io.Writer) {
	name := prefix + f.name
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, f.help, name, f.kind)
	for _, s := range f.samples {
		fmt.Fprint(w, name)
		for i := 0; i < len(s.labels); i += 2 {
			separator := ","
			if i == 0 {
				separator = "{"
			}
			fmt.Fprintf(w, `%s%s="%s"`, separator, s.labels[i], labelValue(s.labels[i+1]))
		}
		if len(s.labels) > 0 {
			fmt.Fprint(w, "}")
		}
		fmt.Fprintf(w, " %s\n", strconv.FormatFloat(s.value, 'g', -1, 64))
	}
}

func labelValue(text string) string {
	text = strings.ToValidUTF8(text, "�")
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(text)
}

// Exporter answers Prometheus' requests about a job. It implements http.Handler.
type Exporter struct {
	job jobsocket.Job

	mu    sync.Mutex // held while the ranks are asked
	known map[int]introspect.Metrics
	text  []byte
	at    time.Time // of text
}

// NewExporter makes an Exporter.
func NewExporter(job jobsocket.Job) *Exporter { return &Exporter{job: job} }

// freshness is the time for which the ranks are not asked again.
const freshness = time.Second

// ServeHTTP asks all ranks and writes their metrics.
func (e *Exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Only a client that has sent a whole request counts as authenticated.
	conn, isGated := r.Context().Value(connKey{}).(*gate.Conn)
	if isGated {
		conn.Keep(true)
	}
	text := e.metrics(r.Context())
	if isGated {
		conn.Keep(false)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(text) // else the client is gone
}

func (e *Exporter) metrics(ctx context.Context) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.text != nil && time.Since(e.at) < freshness {
		return e.text
	}
	// If the client disconnects, the ranks must not look silent to the next client.
	members := e.job.Ask(context.WithoutCancel(ctx), introspect.WantMetrics)
	e.known = keep(e.known, members)
	var b bytes.Buffer
	for _, f := range families(e.job.Info(), members, e.known) {
		if len(f.samples) > 0 {
			f.write(&b)
		}
	}
	e.text, e.at = b.Bytes(), time.Now()
	return e.text
}

// maxClients bounds the connections of clients. One Prometheus server uses one.
const maxClients = 64

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// Serve serves the metrics of a job at /metrics of a listener, until stop is called. warn is
// called, at intervals, while no connection can be accepted.
func Serve(l net.Listener, job jobsocket.Job, warn func(error)) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", NewExporter(job))
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 4 * introspect.AnswerTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(gate.New(maxClients, warn).Listener(l)) // until Close
	}()
	return func() {
		_ = server.Close()
		<-done
	}
}
