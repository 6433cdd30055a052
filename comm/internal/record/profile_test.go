package record

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/profile"
)

// BenchmarkTimedCall measures the cost of a timed call: two clock reads, and the look-up of the
// line.
func BenchmarkTimedCall(b *testing.B) {
	rec := calls.New(NewProfile(), true)
	b.ReportAllocs()
	for b.Loop() {
		if rec.Count(calls.Send, 8) {
			rec.End(rec.Begin(calls.Send, 1, 0, 8))
		}
	}
}

// BenchmarkCountedCall measures the cost of a call that is hardly ever timed.
func BenchmarkCountedCall(b *testing.B) {
	rec := calls.New(NewProfile(), false)
	b.ReportAllocs()
	for b.Loop() {
		if rec.Count(calls.Send, 8) {
			rec.End(rec.Begin(calls.Send, 1, 0, 8))
		}
	}
}

func TestLinesBeyondTheMostCountAsUnknown(t *testing.T) {
	p := NewProfile()
	rec := calls.New(p, true)
	for i := range maxSites {
		p.sites[siteKey{&frame{line: i}, calls.Recv}] = &site{}
	}
	for range 3 {
		rec.End(rec.CountAndBegin(calls.Send, 1, 0, 8))
	}
	require.Len(t, p.sites, maxSites+1)
	require.EqualValues(t, 3, p.sites[siteKey{&p.locator.empty, calls.Send}].timed)
}

// fill returns the sites of a profile by call.
func fill(p *Profile, rec *calls.Recorder) map[string]profile.Site {
	var f profile.File
	p.Fill(&f, rec)
	sites := make(map[string]profile.Site)
	for _, s := range f.Sites {
		sites[s.Call] = s
	}
	return sites
}

// TestCallsAfterTheLastSampleAreInTheProfile: all calls are counted, timed or not. The number is an
// estimate only if some were not timed.
func TestCallsAfterTheLastSampleAreInTheProfile(t *testing.T) {
	for n := 1; n < 100; n++ {
		p := NewProfile()
		rec := calls.New(p, false)
		for range n {
			if rec.Count(calls.Send, 8) {
				rec.End(rec.Begin(calls.Send, 1, 0, 8))
			}
		}
		s := fill(p, rec)["send"]
		require.InDelta(t, n, s.Calls, 1e-6)
		require.InDelta(t, 8*n, s.Bytes, 1e-6)
		require.Equal(t, s.Timed < uint64(n), s.Estimated, "%d of %d were timed", s.Timed, n)
	}
}

// TestCallsWithoutSampleAreInTheProfile: all timed calls have waited for long, and count only
// themselves.
func TestCallsWithoutSampleAreInTheProfile(t *testing.T) {
	p := NewProfile()
	rec := calls.New(p, false)
	for range 2 {
		require.True(t, rec.Count(calls.Recv, 8))
		p.Ended(&calls.Call{ID: calls.Recv, Weight: 1, Nanos: 1e6})
	}
	rec.Count(calls.Recv, 8)
	s := fill(p, rec)["recv"]
	require.Equal(t, profile.Site{Call: "recv", Function: s.Function, File: s.File, Line: s.Line, Calls: 3, Timed: 2, Estimated: true,
		Nanos: 2e6, State: profile.LateSender, Min: 1e6, Max: 1e6}, s)
}

// TestCallUnderWayIsNotInTheProfile: the calls that have ended are exact, though a rank fails in
// another one.
func TestCallUnderWayIsNotInTheProfile(t *testing.T) {
	p := NewProfile()
	rec := calls.New(p, true)
	for range 3 {
		rec.End(rec.CountAndBegin(calls.Send, 1, 0, 8))
	}
	rec.CountAndBegin(calls.Send, 1, 0, 8)
	s := fill(p, rec)["send"]
	require.Equal(t, 3.0, s.Calls)
	require.False(t, s.Estimated)
}

func TestWaitStateOfCalls(t *testing.T) {
	for call, want := range map[string]string{
		"recv": profile.LateSender, "ssend": profile.LateReceiver, "sendrecv": profile.LatePartner,
		"barrier": profile.LateAtBarrier, "allreduce": profile.LateAtNxN, "bcast": profile.LateRoot,
		"gatherv": profile.LateLeaf, "isend": profile.LateReceiver, "ineighboralltoall": profile.LatePartner, "barrier init": profile.LateAtBarrier,
	} {
		require.Equal(t, want, waitState(calls.Named(call), false, false), call)
	}
	require.Equal(t, profile.LateSender, waitState(calls.WaitAll, true, false))
	require.Equal(t, profile.LatePartner, waitState(calls.WaitAll, true, true))
}
