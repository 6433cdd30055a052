package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/jobsocket"
	"github.com/mpigo/mpigo/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// rank is a rank that reports its number.
type rank int

func (r rank) Progress() uint64 { return 1 }

func (r rank) Report() introspect.Report { return introspect.Report{Rank: int(r)} }

func (r rank) Metrics(bool) introspect.Metrics { return introspect.Metrics{Rank: int(r)} }

func (r rank) DumpTrace() error { return nil }

func runtimeDir(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "relay")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
}

var secret = bytes.Repeat([]byte{7}, 32)

// startHub starts the hub of a job of some ranks, all of this machine.
func startHub(t *testing.T, size int) (*Hub, []byte) {
	runtimeDir(t)
	hub, err := Listen(size, true)
	require.NoError(t, err)
	t.Cleanup(func() { hub.Close() })
	addresses, err := hub.Addresses()
	require.NoError(t, err)
	require.NoError(t, hub.Start(secret, rank(0)))
	return hub, addresses
}

func join(t *testing.T, addresses, secret []byte, number, size int) *Joined {
	j, err := Join(addresses, secret, number, size, rank(number))
	require.NoError(t, err)
	t.Cleanup(func() { j.Close() })
	return j
}

// states are the states of the members that the hub answers with.
func states(hub *Hub, t *testing.T) (out []introspect.State) {
	for i, m := range hub.Ask(t.Context(), introspect.WantProgress) {
		assert.Equal(t, i, m.Rank)
		out = append(out, m.State)
	}
	return out
}

func TestHubAsksAllRanks(t *testing.T) {
	hub, addresses := startHub(t, 3)
	one := join(t, addresses, secret, 1, 3)
	join(t, addresses, secret, 2, 3)
	answered := []introspect.State{introspect.StateAnswered, introspect.StateAnswered, introspect.StateAnswered}
	require.Eventually(t, func() bool { return assert.ObjectsAreEqual(answered, states(hub, t)) }, time.Minute, time.Millisecond)

	c, err := jobsocket.Dial(strconv.Itoa(os.Getpid()))
	require.NoError(t, err)
	defer c.Close()
	a, err := c.Report()
	require.NoError(t, err)
	assert.Equal(t, hub.Info().Command, a.Job.Command)
	for i, m := range a.Members {
		assert.Equal(t, introspect.Report{Rank: i}, *m.Report)
		assert.Equal(t, os.Getpid(), m.PID)
	}

	one.Close()
	answered[1] = introspect.StateFinalized
	require.Eventually(t, func() bool { return assert.ObjectsAreEqual(answered, states(hub, t)) }, time.Minute, time.Millisecond)
	require.NoError(t, hub.Close())
	found, err := filepath.Glob(os.Getenv("XDG_RUNTIME_DIR") + "/mpigo/*")
	require.NoError(t, err)
	assert.Empty(t, found, "the socket is removed")
}

func TestHubRejectsStrangers(t *testing.T) {
	hub, addresses := startHub(t, 2)
	other := bytes.Repeat([]byte{8}, 32)
	for _, c := range []struct {
		secret []byte
		me     hello
	}{
		{other, hello{Rank: 1, Size: 2}},
		{secret, hello{Rank: 0, Size: 2}}, // that is the hub itself
		{secret, hello{Rank: 2, Size: 2}},
		{secret, hello{Rank: -1, Size: 2}},
		{secret, hello{Rank: 1, Size: 3}},
		{secret, hello{Rank: 1, Size: 2, Host: string(bytes.Repeat([]byte("x"), maxHelloBytes))}},
	} {
		conn, err := net.Dial("tcp", hub.listener.Addr().String())
		require.NoError(t, err)
		assert.Error(t, introduce(conn, c.secret, c.me), c.me)
		conn.Close()
	}
	assert.Nil(t, hub.peers()[1].Conn)

	// A rank rejects a hub that does not know the secret.
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() { _, _ = admit(far, other, 2); far.Close() }()
	assert.Error(t, introduce(near, secret, hello{Rank: 1, Size: 2}))
	_, err := Join([]byte("x"), secret, 1, 2, rank(1))
	assert.Error(t, err)
	j, err := Join(addresses, other, 1, 2, rank(1))
	require.NoError(t, err, "the job goes on")
	j.Close()
}

// Silent unauthenticated peers, for which the hub waits, do not keep a rank out.
func TestSilentConnectionsDoNotKeepRanksOut(t *testing.T) {
	runtimeDir(t)
	hub, err := Listen(2, true)
	require.NoError(t, err)
	defer hub.Close()
	hub.patience = time.Hour
	addresses, err := hub.Addresses()
	require.NoError(t, err)
	require.NoError(t, hub.Start(secret, rank(0)))
	for range 3 * maxUnauthenticated {
		conn, err := net.Dial("tcp", hub.listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
	}
	join(t, addresses, secret, 1, 2)
	require.Eventually(t, func() bool { return states(hub, t)[1] == introspect.StateAnswered }, time.Minute, time.Millisecond)
}

// A rank whose connection is lost has not finalized, and connects again.
func TestRankWhoseConnectionIsLostConnectsAgain(t *testing.T) {
	hub, addresses := startHub(t, 2)
	j := join(t, addresses, secret, 1, 2)
	isAnswering := func() bool { return states(hub, t)[1] == introspect.StateAnswered }
	require.Eventually(t, isAnswering, time.Minute, time.Millisecond)
	hub.mu.Lock()
	lost := hub.ranks[1].conn
	hub.mu.Unlock()
	require.NoError(t, lost.Close())
	require.Eventually(t, lost.IsGone, time.Minute, time.Millisecond)
	require.NotEqual(t, introspect.StateFinalized, states(hub, t)[1])
	require.Eventually(t, isAnswering, time.Minute, time.Millisecond)
	require.NoError(t, j.Close())
	isFinalized := func() bool { return states(hub, t)[1] == introspect.StateFinalized }
	require.Eventually(t, isFinalized, time.Minute, time.Millisecond)
}

func TestRankJoinsHubThatComesLater(t *testing.T) {
	runtimeDir(t)
	// The port is this socket's, so no other process can take it. No process listens there yet.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	socket := os.NewFile(uintptr(fd), "socket")
	defer socket.Close()
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := unix.Getsockname(fd)
	require.NoError(t, err)
	join(t, fmt.Appendf(nil, `["127.0.0.1:%d"]`, at.(*unix.SockaddrInet4).Port), secret, 1, 2)
	require.NoError(t, unix.Listen(fd, 1))
	l, err := net.FileListener(socket)
	require.NoError(t, err)
	defer l.Close()
	conn, err := l.Accept()
	require.NoError(t, err)
	defer conn.Close()
	h, err := admit(conn, secret, 2)
	require.NoError(t, err)
	require.Equal(t, 1, h.Rank)
}

// recorder records what it reads.
type recorder struct {
	io.ReadWriter
	read bytes.Buffer
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.ReadWriter.Read(p)
	r.read.Write(p[:n])
	return n, err
}

// A recorded handshake can be replayed at neither end.
func TestRecordedHandshakeIsRejected(t *testing.T) {
	me := hello{Rank: 1, Size: 2}
	rankEnd, hubEnd := net.Pipe()
	fromHub, fromRank := &recorder{ReadWriter: rankEnd}, &recorder{ReadWriter: hubEnd}
	admitted := make(chan error, 1)
	go func() {
		_, err := admit(fromRank, secret, 2)
		admitted <- err
	}()
	require.NoError(t, introduce(fromHub, secret, me))
	require.NoError(t, <-admitted)
	require.ErrorIs(t, introduce(conversation{&fromHub.read}, secret, me), errHandshake)
	_, err := admit(conversation{&fromRank.read}, secret, 2)
	require.ErrorIs(t, err, errHandshake)
}

// conversation is a connection that reads from in and discards writes.
type conversation struct{ in io.Reader }

func (c conversation) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c conversation) Write(p []byte) (int, error) { return len(p), nil }

func FuzzAdmit(f *testing.F) {
	f.Add(append(make([]byte, nonceBytes), 3, 0), []byte("{}"))
	f.Fuzz(func(t *testing.T, head, rest []byte) {
		_, err := admit(conversation{io.MultiReader(bytes.NewReader(head), bytes.NewReader(rest))}, secret, 2)
		require.Error(t, err, "nobody knows the nonce")
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			require.ErrorIs(t, err, errHandshake)
		}
	})
}
