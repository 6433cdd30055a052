package gate

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"
)

// pipes is a listener to which connections come by a channel.
type pipes struct {
	net.Listener
	incoming chan net.Conn
}

func (l pipes) Accept() (net.Conn, error) {
	if conn, isOpen := <-l.incoming; isOpen {
		return conn, nil
	}
	return nil, net.ErrClosed
}

// dial returns the client's end of a new connection.
func (l pipes) dial() net.Conn {
	near, far := net.Pipe()
	l.incoming <- far
	return near
}

// serve calls handle for each connection, on a goroutine of its own, until the listener is closed.
func serve(t *testing.T, g *Gate, handle func(*Conn)) pipes {
	l := pipes{incoming: make(chan net.Conn)}
	t.Cleanup(func() { close(l.incoming) })
	go func() {
		for {
			c, err := g.Accept(l)
			if err != nil {
				return
			}
			go handle(c)
		}
	}()
	return l
}

// echo lets a connection in after its first byte, and answers each byte.
func echo(c *Conn) {
	defer c.Close()
	b := make([]byte, 1)
	for {
		if _, err := c.Read(b); err != nil {
			return
		}
		c.LetIn()
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

func answers(t *testing.T, conn net.Conn) {
	t.Helper()
	b := []byte{7}
	_, err := conn.Write(b)
	require.NoError(t, err)
	_, err = io.ReadFull(conn, b)
	require.NoError(t, err)
}

func isClosed(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now())
	_, err := conn.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// Connections without any data do not keep others out. The test has no time limit.
func TestSilentConnectionsAreClosedForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, rounds = 4, 10
		l := serve(t, New(most, nil), echo)
		var silent, peers []net.Conn
		for range rounds {
			for range most {
				silent = append(silent, l.dial())
			}
			peer := l.dial()
			defer peer.Close()
			answers(t, peer)
			peers = append(peers, peer)
		}
		synctest.Wait()
		open := 0
		for i, conn := range silent {
			if !isClosed(conn) {
				open++
				assert.Greater(t, i, len(silent)-most-1, "the newest ones stay")
			}
			defer conn.Close()
		}
		assert.LessOrEqual(t, open, most)
		for _, peer := range peers { // they do not count
			answers(t, peer)
		}
	})
}

func TestConnectionIsNotClosedBeforeItsPeerHadTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serve(t, New(1, nil), echo)
		first, began := l.dial(), time.Now()
		second := l.dial()
		defer second.Close()
		time.Sleep(grace - 1)
		synctest.Wait()
		assert.False(t, isClosed(first))
		assert.Less(t, time.Since(began), grace)
		time.Sleep(grace)
		synctest.Wait()
		assert.True(t, isClosed(first))
	})
}

func TestKeptConnectionIsNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accepted := make(chan *Conn, 10)
		g := New(2, nil)
		l := serve(t, g, func(c *Conn) { accepted <- c })
		var ends []net.Conn
		var conns []*Conn
		for range 2 {
			ends = append(ends, l.dial())
			conns = append(conns, <-accepted)
			conns[len(conns)-1].Keep(true)
		}
		ends = append(ends, l.dial())
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Empty(t, accepted, "it waits")
		assert.False(t, isClosed(ends[0]) || isClosed(ends[1]))

		conns[0].Keep(false) // now the newest
		conns[1].Keep(false)
		third := <-accepted
		assert.True(t, isClosed(ends[0]))
		conns[0].Keep(true) // it is closed: no effect
		require.NoError(t, conns[0].Close())

		conns[1].Keep(true)
		third.Keep(true)
		ends = append(ends, l.dial())
		require.NoError(t, third.Close())
		defer (<-accepted).Close()
		assert.False(t, isClosed(ends[1]))
		require.NoError(t, conns[1].Close())
	})
}

// full is a listener that has no descriptors until it is closed.
type full struct {
	net.Listener
	closed atomic.Bool
}

var errNoDescriptors = errors.New("no descriptors")

func (l *full) Accept() (net.Conn, error) {
	if l.closed.Load() {
		return nil, net.ErrClosed
	}
	return nil, errNoDescriptors
}

func TestFailedAcceptsAreToldOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := atomic.NewInt64(0)
		g := New(1, func(err error) {
			assert.ErrorIs(t, err, errNoDescriptors)
			told.Inc()
		})
		l := &full{}
		done := make(chan error, 1)
		go func() {
			_, err := g.Listener(l).Accept()
			done <- err
		}()
		time.Sleep(10*warnEvery - time.Second)
		synctest.Wait()
		assert.EqualValues(t, 10, told.Load())
		l.closed.Store(true)
		assert.ErrorIs(t, <-done, net.ErrClosed)
	})
}
