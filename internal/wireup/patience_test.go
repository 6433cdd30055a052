package wireup

import (
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestManagerThatIsStoppedAtTheStart: however it stops, also within a line, the process waits for
// minutes.
func TestManagerThatIsStoppedAtTheStart(t *testing.T) {
	for _, stop := range []time.Duration{35 * time.Second, patience - time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer ours.Close()
			defer theirs.Close()
			go func() {
				in := newLineReader(ours)
				for _, answer := range []string{
					"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
					"cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
					"cmd=my_kvsname kvsname=test\n",
				} {
					time.Sleep(stop) // the process has written part of its line
					_, err := in.readLine()
					assert.NoError(t, err)
					half := len(answer) / 2
					_, _ = io.WriteString(ours, answer[:half])
					time.Sleep(stop)
					_, _ = io.WriteString(ours, answer[half:])
				}
			}()
			_, err := NewClient(shortWrites{theirs}, 0, 1)
			require.NoError(t, err)
		})
	}
}

// shortWrites is a connection with little room.
type shortWrites struct{ net.Conn }

func (c shortWrites) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var k int
		k, err = c.Conn.Write(p[n:min(n+10, len(p))])
		n += k
	}
	return n, err
}

// TestServeOfProcessThatIsStoppedAtTheStart: it gets its answers when it goes on, also if it is
// stopped again and again.
func TestServeOfProcessThatIsStoppedAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewServer(ServerConfig{Size: 1, JobID: "j"})
		require.NoError(t, err)
		ours, theirs := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- s.Serve(0, shortWrites{ours}) }()
		_, err = io.WriteString(theirs, "cmd=init pmi_version=1 pmi_subversion=1\n")
		require.NoError(t, err)
		for b := make([]byte, 10); b[0] != '\n'; {
			time.Sleep(patience - time.Second)
			n, err := theirs.Read(b)
			require.NoError(t, err)
			b[0] = b[n-1]
		}
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		_, err = io.WriteString(theirs, "cmd=finalize\n")
		require.NoError(t, err)
		require.NoError(t, <-done)
		theirs.Close()
	})
}

// passed is a connection of a process that was stopped until the deadline had passed, each time
// that it was about to read or write.
type passed struct {
	net.Conn
	reads, writes int
}

func (c *passed) Read(p []byte) (int, error) {
	if c.reads++; c.reads%2 != 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Read(p)
}

func (c *passed) Write(p []byte) (int, error) {
	if c.writes++; c.writes%2 != 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(p)
}

// TestProcessesThatAreStoppedAtTheStart: the time in which a process is stopped does not count.
func TestProcessesThatAreStoppedAtTheStart(t *testing.T) {
	ours, theirs := net.Pipe()
	go regular().serve(ours)
	c, err := NewClient(&passed{Conn: theirs}, 0, 1)
	require.NoError(t, err)
	require.NoError(t, c.Put("k", nil))
	require.NoError(t, c.Finalize())
}
