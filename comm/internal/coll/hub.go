package coll

import (
	"slices"

	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// Hub polls the shared memory of a rank's teams while collectives wait for a change of it. A rank
// has one. The engine's lock guards it.
type Hub struct {
	p       *pml.PML
	block   int         // bytes of a rank's cell, see area
	added   bool        // to the engine's pollers
	waiting []*Schedule // that wait for a change of shared memory
}

var (
	_ progress.Poller = (*Hub)(nil)
	_ progress.Idler  = (*Hub)(nil)
)

// NewHub makes the hub of a rank whose teams share memory. Each rank has room for blockBytes in the
// memory of a team: longer vectors go through it in blocks. blockBytes is the same at all ranks.
func NewHub(p *pml.PML, blockBytes int) *Hub {
	return &Hub{p: p, block: alignArea(max(blockBytes, 1))}
}

// start makes the engine poll the hub.
func (h *Hub) start() {
	if !h.added {
		h.added = true
		h.p.Engine().AddPoller(h)
	}
}

// Progress implements progress.Poller.
func (h *Hub) Progress() int {
	n := 0
	for _, s := range h.waiting {
		n += s.meeting.poll(s)
	}
	return n
}

// Arm implements progress.Idler. A rank that changes shared memory wakes those that sleep.
func (h *Hub) Arm() bool { return true }

// Disarm implements progress.Idler.
func (h *Hub) Disarm() {}

func (h *Hub) add(s *Schedule) { h.waiting = append(h.waiting, s) }

func (h *Hub) remove(s *Schedule) {
	if i := slices.Index(h.waiting, s); i >= 0 {
		h.waiting = slices.Delete(h.waiting, i, i+1)
	}
}
