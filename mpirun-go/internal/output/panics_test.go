package output_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/mpirun-go/internal/output"
)

const panicking = `before
mpigo: rank 7: panic: no sum
goroutine 8 [running]:
panic: index out of range [recovered]
	panic: again
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x1]

goroutine 1 [running]:
main.f({0x1, 0x2})
	/src/main.go:5 +0x1d
main.main()
	/src/main.go:9 +0x2
created by main.g in goroutine 7
	/src/main.go:11 +0x4
exit status 2
after
SIGTERM: writing a checkpoint
http: panic serving a request
a line (in brackets)
SIGQUIT: quit
PC=0x47 m=0 sigcode=0

goroutine 0 gp=0x5 m=0 mp=0x5 [idle]:
runtime.futex(0x1, 0x80)
rax    0xca
`

func TestEachLineOfAPanicHasItsRank(t *testing.T) {
	var want strings.Builder
	ordinary := []string{"before", "mpigo", "after", "SIGTERM", "http", "a line"}
	for line := range strings.Lines(panicking) {
		isOrdinary := false
		for _, begin := range ordinary {
			isOrdinary = isOrdinary || strings.HasPrefix(line, begin)
		}
		if !isOrdinary {
			want.WriteString("rank 7: ")
		}
		want.WriteString(line)
	}
	var b bytes.Buffer
	s := output.NewStream(output.NewSink(&b), 7, output.Style{}, false)
	s.TagPanics()
	require.NoError(t, s.Copy(iotest.OneByteReader(strings.NewReader(panicking))))
	assert.Equal(t, want.String(), b.String())
}

func TestTagOutputDoesNotTagPanicsTwice(t *testing.T) {
	var b bytes.Buffer
	s := output.NewStream(output.NewSink(&b), 7, output.Style{Tag: true}, false)
	s.TagPanics()
	require.NoError(t, s.Copy(strings.NewReader("panic: x\n")))
	assert.Equal(t, "[7] panic: x\n", b.String())
}
