package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStallsWithinALength(t *testing.T) {
	var l stallLog
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	for _, s := range []struct{ end, ms int }{{150, 9}, {100, 20}, {110, 10}, {400, 25}, {401, 25}, {900, 500}} {
		l.all = append(l.all, stall{at(s.end), time.Duration(s.ms) * time.Millisecond})
	}
	within := func(ms int) int64 { return l.within(time.Duration(ms)*time.Millisecond, begin, at(500)).Milliseconds() }
	require.Equal(t, int64(5), within(5), "two processors stall at the same time, but the time is not longer")
	require.Equal(t, int64(50), within(60))
	require.Equal(t, int64(89), within(350))
	require.Equal(t, 25*time.Millisecond, l.longest(begin, at(500)))
	require.Zero(t, l.within(time.Second, at(402), at(500)))
}
