package wireup

import (
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPublishedModulesAreSeenWithoutBarrier: the other ranks see a published address at once, and
// only once.
func TestPublishedModulesAreSeenWithoutBarrier(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 3}, socketPair)
	seen := func(rank int) []PublishedModule {
		list, err := j.clients[rank].PublishedModules()
		require.NoError(t, err)
		return list
	}
	require.Empty(t, seen(2))
	long := make([]byte, maxAddressBytes)
	require.NoError(t, j.clients[0].PublishModule(1, []byte("first")))
	require.NoError(t, j.clients[1].PublishModule(63, long))
	want := []PublishedModule{{0, 1, []byte("first")}, {1, 63, long}}
	require.Equal(t, want, seen(2))
	require.Empty(t, seen(2))
	require.NoError(t, j.clients[0].PublishModule(1, []byte{}))
	require.Equal(t, []PublishedModule{{0, 1, []byte{}}}, seen(2))
	require.Equal(t, []PublishedModule{{1, 63, long}, {0, 1, []byte{}}}, seen(1), "without what was replaced")
	require.ErrorIs(t, j.clients[0].PublishModule(1, make([]byte, maxAddressBytes+1)), ErrTooLarge)
	j.allOK(t, func(c *Client) error { return c.Barrier() })
	require.Empty(t, seen(2))
}

// TestPublishModuleOfAnotherRankIsRefused: a rank publishes its own modules only, and no more than
// there is room for.
func TestPublishModuleOfAnotherRankIsRefused(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 12}, socketPair)
	liar := j.clients[1]
	for _, rank := range []int{0, 11} {
		liar.rank = rank
		require.ErrorIs(t, liar.PublishModule(0, []byte{1}), ErrRefused)
	}
	liar.rank = 1
	require.NoError(t, liar.PublishModule(0, []byte{1}))
	j.server.mu.Lock()
	j.server.kvs.maxBytes = j.server.kvs.bytes
	j.server.mu.Unlock()
	require.ErrorIs(t, liar.PublishModule(1, []byte{1}), ErrRefused)
	require.ErrorIs(t, liar.PublishModule(0, []byte{1, 2, 3, 4}), ErrRefused)
	for i := range 1000 { // each takes the place of the last one
		require.NoError(t, liar.PublishModule(0, []byte{byte(i)}))
	}
	liar.seen = maxPublished
	list, err := liar.PublishedModules()
	require.NoError(t, err)
	require.Empty(t, list)
	liar.kvsName = "another"
	_, err = liar.PublishedModules()
	require.ErrorIs(t, err, ErrRefused)
}

// TestOtherManagersDoNotPublish: a manager that does not offer it is not asked.
func TestOtherManagersDoNotPublish(t *testing.T) {
	c, conn := clientOf(t, handshake(" mpigo_get_all=1"))
	require.ErrorIs(t, c.PublishModule(0, nil), ErrUnsupported)
	_, err := c.PublishedModules()
	require.ErrorIs(t, err, ErrUnsupported)
	require.Empty(t, conn.written.String())
}

func TestPublishedModulesOfBadAnswerFails(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   error
	}{
		"a refusal":        {"cmd=mpigo_published_result rc=-1 msg=no\n", ErrRefused},
		"no count":         {"cmd=mpigo_published_result rc=0\n", ErrProtocol},
		"too many":         {"cmd=mpigo_published_result rc=0 count=1048577\n", ErrProtocol},
		"fewer than count": {"cmd=mpigo_published_result rc=0 count=1\n", ErrLost},
		"another line":     {"cmd=mpigo_published_result rc=0 count=1\ncmd=barrier_out\n", ErrProtocol},
	} {
		client, _ := clientOf(t, handshake(" mpigo_publish=1")+c.answer)
		_, err := client.PublishedModules()
		require.ErrorIs(t, err, c.want, name)
		require.Zero(t, client.seen, name)
	}
}

// badModules are keys and values that are no address of a module of a job of three.
var badModules = map[string][2]string{
	"another key":       {"mpigo-card-0", "AAAA"},
	"another prefix":    {"0-1", "AAAA"},
	"a negative rank":   {"mpigo-module--1-0", "AAAA"},
	"a bad number":      {"mpigo-module-0-64", "AAAA"},
	"a negative number": {"mpigo-module-0--1", "AAAA"},
	"no number":         {"mpigo-module-0", "AAAA"},
	"a damaged address": {"mpigo-module-0-0", "A"},
	"a long address":    {"mpigo-module-0-0", pieceEncoding.EncodeToString(make([]byte, maxAddressBytes+1))},
}

// TestPublishedModulesSkipsBadEntries: malformed entries of one rank do not end the connections of
// the others.
func TestPublishedModulesSkipsBadEntries(t *testing.T) {
	for name, bad := range badModules {
		client, _ := clientOf(t, handshake(" mpigo_publish=1")+"cmd=mpigo_published_result rc=0 count=3\n"+
			formatLine(getAllWord, "key", bad[0], "value", bad[1])+
			formatLine(getAllWord, "key", "mpigo-module-3-0", "value", "AAAA")+ // no such rank
			formatLine(getAllWord, "key", "mpigo-module-2-1", "value", "AAAA"))
		list, err := client.PublishedModules()
		require.NoError(t, err, name)
		require.Equal(t, []PublishedModule{{2, 1, make([]byte, 3)}}, list, name)
		require.Equal(t, 3, client.seen, name)
	}
}

// TestServerRefusesBadRails: the server publishes only addresses of modules.
func TestServerRefusesBadRails(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 3}, socketPair)
	c := j.clients[0]
	for name, bad := range badModules {
		a, err := c.exchange(publish, publishResult, "kvsname", c.kvsName, "key", bad[0], "value", bad[1])
		require.NoError(t, err, name)
		require.ErrorIs(t, a.refusal(publish), ErrRefused, name)
	}
	_, err := j.clients[1].PublishedModules()
	require.NoError(t, err)
	require.Zero(t, j.clients[1].seen)
}

// TestStallWhilePublishingSparesTheConnection: a manager that does not answer PublishModule or
// PublishedModules in time is not asked again, and serves barriers still. Its late answer is
// dropped, but no part of a line is.
func TestStallWhilePublishingSparesTheConnection(t *testing.T) {
	words := "cmd=mpigo_published_result rc=0 count=2\ncmd=mpigo_word key=mpigo-module-0-0 value=AAAA\ncmd=mpigo_word key=mpigo-module-0-1 value=AAAA\n"
	publishRail := func(c *Client) error { return c.PublishModule(0, []byte{1}) }
	publishedRails := func(c *Client) error { _, err := c.PublishedModules(); return err }
	for _, tc := range []struct {
		call       func(*Client) error
		soon, late string
		barrier    error
	}{
		{publishRail, "", "cmd=mpigo_publish_result rc=0\n", nil},
		{publishRail, "", "", nil},
		{publishedRails, "", words, nil},
		{publishedRails, words[:len(words)/2], "", ErrTimeout},
		{publishedRails, words[:40], words[40:], nil},
		{publishRail, "cmd=mpigo_publish", "_result rc=0\n", ErrTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer ours.Close()
			c := newClient(theirs)
			c.size, c.kvsName, c.hasPublish = 3, "test", true
			c.secret.barrier = true
			defer c.Close()
			go func() { _, _ = io.Copy(io.Discard, ours) }()
			go func() { _, _ = io.WriteString(ours, tc.soon) }()
			begin := time.Now()
			require.ErrorIs(t, tc.call(c), ErrTimeout)
			require.Equal(t, patience, time.Since(begin))
			require.ErrorIs(t, publishRail(c), ErrTimeout)
			require.ErrorIs(t, publishedRails(c), ErrTimeout)
			require.Equal(t, patience, time.Since(begin), "it is not asked again")
			go func() { _, _ = io.WriteString(ours, tc.late+"cmd=barrier_out\n") }()
			if tc.barrier != nil {
				require.ErrorIs(t, c.Barrier(), tc.barrier)
				return
			}
			require.NoError(t, c.Barrier(), fmt.Sprintf("%q %q", tc.soon, tc.late))
		})
	}
}
