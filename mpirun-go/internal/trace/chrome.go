package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/trace"
)

// record is an event of Chrome's format. Times are in microseconds.
type record struct {
	Phase string         `json:"ph"`
	Name  string         `json:"name,omitempty"`
	Cat   string         `json:"cat,omitempty"`
	Pid   int            `json:"pid"`
	Tid   int            `json:"tid"`
	Ts    json.Number    `json:"ts,omitempty"`
	Dur   json.Number    `json:"dur,omitempty"`
	ID    string         `json:"id,omitempty"`
	Bind  string         `json:"bp,omitempty"`
	Scope string         `json:"s,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// micros writes nanoseconds as microseconds without loss.
func micros(nanos int64) json.Number {
	return json.Number(fmt.Sprintf("%d.%03d", nanos/1000, nanos%1000))
}

// Chrome writes the trace of the job in Chrome's format.
func (j *Job) Chrome(to io.Writer) error {
	j.align()
	out := &writer{to: bufio.NewWriter(to)}
	out.printf(`{"displayTimeUnit":"ns","otherData":%s,"traceEvents":[`, j.about())
	origin := j.origin()
	tracks := make(map[int]*rankTracks) // by rank
	for _, f := range j.Files {
		tracks[f.Rank] = newTracks(f)
	}
	messages := j.messages()
	for i := range messages { // before the slices are written, because some get one of their own
		m := &messages[i]
		m.matched.At = max(m.matched.At, m.sent.At)
		tracks[m.sender].enclose(m.sent, fmt.Sprintf("to rank %d", m.receiver))
		tracks[m.receiver].enclose(m.matched, fmt.Sprintf("from rank %d", m.sender))
	}
	for _, f := range j.Files {
		sortSlices(tracks[f.Rank].slices[0])
		j.writeRank(out, f, tracks[f.Rank], origin)
	}
	for _, m := range messages {
		r := record{
			Phase: "s", Name: "message", Cat: "message", Pid: m.sender, Tid: m.sent.Track + 1, Ts: micros(m.sent.At - origin),
			ID: fmt.Sprintf("%d.%d.%d.%d", m.sender, m.receiver, m.sent.Context, m.sent.Number),
		}
		out.record(r)
		r.Phase, r.Pid, r.Tid, r.Ts, r.Bind = "f", m.receiver, m.matched.Track+1, micros(m.matched.At-origin), "e"
		out.record(r)
	}
	out.printf("\n]}\n")
	if out.err == nil {
		out.err = out.to.Flush()
	}
	return out.err
}

// about returns the trace's description of the job.
func (j *Job) about() []byte {
	failed := make(map[string]string)
	dropped := uint64(0)
	for _, f := range j.Files {
		dropped += f.Dropped
		if f.Error != "" {
			failed[fmt.Sprintf("rank %d", f.Rank)] = f.Error
		}
	}
	text, _ := json.Marshal(map[string]any{
		"command": strings.Join(j.Files[0].Command, " "), "ranks": j.Size, "missing_ranks": j.Missing, "unreadable": j.Why,
		"failed": failed, "dropped_events": dropped,
	}) // these types can be encoded
	return text
}

// origin is the time of the first event.
func (j *Job) origin() int64 {
	first := j.Files[0].Written
	for _, f := range j.Files {
		for _, e := range f.Events {
			first = min(first, e.At)
		}
	}
	return first
}

func (j *Job) writeRank(out *writer, f *trace.File, t *rankTracks, origin int64) {
	name := func(what string, tid int, value string) {
		out.record(record{Phase: "M", Name: what, Pid: f.Rank, Tid: tid, Args: map[string]any{"name": value}})
	}
	name("process_name", 0, fmt.Sprintf("rank %d on %s", f.Rank, f.Host))
	out.record(record{Phase: "M", Name: "process_sort_index", Pid: f.Rank, Args: map[string]any{"sort_index": f.Rank}})
	for track, slices := range t.slices {
		switch {
		case len(slices) == 0:
			continue
		case track == 0:
			name("thread_name", 0, "in no call")
		case track == 1:
			name("thread_name", 1, "calls")
		default:
			name("thread_name", track, fmt.Sprintf("calls, %d at once", track))
		}
		for _, s := range slices {
			r := record{Phase: "X", Name: s.name, Cat: "call", Pid: f.Rank, Tid: track, Ts: micros(s.at - origin), Dur: micros(s.end - s.at)}
			if s.call != nil {
				r.Name, r.Args = calls.GoName(s.call.Name), describe(s.call)
			}
			out.record(r)
		}
	}
	j.writeRequests(out, f, origin)
	for _, e := range f.Events {
		if e.Type == trace.Rail {
			out.record(record{Phase: "i", Scope: "p", Name: e.Name, Cat: "rail", Pid: f.Rank, Tid: e.Track + 1, Ts: micros(e.At - origin)})
		}
	}
}

// writeRequests writes the nonblocking operations whose beginning is in the trace.
func (j *Job) writeRequests(out *writer, f *trace.File, origin int64) {
	ends := observed(f)
	seen := make(map[uint64]bool)
	for _, e := range f.Events {
		if e.Type != trace.Begun || seen[e.Request] {
			continue
		}
		seen[e.Request] = true
		end, isOver := ends[e.Request]
		if !isOver {
			end = f.Written
		}
		r := record{
			Phase: "b", Name: calls.GoName(e.Name), Cat: "request", Pid: f.Rank, Tid: e.Track + 1, Ts: micros(e.At - origin),
			ID: fmt.Sprintf("%d.%d", f.Rank, e.Request), Args: describe(&e),
		}
		out.record(r)
		r.Phase, r.Ts, r.Args = "e", micros(max(end, e.At)-origin), nil
		out.record(r)
	}
}

// observed returns when the program has observed the completion of each nonblocking operation.
func observed(f *trace.File) map[uint64]int64 {
	ends := make(map[uint64]int64)
	for _, e := range f.Events {
		if e.Type == trace.Observed {
			ends[e.Request] = e.At
		}
	}
	return ends
}

// describe returns the arguments of a call in a trace.
func describe(e *trace.Event) map[string]any {
	args := map[string]any{}
	if e.Peer >= 0 {
		args["peer"] = e.Peer
	}
	if e.Tag >= 0 {
		args["tag"] = e.Tag
	}
	if e.Bytes > 0 {
		args["bytes"] = e.Bytes
	}
	if e.Comm != "" {
		args["communicator"] = e.Comm
	}
	if e.Line != "" {
		args["line"] = e.Line
	}
	if e.Request > 0 {
		args["request"] = e.Request
	}
	if e.Open {
		args["not ended"] = true
	}
	return args
}

// slice is a slice of a track.
type slice struct {
	at, end int64
	call    *trace.Event // nil: the end of a message in no call
	name    string       // of the message's end
}

// rankTracks are the slices of a rank, by thread. Thread 0 has the slices outside of calls.
type rankTracks struct{ slices [][]slice }

// newTracks makes a slice of each call. Calls of a track do not overlap.
func newTracks(f *trace.File) *rankTracks {
	t := &rankTracks{slices: make([][]slice, 1)}
	for i := range f.Events {
		e := &f.Events[i]
		if e.Type != trace.Call {
			continue
		}
		tid := max(e.Track, 0) + 1
		for len(t.slices) <= tid {
			t.slices = append(t.slices, nil)
		}
		t.slices[tid] = append(t.slices[tid], slice{at: e.At, end: e.At + max(e.Nanos, 1), call: e})
	}
	for tid := range t.slices {
		sortSlices(t.slices[tid])
	}
	return t
}

// sortSlices sorts slices by time, and shortens each so that it ends before the next one begins.
func sortSlices(list []slice) {
	slices.SortStableFunc(list, func(a, b slice) int { return cmp.Compare(a.at, b.at) })
	for i := range list[:max(len(list)-1, 0)] {
		list[i].end = max(min(list[i].end, list[i+1].at), list[i].at)
	}
}

// messageNanos is the length of the slice of a message that was sent or matched outside of the
// calls of the trace.
const messageNanos = 500

// enclose ensures that a slice of the event's track contains the event, because an arrow begins and
// ends at slices. If no slice does, the event gets a slice of its own, outside of calls.
func (t *rankTracks) enclose(e *trace.Event, name string) {
	if tid := e.Track + 1; tid > 0 && tid < len(t.slices) {
		list := t.slices[tid]
		i, _ := slices.BinarySearchFunc(list, e.At, func(s slice, at int64) int { return cmp.Compare(s.at, at+1) })
		if i > 0 && e.At <= list[i-1].end {
			return
		}
	}
	e.Track = -1
	t.slices[0] = append(t.slices[0], slice{at: e.At, end: e.At + messageNanos, name: name})
}

// writer keeps the first error.
type writer struct {
	to    *bufio.Writer
	count int
	err   error
}

func (w *writer) printf(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.to, format, args...)
	}
}

func (w *writer) record(r record) {
	if w.err != nil {
		return
	}
	text, err := json.Marshal(r)
	w.err = err
	comma := ","
	if w.count == 0 {
		comma = ""
	}
	w.count++
	w.printf("%s\n%s", comma, text)
}
