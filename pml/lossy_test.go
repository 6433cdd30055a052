package pml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/request"
)

// lossyPaths are paths that deliver some packets and lose others. Each call makes a new path.
var lossyPaths = map[string]func(w *pair) func(p loop.Packet) bool{
	"long packets": func(*pair) func(loop.Packet) bool {
		return func(p loop.Packet) bool { return p.Bytes > shortBytes }
	},
	"long packets one way": func(*pair) func(loop.Packet) bool {
		return func(p loop.Packet) bool { return p.Bytes > shortBytes && p.From == 0 }
	},
	"the second of two long packets": func(w *pair) func(loop.Packet) bool {
		var last [2]int64
		return func(p loop.Packet) bool {
			if p.Bytes <= shortBytes {
				return false
			}
			since := w.fabric.Now() - last[p.From]
			last[p.From] = w.fabric.Now()
			return since < sec/1000
		}
	},
	"medium packets": func(*pair) func(loop.Packet) bool {
		return func(p loop.Packet) bool { return p.Bytes > shortBytes && p.Bytes < mediumBytes }
	},
	"remote accesses": func(*pair) func(loop.Packet) bool {
		return func(p loop.Packet) bool { return p.Remote }
	},
}

const (
	// retryNanos is how long a rail of these tests tries to deliver before it fails.
	retryNanos = sec / 10
	// shortBytes is the longest packet that every lossy path delivers.
	shortBytes = 1000
	// mediumBytes is between the longest eager message and a probe.
	mediumBytes = 10_000
	// lossyBytes is the length of a message of many pieces.
	lossyBytes = 2 << 20
)

// newLossyPair makes two ranks that have exchanged a message. Afterwards the first rails, as many
// as broken says, are lossy.
func newLossyPair(t *testing.T, path string, protocol Protocol, broken int, grace int64, rails ...loop.RailConfig) *pair {
	for i := range rails {
		rails[i].RetryNanos = cmp.Or(rails[i].RetryNanos, retryNanos)
	}
	w := newPairOf(t, protocol, grace, rails...)
	r := w.pmls[1].Irecv(w.ctxs[1], nil, 1, 0, 6, "recv")
	w.pmls[0].Isend(w.ctxs[0], nil, 1, 6, Standard, "send").Abandon()
	w.run(sec/10, 0, 1)
	require.Equal(t, request.Complete, r.State())
	for rail := range broken {
		require.NoError(t, w.fabric.SetLoss(loop.Port{Rank: 0, Rail: rail}, loop.Port{Rank: 1, Rail: rail}, lossyPaths[path](w)))
	}
	return w
}

// exchange makes both ranks send each other n bytes. It returns the errors of the operations, and
// the time in nanoseconds until the last one ends. The error of an operation that does not end in
// time is errHangs.
func (w *pair) exchange(t *testing.T, n int, within int64) (errs []error, after int64) {
	var all []ended
	var ins [][]byte
	for rank, p := range w.pmls {
		ins = append(ins, make([]byte, n))
		all = append(all, p.Irecv(w.ctxs[rank], ins[rank], 1, 1-rank, 7, "recv"))
		all = append(all, p.Isend(w.ctxs[rank], pattern(n, 1), 1-rank, 7, Standard, "send"))
	}
	isOver := func() bool {
		return !slices.ContainsFunc(all, func(r ended) bool { return r.State() != request.Complete })
	}
	begin := w.fabric.Now()
	for !isOver() && w.fabric.Now() < begin+within {
		w.run(sec/100, 0, 1)
	}
	for i, r := range all {
		err := errHangs
		if r.State() == request.Complete {
			_, err = r.Take()
		}
		if err == nil && i%2 == 0 {
			require.True(t, bytes.Equal(pattern(n, 1), ins[i/2]))
		}
		errs = append(errs, err)
	}
	return errs, w.fabric.Now() - begin
}

var errHangs = errors.New("the operation does not end")

// TestExchangeOverLossyRailsEndsWithinGrace: all rails are lossy. A rank that meets errors gives
// the other up after the grace time, although rails come back in between. The other rank follows
// within another grace time.
func TestExchangeOverLossyRailsEndsWithinGrace(t *testing.T) {
	const grace = 2 * sec
	for path := range lossyPaths {
		for rails := 1; rails <= 2; rails++ {
			for _, protocol := range []Protocol{Copy, Get, Put} {
				t.Run(fmt.Sprintf("%s/%d rails/%v", path, rails, protocol), func(t *testing.T) {
					w := newLossyPair(t, path, protocol, rails, grace, make([]loop.RailConfig, rails)...)
					n := lossyBytes
					if path == "medium packets" {
						n = 6000
					}
					errs, after := w.exchange(t, n, 60*sec)
					require.NotContains(t, errs, errHangs)
					require.LessOrEqual(t, after, 2*(grace+10*retryNanos))
					st := w.pmls[0].Stats()
					switch path {
					case "long packets":
						require.Zero(t, st.RailsReturned, "a rail came back that cannot deliver what failed")
					case "long packets one way":
						require.ErrorIs(t, errors.Join(errs...), request.ErrUnreachable)
						require.Zero(t, st.RailsReturned)
						return
					case "remote accesses":
						require.Equal(t, make([]error, 4), errs, "fragments replace the remote accesses")
						return
					default:
						require.NotZero(t, st.RailsReturned, "this path delivers probes")
					}
					for _, err := range errs {
						if path == "the second of two long packets" && err == nil {
							continue // each incarnation of a rail moves the message on
						}
						require.ErrorIs(t, err, request.ErrUnreachable)
					}
				})
			}
		}
	}
}

// TestExchangeWithOneLossyRailSucceeds: messages arrive by the other rail, even if that takes
// longer than the grace time.
func TestExchangeWithOneLossyRailSucceeds(t *testing.T) {
	for path := range lossyPaths {
		for _, protocol := range []Protocol{Copy, Get, Put} {
			t.Run(fmt.Sprintf("%s/%v", path, protocol), func(t *testing.T) {
				w := newLossyPair(t, path, protocol, 1, sec, loop.RailConfig{MaxSendBytes: 16_000, BandwidthMBps: 100}, loop.RailConfig{MaxSendBytes: 16_000, BandwidthMBps: 1})
				for _, n := range []int{10, 6000, 3_000_000, lossyBytes} {
					errs, after := w.exchange(t, n, 300*sec)
					require.Equal(t, make([]error, 4), errs, "%d bytes, after %d ns", n, after)
				}
				if strings.HasPrefix(path, "long") {
					require.NotZero(t, w.pmls[0].Stats().RailsFailed)
				}
			})
		}
	}
}

// TestLossyRailReturnsWhenMended: a rail that is down because its probes are lost comes back.
func TestLossyRailReturnsWhenMended(t *testing.T) {
	w := newLossyPair(t, "long packets", Copy, 1, 10*sec, make([]loop.RailConfig, 2)...)
	for n := 0; w.pmls[0].Stats().RailsFailed == 0; n++ { // until it has got a piece or a TRIAL
		require.Less(t, n, 1000)
		errs, _ := w.exchange(t, lossyBytes, 20*sec)
		require.Equal(t, make([]error, 4), errs)
	}
	w.run(5*sec, 0, 1)
	require.Zero(t, w.pmls[0].Stats().RailsReturned)
	require.NoError(t, w.fabric.ReviveLane(0, 1, 0))
	w.run(3*sec, 0, 1)
	for _, p := range w.pmls {
		require.EqualValues(t, 1, p.Stats().RailsReturned)
	}
}

// TestSendOverLossyRailsWithoutGraceFailsSoon: without a grace time, a message that another rail
// may still deliver has two seconds. It has none if both rails fail with it at the same time,
// because a copy of a late fragment goes by the other rail.
func TestSendOverLossyRailsWithoutGraceFailsSoon(t *testing.T) {
	const retry = 4 * retryNanos
	w := newLossyPair(t, "medium packets", Copy, 2, 0, loop.RailConfig{RetryNanos: retry}, loop.RailConfig{RetryNanos: retry})
	in, out := pattern(6000, 1), make([]byte, 6000)
	s := w.pmls[0].Isend(w.ctxs[0], in, 1, 7, Standard, "send")
	w.pmls[1].Irecv(w.ctxs[1], out, 1, 0, 7, "recv").Abandon()
	begin := w.fabric.Now()
	for s.State() != request.Complete && w.fabric.Now() < begin+60*sec {
		w.run(sec/100, 0, 1)
	}
	requireFailure(t, request.ErrUnreachable, s)
	since := w.fabric.Now() - begin - retry // the first failure
	require.LessOrEqual(t, since, 2*sec+retry+retryNanos)
	require.NotZero(t, w.pmls[0].Stats().RailsFailed)
}

// TestExchangeOverFlappingRailsSucceeds: rails are cut and mended for many times the grace time,
// and deliver in between.
func TestExchangeOverFlappingRailsSucceeds(t *testing.T) {
	const grace = sec
	graces, least := int64(15), uint64(50)
	if !race.All() {
		graces, least = 5, 10
	}
	for rails := 1; rails <= 2; rails++ {
		for _, protocol := range []Protocol{Copy, Get, Put} {
			t.Run(fmt.Sprintf("%d rails/%v", rails, protocol), func(t *testing.T) {
				w := newLossyPair(t, "long packets", protocol, 0, grace, make([]loop.RailConfig, rails)...)
				rng := rand.New(rand.NewPCG(1, uint64(protocol)))
				p := w.pmls[0]
				for end := w.fabric.Now() + graces*grace; w.fabric.Now() < end; {
					var all []ended
					for rank, p := range w.pmls {
						for _, n := range []int{10, 6000, 300_000} {
							all = append(all, p.Irecv(w.ctxs[rank], make([]byte, n), 1, 1-rank, n, "recv"))
							all = append(all, p.Isend(w.ctxs[rank], pattern(n, 1), 1-rank, n, Standard, "send"))
						}
					}
					for isOver := false; !isOver; {
						rail := rng.IntN(rails)
						w.run(rng.Int64N(sec/100), 0, 1)
						require.NoError(t, w.fabric.FailLane(0, 1, rail, loop.Cut{Fate: loop.Fate(rng.IntN(3)), HalfOpen: rng.IntN(2) == 0}))
						w.run(rng.Int64N(sec/50), 0, 1)
						require.NoError(t, w.fabric.ReviveLane(0, 1, rail))
						w.run(rng.Int64N(sec/10), 0, 1)
						isOver = !slices.ContainsFunc(all, func(r ended) bool { return r.State() != request.Complete })
						require.NoError(t, p.peer(1).Err())
					}
					requireSuccess(t, all...)
				}
				require.Greater(t, p.Stats().RailsFailed, least)
				require.Greater(t, p.Stats().Resent+p.Stats().Restarts, least)
			})
		}
	}
}
