package bml

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// ledgerModel knows of each byte of a message where it is.
type ledgerModel struct {
	ledger
	states    []byteState
	asBefore  []bool // it has to go as a fragment again
	handedOut []handedOut
}

type byteState uint8

const (
	byteWaits byteState = iota
	byteWaitsAgain
	byteUnderWay
	byteUnderWayAgain
	byteThere
)

// handedOut is a piece that is under way.
type handedOut struct {
	span
	isAgain, isFragment bool
	mistakes            uint8
}

// take hands a piece out.
func (m *ledgerModel) take(t *testing.T, most int64, asFragment bool) {
	hasToBeFragment := m.isNextFragment()
	s, isAgain, mistakes := m.ledger.take(most)
	require.Positive(t, s.bytes())
	require.LessOrEqual(t, s.bytes(), most)
	for i := s.from; i < s.to; i++ {
		want, next := byteWaits, byteUnderWay
		if isAgain {
			want, next = byteWaitsAgain, byteUnderWayAgain
		}
		require.Equal(t, want, m.states[i], "byte %d is handed out twice, or not as it was", i)
		require.Equal(t, hasToBeFragment, m.asBefore[i], "byte %d", i)
		m.states[i], m.asBefore[i] = next, false
	}
	m.handedOut = append(m.handedOut, handedOut{s, isAgain, asFragment || hasToBeFragment, mistakes})
}

// end ends the i-th piece that is under way.
func (m *ledgerModel) end(i int, arrives bool) {
	p := m.handedOut[i]
	m.handedOut = slices.Delete(m.handedOut, i, i+1)
	if arrives {
		m.arrived(p.span, p.isAgain, p.isFragment)
	} else {
		m.giveBack(givenBack{p.span, p.isFragment, p.mistakes + 1}, p.isAgain)
	}
	for i := p.from; i < p.to; i++ {
		if m.states[i] = byteThere; !arrives {
			m.states[i], m.asBefore[i] = byteWaitsAgain, p.isFragment
		}
	}
}

// check compares the counts.
func (m *ledgerModel) check(t *testing.T, fragments int64) {
	var left, redone int64
	for _, s := range m.states {
		if s == byteWaits || s == byteWaitsAgain {
			left++
		}
		if s == byteWaitsAgain || s == byteUnderWayAgain {
			redone++
		}
	}
	require.Equal(t, []int64{left, redone, fragments}, []int64{m.left, m.redone, m.fragments}, "left, redone, fragments")
}

// For any pieces handed out and given back, every byte arrives once, and the counts are always
// right.
func TestLedgerAgainstModel(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		from := rng.Int64N(100)
		to := from + rng.Int64N(300)
		m := &ledgerModel{states: make([]byteState, to), asBefore: make([]bool, to)}
		for i := range from {
			m.states[i] = byteThere
		}
		m.again = []givenBack{{span: span{5, 9}}} // of the message before
		m.begin(from, to)
		var fragments int64
		for m.left > 0 || len(m.handedOut) > 0 {
			m.check(t, fragments)
			if m.left > 0 && (len(m.handedOut) == 0 || rng.IntN(2) == 0) {
				m.take(t, 1+rng.Int64N(50), rng.IntN(3) == 0)
				continue
			}
			i := rng.IntN(len(m.handedOut))
			p, arrives := m.handedOut[i], rng.IntN(3) > 0
			if arrives && p.isFragment {
				fragments += p.bytes()
			}
			m.end(i, arrives)
		}
		m.check(t, fragments)
		for i, s := range m.states {
			require.Equal(t, byteThere, s, "byte %d", i)
		}
		require.Empty(t, m.again)
	}
}

// The rest of a piece that was given back keeps its properties.
func TestLedgerSplitsWhatWasGivenBack(t *testing.T) {
	var l ledger
	l.begin(0, 100)
	s, isAgain, mistakes := l.take(60)
	require.Equal(t, span{0, 60}, s)
	require.False(t, isAgain)
	require.Zero(t, mistakes)
	l.giveBack(givenBack{s, true, 2}, false)
	require.EqualValues(t, 100, l.left)
	for _, want := range []span{{0, 25}, {25, 50}, {50, 60}} {
		require.True(t, l.isNextFragment())
		s, isAgain, mistakes = l.take(25)
		require.Equal(t, want, s)
		require.True(t, isAgain)
		require.EqualValues(t, 2, mistakes)
	}
	require.False(t, l.isNextFragment())
	s, isAgain, _ = l.take(1000)
	require.Equal(t, span{60, 100}, s)
	require.False(t, isAgain)
	require.Zero(t, l.left)
}
