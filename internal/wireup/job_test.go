package wireup

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// job is a server and the clients of all its ranks.
type job struct {
	server  *Server
	clients []*Client
	served  []chan error // the result of each rank's Serve
}

// newJob connects cfg.Size clients to a server. It closes them at the end of the test.
func newJob(t testing.TB, cfg ServerConfig, pair func(testing.TB) (net.Conn, net.Conn)) *job {
	t.Helper()
	if cfg.JobID == "" {
		cfg.JobID = "test.0"
	}
	server, err := NewServer(cfg)
	require.NoError(t, err)
	j := &job{server: server, clients: make([]*Client, cfg.Size)}
	for rank := range cfg.Size {
		ours, theirs := pair(t)
		done := make(chan error, 1)
		j.served = append(j.served, done)
		go func() { done <- server.Serve(rank, ours) }()
		j.clients[rank], err = NewClient(theirs, rank, cfg.Size)
		require.NoError(t, err)
		t.Cleanup(func() { j.clients[rank].Close() })
	}
	return j
}

// all runs body for all ranks at the same time and returns the errors by rank.
func (j *job) all(body func(c *Client) error) []error {
	errs := make([]error, len(j.clients))
	var wg sync.WaitGroup
	for rank, c := range j.clients {
		wg.Go(func() { errs[rank] = body(c) })
	}
	wg.Wait()
	return errs
}

func (j *job) allOK(t testing.TB, body func(c *Client) error) {
	t.Helper()
	for rank, err := range j.all(body) {
		require.NoError(t, err, "rank %d", rank)
	}
}

func pipePair(testing.TB) (net.Conn, net.Conn) { return net.Pipe() }

func socketPair(t testing.TB) (net.Conn, net.Conn) {
	ours, theirs := socketFDs(t)
	return connOf(t, ours), connOf(t, theirs)
}

// socketFDs makes a connected pair of sockets.
func socketFDs(t testing.TB) (ours, theirs int) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	return fds[0], fds[1]
}

// connOf makes a connection of a descriptor.
func connOf(t testing.TB, fd int) net.Conn {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	conn, err := net.FileConn(f)
	require.NoError(t, err)
	return conn
}

// The life of a job as in doc.go, over both kinds of connection.
func TestJobLife(t *testing.T) {
	for name, pair := range map[string]func(testing.TB) (net.Conn, net.Conn){"pipe": pipePair, "socket": socketPair} {
		t.Run(name, func(t *testing.T) {
			const n = 7
			j := newJob(t, ServerConfig{Size: n, NodeOf: []int{4, 4, 4, 9, 9, 9, 4}}, pair)
			secrets := make([][]byte, n)
			j.allOK(t, func(c *Client) error {
				card := Card{Host: fmt.Sprint("host", c.Rank()), PID: 100 + c.Rank(), Modules: []Module{{BTL: "tcp", Address: []byte{0, ' ', '=', '\n', byte(c.Rank())}}}}
				if err := c.PutCard(card); err != nil {
					return err
				}
				if err := c.Barrier(); err != nil {
					return err
				}
				var err error
				secrets[c.Rank()], err = c.Secret()
				return err
			})
			j.allOK(t, func(c *Client) error {
				cards, err := c.GetCards()
				if err != nil {
					return err
				}
				for rank, card := range cards {
					if rank == c.Rank() {
						continue
					}
					if card.PID != 100+rank || card.Host != fmt.Sprint("host", rank) || card.Modules[0].Address[4] != byte(rank) {
						return fmt.Errorf("card of rank %d is %+v", rank, card)
					}
				}
				return nil
			})
			assert.Len(t, secrets[0], SecretBytes)
			assert.NotEqual(t, make([]byte, SecretBytes), secrets[0])
			for rank, c := range j.clients {
				assert.Equal(t, secrets[0], secrets[rank])
				assert.Equal(t, rank, c.Rank())
				assert.Equal(t, n, c.Size())
				assert.Equal(t, "test.0", c.kvsName)
				nodeOf, err := c.NodeOf()
				require.NoError(t, err)
				assert.Equal(t, []int{0, 0, 0, 1, 1, 1, 0}, nodeOf)
				assert.Equal(t, StateInited, j.server.State(rank))
			}
			j.allOK(t, (*Client).Finalize)
			for rank := range n {
				assert.NoError(t, <-j.served[rank])
				assert.Equal(t, StateFinalized, j.server.State(rank))
				assert.ErrorIs(t, j.clients[rank].Put("k", nil), ErrClosed)
				assert.ErrorIs(t, j.clients[rank].Barrier(), ErrClosed)
				assert.ErrorIs(t, j.clients[rank].Finalize(), ErrClosed)
				assert.ErrorIs(t, j.clients[rank].Abort(Abort{Code: 1}), ErrClosed)
				assert.NoError(t, j.clients[rank].Close())
			}
		})
	}
}

func TestGetReturnsAnyValuePut(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 2}, pipePair)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	values := map[string][]byte{
		"empty":      {},
		"nul":        {0},
		"line":       []byte("cmd=finalize\ncmd=abort exitcode=3\n"),
		"every-byte": every,
		"a":          []byte("a's own"), // keys of pieces differ from keys of users
		"a-1":        []byte("not a piece of a"),
		"long":       bytes.Repeat(every, 40),
		"longest":    bytes.Repeat(every, MaxValueBytes/len(every)),
		string(bytes.Repeat([]byte("k"), MaxKeyBytes)): bytes.Repeat([]byte("v"), 3000),
	}
	for n := range 20 { // around the end of the first piece
		values[fmt.Sprint("edge", n)] = bytes.Repeat([]byte{byte(n)}, valLenMax*3/4-n)
	}
	for key, value := range values {
		require.NoError(t, j.clients[0].Put(key, value), key)
	}
	j.allOK(t, (*Client).Barrier)
	for key, value := range values {
		got, err := j.clients[1].Get(key)
		require.NoError(t, err, key)
		assert.True(t, bytes.Equal(value, got), key)
	}
}

func TestPutOfBadArgumentsFails(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 1}, pipePair)
	c := j.clients[0]
	for _, key := range []string{"", "with space", "a=b", "a;b", "a/1", "a.b", "ä", "new\nline", string(make([]byte, 3)), string(bytes.Repeat([]byte("k"), MaxKeyBytes+1))} {
		assert.ErrorIs(t, c.Put(key, nil), ErrKey, "%q", key)
		_, err := c.Get(key)
		assert.ErrorIs(t, err, ErrKey, "%q", key)
	}
	assert.ErrorIs(t, c.Put("k", make([]byte, MaxValueBytes+1)), ErrTooLarge)
	assert.ErrorIs(t, c.PutCard(Card{PID: -1}), ErrCard)
}

// A value is visible after the barrier and not before, also to the rank that put it.
func TestPutIsVisibleAfterBarrierOnly(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 2}, pipePair)
	require.NoError(t, j.clients[0].Put("k", []byte("v")))
	for _, c := range j.clients {
		_, err := c.Get("k")
		assert.ErrorIs(t, err, ErrNotFound)
	}
	j.allOK(t, (*Client).Barrier)
	for _, c := range j.clients {
		v, err := c.Get("k")
		require.NoError(t, err)
		assert.Equal(t, "v", string(v))
		_, err = c.Get("other")
		assert.ErrorIs(t, err, ErrNotFound)
	}
}

// In each round every rank reads the values that all ranks put in that round. It fails if the
// barrier releases a rank early.
func TestRepeatedBarriersOfManyRanks(t *testing.T) {
	const n, rounds = 24, 12
	j := newJob(t, ServerConfig{Size: n}, pipePair)
	j.allOK(t, func(c *Client) error {
		for round := range rounds {
			value := func(rank int) []byte { return []byte{byte(round), byte(rank)} }
			if err := c.Put(fmt.Sprintf("r%d-%d", round, c.Rank()), value(c.Rank())); err != nil {
				return err
			}
			if err := c.Barrier(); err != nil {
				return err
			}
			for rank := range n {
				got, err := c.Get(fmt.Sprintf("r%d-%d", round, rank))
				if err != nil {
					return err
				}
				if want := value(rank); !bytes.Equal(got, want) {
					return fmt.Errorf("round %d: rank %d gets %v of rank %d, which put %v", round, c.Rank(), got, rank, want)
				}
			}
		}
		return c.Finalize()
	})
}

// Goroutines share a client; no goroutine may get another's answer.
func TestClientSharedByGoroutines(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 2}, socketPair)
	c := j.clients[0]
	const n = 16
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = c.Put(fmt.Sprint("k", i), bytes.Repeat([]byte{byte(i)}, 100*i)) })
	}
	wg.Wait()
	require.Empty(t, slices.DeleteFunc(errs, func(err error) bool { return err == nil }))
	j.allOK(t, (*Client).Barrier)
	bad := make([]bool, n)
	for i := range n {
		wg.Go(func() {
			v, err := c.Get(fmt.Sprint("k", i))
			bad[i] = err != nil || !bytes.Equal(v, bytes.Repeat([]byte{byte(i)}, 100*i))
		})
	}
	wg.Wait()
	assert.NotContains(t, bad, true)
}

// Secret asks the manager while a Barrier of another goroutine is under way. Neither may hold a
// lock that the other needs.
func TestSecretDuringBarrier(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 2}, pipePair)
	j.allOK(t, (*Client).Barrier)
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, j.clients[1].Barrier()) })
	waitState(t, j.server, 1, StateInBarrier)
	wg.Go(func() {
		_, err := j.clients[1].Secret()
		assert.NoError(t, err)
	})
	wg.Go(func() { assert.NoError(t, j.clients[0].Barrier()) })
	wg.Wait()
}

func TestSecretBeforeBarrierFails(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 2}, pipePair)
	for _, c := range j.clients {
		_, err := c.Secret()
		assert.ErrorIs(t, err, ErrSecret)
	}
}

// Rank 0 has a secret from the launcher and does not publish it. Rank 1 has none.
func TestSecretSetForSomeRanksOnlyFails(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 2}, pipePair)
	given := bytes.Repeat([]byte{7}, SecretBytes)
	j.clients[0].secret.set(given)
	j.allOK(t, (*Client).Barrier)
	secret, err := j.clients[0].Secret()
	require.NoError(t, err)
	assert.Equal(t, given, secret)
	clear(secret) // the caller's copy
	secret, err = j.clients[0].Secret()
	require.NoError(t, err)
	assert.Equal(t, given, secret)
	_, err = j.clients[1].Secret()
	assert.ErrorIs(t, err, ErrSecret)
	assert.ErrorContains(t, err, EnvSecret)
}

func TestSecretOfWrongLengthFails(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 1}, pipePair)
	require.NoError(t, j.clients[0].Put(secretKey, []byte("short")))
	j.clients[0].secret.barrier = true // as if rank 0 were another program
	j.allOK(t, (*Client).Barrier)
	_, err := j.clients[0].Secret()
	assert.ErrorIs(t, err, ErrSecret)
}

// Under another launcher the ranks agree on an identity that a later job of the same name has not.
func TestJobIDDependsOnSecretUnderAnotherLauncher(t *testing.T) {
	var before []string
	for range 2 {
		j := newJob(t, ServerConfig{Size: 2}, pipePair)
		var own []string
		for _, c := range j.clients {
			assert.Equal(t, "test.0", c.JobID(), "of mpirun-go, whose names are unique")
			c.hasGetAll = false
		}
		assert.Equal(t, "test.0", j.clients[1].JobID(), "before the barrier")
		j.allOK(t, (*Client).Barrier)
		for _, c := range j.clients {
			secret, err := c.Secret()
			require.NoError(t, err)
			own = append(own, c.JobID())
			assert.NotContains(t, c.JobID(), hex.EncodeToString(secret[:4]))
		}
		assert.Equal(t, own[0], own[1])
		assert.Regexp(t, `^test\.0-[0-9a-f]{8}$`, own[0])
		assert.NotContains(t, before, own[0])
		before = append(before, own[0])
	}
}

func TestNewSecretIsRandom(t *testing.T) {
	a, err := NewSecret()
	require.NoError(t, err)
	b, err := NewSecret()
	require.NoError(t, err)
	assert.Len(t, a, SecretBytes)
	assert.NotEqual(t, a, b)
}

func TestNodeOfWithoutMappingIsNil(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 1}, pipePair)
	j.server.mapping = "" // as formatMapping returns it if there are too many blocks
	nodeOf, err := j.clients[0].NodeOf()
	require.NoError(t, err)
	assert.Nil(t, nodeOf)
}
