package comm

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// distinct sets each field of a struct of numbers to another number, and adds the fields' names in
// snake case to want.
func distinct(s reflect.Value, want map[string]uint64) {
	for i := range s.NumField() {
		n := uint64(len(want) + 1)
		if f := s.Field(i); f.CanUint() {
			f.SetUint(n)
		} else {
			f.SetInt(int64(n))
		}
		var name strings.Builder
		for k, r := range s.Type().Field(i).Name {
			if unicode.IsUpper(r) && k > 0 {
				name.WriteByte('_')
			}
			name.WriteRune(unicode.ToLower(r))
		}
		want[name.String()] = n
	}
}

func TestStatsPrintEveryCounter(t *testing.T) {
	var e progress.Counters
	var s pml.Stats
	want := map[string]uint64{}
	distinct(reflect.ValueOf(&s).Elem(), want)
	distinct(reflect.ValueOf(&e).Elem(), want)

	var got struct {
		MPIGo      string
		Rank, Size int
		Counters   map[string]uint64
	}
	text := statsJSON(3, 4, printedCounters(e, s))
	require.Equal(t, 1, strings.Count(string(text), "\n"))
	require.NoError(t, json.Unmarshal(text, &got))
	assert.Equal(t, "stats", got.MPIGo)
	assert.Equal(t, 3, got.Rank)
	assert.Equal(t, 4, got.Size)
	assert.Equal(t, want, got.Counters)

	table := statsTable(3, printedCounters(e, s))
	assert.Equal(t, len(want)+1, strings.Count(table, "\n"))
}

func TestStatsTableIsAlignedAndLeavesOutZeros(t *testing.T) {
	s := pml.Stats{SentInline: 7, Received: 12345, UnexpectedPeakBytes: 65536, SwitchNanos: 1234567}
	assert.Equal(t, `mpigo: rank 2: counters:
mpigo: rank 2:   sent inline                7 messages
mpigo: rank 2:   received               12345 messages
mpigo: rank 2:   unexpected peak        65536 B
mpigo: rank 2:   switch                 1.235 ms
`, statsTable(2, printedCounters(progress.Counters{}, s)))
}
