package svg

import (
	"encoding/xml"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDrawingIsXML(t *testing.T) {
	c := NewFile(100, 50, `a "label"`)
	c.Line(0, 1.004, 2.5, 1e6/3., `stroke="red"`)
	c.Rect(1, 2, 3, 4, "")
	c.Label(5, 6, "end", 11, "a<b")
	c.Upwards(7, 8, "up & down", "")
	c.Put(`<polyline points="%s"/>`, Points{1, 2.25, 3, 4})
	out := c.End()
	require.NoError(t, xml.Unmarshal([]byte(out), &struct{}{}))
	for _, want := range []string{`y1="1"`, `y2="333333.33"`, "a&lt;b", "up &amp; down", `points="1,2.25 3,4"`, `aria-label="a &#34;label&#34;"`} {
		assert.Contains(t, out, want)
	}
	assert.NotContains(t, New(1, 1, "").End(), "xmlns")
}

func TestCeil(t *testing.T) {
	for _, c := range [][2]float64{{1, 1}, {1.1, 2}, {3, 5}, {6, 10}, {0.03, 0.05}, {41, 50}} {
		assert.InEpsilon(t, c[1], Ceil(c[0]), 1e-12)
	}
	assert.False(t, math.IsNaN(Ceil(1e-9)))
}
