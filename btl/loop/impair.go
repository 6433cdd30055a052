package loop

import (
	"fmt"
	"slices"
)

// Impairment describes how badly a link of a virtual fabric works. A zero field changes nothing.
type Impairment struct {
	// Latency and PerByte are factors of the rail's latency, and of the time that a byte takes.
	Latency, PerByte int64
	// Loss is the share of packets and acknowledgements that are lost. The sender repeats a packet
	// after RetryNanos, then after twice that time, and so on. Later packets of the lane wait. A
	// packet that is lost more than maxRepeats times is not repeated any more, and its endpoint
	// fails.
	Loss       float64
	RetryNanos int64
}

const maxRepeats = 5

var unimpaired = Impairment{Latency: 1, PerByte: 1}

// ImpairLink makes the link of two ports of a virtual fabric work badly. The zero Impairment ends
// that: operations in flight on the link then arrive in order, after the usual latency.
func (f *Fabric) ImpairLink(a, b Port, i Impairment) error {
	l, err := f.linkFor(a, b)
	if err == nil {
		err = f.checkImpairment(i)
	}
	if err != nil {
		return err
	}
	f.tracef("impair %v-%v %+v", a, b, i)
	wasImpaired := l.impaired != Impairment{}
	if l.impaired = i; wasImpaired && i == (Impairment{}) {
		f.hasten(l)
	}
	return nil
}

func (f *Fabric) checkImpairment(i Impairment) error {
	if f.sim == nil || i.Latency < 0 || i.PerByte < 0 || i.RetryNanos < 0 || i.Loss < 0 || i.Loss > 1 {
		return fmt.Errorf("%w: impairment %+v", ErrConfig, i)
	}
	return nil
}

// impairment returns the impairment of the lane's link, with factors of at least 1.
func (l *lane) impairment() Impairment {
	i := l.inc.link.impaired
	i.Latency, i.PerByte = max(i.Latency, 1), max(i.PerByte, 1)
	return i
}

// retries draws how long the repetitions of a packet take, and whether one arrives.
func (i *Impairment) retries(s *simulator) (nanos int64, getsThrough bool) {
	for n := 0; i.Loss > 0 && s.rng.Float64() < i.Loss; n++ {
		if n == maxRepeats {
			return nanos, false
		}
		nanos += i.RetryNanos << n
	}
	return nanos, true
}

// hasten makes operations in flight on a link arrive after the usual latency.
func (f *Fabric) hasten(l *link) {
	s := f.sim
	for _, fl := range l.flights {
		lane, at := fl.e.out, s.now+fl.e.m.rail().LatencyNanos
		lane.busyUntil, lane.lastArrival, lane.lastAck = s.now, at, at
		i := slices.IndexFunc(s.events, func(e event) bool { return e.f == fl && e.at > at })
		if i < 0 {
			continue
		}
		e := s.events[i]
		s.events = slices.Delete(s.events, i, i+1)
		e.at = at
		s.add(e)
	}
}
