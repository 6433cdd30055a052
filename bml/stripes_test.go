package bml

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// full is a load of as many pieces as a rail may have.
func full(bytes int64) load { return load{pieces: pipelineDepth, bytes: bytes} }

// striped is three rails on which a byte takes a nanosecond. Pieces in fragments have 100 bytes.
func striped(t *testing.T) []Rail {
	_, pr := threeRails(t)
	for i := range pr.rails {
		pr.rails[i].latencyNanos, pr.rails[i].pieceBytes = 0, 100+testHeaderBytes
	}
	return pr.rails
}

// A piece goes by the rail that would be done with it first.
func TestRailOfNextPiece(t *testing.T) {
	for name, c := range map[string]struct {
		change func(rails []Rail, s *stripes)
		set    RailSet
		by     Access
		want   int
	}{
		"equal":               {func([]Rail, *stripes) {}, 0b111, Fragments, 0},
		"in the set":          {func([]Rail, *stripes) {}, 0b110, Fragments, 1},
		"weight":              {func(r []Rail, _ *stripes) { r[1].weight = 1010 }, 0b111, Fragments, 1},
		"load":                {func(_ []Rail, s *stripes) { s.loads[0] = load{1, 100} }, 0b111, Fragments, 1},
		"load of others":      {func(r []Rail, _ *stripes) { r[0].meter.bytes = 100 }, 0b111, Fragments, 1},
		"the larger load":     {func(r []Rail, s *stripes) { r[0].meter.bytes, s.loads[0], r[1].meter.bytes = 100, load{1, 50}, 120 }, 0b011, Fragments, 0},
		"latency":             {func(r []Rail, _ *stripes) { r[0].meter.bytes, r[1].latencyNanos = 150, 100 }, 0b011, Fragments, 1},
		"latency there, back": {func(r []Rail, _ *stripes) { r[0].meter.bytes, r[1].latencyNanos = 150, 100 }, 0b011, Read, 0},
		"shorter fragments":   {func(r []Rail, _ *stripes) { r[1].pieceBytes-- }, 0b011, Fragments, 1},
		"fragments of reads":  {func(r []Rail, _ *stripes) { r[1].pieceBytes-- }, 0b011, Read, 0},
		"almost full":         {func(_ []Rail, s *stripes) { s.loads[0].pieces = pipelineDepth - 1 }, 0b111, Fragments, 0},
	} {
		rails := striped(t)
		var s stripes
		s.begin(0, 1<<20)
		c.change(rails, &s)
		i, _, _ := s.take(rails, c.set, c.by, testHeaderBytes)
		require.Equal(t, c.want, i, name)
	}
}

// While the best rail has no room, another one takes a piece only if the rest of the message takes
// longer than that, by all rails of the set.
func TestSlowerRailTakesPieceOfLongRest(t *testing.T) {
	// The first rail would be done at 900 ns. The others have a hundredth of its weight: a piece
	// takes them 10,000 ns.
	busy := func() (rails []Rail, s *stripes) {
		rails = striped(t)
		s = new(stripes)
		s.loads[0] = full(800)
		for i := 1; i < 3; i++ {
			rails[i].weight = 10
		}
		return rails, s
	}
	pick := func(rails []Rail, s *stripes, set RailSet, rest int64) int {
		s.next, s.end = 5000, 5000+rest
		i, _, _ := s.take(rails, set, Fragments, testHeaderBytes)
		return i
	}
	// 10,000 ns are 10,100 bytes of both rails, 800 of which are under way already.
	rails, s := busy()
	rails[2].meter.bytes = 1 << 30 // it is not in the set
	require.Equal(t, -1, pick(rails, s, 0b011, 9299))
	require.Equal(t, 1, pick(rails, s, 0b011, 9300))
	rails, s = busy()
	require.Equal(t, -1, pick(rails, s, 0b001, 1<<30), "the others are not in the set")
	s.loads[1], s.loads[2] = full(1), full(1)
	require.Equal(t, -1, pick(rails, s, 0b111, 1<<30), "they have no room either")
	rails, s = busy()
	require.Equal(t, 1, pick(rails, s, 0b111, 1<<30), "both are as good")
	rails, s = busy()
	rails[1].meter.bytes = 1
	require.Equal(t, 2, pick(rails, s, 0b111, 1<<30))
	rails, s = busy()
	rails[2].meter.bytes = 1
	require.Equal(t, 1, pick(rails, s, 0b111, 1<<30))
	rails, s = busy()
	rails[0], rails[1], s.loads[0], s.loads[1] = rails[1], rails[0], s.loads[1], s.loads[0]
	require.Equal(t, 0, pick(rails, s, 0b111, 1<<30), "the last one is as good")
}

// Pieces follow each other, and are no longer than what is left. A rail has what was handed out for
// it until that ends, or moves to another one.
func TestPiecesOfMessage(t *testing.T) {
	rails := striped(t)
	var s stripes
	s.under, s.loads[0] = 1, full(0)
	s.begin(1000, 1250)
	require.Equal(t, stripes{from: 1000, next: 1000, end: 1250}, s, "what was before counts")
	for _, want := range [][]int64{{1000, 1100}, {1100, 1200}, {1200, 1250}} {
		i, from, to := s.take(rails, 0b001, Fragments, testHeaderBytes)
		require.Zero(t, i)
		require.Equal(t, want, []int64{from, to})
	}
	require.Equal(t, load{3, 250}, s.loads[0])
	require.Equal(t, 3, s.under)
	s.done(0, 100)
	require.Equal(t, load{2, 150}, s.loads[0])
	require.Equal(t, 2, s.under)
	s.move(0, 2, 50)
	require.Equal(t, []load{{1, 100}, {}, {1, 50}}, s.loads[:3])
	require.Equal(t, 2, s.under)
	s.begin(0, 2*remotePieceBytes+1)
	for _, want := range []int64{remotePieceBytes, remotePieceBytes, 1} {
		_, from, to := s.take(rails, 0b001, Read, 0)
		require.Equal(t, want, to-from)
	}
}

// A piece that has to wait changes nothing.
func TestPieceThatWaits(t *testing.T) {
	rails := striped(t)
	var s stripes
	s.begin(0, 100)
	s.loads[0] = full(800)
	before := s
	i, from, to := s.take(rails, 0b001, Fragments, testHeaderBytes)
	require.Equal(t, []int64{-1, 0, 0}, []int64{int64(i), from, to})
	require.Equal(t, before, s)
}
