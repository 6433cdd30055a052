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
		RailBytes  map[string]uint64 `json:"rail_bytes"`
	}
	rails := []pml.RailStatus{{Peer: 0, Rail: "tcp:a", Bytes: 5}, {Peer: 1, Rail: "tcp:a", Bytes: 70}, {Peer: 1, Rail: "sm"}}
	text := statsJSON(3, 4, printedCounters(e, s), railBytes(rails))
	require.Equal(t, 1, strings.Count(string(text), "\n"))
	require.NoError(t, json.Unmarshal(text, &got))
	assert.Equal(t, "stats", got.MPIGo)
	assert.Equal(t, 3, got.Rank)
	assert.Equal(t, 4, got.Size)
	assert.Equal(t, want, got.Counters)
	assert.Equal(t, map[string]uint64{"tcp:a": 75, "sm": 0}, got.RailBytes)

	table := statsTable(3, printedCounters(e, s), rails)
	assert.Equal(t, len(want)+2, strings.Count(table, "\n"))
}

func TestStatsTableIsAlignedAndLeavesOutZeros(t *testing.T) {
	s := pml.Stats{SentInline: 7, Received: 12345, UnexpectedPeakBytes: 65536, SwitchNanos: 1234567}
	assert.Equal(t, `mpigo: rank 2: counters:
mpigo: rank 2:   sent inline                7 messages
mpigo: rank 2:   received               12345 messages
mpigo: rank 2:   unexpected peak        65536 B
mpigo: rank 2:   switch                 1.235 ms
mpigo: rank 2:   rail tcp:eth0        1048576 B
`, statsTable(2, printedCounters(progress.Counters{}, s), []pml.RailStatus{{Rail: "tcp:eth0", Bytes: 1 << 20}, {Rail: "sm"}}))
}

// TestRailsCountBytes: what a rank sends, short or long, counts for the rail.
func TestRailsCountBytes(t *testing.T) {
	const messages, short, long = 1000, 100, 1 << 20
	run(t, 2, func(w *Comm) {
		bytes := func() (n int64) {
			for _, r := range w.Rails() {
				if r.Peer == 1 {
					n += r.Bytes
				}
			}
			return n
		}
		buf := make([]byte, long)
		if w.Rank() == 1 {
			for range messages + 1 {
				must(Recv(w, buf, 0, 0))
			}
			return
		}
		for range messages {
			check(Send(w, buf[:short], 1, 0))
		}
		before := bytes()
		assert.GreaterOrEqual(t, before, int64(messages*short))
		assert.Less(t, before, int64(messages*2*short), "headers are short")
		check(Send(w, buf, 1, 0))
		assert.InDelta(t, before+long, bytes(), 10_000)
	}, WithSetting("pml.protocol", "put"))
}
