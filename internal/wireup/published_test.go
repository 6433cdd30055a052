package wireup

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPublishedRailsAreSeenWithoutBarrier: what a rank publishes is there for the others at once,
// once for each.
func TestPublishedRailsAreSeenWithoutBarrier(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 3}, socketPair)
	seen := func(rank int) []PublishedRail {
		list, err := j.clients[rank].PublishedRails()
		require.NoError(t, err)
		return list
	}
	require.Empty(t, seen(2))
	long := make([]byte, maxAddressBytes)
	require.NoError(t, j.clients[0].PublishRail(1, []byte("first")))
	require.NoError(t, j.clients[1].PublishRail(63, long))
	want := []PublishedRail{{0, 1, []byte("first")}, {1, 63, long}}
	require.Equal(t, want, seen(2))
	require.Empty(t, seen(2))
	require.NoError(t, j.clients[0].PublishRail(1, []byte{}))
	require.Equal(t, []PublishedRail{{0, 1, []byte{}}}, seen(2))
	require.Len(t, seen(1), 3)
	require.ErrorIs(t, j.clients[0].PublishRail(1, make([]byte, maxAddressBytes+1)), ErrTooLarge)
	j.allOK(t, func(c *Client) error { return c.Barrier() })
	require.Empty(t, seen(2))
}

// TestPublishRailOfAnotherRankIsRefused: a rank publishes its own rails only, and no more than
// there is room for.
func TestPublishRailOfAnotherRankIsRefused(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 12}, socketPair)
	liar := j.clients[1]
	for _, rank := range []int{0, 11} {
		liar.rank = rank
		require.ErrorIs(t, liar.PublishRail(0, []byte{1}), ErrRefused)
	}
	liar.rank = 1
	require.NoError(t, liar.PublishRail(0, []byte{1}))
	j.server.mu.Lock()
	j.server.kvs.maxBytes = j.server.kvs.bytes
	j.server.mu.Unlock()
	require.ErrorIs(t, liar.PublishRail(0, []byte{1}), ErrRefused)
	liar.seen = maxPublished
	list, err := liar.PublishedRails()
	require.NoError(t, err)
	require.Empty(t, list)
	liar.kvsName = "another"
	_, err = liar.PublishedRails()
	require.ErrorIs(t, err, ErrRefused)
}

// TestOtherManagersDoNotPublish: a manager that does not offer it is not asked.
func TestOtherManagersDoNotPublish(t *testing.T) {
	c, conn := clientOf(t, handshake(" mpigo_get_all=1"))
	require.ErrorIs(t, c.PublishRail(0, nil), ErrUnsupported)
	_, err := c.PublishedRails()
	require.ErrorIs(t, err, ErrUnsupported)
	require.Empty(t, conn.written.String())
}

func TestPublishedRailsOfBadAnswerFails(t *testing.T) {
	word := func(key, value string) string {
		return fmt.Sprintf("cmd=mpigo_published_result rc=0 count=1\ncmd=mpigo_word key=%s value=%s\n", key, value)
	}
	for name, c := range map[string]struct {
		answer string
		want   error
	}{
		"a refusal":         {"cmd=mpigo_published_result rc=-1 msg=no\n", ErrRefused},
		"no count":          {"cmd=mpigo_published_result rc=0\n", ErrProtocol},
		"too many":          {"cmd=mpigo_published_result rc=0 count=1048577\n", ErrProtocol},
		"fewer than count":  {"cmd=mpigo_published_result rc=0 count=1\n", ErrLost},
		"another line":      {"cmd=mpigo_published_result rc=0 count=1\ncmd=barrier_out\n", ErrProtocol},
		"another key":       {word("mpigo-card-0", "AAAA"), ErrProtocol},
		"another prefix":    {word("0-1", "AAAA"), ErrProtocol},
		"a bad rank":        {word("mpigo-rail-3-0", "AAAA"), ErrProtocol},
		"a negative rank":   {word("mpigo-rail--1-0", "AAAA"), ErrProtocol},
		"a bad number":      {word("mpigo-rail-0-64", "AAAA"), ErrProtocol},
		"no number":         {word("mpigo-rail-0", "AAAA"), ErrProtocol},
		"a damaged address": {word("mpigo-rail-0-0", "A"), ErrProtocol},
	} {
		client, _ := clientOf(t, handshake(" mpigo_publish=1")+c.answer)
		_, err := client.PublishedRails()
		require.ErrorIs(t, err, c.want, name)
		require.Zero(t, client.seen, name)
	}
}
