package doctor

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTextHasWorstFirstAndFoldsTheRest(t *testing.T) {
	r := Report{Hosts: []string{"n1", "n2", "n3"}, Findings: []Finding{
		{Host: "n1", Check: "a", Found: "fine"},
		{Host: "n1", Check: "b", Found: "fine"},
		{Host: "n2", Check: "a", Level: Hint, Found: "f", Wanted: "w", Breaks: "x", Fix: "y"},
		{Host: "n2", Check: "b", Level: Broken, Found: "F", Wanted: "W", Breaks: "X", Fix: "Y"},
		{Host: "n2", Check: "c", Found: "fine"},
		{Host: "n3", Check: "a", Found: "fine too"},
		{Host: "n3", Check: "b", Found: "fine too"},
	}}
	sortFindings(r.Findings)
	var b strings.Builder
	require.NoError(t, r.Text(&b, false))
	assert.Equal(t, `3 hosts: 1 broken, 0 warnings, 1 hint, 5 ok

n2
  broken   b: F; wanted: W; breaks: X; fix: Y
  hint     a: f; wanted: w; breaks: x; fix: y
  ok       c

n1, n3
  ok       a, b
`, b.String())
	b.Reset()
	require.NoError(t, r.Text(&b, true))
	assert.Contains(t, b.String(), "n1\n  ok       a: fine\n  ok       b: fine\n")
}

func TestJSONRoundTrips(t *testing.T) {
	j := wellJob()
	eachProbe(j, -1, 1, func(p *Probe) { p.Outcome = Silent })
	r := NewReport(j)
	assert.False(t, r.Healthy)
	var b bytes.Buffer
	require.NoError(t, r.JSON(&b))
	var again Report
	require.NoError(t, json.Unmarshal(b.Bytes(), &again))
	assert.Equal(t, r, again)
}

func TestReaderTakesLinesInPieces(t *testing.T) {
	var text bytes.Buffer
	for rank, l := range []Line{{Facts: wellFacts(0)}, {Facts: wellFacts(1)}, {Probe: &Probe{From: 0, To: 1}}, {Probe: &Probe{From: 0, To: 7}}, {Progress: &Progress{1, 2}}} {
		l.Rank = rank
		line, err := json.Marshal(l)
		require.NoError(t, err)
		text.Write(append(line, '\n'))
	}
	text.WriteString("no JSON\n")
	done := 0
	r := Reader{OnProgress: func(d, of int) { done = d }}
	for _, c := range text.Bytes() {
		n, err := r.Write([]byte{c})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	assert.Equal(t, 1, done)
	j := Job{Hosts: []Host{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d", Error: "known"}}}
	r.Fill(&j, "gone")
	assert.Equal(t, wellFacts(0), j.Hosts[0].Facts)
	assert.Equal(t, wellFacts(1), j.Hosts[1].Facts)
	assert.Equal(t, "gone", j.Hosts[2].Error)
	assert.Equal(t, "known", j.Hosts[3].Error)
	assert.Len(t, j.Probes, 1, "a probe to a rank without facts is left out")
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"rank":0,"facts":{}}` + "\n" + `{"rank":-1,"probe":{"from":0,"to":0,"outcome":"silent"}}` + "\n"))
	f.Add([]byte(`{"rank":0,"facts":{"interfaces":[{"address":"10.0.0.1"}]}}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r Reader
		_, _ = r.Write(text)
		j := Job{Hosts: []Host{{Name: "a", Slots: 1}, {Name: "b", Slots: 1, Rank: 1}}}
		r.Fill(&j, "gone")
		require.NoError(t, NewReport(&j).Text(&bytes.Buffer{}, true))
	})
}
