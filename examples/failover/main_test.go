package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/mpitest"
)

// TestJob: two ranks of a job stream and draw, and nothing is cut.
func TestJob(t *testing.T) {
	cfg := config{time: 300 * time.Millisecond, every: 50 * time.Millisecond, picture: filepath.Join(t.TempDir(), "x.svg")}
	var out bytes.Buffer // written to by one rank
	mpitest.Run(t, 2, func(t testing.TB, world *comm.Comm) {
		require.NoError(t, run(world, cfg, &out))
	})
	assert.Regexp(t, `\nmessages   \d+, \d+\.\d MB, every byte checked\nrails      failed 0 times, came back 0 times\npicture    .*x\.svg\n$`, out.String())
	svg, err := os.ReadFile(cfg.picture)
	require.NoError(t, err)
	parses(t, string(svg))
	assert.NotContains(t, string(svg), "cut by this program")
}

// TestRanks: any other number of ranks is an error.
func TestRanks(t *testing.T) {
	err := comm.RunLocal(3, func(world *comm.Comm) error { return run(world, config{}, io.Discard) })
	assert.ErrorContains(t, err, "it takes 2 ranks, or 1, which makes 2 of its own; there are 3")
}

// TestEveryByteIsChecked: what is not what it must be is found, be it in the last byte.
func TestEveryByteIsChecked(t *testing.T) {
	for name, spoil := range map[string]func([]byte) []byte{
		"byte":   func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"short":  func(b []byte) []byte { return b[1:] },
		"longer": func(b []byte) []byte { return append(b, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			err := comm.RunLocal(2, func(world *comm.Comm) error {
				if world.Rank() == receiver {
					_, err := receive(world, new(atomic.Int64))
					return err
				}
				text := newText()
				for i := range 3 {
					b := bytes.Clone(message(text, i))
					if i == 2 {
						b = spoil(b)
					}
					if err := comm.Send(world, b, receiver, tagData); err != nil {
						return err
					}
				}
				return nil
			})
			assert.ErrorContains(t, err, "message 2 is not what was sent")
		})
	}
}

func TestRecord(t *testing.T) {
	up, down := comm.RailStatus{Rail: "a<b", State: "up", Health: 1000}, comm.RailStatus{Rail: "a<b", State: "down"}
	r := record{every: 50 * time.Millisecond}
	for i := range 100 { // 1 MB in each of 100 times 10 ms: 100 MB/s
		rail := up
		if i >= 30 && i < 50 {
			rail = down
		}
		r.looks = append(r.looks, look{time.Duration(i) * 10 * time.Millisecond, int64(i) * 1e6, []comm.RailStatus{rail}})
	}
	assert.Equal(t, []event{{300 * time.Millisecond, 0, false}, {500 * time.Millisecond, 0, true}}, r.events())
	samples := r.samples(r.every)
	assert.Len(t, samples, 19)
	for _, s := range samples {
		assert.InDelta(t, 100, s.mbps, 1e-6)
		assert.Equal(t, 50*time.Millisecond, s.to-s.from)
	}
	svg := r.draw()
	parses(t, svg)
	assert.Contains(t, svg, "a&lt;b")
	assert.Contains(t, r.chart(), "a<b failed")
	assert.Contains(t, r.chart(), "a<b is back")

	// Of a run that ended as it began there is a picture too.
	for _, r := range []record{{every: minEvery, looks: []look{{}}}, {every: minEvery, looks: []look{{}, {at: time.Nanosecond}}}} {
		parses(t, r.draw())
		assert.Empty(t, r.chart())
	}
}

func TestNice(t *testing.T) {
	for _, c := range [][2]float64{{1, 1}, {1.1, 2}, {3, 5}, {6, 10}, {0.03, 0.05}, {41, 50}} {
		assert.InEpsilon(t, c[1], nice(c[0]), 1e-12)
	}
	assert.False(t, math.IsNaN(nice(1e-9)))
}

// parses holds a picture to being XML without numbers that are none.
func parses(t *testing.T, svg string) {
	t.Helper()
	assert.NotContains(t, svg, "NaN")
	assert.NotContains(t, svg, "Inf")
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		_, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}
