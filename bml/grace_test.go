package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/loop"
)

// A grace time that begins while the clock runs, within a part, is not shorter for that.
func TestGraceIsNotCutShort(t *testing.T) {
	const grace = 10 * sec
	w := newPair(t, grace, loop.RailConfig{})
	b := w.ranks[0].BML
	pr := b.Peer(1)
	require.NoError(t, b.Resolve(pr))
	pr.grace.until = b.startGrace(pr, grace)
	w.run(sec/2, 0)
	begin := w.fabric.Now()
	end := b.startGrace(pr, grace)
	pr.grace.until = end
	for pr.grace.parts < end {
		w.run(sec/100, 0)
	}
	require.GreaterOrEqual(t, w.fabric.Now()-begin, grace)
	require.Less(t, w.fabric.Now()-begin, grace+grace/graceParts)
	require.Nil(t, pr.grace.timer, "nothing is wrong any more")
}
