package wireup

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// manager is a process manager. It maps commands to answers.
type manager map[string]string

// regular returns the answers of Slurm, which differ from Hydra's in order and in extra words.
func regular() manager {
	return manager{
		"init":           "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
		"get_maxes":      "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024",
		"get_my_kvsname": "cmd=my_kvsname rc=0 kvsname=12.0",
		"put":            "cmd=put_result rc=0",
		"get":            "cmd=get_result rc=1",
		"barrier_in":     "cmd=barrier_out rc=0",
		"finalize":       "cmd=finalize_ack rc=0",
	}
}

// with changes one answer and returns m.
func (m manager) with(cmd, answer string) manager {
	m[cmd] = answer
	return m
}

// serve answers on conn until it ends. Commands without an entry get no answer.
func (m manager) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewScanner(conn)
	for in.Scan() {
		request, err := parseLine(in.Text())
		if err != nil {
			return
		}
		if a, ok := m[request.cmd]; ok {
			if _, err := conn.Write([]byte(a + "\n")); err != nil {
				return
			}
		}
	}
}

// start connects a client of rank 1 of 2.
func (m manager) start(t *testing.T) (*Client, error) {
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); m.serve(ours) }()
	c, err := NewClient(theirs, 1, 2)
	t.Cleanup(func() {
		if c != nil {
			c.Close()
		}
		<-done
	})
	return c, err
}

// client is start with a good handshake.
func (m manager) client(t *testing.T) *Client {
	c, err := m.start(t)
	require.NoError(t, err)
	return c
}

func TestClientUnderstandsSlurm(t *testing.T) {
	c := regular().client(t)
	assert.Equal(t, "12.0", c.kvsName)
	require.NoError(t, c.Put("k", []byte("v")))
	require.NoError(t, c.Barrier())
	_, err := c.Get("k")
	assert.ErrorIs(t, err, ErrNotFound)
	nodeOf, err := c.NodeOf()
	require.NoError(t, err)
	assert.Nil(t, nodeOf)
	require.NoError(t, c.Finalize())
}

func TestNewClientWithBadAnswersFails(t *testing.T) {
	for _, tc := range []struct {
		cmd, answer string
		want        error
	}{
		{"init", "cmd=response_to_init rc=-1 pmi_version=2 pmi_subversion=0", ErrRefused},
		{"init", "cmd=response_to_init", ErrProtocol},
		{"init", "cmd=response_to_init rc=zero", ErrProtocol},
		{"init", "cmd=maxes rc=0", ErrProtocol},
		{"init", "", ErrProtocol},
		{"init", "\x00\xff", ErrProtocol},
		{"init", "SSH-2.0-OpenSSH_9.2", ErrProtocol},
		{"init", strings.Repeat("x", 3*maxLineBytes), ErrProtocol},
		{"get_maxes", "cmd=maxes", ErrProtocol},
		{"get_maxes", "cmd=maxes kvsname_max=0 keylen_max=64 vallen_max=1024", ErrProtocol},
		{"get_maxes", "cmd=maxes kvsname_max=256 keylen_max=-1 vallen_max=1024", ErrProtocol},
		{"get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1", ErrProtocol},
		{"get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=99999999999999999999", ErrProtocol},
		{"get_my_kvsname", "cmd=my_kvsname", ErrProtocol},
		{"get_my_kvsname", "cmd=my_kvsname kvsname=", ErrProtocol},
		{"get_my_kvsname", "cmd=my_kvsname kvsname=" + strings.Repeat("k", 257), ErrProtocol},
	} {
		_, err := regular().with(tc.cmd, tc.answer).start(t)
		require.ErrorIs(t, err, tc.want, "%s %q", tc.cmd, clip(tc.answer))
		assert.Less(t, len(err.Error()), 400)
	}
}

func TestProtocolErrorQuotesAnswer(t *testing.T) {
	_, err := regular().with("get", "cmd=put_result rc=0").client(t).Get("k")
	assert.EqualError(t, err, `wireup: process manager answered "cmd=put_result rc=0" to get: not get_result: PMI protocol error`)
}

func TestGetOfBadAnswerFails(t *testing.T) {
	for _, answer := range []string{
		"cmd=get_result",
		"cmd=get_result rc=0",
		"cmd=get_result rc=0 value=",
		"cmd=get_result rc=0 value=3",
		"cmd=get_result rc=0 value=.AAAA",
		"cmd=get_result rc=0 value=x.AAAA",
		"cmd=get_result rc=0 value=-3.AAAA",
		"cmd=get_result rc=0 value=3.A=AA",
		"cmd=get_result rc=0 value=2.AAAA",            // more bytes than LENGTH
		"cmd=get_result rc=0 value=1.AB",              // unused bits set
		"cmd=get_result rc=0 value=6.AAAA",            // the second piece is the first one again
		"cmd=get_result rc=0 value=999999999999.AAAA", // above MaxValueBytes
		"cmd=get_result rc=0 value=65537.AAAA",
	} {
		_, err := regular().with("get", answer).client(t).Get("k")
		assert.ErrorIs(t, err, ErrProtocol, answer)
	}
}

// A protocol error is final, because the next answer could belong to any request.
func TestProtocolErrorIsFinal(t *testing.T) {
	c := regular().with("put", "cmd=barrier_out").client(t)
	assert.ErrorIs(t, c.Put("k", nil), ErrProtocol)
	assert.ErrorIs(t, c.Barrier(), ErrProtocol)
	_, err := c.Get("k")
	assert.ErrorContains(t, err, "to put")
	// The job can still be ended.
	assert.NoError(t, c.Abort(Abort{Code: 1, Message: "no use going on"}))
}

func TestRefusalIsNotFinal(t *testing.T) {
	c := regular().with("put", "cmd=put_result rc=-1 msg=no_room").client(t)
	err := c.Put("k", nil)
	assert.ErrorIs(t, err, ErrRefused)
	assert.ErrorContains(t, err, "no_room")
	assert.NoError(t, c.Barrier())
}

// Slurm reports a failed exchange of values in barrier_out.
func TestBarrierWithRefusalFails(t *testing.T) {
	c := regular().with("barrier_in", "cmd=barrier_out rc=-1 msg=failed_to_send_temp_kvs").client(t)
	assert.ErrorIs(t, c.Barrier(), ErrRefused)
}

func TestNodeOfBadMappingFails(t *testing.T) {
	_, err := regular().with("get", "cmd=get_result rc=0 value=(vector,(0,0,0))").client(t).NodeOf()
	assert.ErrorIs(t, err, ErrProtocol)
}

// The limits on lines and values bound the pieces of a value.
func TestPutKeepsToLimits(t *testing.T) {
	ours, theirs := net.Pipe()
	longest := make(chan int, 1)
	go func() {
		maxLine := 0
		defer func() { longest <- maxLine }()
		m := regular().with("get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=4096").
			with("get_my_kvsname", "cmd=my_kvsname kvsname="+strings.Repeat("n", 255))
		in := bufio.NewReader(ours)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			maxLine = max(maxLine, len(line))
			request, err := parseLine(strings.TrimSuffix(line, "\n"))
			if err != nil {
				return
			}
			if _, err := ours.Write([]byte(m[request.cmd] + "\n")); err != nil {
				return
			}
		}
	}()
	c, err := NewClient(theirs, 0, 1)
	require.NoError(t, err)
	require.NoError(t, c.Put(strings.Repeat("k", MaxKeyBytes), make([]byte, 20_000)))
	require.NoError(t, c.Close())
	assert.Equal(t, maxRequestBytes, <-longest)
}

func TestPutOfKeyOverManagersLimitFails(t *testing.T) {
	c := regular().with("get_maxes", "cmd=maxes kvsname_max=256 keylen_max=16 vallen_max=1024").client(t)
	require.NoError(t, c.Put("123456789012345", nil))
	assert.ErrorIs(t, c.Put("1234567890123456", nil), ErrKey)
}

func TestNewClientWithBadRankFails(t *testing.T) {
	for _, tc := range [][2]int{{0, 0}, {-1, 1}, {1, 1}, {0, -1}, {0, maxRanks + 1}} {
		ours, theirs := net.Pipe()
		_, err := NewClient(theirs, tc[0], tc[1])
		assert.ErrorIs(t, err, ErrRank)
		_, err = ours.Write([]byte("x"))
		assert.Error(t, err, "the connection is closed")
	}
}

// Each exchange with a manager that does not answer ends after its time-out.
func TestExchangeWithSilentManagerTimesOut(t *testing.T) {
	for _, silent := range []string{"init", "get_maxes", "get_my_kvsname"} {
		synctest.Test(t, func(t *testing.T) {
			m := regular()
			delete(m, silent)
			begin := time.Now()
			_, err := m.start(t)
			assert.ErrorIs(t, err, ErrTimeout)
			assert.ErrorContains(t, err, "no answer to "+silent)
			assert.Equal(t, patience, time.Since(begin))
		})
	}
	for cmd, call := range map[string]func(*Client) error{
		"put":      func(c *Client) error { return c.Put("k", nil) },
		"get":      func(c *Client) error { _, err := c.Get("k"); return err },
		"finalize": (*Client).Finalize,
	} {
		synctest.Test(t, func(t *testing.T) {
			m := regular()
			delete(m, cmd)
			c := m.client(t)
			begin := time.Now()
			assert.ErrorIs(t, call(c), ErrTimeout, cmd)
			assert.Equal(t, patience, time.Since(begin))
			if cmd != "finalize" {
				assert.ErrorIs(t, c.Barrier(), ErrTimeout, "final")
			}
		})
	}
}

func TestNewClientWithManagerThatDoesNotReadTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		_, err := NewClient(theirs, 0, 1)
		assert.ErrorIs(t, err, ErrTimeout)
	})
}

func TestBarrierHasNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, ServerConfig{Size: 2}, pipePair)
		done := make(chan error, 1)
		go func() { done <- j.clients[0].Barrier() }()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		assert.Equal(t, StateInBarrier, j.server.State(0))
		require.NoError(t, j.clients[1].Barrier())
		require.NoError(t, <-done)
		require.NoError(t, j.clients[0].Put("k", nil), "Put after Barrier: its deadline must be its own")
		for rank, c := range j.clients {
			require.NoError(t, c.Finalize())
			require.NoError(t, <-j.served[rank])
		}
	})
}

func TestServeOfProcessThatDoesNotReadTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewServer(ServerConfig{Size: 1, JobID: "j"})
		require.NoError(t, err)
		ours, theirs := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- s.Serve(0, ours) }()
		_, err = theirs.Write([]byte("cmd=init pmi_version=1 pmi_subversion=1\n"))
		require.NoError(t, err)
		begin := time.Now()
		assert.ErrorIs(t, <-done, ErrTimeout)
		assert.Equal(t, patience, time.Since(begin))
		theirs.Close()
	})
}

func TestShortenCutsAfterWord(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"short", "short"},
		{"exactly twenty bytes", "exactly twenty bytes"},
		{"some more than twenty bytes", "some more than ..."},
		{"twelve bytes and more", "twelve bytes and ..."},
		{"aaaaaaaaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaa ..."},
		{"aaaaaaaaaaaaaaaää aaaaaaaaaa", "aaaaaaaaaaaaaaa ..."},
	} {
		assert.Equal(t, c.want, shorten(c.text, 20))
	}
}
