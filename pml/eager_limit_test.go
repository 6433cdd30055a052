package pml

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// TestNeedsAnswerAgreesWithLaunch: for any message length, rail limits, remote reads and window,
// needsAnswer predicts what launch does.
func TestNeedsAnswerAgreesWithLaunch(t *testing.T) {
	for _, caps := range []btl.Caps{0, btl.CapGet, btl.CapPut, getPut} {
		for _, eagerCopyBytes := range []int{0, 100, 200, 300} {
			for _, window := range []int64{0, fragmentCostBytes + 150, fragmentCostBytes + 20} {
				for n := range 320 {
					if n > 3 && n%16 > 1 {
						continue
					}
					for _, mode := range []Mode{Standard, Synchronous, Ready} {
						w, c := newWire(t, 2, withRemote(caps), withWindow(window), func(w *wire) {
							w.attrs.MaxSendBytes, w.attrs.EagerCopyBytes = 300, eagerCopyBytes
							w.attrs.RDMABytes = 140
							w.attrs.Caps &^= btl.CapInline
						})
						p := w.pmls[0]
						pr := p.peer(1)
						require.NoError(t, p.resolve(pr))
						s := p.newSend(c[0], pattern(n, 1), 1, 1, mode, "send")
						needs := s.needsAnswer(pr)
						s.Activate()
						s.Start()
						require.Equal(t, needs, s.state == sendRTS || s.state == sendPending, "state %v: %d bytes, caps %v, copies up to %d, window %d, mode %d", s.state, n, caps, eagerCopyBytes, window, mode)
					}
				}
			}
		}
	}
}

// TestEagerLimitIsReadInOnePlace: only fitsEager compares with the limits.
func TestEagerLimitIsReadInOnePlace(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	read := regexp.MustCompile(`\.Eager(Copy)?Bytes\(\)`)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		if want := 2; file == "protocol.go" {
			require.Len(t, read.FindAll(b, -1), want, file)
		} else if !strings.HasSuffix(file, "_test.go") {
			require.NotRegexp(t, read, string(b), file)
		}
	}
}
