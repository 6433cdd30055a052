// Package trace defines the format of the file in which a rank writes the last events of its calls
// and messages. Package comm/internal/record writes it. mpirun-go merges the traces of a job.
package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// Version of the format.
const Version = 1

// File is the trace of a rank. Times are in nanoseconds of CLOCK_MONOTONIC of the rank's host.
type File struct {
	Version int `json:"v"`
	// Job is the unique identity of the job.
	Job     string   `json:"job"`
	Rank    int      `json:"rank"`
	Size    int      `json:"size"`
	Host    string   `json:"host"`
	PID     int      `json:"pid"`
	Command []string `json:"command"`
	// Written is when the file was written.
	Written int64 `json:"written"`
	// Error is the reason why the rank did not call Finalize.
	Error string `json:"error,omitempty"`
	// Dropped is the number of older events, for which there was no room.
	Dropped uint64 `json:"dropped,omitempty"`
	// Clocks compares the clock of the rank's host with the clock of rank 0's host. Only one rank
	// of each host has these, and no rank of rank 0's host.
	Clocks []Clock `json:"clocks,omitempty"`
	Events []Event `json:"events"`
}

// Clock is a comparison of the clocks of two hosts.
type Clock struct {
	At    int64 `json:"at"`    // by the clock of this host
	Ahead int64 `json:"ahead"` // of this host's clock
	// Error bounds the error of Ahead: half of the shortest round trip.
	Error int64 `json:"error"`
}

// Event is an event of a rank. Peers are ranks of the job, −1: none.
type Event struct {
	Type Type  `json:"t"`
	At   int64 `json:"at"`
	// Track distinguishes calls of several goroutines that overlap. −1: outside of calls.
	Track int    `json:"track"`
	Name  string `json:"name,omitempty"`
	Nanos int64  `json:"nanos,omitempty"` // duration of a call
	Peer  int    `json:"peer"`
	Tag   int    `json:"tag"`
	Bytes int64  `json:"bytes,omitempty"`
	Comm  string `json:"comm,omitempty"`
	Line  string `json:"line,omitempty"`
	// Context and Number name a message between two ranks.
	Context uint64 `json:"context,omitempty"`
	Number  uint32 `json:"number,omitempty"`
	// Request numbers the operation that a call has begun, or that an event is about.
	Request uint64 `json:"request,omitempty"`
	// Open: the call had not ended when the file was written.
	Open bool `json:"open,omitempty"`
}

// Type of an event.
type Type string

const (
	Call     Type = "call"     // a call of the user
	Sent     Type = "sent"     // a message was sent
	Matched  Type = "matched"  // a message has matched a receive
	Begun    Type = "begun"    // a nonblocking operation has begun
	Observed Type = "observed" // the user has observed its completion
	Rail     Type = "rail"     // a rail has failed or come back, as Name says
)

// Path returns the path of a rank's file in a directory.
func Path(dir string, rank int) string { return filepath.Join(dir, fmt.Sprintf("trace.%d.json", rank)) }

// MaxBytes bounds a file, so that a wrong one does not fill the memory.
const MaxBytes = 1 << 30

// ErrFormat means that a file is not a trace of this version.
var ErrFormat = errors.New("not a trace of this version")

// Write writes a trace, one event after another, to save memory: all ranks of a host write at the
// same time, and an encoder holds everything that one call encodes.
func (f *File) Write(w io.Writer) error {
	head := *f
	head.Version, head.Events = Version, []Event{}
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	const end = "]}" // Events is the last field
	text = text[:len(text)-len(end)]
	for i := range f.Events {
		if i > 0 {
			text = append(text, ',')
		}
		event, err := json.Marshal(&f.Events[i])
		if err != nil {
			return err
		}
		if _, err := w.Write(append(text, event...)); err != nil {
			return err
		}
		text = text[:0]
	}
	_, err = w.Write(append(text, end+"\n"...))
	return err
}

// maxRanks is the largest size of a job, and maxNanos the latest time: 36 years. Sums of a few
// times do not overflow.
const (
	maxRanks = 1 << 16
	maxNanos = 1 << 60
)

// Read reads a trace and checks it.
func Read(r io.Reader) (*File, error) {
	var f File
	if err := json.NewDecoder(io.LimitReader(r, MaxBytes)).Decode(&f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return &f, f.check()
}

func (f *File) check() error {
	isTime := func(t int64) bool { return t >= 0 && t < maxNanos }
	if f.Version != Version || f.Size < 1 || f.Size > maxRanks || f.Rank < 0 || f.Rank >= f.Size {
		return fmt.Errorf("%w: wrong version, rank or size", ErrFormat)
	}
	if !isTime(f.Written) {
		return fmt.Errorf("%w: wrong time", ErrFormat)
	}
	for _, c := range f.Clocks {
		if !isTime(c.At) || c.Ahead < -maxNanos || c.Ahead > maxNanos || !isTime(c.Error) {
			return fmt.Errorf("%w: wrong clock", ErrFormat)
		}
	}
	for i := range f.Events {
		e := &f.Events[i]
		switch e.Type {
		case Call, Begun, Observed, Rail:
		case Sent, Matched:
			if e.Peer < 0 || e.Peer >= f.Size {
				return fmt.Errorf("%w: wrong peer of a message", ErrFormat)
			}
		default:
			return fmt.Errorf("%w: unknown event %q", ErrFormat, e.Type)
		}
		if !isTime(e.At) || !isTime(e.Nanos) || e.Track < -1 || e.Track > 1<<20 {
			return fmt.Errorf("%w: wrong time or track", ErrFormat)
		}
	}
	return nil
}
