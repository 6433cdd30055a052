package coll

import (
	"slices"
	"time"

	"github.com/mpigo/mpigo/comm/internal/area"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// Hub polls the shared memory of a rank's teams while collectives wait for a change of it. A rank
// has one. The engine's lock guards it.
type Hub struct {
	// ByMessages makes persistent collectives use messages, because the steps then show their
	// buffers.
	ByMessages bool
	// Patience is how many nanoseconds a collective makes no progress before this rank probes for a
	// mismatch.
	Patience int64

	p       *pml.PML
	block   int         // bytes of a rank's cell, see area; 0: no memory is shared
	added   bool        // to the engine's pollers
	closed  bool        // areas go as soon as no collective uses them
	teams   []*Team     // that have an area
	kept    []*Schedule // persistent collectives that have one
	waiting []*Schedule // that wait for a change of shared memory
	// active counts the nonblocking collectives that wait, and the ranks that a team has yet to
	// tell of collectives. background makes the rank progress, while the program computes, for a
	// collective of about this many bytes.
	active     int
	background func(bytes int)
	// quiet counts blocking collectives since the last turn of progress, and their yields as
	// quietYield each.
	quiet int
}

var (
	_ progress.Poller = (*Hub)(nil)
	_ progress.Idler  = (*Hub)(nil)
)

// NewHub makes the hub of a rank. In the memory that a team's ranks share on a host, each has
// blockBytes, less than 4 GiB: longer vectors go through it in blocks. A team shares no memory on
// any host if blockBytes differs between its ranks, or is 0. The hub calls background, with the
// engine's lock, when a nonblocking collective of about this many bytes has to wait. It has to make
// progress while IsActive, even if no call waits.
func NewHub(p *pml.PML, blockBytes int, background func(bytes int)) *Hub {
	return &Hub{p: p, block: area.Align(blockBytes), background: background, Patience: patienceNanos}
}

// patienceNanos is a little less than the sleep of a rank without traffic.
const patienceNanos = int64(90 * time.Millisecond)

// IsActive reports whether nonblocking collectives are under way, or other ranks have yet to be
// told of collectives that this one has given up.
func (h *Hub) IsActive() bool { return h.active > 0 }

// tells counts one more, or one less, rank that is to be told.
func (h *Hub) tells(change int) {
	h.active += change
	if change > 0 && h.background != nil {
		h.background(0)
	}
}

// Close unmaps the memory of all teams: at once, or when the collective that uses it ends.
func (h *Hub) Close() {
	h.closed = true
	for _, t := range slices.Clone(h.teams) {
		t.tidyArea()
	}
	for _, s := range slices.Clone(h.kept) {
		if s.phase != phaseApart { // otherwise it uses the memory now, and drops it at its end
			s.endWait()
			s.meeting.word = nil
			s.dropArea()
		}
	}
}

// addTeam adds a team that has an area.
func (h *Hub) addTeam(t *Team) {
	h.teams = append(h.teams, t)
	h.poll()
}

// addKept adds a persistent collective that has an area.
func (h *Hub) addKept(s *Schedule) {
	h.kept = append(h.kept, s)
	h.poll()
}

// poll has the engine poll the hub from now on.
func (h *Hub) poll() {
	if !h.added {
		h.added = true
		h.p.Engine().AddPoller(h)
	}
}

func (h *Hub) removeTeam(t *Team) { h.teams = without(h.teams, t) }

func (h *Hub) removeKept(s *Schedule) { h.kept = without(h.kept, s) }

func without[T comparable](list []T, v T) []T {
	if i := slices.Index(list, v); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// Progress implements progress.Poller.
func (h *Hub) Progress() int {
	h.quiet = 0
	n := 0
	for _, s := range h.waiting {
		n += s.pollMeeting()
	}
	return n
}

// Arm implements progress.Idler. A rank that changes shared memory wakes those that sleep.
func (h *Hub) Arm() bool { return true }

// Disarm implements progress.Idler.
func (h *Hub) Disarm() {}

const (
	// maxQuiet bounds the blocking collectives between two turns of progress: a collective that
	// need not wait in shared memory makes none.
	maxQuiet = 128
	// quietYield is how many collectives a yield counts as, because it takes as long.
	quietYield = 16
)

// keepMoving makes a turn of progress if there was none for maxQuiet collectives.
func (h *Hub) keepMoving() {
	if h.quiet++; h.quiet > maxQuiet {
		h.p.Engine().Turn()
	}
}

func (h *Hub) add(s *Schedule) { h.waiting = append(h.waiting, s) }

// remove undoes add, and reports whether the schedule was there.
func (h *Hub) remove(s *Schedule) bool {
	i := slices.Index(h.waiting, s)
	if i >= 0 {
		h.waiting = slices.Delete(h.waiting, i, i+1)
	}
	return i >= 0
}
