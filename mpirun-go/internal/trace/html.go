package trace

import (
	"bufio"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/hangreport"
	"github.com/mpigo/mpigo/internal/trace"
)

// The page: page.html has a place for each of the title, the style, the data and the program.
var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageProgram string
)

// Limits of a page, which a browser opens within seconds. In a larger trace the page leaves out the
// shortest calls and the messages with the shortest way.
const (
	maxCalls    = 1_000_000
	maxMessages = 500_000
)

// pageData is the data of the page. Times are in nanoseconds since the first event. A list of times
// that is called At has the difference to the element before, which keeps the page small.
type pageData struct {
	Command string   `json:"command"`
	Size    int      `json:"size"`
	Notes   []string `json:"notes"` // what is missing
	End     int64    `json:"end"`
	Kinds   []kind   `json:"kinds"`
	Rows    []row    `json:"rows"`
	Rails   []railAt `json:"rails"`
	// Messages are sorted by their start. From and To are rows.
	Messages struct {
		At    []int64 `json:"at"`
		Nanos []int64 `json:"ns"`
		From  []int   `json:"from"`
		To    []int   `json:"to"`
		Bytes []int64 `json:"bytes"`
	} `json:"messages"`
}

// kind is what several calls have in common.
type kind struct {
	Name  string `json:"name"`
	Peer  int    `json:"peer"` // −1: none
	Tag   int    `json:"tag"`  // −1: none
	Bytes int64  `json:"bytes"`
	Comm  string `json:"comm"`
	Line  string `json:"line"`
	Open  bool   `json:"open"`
}

// row is a line of the page: calls of a rank that do not overlap, by time.
type row struct {
	Rank   int     `json:"rank"`
	Host   string  `json:"host"`
	Thread int     `json:"thread"`
	At     []int64 `json:"at"`
	Nanos  []int64 `json:"ns"`
	Kind   []int   `json:"kind"`
	// Until is, for the beginning of a nonblocking operation, the time from the start of the call
	// until the program has observed the completion, or 0.
	Until []int64 `json:"until"`
}

// railAt is a rail that has failed or come back.
type railAt struct {
	Row  int    `json:"row"`
	At   int64  `json:"at"`
	Text string `json:"text"`
}

// HTML writes the trace of the job as a page. The page loads no other resources.
func (j *Job) HTML(to io.Writer) error { return j.html(to, maxCalls, maxMessages) }

func (j *Job) html(to io.Writer, maxCalls, maxMessages int) error {
	data := j.pageData(maxCalls, maxMessages)
	text, err := json.Marshal(data) // escapes <, so that the text cannot end its element
	if err != nil {
		return err
	}
	out := bufio.NewWriter(to)
	rest := pageText
	for _, part := range []struct{ place, text string }{
		{"{{title}}", html.EscapeString(data.Command)}, {"{{style}}", pageStyle}, {"{{data}}", string(text)}, {"{{program}}", pageProgram},
	} {
		before, after, _ := strings.Cut(rest, part.place)
		_, _ = out.WriteString(before)
		_, _ = out.WriteString(part.text)
		rest = after
	}
	_, _ = out.WriteString(rest)
	return out.Flush() // has the first error
}

// track names a track of a rank.
type track struct{ rank, number int }

func (j *Job) pageData(maxCalls, maxMessages int) *pageData {
	j.align()
	origin := j.origin()
	d := &pageData{Command: strings.Join(j.Files[0].Command, " "), Size: j.Size, Kinds: []kind{}, Rows: []row{}, Rails: []railAt{}, Notes: j.notes()}
	tracks := make([]*rankTracks, len(j.Files))
	for i, f := range j.Files {
		tracks[i] = newTracks(f)
	}
	shortest, leftOut := shortestCall(tracks, maxCalls)
	if leftOut > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("%d calls are left out of this page, each shorter than %d ns; trace.json has them.", leftOut, shortest))
	}
	known := make(map[kind]int)
	firstRow := make(map[int]int)     // by rank
	rowOfTrack := make(map[track]int) // only of tracks that have calls
	for i, f := range j.Files {
		firstRow[f.Rank] = len(d.Rows)
		ends := observed(f)
		for thread, list := range tracks[i].slices[1:] {
			if thread > 0 && len(list) == 0 {
				continue
			}
			rowOfTrack[track{f.Rank, thread}] = len(d.Rows)
			d.Rows = append(d.Rows, d.row(f, thread, list, origin, shortest, known, ends))
		}
		if len(d.Rows) == firstRow[f.Rank] {
			d.Rows = append(d.Rows, d.row(f, 0, nil, origin, shortest, known, ends))
		}
		for _, e := range f.Events {
			d.End = max(d.End, e.At+e.Nanos-origin)
			if e.Type == trace.Rail {
				d.Rails = append(d.Rails, railAt{firstRow[f.Rank], e.At - origin, e.Name})
			}
		}
	}
	rowOf := func(rank, thread int) int {
		if i, hasCalls := rowOfTrack[track{rank, thread}]; hasCalls {
			return i
		}
		return firstRow[rank]
	}
	if n := d.messages(j.messages(), maxMessages, origin, rowOf); n > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("%d messages that arrived soonest are left out of this page; trace.json has them.", n))
	}
	d.End = max(d.End, 1)
	return d
}

// notes says which ranks and events are missing.
func (j *Job) notes() []string {
	notes := []string{}
	if len(j.Missing) > 0 {
		notes = append(notes, "No trace of "+rankText(j.Missing)+".")
	}
	notes = append(notes, j.Why...)
	dropped := uint64(0)
	for _, f := range j.Files {
		dropped += f.Dropped
		if f.Error != "" {
			notes = append(notes, fmt.Sprintf("Rank %d failed: %s", f.Rank, f.Error))
		}
	}
	if dropped > 0 {
		notes = append(notes, fmt.Sprintf("The ranks dropped %d older events (tunable trace.events).", dropped))
	}
	return notes
}

func rankText(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + hangreport.Ranks(ranks)
	}
	return "ranks " + hangreport.Ranks(ranks)
}

// shortestCall returns the length from which at most limit calls are as long, and the number of
// calls that are shorter. If more than limit calls have one length, all of them are left out.
func shortestCall(tracks []*rankTracks, limit int) (shortest int64, leftOut int) {
	var all []int64
	for _, t := range tracks {
		for _, list := range t.slices {
			for _, s := range list {
				all = append(all, s.end-s.at)
			}
		}
	}
	if len(all) <= limit {
		return 0, 0
	}
	slices.Sort(all)
	shortest = all[len(all)-limit-1] + 1
	leftOut, _ = slices.BinarySearch(all, shortest)
	return shortest, leftOut
}

// row makes a row of the calls that are not shorter than shortest.
func (d *pageData) row(f *trace.File, thread int, list []slice, origin, shortest int64, known map[kind]int, ends map[uint64]int64) row {
	r := row{Rank: f.Rank, Host: f.Host, Thread: thread, At: []int64{}, Nanos: []int64{}, Kind: []int{}, Until: []int64{}}
	before := origin
	for _, s := range list {
		if s.end-s.at < shortest {
			continue
		}
		e := s.call
		k := kind{calls.GoName(e.Name), e.Peer, e.Tag, e.Bytes, e.Comm, e.Line, e.Open}
		i, isKnown := known[k]
		if !isKnown {
			i = len(d.Kinds)
			known[k] = i
			d.Kinds = append(d.Kinds, k)
		}
		until := int64(0)
		if end, isOver := ends[e.Request]; e.Request > 0 && isOver && end > e.At {
			until = end - e.At
		}
		r.At, r.Nanos, r.Kind, r.Until = append(r.At, s.at-before), append(r.Nanos, s.end-s.at), append(r.Kind, i), append(r.Until, until)
		before = s.at
	}
	return r
}

// messages adds at most limit messages, those that took longest, and returns the number of others.
func (d *pageData) messages(list []message, limit int, origin int64, rowOf func(rank, track int) int) (leftOut int) {
	nanos := func(m message) int64 { return max(m.matched.At-m.sent.At, 0) }
	if leftOut = max(len(list)-limit, 0); leftOut > 0 {
		slices.SortStableFunc(list, func(a, b message) int { return cmp.Compare(nanos(b), nanos(a)) })
		list = list[:limit]
	}
	slices.SortStableFunc(list, func(a, b message) int { return cmp.Compare(a.sent.At, b.sent.At) })
	m, before := &d.Messages, origin
	m.At, m.Nanos, m.From, m.To, m.Bytes = []int64{}, []int64{}, []int{}, []int{}, []int64{}
	for _, msg := range list {
		m.At, m.Nanos = append(m.At, msg.sent.At-before), append(m.Nanos, nanos(msg))
		m.From, m.To = append(m.From, rowOf(msg.sender, msg.sent.Track)), append(m.To, rowOf(msg.receiver, msg.matched.Track))
		m.Bytes = append(m.Bytes, msg.sent.Bytes)
		before = msg.sent.At
	}
	return leftOut
}
