package observe

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestReachedByPlaceInTheSequence(t *testing.T) {
	for _, c := range []struct {
		at     Collective
		number int
		want   bool
	}{
		{Collective{Next: 5}, 4, true},
		{Collective{Next: 5}, 5, false},
		{Collective{Next: 5, In: true}, 5, true},
		{Collective{Next: 5, In: true}, 6, false},
		{Collective{Next: 0}, sequenceNumbers - 1, true},
		{Collective{Next: sequenceNumbers - 1, In: true}, 0, false},
	} {
		assert.Equal(t, c.want, c.at.Reached(c.number), "%+v, %d", c.at, c.number)
	}
}
