// Package profile defines the format of the file in which a rank writes the counts and times of its
// calls. Package comm/internal/record writes it, and mpirun-go makes pages from the files of a job.
package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
)

// Version of the format.
const Version = 1

// File is the profile of a rank. Times are in nanoseconds, lengths in bytes. Ranks are ranks in the
// job.
type File struct {
	Version int `json:"v"`
	// Job is the unique identity of the job.
	Job  string `json:"job"`
	Rank int    `json:"rank"`
	Size int    `json:"size"`
	Host string `json:"host"`
	PID  int    `json:"pid"`
	// Command is the program with its arguments.
	Command []string `json:"command"`
	// Started is when Init returned, as a Unix time. AppNanos is the time from then to Finalize, or
	// until the rank failed.
	Started  int64 `json:"started"`
	AppNanos int64 `json:"app_nanos"`
	// Error is the reason why the rank did not call Finalize.
	Error string `json:"error,omitempty"`
	// Kinds has the calls by name. These counts are exact.
	Kinds []Kind `json:"kinds"`
	// Sites has the calls by name and line.
	Sites []Site `json:"sites"`
	// Sent counts the messages and bytes sent to each rank, collectives included. It is exact.
	Sent []Traffic `json:"sent"`
	// Protocols counts the messages by protocol, as the fields of comm.Stats.
	Protocols []Named `json:"protocols"`
	Rails     []Rail  `json:"rails"`
}

// Kind counts the calls of a name. Sizes[i] is the number of calls with a length of i bits.
type Kind struct {
	Name  string   `json:"name"`
	Calls uint64   `json:"calls"`
	Sizes []uint64 `json:"sizes"`
}

// Site counts the calls of a name at a line of the program. If it is Estimated, not all calls of
// the name were timed, and all numbers except Timed are estimates.
type Site struct {
	Call     string `json:"call"`
	Function string `json:"function"`
	File     string `json:"file"`
	Line     int    `json:"line"`
	// Calls is the number of calls, Timed the number of timed calls.
	Calls float64 `json:"calls"`
	Timed uint64  `json:"timed"`
	// Estimated is set even for a line at which all known calls were timed.
	Estimated bool `json:"estimated,omitempty"`
	// Nanos is the time of all calls. Waiting is the part in which a partner was late, by State.
	// Moving is the part in which a call waited while bytes of long messages moved.
	Nanos   float64 `json:"nanos"`
	Waiting float64 `json:"waiting"`
	Moving  float64 `json:"moving"`
	State   string  `json:"state"`
	Min     int64   `json:"min"`
	Max     int64   `json:"max"`
	// Bytes of the messages that the calls send, or of the vectors of a collective.
	Bytes float64 `json:"bytes"`
	Sends bool    `json:"sends,omitempty"` // the bytes are sent
}

// Traffic counts the messages sent to a rank.
type Traffic struct {
	Peer     int   `json:"peer"`
	Messages int64 `json:"messages"`
	Bytes    int64 `json:"bytes"`
}

// Named is a counter.
type Named struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

// Rail is a rail to a peer at the end.
type Rail struct {
	Peer   int    `json:"peer"`
	Name   string `json:"name"`
	State  string `json:"state"`
	First  bool   `json:"first,omitempty"`
	Health int    `json:"health"`
	Errors uint64 `json:"errors,omitempty"`
	// Bytes of the rank's operations on it, with headers: sent, written and read.
	Bytes int64 `json:"bytes,omitempty"`
}

// The wait states (Site.State).
const (
	LateSender    = "late sender"
	LateReceiver  = "late receiver"
	LatePartner   = "late partner" // a wait for sends and receives
	LateAtBarrier = "wait at barrier"
	LateAtNxN     = "wait at N×N"
	LateRoot      = "late root"
	LateLeaf      = "early root" // the root of a reduction or gather comes first
)

// Path returns the path of a rank's file in a directory.
func Path(dir string, rank int) string {
	return filepath.Join(dir, fmt.Sprintf("profile.%d.json", rank))
}

// MaxBytes bounds a file, so that a wrong one does not fill the memory.
const MaxBytes = 64 << 20

// ErrFormat means that a file is not a profile of this version.
var ErrFormat = errors.New("not a profile of this version")

// Write writes a profile.
func (f *File) Write(w io.Writer) error {
	f.Version = Version
	return json.NewEncoder(w).Encode(f)
}

// Read reads a profile and checks it.
func Read(r io.Reader) (*File, error) {
	var f File
	if err := json.NewDecoder(io.LimitReader(r, MaxBytes)).Decode(&f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return &f, f.check()
}

// maxRanks is the largest size of a job.
const maxRanks = 1 << 16

func (f *File) check() error {
	isRank := func(r int) bool { return r >= 0 && r < f.Size }
	wrong := func(what string) error { return fmt.Errorf("%w: wrong %s", ErrFormat, what) }
	switch {
	case f.Version != Version:
		return wrong("version")
	case f.Size < 1 || f.Size > maxRanks || !isRank(f.Rank):
		return wrong("rank or size")
	case f.AppNanos < 0:
		return wrong("time")
	}
	for _, t := range f.Sent {
		if !isRank(t.Peer) || t.Messages < 0 || t.Bytes < 0 {
			return wrong("traffic")
		}
	}
	for _, r := range f.Rails {
		if !isRank(r.Peer) || r.Bytes < 0 {
			return wrong("rail")
		}
	}
	for _, k := range f.Kinds {
		if len(k.Sizes) > 64 {
			return wrong("sizes of calls")
		}
	}
	for _, s := range f.Sites {
		for _, v := range []float64{s.Calls, s.Nanos, s.Waiting, s.Moving, s.Bytes} {
			if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
				return wrong("numbers of a line")
			}
		}
	}
	return nil
}
