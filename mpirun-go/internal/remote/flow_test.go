package remote

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// connectedStream returns both ends of a stream within this process. The channel gets protocol
// errors.
func connectedStream(window int) (*outbox, *inbox, chan error) {
	errs := make(chan error, 100)
	note := func(err error) {
		if err != nil {
			errs <- err
		}
	}
	var out *outbox
	in := newInbox(window, func(n int) { go func() { note(out.addCredits(n)) }() })
	out = newOutbox(window, func(p []byte) { note(in.put(bytes.Clone(p))) }, func() { in.finish(io.EOF) })
	return out, in, errs
}

func TestStreamDeliversAllBytes(t *testing.T) {
	const size = 1 << 20
	sent := make([]byte, size)
	for i := range sent {
		sent[i] = byte(rand.Uint32())
	}
	out, in, errs := connectedStream(1000)
	go func() {
		for rest := sent; len(rest) > 0; {
			n, err := out.Write(rest[:min(len(rest), 1+rand.IntN(5000))])
			assert.NoError(t, err)
			rest = rest[n:]
		}
		assert.NoError(t, out.Close())
	}()
	got, err := io.ReadAll(in)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(sent, got))
	assert.Empty(t, errs)
}

func TestWriteToUnreadStreamTimesOut(t *testing.T) {
	out, in, errs := connectedStream(100)
	n, err := out.Write(make([]byte, 100))
	require.NoError(t, err)
	assert.Equal(t, 100, n)
	require.NoError(t, out.SetWriteDeadline(time.Now().Add(10*time.Millisecond)))
	n, err = out.Write(make([]byte, 1))
	assert.Zero(t, n)
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, out.SetWriteDeadline(time.Time{}))

	in.discard() // from now on all data are discarded
	n, err = out.Write(make([]byte, 1000))
	assert.Equal(t, 1000, n)
	require.NoError(t, err)
	_, err = in.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrClosed)
	assert.Empty(t, errs)

	out.fail(syscall.EPIPE)
	_, err = out.Write(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.EPIPE)
}

func TestStreamBeyondWindowIsProtocolError(t *testing.T) {
	in := newInbox(10, func(int) {})
	require.NoError(t, in.put(make([]byte, 10)))
	assert.ErrorIs(t, in.put(make([]byte, 1)), ErrProtocol)
	out := newOutbox(10, func([]byte) {}, func() {})
	assert.ErrorIs(t, out.addCredits(1), ErrProtocol)
	_, _ = out.Write(make([]byte, 4))
	assert.ErrorIs(t, out.addCredits(5), ErrProtocol)
	require.NoError(t, out.addCredits(4))
}

func TestReadReturnsDataBeforeEOF(t *testing.T) {
	in := newInbox(10, func(int) {})
	require.NoError(t, in.put([]byte("text")))
	in.finish(io.EOF)
	require.NoError(t, in.put([]byte("late")))
	got, err := io.ReadAll(in)
	require.NoError(t, err)
	assert.Equal(t, "text", string(got))
}

func TestLinkWritesUrgentBeforeBulk(t *testing.T) {
	r, w := io.Pipe()
	l := newLink()
	for range 10 {
		l.post(frame{kind: kindData, stream: streamStdout, payload: make([]byte, maxDataBytes)})
	}
	l.post(frame{kind: kindExit})
	l.post(frame{kind: kindEnd, stream: streamStdout})
	l.start(w)
	l.finish()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, byte(kindExit), b[0])
	assert.Equal(t, byte(kindEnd), b[len(b)-headerBytes])
	l.post(frame{kind: kindPing}) // has no effect after finish
	l.flush(time.Minute)
}

func TestLauncherMonitorToleratesStoppedLauncher(t *testing.T) {
	var a launcherMonitor
	for range maxMissedIntervals {
		assert.False(t, a.tick())
	}
	assert.True(t, a.tick())
	a.onSignal(syscall.SIGTSTP)
	assert.False(t, a.tick())
	a.reset()
	a.onSignal(syscall.SIGCONT)
	assert.False(t, a.tick())
}

// A sign of life restarts the timer.
func TestSilenceTimerRestartsWhenHeard(t *testing.T) {
	for _, limits := range []int{1, 2} {
		var w silenceTimer
		for range 3 {
			for range limits*ticksPerLimit - 1 {
				assert.False(t, w.tick(limits))
			}
			w.alive.Store(true)
			assert.False(t, w.tick(limits))
		}
		for range limits*ticksPerLimit - 1 {
			assert.False(t, w.tick(limits))
		}
		assert.True(t, w.tick(limits))
	}
}

// A daemon that connects to other hosts reports its progress by pongs of these hosts.
func TestPongRestartsWelcomeTimer(t *testing.T) {
	h := newHost(&Cluster{}, 3, "n1")
	require.NoError(t, h.handle(frame{kind: kindPong, host: 3}))
	assert.True(t, h.welcomeTimer.alive.Load())
}

// At the job's end, a silent host is soon lost, and a host that answers is not. A later limit can
// only be shorter.
func TestSilenceLimitLosesUnresponsiveHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Cluster{stop: make(chan struct{}), changed: make(chan struct{}, 1), failed: make(chan error, 1)}
		for i, name := range []string{"n1", "n2"} {
			h := newHost(c, uint16(i), name)
			h.link = newLink()
			c.hosts = append(c.hosts, h)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.pingLoop()
		}()
		begin := time.Now()
		c.SetSilenceLimit(time.Hour)
		c.SetSilenceLimit(2 * endPingInterval)
		c.SetSilenceLimit(time.Hour) // not shorter, so it has no effect
		for !c.hosts[1].isLost() {
			require.Less(t, time.Since(begin), time.Minute)
			require.NoError(t, c.hosts[0].handle(frame{kind: kindPong}))
			time.Sleep(time.Millisecond)
		}
		assert.ErrorIs(t, c.hosts[1].lost, procs.ErrUnresponsive)
		assert.False(t, c.hosts[0].isLost())
		assert.GreaterOrEqual(t, time.Since(begin), 2*endPingInterval)
		assert.NotEmpty(t, takeUrgent(c.hosts[1].link), "the host must have got a ping")
		close(c.stop)
		<-ended
	})
}
