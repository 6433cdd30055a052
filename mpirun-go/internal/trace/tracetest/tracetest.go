// Package tracetest reads Chrome's trace format for tests. It is stricter than the viewers: events
// that Perfetto silently drops are errors.
package tracetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
)

// Event is an event of the format, with its fields' names.
type Event struct {
	Ph   string          `json:"ph"`
	Name string          `json:"name"`
	Cat  string          `json:"cat"`
	Pid  *int            `json:"pid"`
	Tid  *int            `json:"tid"`
	Ts   *float64        `json:"ts"`
	Dur  *float64        `json:"dur"`
	ID   string          `json:"id"`
	Bp   string          `json:"bp"`
	S    string          `json:"s"`
	Args json.RawMessage `json:"args"`
}

func (e *Event) end() float64 { return *e.Ts + *e.Dur }

// Thread names a thread: a rank, and one of its tracks.
type Thread struct{ Pid, Tid int }

// Trace is a parsed trace.
type Trace struct {
	Slices map[Thread][]*Event
	Flows  [][2]*Event // from, to
	Async  map[string][2]*Event
	Rails  []*Event
	Names  map[int]string // of processes
	Other  map[string]any
}

// Read reads a trace and checks that slices nest, that flows and asynchronous events have
// both ends, that an arrow begins and ends at slices, and that nothing arrives before it is sent.
func Read(in io.Reader) (*Trace, error) {
	var doc struct {
		Unit   string         `json:"displayTimeUnit"`
		Other  map[string]any `json:"otherData"`
		Events []Event        `json:"traceEvents"`
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	if dec.More() || doc.Unit != "ns" {
		return nil, fmt.Errorf("unit %q, or more than one document", doc.Unit)
	}
	c := &Trace{Slices: map[Thread][]*Event{}, Async: map[string][2]*Event{}, Names: map[int]string{}, Other: doc.Other}
	starts, ends := map[string]*Event{}, map[string]*Event{}
	for i := range doc.Events {
		e := &doc.Events[i]
		if e.Pid == nil || e.Tid == nil || e.Name == "" {
			return nil, fmt.Errorf("event %d has no process, thread or name", i)
		}
		if e.Ph != "M" && (e.Ts == nil || *e.Ts < 0 || math.IsInf(*e.Ts, 0)) {
			return nil, fmt.Errorf("event %d has no time", i)
		}
		key := e.Cat + " " + e.ID
		switch e.Ph {
		case "M":
			if e.Name == "process_name" {
				c.Names[*e.Pid] = string(e.Args)
			}
		case "X":
			if e.Dur == nil || *e.Dur < 0 {
				return nil, fmt.Errorf("slice %q has no duration", e.Name)
			}
			at := Thread{*e.Pid, *e.Tid}
			c.Slices[at] = append(c.Slices[at], e)
		case "s":
			if starts[key] != nil {
				return nil, fmt.Errorf("flow %s starts twice", key)
			}
			starts[key] = e
		case "f":
			if ends[key] != nil || e.Bp != "e" {
				return nil, fmt.Errorf("flow %s ends twice, or not at the slice around it", key)
			}
			ends[key] = e
		case "b":
			if c.Async[key][0] != nil {
				return nil, fmt.Errorf("operation %s begins twice", key)
			}
			c.Async[key] = [2]*Event{e, c.Async[key][1]}
		case "e":
			if b := c.Async[key][0]; b == nil || *b.Ts > *e.Ts || c.Async[key][1] != nil {
				return nil, fmt.Errorf("operation %s ends twice, or before it begins", key)
			}
			c.Async[key] = [2]*Event{c.Async[key][0], e}
		case "i":
			if e.S != "p" && e.S != "t" && e.S != "g" {
				return nil, fmt.Errorf("instant %q has no scope", e.Name)
			}
			c.Rails = append(c.Rails, e)
		default:
			return nil, fmt.Errorf("phase %q", e.Ph)
		}
	}
	const tick = 1e-6 // numbers are rounded to float64
	for at, list := range c.Slices {
		slices.SortStableFunc(list, func(a, b *Event) int {
			return cmp.Or(cmp.Compare(*a.Ts, *b.Ts), -cmp.Compare(*a.Dur, *b.Dur))
		})
		var open []*Event
		for _, s := range list {
			for len(open) > 0 && open[len(open)-1].end() <= *s.Ts+tick {
				open = open[:len(open)-1]
			}
			if len(open) > 0 && s.end() > open[len(open)-1].end()+tick {
				return nil, fmt.Errorf("thread %v: slices %q and %q overlap", at, open[len(open)-1].Name, s.Name)
			}
			open = append(open, s)
		}
	}
	for key, pair := range c.Async {
		if pair[1] == nil {
			return nil, fmt.Errorf("operation %s does not end", key)
		}
	}
	for key, s := range starts {
		f := ends[key]
		if f == nil {
			return nil, fmt.Errorf("flow %s does not end", key)
		}
		if *f.Ts < *s.Ts {
			return nil, fmt.Errorf("flow %s ends %g µs before it starts", key, *s.Ts-*f.Ts)
		}
		for _, e := range []*Event{s, f} {
			list := c.Slices[Thread{*e.Pid, *e.Tid}]
			if !slices.ContainsFunc(list, func(x *Event) bool { return *x.Ts <= *e.Ts+tick && *e.Ts <= x.end()+tick }) {
				return nil, fmt.Errorf("flow %s is in no slice at %g", key, *e.Ts)
			}
		}
		c.Flows = append(c.Flows, [2]*Event{s, f})
	}
	if len(ends) != len(starts) {
		return nil, fmt.Errorf("%d flows start and %d end", len(starts), len(ends))
	}
	return c, nil
}
