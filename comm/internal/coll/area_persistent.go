package coll

import (
	"context"
	"slices"

	"github.com/mpigo/mpigo/comm/internal/area"
)

// A persistent collective of ranks of one host has an area of its own, because starts have no order
// among the collectives of the team. A builder plans it: the schedule then has a meeting, and an
// area without memory. Init makes the memory if all ranks have planned the same.

// planArea plans an area for a persistent collective that may use it. bytes is a rank's length, or
// that of its part for each rank.
func (s *Schedule) planArea(kind *meetingKind, bytes int) {
	t := s.team
	switch {
	case t.size == 1, s.tuning.SharedBytes <= 0, t.hub.block == 0:
		return
	case t.areaState == areaOff, t.hub.closed, t.hub.ByMessages:
		return
	case s.Op != nil && !s.Returns: // each rank calls its own operation, which may fail
		return
	}
	t.findHosts()
	if len(t.leaders) > 1 || t.mostLocal > area.MostRanks {
		return
	}
	block, puts := t.hub.block, bytes
	if kind.isPerRank {
		puts *= s.size
	}
	if puts < block/area.CellsInTurn {
		block = area.Align(max(area.CellsInTurn*puts, 1))
	}
	s.area = area.Plan(t.size, t.number(t.rank), block)
	if !s.fitsArea(kind, bytes) {
		s.area = nil
	}
}

// plannedBlock is the block of a planned area, 0 if there is none.
func (s *Schedule) plannedBlock() int {
	if s.area == nil {
		return 0
	}
	return s.area.Block
}

// share makes the area that is planned. If that fails at any rank, the collective goes by messages.
func (s *Schedule) share(ctx context.Context) error {
	if s.area == nil {
		return nil
	}
	var a *area.Area
	err := s.aside(ctx, func(ctx context.Context) (err error) {
		a, err = s.shareArea(ctx, s.area.Block)
		return err
	})
	if err != nil {
		return err
	}
	if a == nil {
		s.shareNothing()
		return nil
	}
	s.area = a
	s.team.hub.addKept(s)
	if s.team.hub.closed { // meanwhile; the start will fail
		s.dropArea()
	}
	return nil
}

// shareNothing replaces the meeting of a planned area by messages.
func (s *Schedule) shareNothing() {
	if s.area == nil {
		return
	}
	i := slices.IndexFunc(s.steps, func(st step) bool { return st.kind == stepMeet })
	m, after := s.meets[0], slices.Clone(s.steps[i+1:]) // these wait for it
	s.steps, s.meets, s.area = s.steps[:i], s.meets[:0], nil
	tuning := *s.tuning
	tuning.SharedBytes = 0
	s.tuning = &tuning
	m.byMessages(s, &m)
	s.steps = append(s.steps, after...)
}

// leaveArea forgets the area of a schedule that is not running. It unmaps the memory of a
// persistent collective.
func (s *Schedule) leaveArea() {
	clear(s.meets)
	s.meets = s.meets[:0]
	s.dropArea()
}

// dropArea unmaps the memory of a persistent collective. Later starts fail.
func (s *Schedule) dropArea() {
	if s.how == Persistent && s.area != nil && s.area.Unshare() {
		s.team.hub.removeKept(s)
	}
	s.area = nil
}
