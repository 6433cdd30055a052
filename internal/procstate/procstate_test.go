package procstate

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParse(t *testing.T) {
	for stat, want := range map[string]State{
		"7 (a) b) t 1 7 7 0 -1 4228 0": Traced,
		"7 (a T) S 1":                  'S',
		"7 (a) T 1":                    Stopped,
		"7 (a) Z":                      Zombie,
		"":                             Unknown,
		"7":                            Unknown,
		"7 (a)":                        Unknown,
		"7 (a) TT":                     Unknown,
	} {
		assert.Equal(t, want, Parse(stat), stat)
	}
	assert.True(t, Stopped.IsStopped())
	assert.False(t, Zombie.IsStopped())
	assert.Equal(t, "sleeping", State('S').String())
	assert.NotEqual(t, Unknown, Of(os.Getpid()))
	assert.Equal(t, Unknown, Of(1<<30))
}
