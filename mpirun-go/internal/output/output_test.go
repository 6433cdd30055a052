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
	"syscall"
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
			copyAll(t, output.NewSink(&b), output.Style{}, alone, strings.NewReader(text))
			require.True(t, text == b.String(), "%.20q of %d bytes", text, len(text))
			b.Reset()
			copyAll(t, output.NewSink(&b), output.Style{}, alone, iotest.HalfReader(strings.NewReader(text)))
			require.True(t, text == b.String(), "%.20q of %d bytes, halved", text, len(text))
		}
	}
}

func TestStreamAddsTagAndTimestamp(t *testing.T) {
	clock := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	style := output.Style{Tag: true, Timestamp: true, Now: func() time.Time { return clock }}
	var b bytes.Buffer
	copyAll(t, output.NewSink(&b), style, true, iotest.OneByteReader(strings.NewReader("one\n\ntwo")))
	const at = "2026-01-02T03:04:05.000006 [7] "
	assert.Equal(t, at+"one\n"+at+"\n"+at+"two", b.String())

	b.Reset()
	long := strings.Repeat("x", 2*output.MaxLineBytes+1) + "\n"
	copyAll(t, output.NewSink(&b), output.Style{Tag: true}, false, strings.NewReader(long))
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
	sink := output.NewSink(writer)

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
		sink := output.NewSink(&b)
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
	sink := output.NewSink(&b)
	copyAll(t, sink, output.Style{}, false, strings.NewReader("last words"))
	sink.Line("mpirun-go: rank 0 was killed")
	<-sink.Written()
	assert.Equal(t, "last words\nmpirun-go: rank 0 was killed\n", b.String())
}

func TestSlowWriterBlocksStream(t *testing.T) {
	slow := channelWriter{make(chan string)} // accepts a write only when the test receives it
	source := make(chunks, 1)
	done := make(chan error)
	go func() { done <- output.NewStream(output.NewSink(slow), 0, output.Style{}, false).Copy(source) }()
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
	sink := output.NewSink(failingWriter{errWrite})
	copyAll(t, sink, output.Style{}, true, strings.NewReader("ignored\n"))
	require.NoError(t, sink.Err())
	sink.OnError(func() { reported++ })
	sink.Line("of the launcher")
	<-sink.Written()
	require.NoError(t, sink.Err(), "it fails no job")
	copyAll(t, sink, output.Style{}, true, iotest.OneByteReader(strings.NewReader("abc\n")))
	assert.Equal(t, 1, reported)
	assert.Equal(t, errWrite, sink.Err())
}

func TestSourceErrorKeepsUnfinishedLine(t *testing.T) {
	var b bytes.Buffer
	s := output.NewStream(output.NewSink(&b), 0, output.Style{}, false)
	require.ErrorIs(t, s.Copy(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(os.ErrDeadlineExceeded))), os.ErrDeadlineExceeded)
	assert.Equal(t, "a\n", b.String())
	require.NoError(t, s.Copy(strings.NewReader("c\nd")))
	s.Close()
	assert.Equal(t, "a\nbc\nd", b.String())
}

func TestCopyDoesNotAllocate(t *testing.T) {
	text := strings.Repeat(fmt.Sprintln("a line of a usual length"), 1000)
	s := output.NewStream(output.NewSink(io.Discard), 3, output.Style{Tag: true}, false)
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

	// Another user may have put a link or a FIFO into the directory.
	victim := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o600))
	for _, name := range []string{"rank.0.stdout", "rank.1.stderr"} {
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
	}
	require.NoError(t, os.Symlink(victim, filepath.Join(dir, "rank.0.stdout")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "rank.1.stderr"), 0o666))
	files, err = output.OpenFiles(dir, 2)
	require.NoError(t, err)
	for _, f := range files {
		_, err = f.Stdout.WriteString("x")
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	text, err = os.ReadFile(victim)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(text))
	text, err = os.ReadFile(filepath.Join(dir, "rank.0.stdout"))
	require.NoError(t, err)
	assert.Equal(t, "x", string(text))

	require.NoError(t, os.Mkdir(filepath.Join(dir, "rank.2.stderr"), 0o777))
	_, err = output.OpenFiles(dir, 3)
	assert.ErrorContains(t, err, "output directory: create ")
	fds, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, fd := range fds {
		if name, err := os.Readlink(fd); err == nil {
			assert.NotContains(t, name, dir, "an open file after the error")
		}
	}
}

// stuckWriter closes entered at the first write. Writes return when leave is closed.
type stuckWriter struct {
	entered, leave chan struct{}
	once           *sync.Once
	written        *bytes.Buffer
}

func newStuckWriter() stuckWriter {
	return stuckWriter{make(chan struct{}), make(chan struct{}), &sync.Once{}, &bytes.Buffer{}}
}

func (w stuckWriter) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.entered) })
	<-w.leave
	return w.written.Write(p)
}

func TestErrReturnsDuringWrite(t *testing.T) {
	stuck := newStuckWriter()
	sink := output.NewSink(stuck)
	sink.Line("x")
	<-stuck.entered
	assert.NoError(t, sink.Err())
	close(stuck.leave)
	<-sink.Written()
}

// The launcher decides on the goroutine that calls Line, so Line returns though nobody reads: while
// the sink writes a line, while a rank's write blocks, and when the queue is full.
func TestLineReturnsDuringBlockedWrite(t *testing.T) {
	t.Run("of a line", func(t *testing.T) {
		stuck := newStuckWriter()
		sink := output.NewSink(stuck)
		sink.Line("first")
		<-stuck.entered
		sink.Line("second")
		sink.Line("third")
		select {
		case <-sink.Written():
			t.Fatal("written, although the writer is stuck")
		default:
		}
		close(stuck.leave)
		<-sink.Written()
		assert.Equal(t, "first\nsecond\nthird\n", stuck.written.String())
	})
	t.Run("of a rank", func(t *testing.T) {
		stuck := newStuckWriter()
		sink := output.NewSink(stuck)
		done := make(chan error)
		go func() {
			done <- output.NewStream(sink, 0, output.Style{}, false).Copy(strings.NewReader("rank\n"))
		}()
		<-stuck.entered
		sink.Line("launcher")
		close(stuck.leave)
		require.NoError(t, <-done)
		<-sink.Written()
		assert.Equal(t, "rank\nlauncher\n", stuck.written.String())
	})
}

func TestRankWritesAfterEarlierLine(t *testing.T) {
	stuck := newStuckWriter()
	sink := output.NewSink(stuck)
	sink.Line("first")
	<-stuck.entered
	sink.Line("second")
	done := make(chan error)
	go func() {
		done <- output.NewStream(sink, 0, output.Style{}, false).Copy(strings.NewReader("rank\n"))
	}()
	close(stuck.leave)
	require.NoError(t, <-done)
	<-sink.Written()
	assert.Equal(t, "first\nsecond\nrank\n", stuck.written.String())
}

// The queue is bounded. Where lines are missing, a line says how many.
func TestFullQueueDropsLinesAndSaysSo(t *testing.T) {
	stuck := newStuckWriter()
	sink := output.NewSink(stuck)
	sink.Line("first")
	<-stuck.entered
	const each, sent = 1 << 18, 10
	for i := range sent {
		sink.Line(strings.Repeat(string(rune('a'+i)), each))
	}
	sink.Line("too late")
	close(stuck.leave)
	<-sink.Written()
	sink.Line("last")
	<-sink.Written()
	text := stuck.written.String()
	lines := strings.Split(text, "\n")
	kept := 0
	for _, line := range lines {
		if len(line) == each {
			assert.Equal(t, strings.Repeat(string(rune('a'+kept)), each), line)
			kept++
		}
	}
	assert.Greater(t, kept, 1)
	assert.Less(t, len(text), 2<<20)
	assert.Contains(t, text, fmt.Sprintf("mpirun-go: %d lines of the launcher are missing here", sent+1-kept))
	assert.Equal(t, "last", lines[len(lines)-2])
}
