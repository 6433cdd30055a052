package remote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/mpirun-go/internal/records"
)

// connected returns the launcher's view of a host, and the daemon there, which exchange frames.
func connected(t *testing.T) (*Host, *daemon) {
	h := newHost(nil, 0, "n1")
	h.link = newLink()
	d := &daemon{up: newLink(), fetches: map[uint32]*outbox{}}
	down, up := make(chan frame, 1000), make(chan frame, 1000)
	h.link.start(frameWriter{down})
	d.up.start(frameWriter{up})
	stop := make(chan struct{})
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		for {
			select {
			case f := <-down:
				var err error
				switch f.kind {
				case kindRecordDirs:
					err = d.onRecordDirs(f.payload)
				case kindFetch:
					err = d.onFetch(f)
				default:
					err = d.onStream(f)
				}
				assert.NoError(t, err)
			case <-stop:
				return
			}
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		for {
			select {
			case f := <-up:
				assert.NoError(t, h.handle(f))
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		h.setLost(errors.New("over"))
		close(stop)
		<-done
		<-done
		for _, box := range d.fetches {
			box.fail(unix.EPIPE)
		}
		d.tasks.Wait()
		h.link.close()
		d.up.close()
	})
	return h, d
}

// frameWriter decodes what a link writes.
type frameWriter struct{ to chan frame }

func (w frameWriter) Close() error { return nil }

func (w frameWriter) Write(p []byte) (int, error) {
	in := bufio.NewReader(bytes.NewReader(p))
	for {
		f, err := readFrame(in)
		if err != nil {
			return len(p), nil
		}
		w.to <- f
	}
}

func TestFetchBringsARecord(t *testing.T) {
	h, _ := connected(t)
	dir := RecordDir{records.Trace, t.TempDir()}
	text := bytes.Repeat([]byte("0123456789abcdef"), 300_000) // some windows
	require.NoError(t, os.WriteFile(records.Trace.Path(dir.Path, 3), text, 0o600))
	for range 2 {
		var got bytes.Buffer
		require.NoError(t, h.Fetch(t.Context(), dir, 3, &got))
		assert.True(t, bytes.Equal(text, got.Bytes()))
	}
	assert.ErrorIs(t, h.Fetch(t.Context(), dir, 4, &bytes.Buffer{}), fs.ErrNotExist)
}

// TestDaemonForgetsRecordsThatWereSent: in a long job, each trace until now fetches more of them.
func TestDaemonForgetsRecordsThatWereSent(t *testing.T) {
	d := &daemon{up: newLink(), fetches: map[uint32]*outbox{}}
	defer d.up.close()
	d.up.start(frameWriter{make(chan frame, 1000)})
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(records.Trace.Path(dir, 0), []byte("text"), 0o600))
	for number := range uint32(20) {
		request := fetchRequest{recordDir{records.Trace, dir}, int(number % 2)} // rank 1 has none
		require.NoError(t, d.onFetch(frame{kind: kindFetch, rank: number + 1, payload: request.encode()}))
		require.Len(t, d.fetches, 1)
		d.tasks.Wait()
	}
}

func TestFetchTakesNoOtherFile(t *testing.T) {
	h, _ := connected(t)
	dir := RecordDir{records.CPUProfile, t.TempDir()}
	path := func(rank int) string { return records.CPUProfile.Path(dir.Path, rank) }
	require.NoError(t, os.Symlink("/etc/passwd", path(0)))
	require.NoError(t, unix.Mkfifo(path(1), 0o666)) // nobody writes to it
	require.NoError(t, os.WriteFile(path(2), nil, 0o666))
	require.NoError(t, os.Truncate(path(2), records.CPUProfile.MaxBytes()+1))
	for rank, want := range []string{"too many levels of symbolic links", "is no regular file", "at most 67108864 are copied"} {
		var got bytes.Buffer
		assert.ErrorContains(t, h.Fetch(t.Context(), dir, rank, &got), want)
		assert.Zero(t, got.Len())
	}
	for _, wrong := range []fetchRequest{
		{recordDir{"../passwd", "/etc"}, 0}, {recordDir{records.Trace, "relative"}, 0},
	} {
		_, err := decodeFetch(wrong.encode())
		assert.ErrorIs(t, err, ErrProtocol)
	}
}

// slowWriter stops reading after the first bytes.
type slowWriter struct {
	begun  chan struct{}
	resume chan struct{}
}

func (w *slowWriter) Write(p []byte) (int, error) {
	select {
	case w.begun <- struct{}{}:
		<-w.resume
	default:
	}
	return len(p), nil
}

func TestFetchEndsWithContext(t *testing.T) {
	h, _ := connected(t)
	dir := RecordDir{records.Trace, t.TempDir()}
	require.NoError(t, os.WriteFile(records.Trace.Path(dir.Path, 0), make([]byte, 5<<20), 0o600))
	why := errors.New("too long")
	ctx, cancel := context.WithCancelCause(t.Context())
	w := &slowWriter{make(chan struct{}, 1), make(chan struct{})}
	go func() {
		<-w.begun
		cancel(why)
		close(w.resume)
	}()
	require.ErrorIs(t, h.Fetch(ctx, dir, 0, w), why)
	var got bytes.Buffer // what still comes of it does not disturb the next one
	require.NoError(t, h.Fetch(t.Context(), dir, 0, &got))
	assert.Equal(t, 5<<20, got.Len())
	require.Eventually(t, func() bool { // both come to their ends
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.fetches) == 0
	}, time.Minute, time.Millisecond)
}

func TestFetchFromLostHostFails(t *testing.T) {
	h := newHost(nil, 0, "n1")
	h.link = newLink()
	fetched := make(chan error, 1)
	go func() { fetched <- h.Fetch(context.Background(), RecordDir{records.Trace, "/out"}, 0, &bytes.Buffer{}) }()
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.fetched == 1
	}, time.Minute, time.Millisecond)
	h.setLost(errors.New("cut"))
	var lost *HostError
	require.ErrorAs(t, <-fetched, &lost)
	require.ErrorAs(t, h.Fetch(t.Context(), RecordDir{records.Trace, "/out"}, 0, &bytes.Buffer{}), &lost)
}

func TestOwnDirsAreThoseWithoutMarker(t *testing.T) {
	h, _ := connected(t)
	shared, own, absent := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "none")
	require.NoError(t, os.WriteFile(filepath.Join(shared, ".job-x"), nil, 0o600))
	for _, dir := range []string{shared, own} {
		require.NoError(t, os.WriteFile(records.Trace.Path(dir, 0), []byte("earlier"), 0o600))
	}
	got, err := h.OwnDirs(t.Context(), ".job-x", []RecordDir{{records.Trace, shared}, {records.Trace, own}, {records.Profile, absent}})
	require.NoError(t, err)
	assert.Equal(t, []RecordDir{{records.Trace, own}, {records.Profile, absent}}, got)
	assert.FileExists(t, records.Trace.Path(shared, 0), "the launcher clears its own")
	assert.NoFileExists(t, records.Trace.Path(own, 0))
	for _, marker := range []string{"", "../x", "a/b"} {
		_, err := decodeRecordDirs(recordDirs{marker: marker}.encode())
		assert.ErrorIs(t, err, ErrProtocol, marker)
	}
}

func TestHostRefusesRecordsThatWereNotAskedFor(t *testing.T) {
	h := newHost(nil, 0, "n1")
	h.link = newLink()
	for _, f := range []frame{
		{kind: kindFetched, rank: 1, payload: fetched{size: 1}.encode()},
		{kind: kindData, stream: streamRecord, rank: 7, payload: []byte("x")},
	} {
		assert.ErrorIs(t, h.handle(f), ErrProtocol)
	}
	answer := frame{kind: kindOwnDirs, payload: ownDirs{own: []int{0}}.encode()}
	require.NoError(t, h.handle(answer))
	assert.ErrorIs(t, h.handle(answer), ErrProtocol)
	h.fetches[1], h.fetched = &fetch{in: openInbox(h.post, streamRecord, 1), answer: make(chan fetched, 1)}, 1
	require.NoError(t, h.handle(frame{kind: kindFetched, rank: 1, payload: fetched{size: 1}.encode()}))
	assert.ErrorIs(t, h.handle(frame{kind: kindFetched, rank: 1, payload: fetched{size: 1}.encode()}), ErrProtocol)
	assert.ErrorIs(t, h.handle(frame{kind: kindData, stream: streamRecord, rank: 1, payload: make([]byte, 2<<20)}), ErrProtocol, "more than the window")
	assert.ErrorIs(t, h.handle(frame{kind: kindExit, stream: streamRecord, rank: 1}), ErrProtocol)
}
