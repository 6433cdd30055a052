package wireup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// handshake returns a process manager's answers to a client's handshake; maxes is appended to the
// answer to get_maxes.
func handshake(maxes string) string {
	return "cmd=response_to_init rc=0\ncmd=maxes kvsname_max=256 keylen_max=64 vallen_max=800" + maxes + "\ncmd=my_kvsname kvsname=j\n"
}

// clientOf makes a client of rank 1 of 3 whose manager sends the given lines.
func clientOf(t *testing.T, lines string) (*Client, *cannedConn) {
	t.Helper()
	conn := &cannedConn{Reader: strings.NewReader(lines)}
	c, err := NewClient(conn, 1, 3)
	require.NoError(t, err)
	conn.written.Reset()
	return c, conn
}

// Our own manager gets one request for the cards of all ranks, also of those in several pieces.
func TestGetCardsSendsOneRequest(t *testing.T) {
	const n = 5
	j := newJob(t, ServerConfig{Size: n}, socketPair)
	card := func(rank int) Card {
		return Card{Host: "h", PID: rank, Modules: []Module{
			{BTL: "one", Address: make([]byte, maxAddressBytes)}, {BTL: "two", Address: make([]byte, rank*100)},
		}}
	}
	want := make([]Card, n)
	for rank := range want {
		want[rank] = card(rank)
		want[rank].Modules[1].Address = append([]byte(nil), want[rank].Modules[1].Address...)
	}
	j.allOK(t, func(c *Client) error {
		if err := c.PutCard(card(c.Rank())); err != nil {
			return err
		}
		if err := c.Put("mpigo-card", []byte("no card")); err != nil {
			return err
		}
		return c.Barrier()
	})
	j.allOK(t, func(c *Client) error {
		cards, err := c.GetCards()
		if err != nil {
			return err
		}
		expected := append([]Card(nil), want...)
		expected[c.Rank()] = Card{}
		if !assert.Equal(t, expected, cards) {
			return fmt.Errorf("rank %d", c.Rank())
		}
		return nil
	})

	c, conn := clientOf(t, handshake(" mpigo_get_all=1")+"cmd=mpigo_get_all_result rc=0 count=3\n"+cardLines(t, 0, 1, 2))
	cards, err := c.GetCards()
	require.NoError(t, err)
	assert.Equal(t, []int{70, 0, 72}, []int{cards[0].PID, cards[1].PID, cards[2].PID})
	assert.Equal(t, "cmd=mpigo_get_all kvsname=j prefix=mpigo-card-\n", conn.written.String())
}

// A manager that does not offer getAll gets a PMI-1 request for each card.
func TestGetCardsFromOtherManagerSendsGets(t *testing.T) {
	c, conn := clientOf(t, handshake("")+strings.NewReplacer("mpigo_word key=mpigo-card-0", "get_result rc=0", "mpigo_word key=mpigo-card-2", "get_result rc=0").Replace(cardLines(t, 0, 2)))
	cards, err := c.GetCards()
	require.NoError(t, err)
	assert.Equal(t, []int{70, 0, 72}, []int{cards[0].PID, cards[1].PID, cards[2].PID})
	assert.Equal(t, "cmd=get kvsname=j key=mpigo-card-0\ncmd=get kvsname=j key=mpigo-card-2\n", conn.written.String())
}

// cardLines returns a server's lines with the cards of some ranks. The PIDs are the ranks plus 70.
func cardLines(t *testing.T, ranks ...int) string {
	t.Helper()
	lines := ""
	for _, rank := range ranks {
		b, err := Card{Host: "h", PID: 70 + rank}.Encode()
		require.NoError(t, err)
		lines += formatLine(getAllWord, "key", CardKey(rank), "value", fmt.Sprint(len(b), ".", pieceEncoding.EncodeToString(b)))
	}
	return lines
}

func TestGetCardsOfBadAnswerFails(t *testing.T) {
	for name, tc := range map[string]struct {
		answer string
		want   error
	}{
		"a refusal":                {"cmd=mpigo_get_all_result rc=-1 msg=no\n", ErrRefused},
		"no count":                 {"cmd=mpigo_get_all_result rc=0\n", ErrProtocol},
		"too many cards":           {"cmd=mpigo_get_all_result rc=0 count=100000\n", ErrProtocol},
		"fewer than count":         {"cmd=mpigo_get_all_result rc=0 count=2\n" + cardLines(t, 0), ErrLost},
		"another line":             {"cmd=mpigo_get_all_result rc=0 count=2\n" + cardLines(t, 0) + "cmd=barrier_out\n", ErrProtocol},
		"a key twice":              {"cmd=mpigo_get_all_result rc=0 count=2\n" + cardLines(t, 0, 0), ErrProtocol},
		"a key without the prefix": {"cmd=mpigo_get_all_result rc=0 count=1\ncmd=mpigo_word key=other value=A\n", ErrProtocol},
		"a card is missing":        {"cmd=mpigo_get_all_result rc=0 count=2\n" + cardLines(t, 0, 1), ErrNotFound},
		"a piece is missing":       {"cmd=mpigo_get_all_result rc=0 count=1\ncmd=mpigo_word key=mpigo-card-0 value=9.AAAA\n", ErrNotFound},
		"a card is damaged":        {"cmd=mpigo_get_all_result rc=0 count=1\ncmd=mpigo_word key=mpigo-card-0 value=3.AAAA\n", ErrCard},
	} {
		c, _ := clientOf(t, handshake(" mpigo_get_all=1")+tc.answer)
		_, err := c.GetCards()
		require.ErrorIs(t, err, tc.want, name)
		assert.Less(t, len(err.Error()), 400, name)
	}
}

func TestNodeOfAsksManagerOnce(t *testing.T) {
	c, conn := clientOf(t, handshake("")+"cmd=get_result rc=0 value=(vector,(0,1,2),(1,1,1))\n")
	for range 2 {
		nodeOf, err := c.NodeOf()
		require.NoError(t, err)
		assert.Equal(t, []int{0, 0, 1}, nodeOf)
		nodeOf[0] = 7 // the caller owns the slice
	}
	assert.Equal(t, "cmd=get kvsname=j key=PMI_process_mapping\n", conn.written.String())
}
