package record

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/profile"
)

// BenchmarkTimedCall measures what a call costs that is timed: twice the clock, and the look-up of
// the line.
func BenchmarkTimedCall(b *testing.B) {
	rec := calls.New(NewProfile(), true)
	b.ReportAllocs()
	for b.Loop() {
		if rec.Count(calls.Send, 8) {
			rec.End(rec.Begin(calls.Send, 1, 0, 8))
		}
	}
}

// BenchmarkCountedCall measures what a call costs that is hardly ever timed.
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

func TestWaitStateOfCalls(t *testing.T) {
	for call, want := range map[string]string{
		"recv": profile.LateSender, "ssend": profile.LateReceiver, "sendrecv": profile.LatePartner,
		"barrier": profile.LateAtBarrier, "allreduce": profile.LateAtNxN, "bcast": profile.LateRoot,
		"gatherv": profile.LateLeaf, "barrier init": profile.LateAtBarrier,
	} {
		require.Equal(t, want, waitState(call, false, false), call)
	}
	require.Equal(t, profile.LateSender, waitState("wait all", true, false))
	require.Equal(t, profile.LatePartner, waitState("wait all", true, true))
}
