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
		{Collective{Number: 5}, 4, true},
		{Collective{Number: 5}, 5, false},
		{Collective{Number: 5}, 6, false},
		{Collective{Number: 0}, SequenceNumbers - 1, true},
		{Collective{Number: SequenceNumbers - 1}, 0, false},
	} {
		assert.Equal(t, c.want, c.at.Reached(c.number), "%+v, %d", c.at, c.number)
	}
}
