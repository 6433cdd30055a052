package comm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/internal/wireup"
)

func cardOf(name string) wireup.Card {
	return wireup.Card{Host: "x", Rails: []wireup.Rail{{BTL: "sm", Address: []byte{1}}, {BTL: hostNameRail, Address: []byte(name)}}}
}

func TestAnyCrowded(t *testing.T) {
	roomy, crowded := wireup.Card{}, wireup.Card{Oversubscribed: true}
	assert.False(t, anyCrowded([]wireup.Card{roomy, roomy}, false))
	assert.True(t, anyCrowded([]wireup.Card{roomy, roomy}, true))
	assert.True(t, anyCrowded([]wireup.Card{roomy, crowded}, false))
}

// What a peer says its machine is called is printed only as far as it is a name.
func TestHostName(t *testing.T) {
	assert.Equal(t, "node-7.cluster", hostName(cardOf("node-7.cluster")))
	assert.Equal(t, "node31m", hostName(cardOf("node\x1b[31m\n")))
	assert.Equal(t, "?", hostName(cardOf("\n\n")))
	assert.Equal(t, "?", hostName(wireup.Card{}))
	assert.Len(t, hostName(cardOf(strings.Repeat("a", 500))), 64)
}

// One line that names both machines, and what each rail has to say.
func TestUnreachable(t *testing.T) {
	r := &rails{job: &job{rank: 3}, allowed: []string{"self", "sm"}}
	err := r.unreachable(5, cardOf("far"), nil)
	assert.ErrorContains(t, err, "no rail leads from rank 3 on ")
	assert.ErrorContains(t, err, " to rank 5 on far (btl=self,sm)")
	cause := errors.New("it is shy")
	err = r.unreachable(5, cardOf("far"), []error{cause})
	assert.ErrorIs(t, err, cause)
	assert.NotContains(t, err.Error(), "\n")
	_, err = r.toSelf()
	assert.ErrorContains(t, err, "rank 3 to itself")
}

// A world of one reaches itself, and has nobody else to reach.
func TestWorldOfOne(t *testing.T) {
	w, err := join(nil, settings(t), observe.Hook{})
	require.NoError(t, err)
	assert.Equal(t, 0, w.Rank())
	assert.Equal(t, 1, w.Size())
	assert.Len(t, w.job.modules, 0, "the rail to itself is polled once it is used")
	for range 2 {
		require.NoError(t, Send(w, []int{42}, 0, 0))
		got := []int{0}
		_, err = Recv(w, got, 0, 0)
		require.NoError(t, err)
		assert.Equal(t, []int{42}, got)
		assert.Len(t, w.job.modules, 1)
	}
	require.NoError(t, w.Finalize())
	assert.ErrorIs(t, w.Finalize(), ErrFinalized)
}

// Without the self rail a rank cannot reach itself, and is told so.
func TestWorldWithoutSelf(t *testing.T) {
	w, err := join(nil, settings(t, "btl", "sm"), observe.Hook{})
	require.NoError(t, err)
	err = Send(w, []int{42}, 0, 0)
	assert.ErrorIs(t, err, ErrUnreachable)
	assert.ErrorContains(t, err, "btl=sm has no self")
	require.NoError(t, w.Finalize())
}

func TestOneLine(t *testing.T) {
	assert.Equal(t, "a; b; c", oneLine(errors.Join(errors.New("a"), errors.New("b\r\n\nc\n"))))
}

// stubModule is a rail that connects, unless it is told not to.
type stubModule struct {
	btl.Module
	refuses  error
	connects int
}

type stubEndpoint struct{ btl.Endpoint }

func (m *stubModule) Connect(int, []byte) (btl.Endpoint, error) {
	m.connects++
	if m.refuses != nil {
		return nil, m.refuses
	}
	return stubEndpoint{}, nil
}

// A peer is reached by the first transport of the list that leads there, with all its rails. Those of the others are
// known, and nothing is opened for them.
func TestOrderOfTransports(t *testing.T) {
	always := func(int, wireup.Card) bool { return true }
	sameHost := func(_ int, card wireup.Card) bool { return card.Host == "here" }
	both := []wireup.Rail{{BTL: "sm"}, {BTL: hostNameRail}, {BTL: "ibverbs"}, {BTL: "ibverbs"}}
	sm, verbs0, verbs1 := new(stubModule), new(stubModule), new(stubModule)
	r := &rails{
		job: &job{rank: 0}, host: "here",
		list: []rail{
			{name: "ibverbs", module: verbs0, reaches: always}, {name: "ibverbs", nth: 1, module: verbs1, reaches: always},
			{name: "sm", module: sm, reaches: sameHost},
		},
		cards: []wireup.Card{{}, {Host: "here", Rails: both}, {Host: "there", Rails: both}, {Host: "here", Rails: both[2:3]}},
	}
	type route struct {
		module              *stubModule
		tier, local, remote int
		connected           bool
	}
	for _, c := range []struct {
		allowed []string
		peer    int
		want    []route
	}{
		{[]string{"self", "sm", "ibverbs"}, 1, []route{{sm, 1, 2, 0, true}, {verbs0, 2, 0, 2, false}, {verbs1, 2, 1, 3, false}}},
		{[]string{"self", "ibverbs", "sm"}, 1, []route{{verbs0, 1, 0, 2, true}, {verbs1, 1, 1, 3, true}, {sm, 2, 2, 0, false}}},
		{[]string{"sm", "ibverbs"}, 2, []route{{verbs0, 1, 0, 2, true}, {verbs1, 1, 1, 3, true}}},
		{[]string{"sm", "ibverbs"}, 3, []route{{verbs0, 1, 0, 0, true}}},
	} {
		r.allowed = c.allowed
		*sm, *verbs0, *verbs1 = stubModule{}, stubModule{}, stubModule{}
		list, err := r.resolve(c.peer)
		require.NoError(t, err)
		var got []route
		for _, l := range list {
			m := l.Module.(*stubModule)
			got = append(got, route{m, l.Tier, l.Local, l.Remote, l.Endpoint != nil})
			assert.Equal(t, l.Endpoint != nil, m.connects == 1)
			_, err := l.Reopen()
			require.NoError(t, err)
		}
		assert.Equal(t, c.want, got, "%v to %d", c.allowed, c.peer)
	}

	// One that refuses may lead there later, and the next transport does now.
	r.allowed = []string{"sm", "ibverbs"}
	sm.refuses = errors.New("it is shy")
	got, err := r.resolve(1)
	require.NoError(t, err)
	require.Len(t, got, 3)
	assert.Nil(t, got[0].Endpoint)
	assert.NotNil(t, got[1].Endpoint)
	sm.refuses = fmt.Errorf("%w: never", btl.ErrUnreachable)
	got, err = r.resolve(1)
	require.NoError(t, err)
	require.Len(t, got, 2)
	verbs0.refuses, verbs1.refuses = sm.refuses, sm.refuses
	_, err = r.resolve(1)
	assert.ErrorIs(t, err, sm.refuses)
}

// One rank of a machine says what it has to do without: the first of those that have to.
func TestFirstWithout(t *testing.T) {
	none, verbs := wireup.Card{Host: "here"}, wireup.Card{Host: "here", Rails: []wireup.Rail{{BTL: "ibverbs"}}}
	r := &rails{job: &job{rank: 2}, host: "here"}
	for _, c := range []struct {
		before []wireup.Card
		first  bool
	}{
		{[]wireup.Card{verbs, verbs}, true},
		{[]wireup.Card{verbs, none}, false},
		{[]wireup.Card{none, verbs}, false},
		{[]wireup.Card{{Host: "there"}, verbs}, true},
	} {
		r.cards = append(c.before, wireup.Card{})
		assert.Equal(t, c.first, r.firstWithout("ibverbs"))
	}
}

// One rank of a machine says which addresses it has to do without: the first of those that have as few.
func TestFirstWithAsFew(t *testing.T) {
	with := func(host string, n int) wireup.Card {
		return wireup.Card{Host: host, Rails: slices.Repeat([]wireup.Rail{{BTL: "tcp"}}, n)}
	}
	r := &rails{job: &job{rank: 2}, host: "here", list: []rail{{name: "sm"}, {name: "tcp"}}}
	for _, c := range []struct {
		before []wireup.Card
		first  bool
	}{
		{[]wireup.Card{with("here", 2), with("here", 3)}, true},
		{[]wireup.Card{with("here", 2), with("here", 1)}, false},
		{[]wireup.Card{with("here", 0), with("here", 2)}, false},
		{[]wireup.Card{with("there", 1), with("here", 2)}, true},
	} {
		r.cards = append(c.before, wireup.Card{})
		assert.Equal(t, c.first, r.firstWithAsFew("tcp"))
	}
}

func TestReach(t *testing.T) {
	always := func(int, wireup.Card) bool { return true }
	sameHost := func(_ int, card wireup.Card) bool { return card.Host == "here" }
	sm, verbs := wireup.Rail{BTL: "sm"}, wireup.Rail{BTL: "ibverbs"}
	here := wireup.Card{Host: "here", Rails: []wireup.Rail{sm, verbs, verbs}}
	r := &rails{
		job: &job{rank: 2, size: 8}, allowed: []string{"self", "sm", "ibverbs"},
		list:  []rail{{name: "sm", reaches: sameHost}, {name: "ibverbs", port: "rxe0/1", reaches: always}, {name: "ibverbs", nth: 1, port: "rxe1/1", reaches: always}},
		cards: []wireup.Card{here, here, {}, here, {Host: "there", Rails: here.Rails}, {Host: "there", Rails: here.Rails[:2]}, {}, here},
	}
	assert.Equal(t, "sm to 0-1,3,7; ibverbs(rxe0/1,rxe1/1) to 4; ibverbs(rxe0/1) to 5; nothing to 6", r.reach())
	r.allowed = []string{"ibverbs", "sm"}
	assert.Equal(t, "ibverbs(rxe0/1,rxe1/1) to 0-1,3-4,7; ibverbs(rxe0/1) to 5; nothing to 6", r.reach())
	r.job.size, r.job.rank = 1, 0
	assert.Equal(t, "there are no other ranks", r.reach())
}
