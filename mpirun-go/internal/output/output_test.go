package output_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mpigo/mpigo/mpirun-go/internal/output"
)

// copyAll runs one stream over the text of r.
func copyAll(t *testing.T, sink *output.Sink, style output.Style, alone bool, r io.Reader) {
	s := output.NewStream(sink, 7, style, alone)
	require.NoError(t, s.Copy(r))
	s.Close()
}

func TestCopyKeepsEveryByte(t *testing.T) {
	long := strings.Repeat("x", 3*output.MaxLineBytes+17)
	for _, text := range []string{"", "a\n", "a", "\n\n", "a\nb", long, long + "\n" + long, strings.Repeat("line\n", 50000)} {
		for _, alone := range []bool{false, true} {
			var b bytes.Buffer
			copyAll(t, output.NewSink(&b, nil), output.Style{}, alone, strings.NewReader(text))
			require.True(t, text == b.String(), "%.20q of %d bytes", text, len(text))
			b.Reset()
			copyAll(t, output.NewSink(&b, nil), output.Style{}, alone, iotest.HalfReader(strings.NewReader(text)))
			require.True(t, text == b.String(), "%.20q of %d bytes, halved", text, len(text))
		}
	}
}

func TestStreamAddsTagAndTimestamp(t *testing.T) {
	clock := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	style := output.Style{Tag: true, Timestamp: true, Now: func() time.Time { return clock }}
	var b bytes.Buffer
	copyAll(t, output.NewSink(&b, nil), style, true, iotest.OneByteReader(strings.NewReader("one\n\ntwo")))
	const at = "2026-01-02T03:04:05.000006 [7] "
	assert.Equal(t, at+"one\n"+at+"\n"+at+"two", b.String())

	b.Reset()
	long := strings.Repeat("x", 2*output.MaxLineBytes+1) + "\n"
	copyAll(t, output.NewSink(&b, nil), output.Style{Tag: true}, false, strings.NewReader(long))
	assert.True(t, "[7] "+long == b.String(), "a long line has one tag")
}

// chunks is a reader that returns the strings of its channel one by one.
type chunks chan string

func (c chunks) Read(p []byte) (int, error) {
	s, ok := <-c
	if !ok {
		return 0, io.EOF
	}
	return copy(p, s), nil
}

// channelWriter sends each write to its channel.
type channelWriter struct{ wrote chan string }

func (w channelWriter) Write(p []byte) (int, error) {
	w.wrote <- string(p)
	return len(p), nil
}

func TestUnfinishedLineWaitsUnlessExclusive(t *testing.T) {
	writer := channelWriter{make(chan string, 8)}
	sink := output.NewSink(writer, nil)

	shared := make(chunks)
	done := make(chan error)
	go func() { done <- output.NewStream(sink, 0, output.Style{}, false).Copy(shared) }()
	shared <- "begun"
	shared <- ", ended\nnext"
	assert.Equal(t, "begun, ended\n", <-writer.wrote)
	close(shared)
	require.NoError(t, <-done)
	assert.Equal(t, "next", <-writer.wrote)

	alone := make(chunks)
	go func() { done <- output.NewStream(sink, 0, output.Style{}, true).Copy(alone) }()
	alone <- "prompt: "
	assert.Equal(t, "\nprompt: ", <-writer.wrote)
	close(alone)
	require.NoError(t, <-done)
}

// Whatever the streams write, and in whatever pieces it is read:
//
//   - each line of the sink comes from one stream;
//   - the sink receives all bytes of a stream, in order;
//   - the sink adds line ends only to lines longer than MaxLineBytes.
func TestSinkNeverMixesLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const streams = 3
		var b bytes.Buffer
		sink := output.NewSink(&b, nil)
		var all sync.WaitGroup
		sent := make([]string, streams)
		for rank := range streams {
			letter := string(rune('a' + rank))
			lengths := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 50), rapid.IntRange(0, 3*output.MaxLineBytes)), 0, 8).Draw(t, "lengths")
			var text strings.Builder
			for _, n := range lengths {
				text.WriteString(strings.Repeat(letter, n) + "\n")
			}
			sent[rank] = text.String()
			if rapid.Bool().Draw(t, "unfinished") {
				sent[rank] = strings.TrimSuffix(sent[rank], "\n")
			}
			var r io.Reader = strings.NewReader(sent[rank])
			if rapid.Bool().Draw(t, "halved") {
				r = iotest.HalfReader(r)
			}
			all.Go(func() { _ = output.NewStream(sink, rank, output.Style{}, false).Copy(r) })
		}
		all.Wait()
		for rank := range streams {
			letter := string(rune('a' + rank))
			require.Equal(t, strings.Count(sent[rank], letter), strings.Count(b.String(), letter), "stream %d", rank)
		}
		for _, line := range strings.Split(b.String(), "\n") {
			if line != "" && strings.Count(line, line[:1]) != len(line) {
				t.Fatalf("mixed line of %d bytes: %.60q", len(line), line)
			}
		}
	})
}

func TestLineEndsUnfinishedLine(t *testing.T) {
	var b bytes.Buffer
	sink := output.NewSink(&b, nil)
	copyAll(t, sink, output.Style{}, false, strings.NewReader("last words"))
	sink.Line("mpirun-go: rank 0 was killed")
	assert.Equal(t, "last words\nmpirun-go: rank 0 was killed\n", b.String())
}

func TestSlowWriterBlocksStream(t *testing.T) {
	slow := channelWriter{make(chan string)} // accepts a write only when the test receives it
	source := make(chunks, 1)
	done := make(chan error)
	go func() { done <- output.NewStream(output.NewSink(slow, nil), 0, output.Style{}, false).Copy(source) }()
	source <- "first\n"
	source <- "second\n" // the stream has read the first line and blocks in its write
	select {
	case source <- "third\n":
		t.Fatal("the stream reads on while its write blocks")
	default:
	}
	assert.Equal(t, "first\n", <-slow.wrote)
	assert.Equal(t, "second\n", <-slow.wrote)
	close(source)
	require.NoError(t, <-done)
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestWriteErrorIsReportedOnce(t *testing.T) {
	errWrite := errors.New("write failed")
	reported := 0
	sink := output.NewSink(failingWriter{errWrite}, func() { reported++ })
	require.NoError(t, sink.Err())
	copyAll(t, sink, output.Style{}, true, iotest.OneByteReader(strings.NewReader("abc\n")))
	assert.Equal(t, 1, reported)
	assert.Equal(t, errWrite, sink.Err())
}

func TestSourceErrorKeepsUnfinishedLine(t *testing.T) {
	var b bytes.Buffer
	s := output.NewStream(output.NewSink(&b, nil), 0, output.Style{}, false)
	require.ErrorIs(t, s.Copy(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(os.ErrDeadlineExceeded))), os.ErrDeadlineExceeded)
	assert.Equal(t, "a\n", b.String())
	require.NoError(t, s.Copy(strings.NewReader("c\nd")))
	s.Close()
	assert.Equal(t, "a\nbc\nd", b.String())
}

func TestCopyDoesNotAllocate(t *testing.T) {
	text := strings.Repeat(fmt.Sprintln("a line of a usual length"), 1000)
	s := output.NewStream(output.NewSink(io.Discard, nil), 3, output.Style{Tag: true}, false)
	src := strings.NewReader(text)
	require.NoError(t, s.Copy(src))
	allocs := testing.AllocsPerRun(10, func() {
		src.Reset(text)
		_ = s.Copy(src)
	})
	assert.Zero(t, allocs)
}

func TestOpenFilesCreatesAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	files, err := output.OpenFiles(dir, 2)
	require.NoError(t, err)
	_, err = files[1].Stderr.WriteString("x")
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, f.Close())
	}
	text, err := os.ReadFile(filepath.Join(dir, "rank.1.stderr"))
	require.NoError(t, err)
	assert.Equal(t, "x", string(text))

	require.NoError(t, os.Mkdir(filepath.Join(dir, "rank.2.stderr"), 0o777))
	_, err = output.OpenFiles(dir, 3)
	assert.ErrorContains(t, err, "output directory: open ")
	fds, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, fd := range fds {
		if name, err := os.Readlink(fd); err == nil {
			assert.NotContains(t, name, dir, "an open file after the error")
		}
	}
}

// stuckWriter closes entered when Write is called, and returns when leave is closed.
type stuckWriter struct{ entered, leave chan struct{} }

func (w stuckWriter) Write(p []byte) (int, error) {
	close(w.entered)
	<-w.leave
	return len(p), nil
}

func TestErrReturnsDuringWrite(t *testing.T) {
	stuck := stuckWriter{make(chan struct{}), make(chan struct{})}
	sink := output.NewSink(stuck, nil)
	done := make(chan struct{})
	go func() {
		sink.Line("x")
		close(done)
	}()
	<-stuck.entered
	assert.NoError(t, sink.Err())
	close(stuck.leave)
	<-done
}
