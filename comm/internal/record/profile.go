package record

import (
	"cmp"
	"slices"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/profile"
)

// maxSites bounds the memory for lines. Calls at further lines count as those of an unknown line.
const maxSites = 1 << 14

// siteKey is a line and the call there.
type siteKey struct {
	at *frame
	id calls.ID
}

// site has the times of a line.
type site struct {
	receives, sends bool
	// itself sums calls that count only themselves, samples those that stand for untimed ones, too.
	itself, samples sums
	timed           uint64
	min, max        int64
}

// sums are over calls, each times its weight.
type sums struct{ weight, nanos, waiting, moving, bytes float64 }

func (s *sums) add(c *calls.Call) {
	w := float64(c.Weight)
	s.weight += w
	s.nanos += w * float64(c.Nanos)
	s.waiting += w * float64(c.Waiting)
	s.moving += w * float64(c.Moving)
	s.bytes += w * float64(max(c.Bytes, 0))
}

// plus is s and t, with t scaled.
func (s sums) plus(t sums, scale float64) sums {
	return sums{
		s.weight + scale*t.weight, s.nanos + scale*t.nanos, s.waiting + scale*t.waiting,
		s.moving + scale*t.moving, s.bytes + scale*t.bytes,
	}
}

// Profile sums up the calls of a rank by line. The engine's lock guards it.
type Profile struct {
	locator *locator
	sites   map[siteKey]*site
}

// NewProfile makes an empty profile.
func NewProfile() *Profile {
	return &Profile{locator: newLocator(), sites: make(map[siteKey]*site)}
}

// Ended implements calls.Sink.
func (p *Profile) Ended(c *calls.Call) {
	key := siteKey{p.locator.find(), c.ID}
	s := p.sites[key]
	if s == nil {
		if len(p.sites) >= maxSites {
			key.at = &p.locator.empty
		}
		if s = p.sites[key]; s == nil {
			s = &site{min: c.Nanos}
			p.sites[key] = s
		}
	}
	s.receives, s.sends = s.receives || c.Receives, s.sends || c.Sends
	s.timed++
	if c.IsSample {
		s.samples.add(c)
	} else {
		s.itself.add(c)
	}
	s.min, s.max = min(s.min, c.Nanos), max(s.max, c.Nanos)
}

// Fill writes the calls to a file. rec is the recorder whose sink the profile is.
func (p *Profile) Fill(f *profile.File, rec *calls.Recorder) {
	ended := make(map[calls.ID]*endedCalls)
	byID := make(map[calls.ID]int)
	for _, n := range rec.Counts() {
		i, known := byID[n.ID]
		if !known {
			i = len(f.Kinds)
			byID[n.ID] = i
			f.Kinds = append(f.Kinds, profile.Kind{Name: n.ID.String()})
			ended[n.ID] = &endedCalls{}
		}
		k := &f.Kinds[i]
		k.Calls += n.Calls
		for len(k.Sizes) <= n.Class {
			k.Sizes = append(k.Sizes, 0)
		}
		k.Sizes[n.Class] = n.Calls
		ended[n.ID].calls += float64(n.Calls)
	}
	rec.UnderWay(func(c *calls.Call) { ended[c.ID].calls-- })
	for key, s := range p.sites {
		ended[key.id].add(s)
	}
	for key, s := range p.sites {
		e := ended[key.id]
		sum := e.of(s)
		f.Sites = append(f.Sites, profile.Site{
			Call: key.id.String(), Function: key.at.function, File: key.at.file, Line: key.at.line,
			Calls: sum.weight, Timed: s.timed, Estimated: e.timed < e.calls, Nanos: sum.nanos, Waiting: sum.waiting, Moving: sum.moving,
			State: waitState(key.id, s.receives, s.sends), Min: s.min, Max: s.max,
			Bytes: sum.bytes, Sends: key.id.SendsAtOnce(),
		})
	}
	slices.SortFunc(f.Sites, func(a, b profile.Site) int {
		return cmp.Or(-cmp.Compare(a.Nanos, b.Nanos), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Call, b.Call))
	})
}

// endedCalls counts the ended calls of a kind.
type endedCalls struct {
	calls, timed    float64
	itself, samples float64 // the weights
}

func (e *endedCalls) add(s *site) {
	e.timed += float64(s.timed)
	e.itself += s.itself.weight
	e.samples += s.samples.weight
}

// of estimates the sums over all calls at a line. Untimed calls are spread over the lines like the
// samples, or, without samples, like all timed calls. Their time is then unknown, but short.
func (e *endedCalls) of(s *site) sums {
	rest := max(e.calls-e.itself, 0)
	if e.samples > 0 {
		return s.itself.plus(s.samples, rest/e.samples)
	}
	sum := s.itself
	if e.itself > 0 {
		sum.weight += rest * s.itself.weight / e.itself
	}
	return sum
}

// waitState says what a wait in a call means. receives and sends describe the call's requests.
func waitState(id calls.ID, receives, sends bool) string {
	receives, sends = receives || id.Receives(), sends || id.Sends()
	switch {
	case receives && sends:
		return profile.LatePartner
	case receives:
		return profile.LateSender
	case sends:
		return profile.LateReceiver
	}
	switch id.Flow() {
	case calls.Meets:
		return profile.LateAtBarrier
	case calls.FromRoot:
		return profile.LateRoot
	case calls.ToRoot:
		return profile.LateLeaf
	case calls.FromLower, calls.FromNeighbors:
		return profile.LatePartner
	}
	return profile.LateAtNxN
}
