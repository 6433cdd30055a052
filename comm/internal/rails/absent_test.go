package rails

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/wireup"
)

// lateModule is a rail that is absent until it comes. Its address comes with it.
type lateModule struct {
	btl.Module
	name  string
	there bool
	knows []byte // the last address that Connect got
}

func (m *lateModule) Attrs() *btl.Attrs { return &btl.Attrs{Name: m.name} }

func (m *lateModule) Address() []byte {
	if m.there {
		return []byte(m.name + " is there")
	}
	return []byte(m.name)
}

func (m *lateModule) absent(bool) error {
	if m.there {
		return nil
	}
	return errors.New("no interface " + m.name)
}

func (m *lateModule) Connect(_ btl.Path, address []byte) (btl.Endpoint, error) {
	m.knows = address
	if !bytes.HasSuffix(address, []byte("is there")) {
		return nil, btl.ErrNoAddress
	}
	return stubEndpoint{}, nil
}

// lateRails are the rails of a rank: one for each name, all of TCP and absent.
func lateRails(r *Rails, names ...string) (modules []*lateModule) {
	r.cfg.Lock = new(sync.Mutex)
	for _, name := range names {
		m := &lateModule{name: name}
		modules = append(modules, m)
		r.list = append(r.list, rail{transport: "tcp", port: name, module: m, absent: m.absent})
	}
	return modules
}

// clientsOf are the clients of the ranks of a job on different machines.
func clientsOf(t *testing.T, size int) (clients []*wireup.Client) {
	cfg := wireup.ServerConfig{Size: size, JobID: "test"}
	for rank := range size {
		cfg.NodeOf = append(cfg.NodeOf, rank)
	}
	server, err := wireup.NewServer(cfg)
	require.NoError(t, err)
	for rank := range size {
		ours, theirs := net.Pipe()
		go server.Serve(rank, ours)
		c, err := wireup.NewClient(theirs, rank, size)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	return clients
}

// TestAwaitReturnsOnceARailIsThere: without any rail a rank waits, and goes on with the first that
// comes.
func TestAwaitReturnsOnceARailIsThere(t *testing.T) {
	r := railsOfRank(t, 0, 2, "btl", "tcp", "pml.grace", "1h")
	r.cfg.Client = clientsOf(t, 2)[0]
	modules := lateRails(r, "eth0", "eth1")
	why := r.Suffice()
	require.ErrorIs(t, why, ErrAbsent)
	require.EqualError(t, why, "rail eth0: no interface eth0; rail eth1: no interface eth1")
	done := make(chan error)
	go func() { done <- r.Await(why) }()
	r.cfg.Lock.Lock()
	modules[1].there = true
	r.cfg.Lock.Unlock()
	require.NoError(t, <-done)
}

// TestAwaitFailsAfterGraceTime: the error says what is missing, and for how long the rank has
// waited. Without a grace time it does not wait.
func TestAwaitFailsAfterGraceTime(t *testing.T) {
	for grace, want := range map[string]string{
		"20ms": "waited 20ms for a rail (pml.grace): tcp.include=eth0: rail eth0: no interface eth0",
		"0s":   "tcp.include=eth0: rail eth0: no interface eth0",
	} {
		r := railsOfRank(t, 0, 2, "btl", "tcp", "pml.grace", grace, "tcp.include", "eth0")
		r.cfg.Client = clientsOf(t, 2)[0]
		lateRails(r, "eth0")
		require.EqualError(t, r.Await(r.Suffice()), want)
	}
}

// TestSufficeWithAbsentRails: rails that are absent do not count. Nothing is awaited if another
// transport leads everywhere, or if something is missing that cannot come.
func TestSufficeWithAbsentRails(t *testing.T) {
	r := railsOfRank(t, 0, 2, "btl", "self,ibverbs,tcp")
	r.cfg.Client, r.self = clientsOf(t, 2)[0], addressModule{}
	modules := lateRails(r, "eth0", "eth1")
	require.ErrorIs(t, r.Suffice(), ErrAbsent)
	r.list = append(r.list, rail{transport: "ibverbs", module: addressModule{}})
	require.NoError(t, r.Suffice())
	r.list = r.list[:2]
	modules[0].there = true
	require.NoError(t, r.Suffice())
	r.list, r.missing = nil, []missing{{transport.Transport{Name: "tcp"}, errors.New("locked")}}
	require.NotErrorIs(t, r.Suffice(), ErrAbsent)
}

// TestAbsentRailIsConnectedLater: at first there is no endpoint of a rail that was absent at either
// end when the cards were published. It has a reason, and can be made later.
func TestAbsentRailIsConnectedLater(t *testing.T) {
	clients := clientsOf(t, 2)
	ranks := make([]*Rails, 2)
	for i := range ranks {
		ranks[i] = railsOfRank(t, i, 2, "btl", "tcp")
		ranks[i].cfg.Client = clients[i]
		for _, m := range lateRails(ranks[i], "eth0", "eth1") {
			m.there = i == 0 || m.name == "eth0"
		}
	}
	r, peer := ranks[0], ranks[1]
	r.allowed[0].Leads, peer.allowed[0].Leads = nil, nil
	r.cards = []wireup.Card{r.Card(false), peer.Card(false)}
	peer.cards = r.cards
	require.Empty(t, r.whyLeftOut("tcp"))
	require.Equal(t, []string{"rail eth1: no interface eth1; it joins when it is there"}, peer.whyLeftOut("tcp"))
	require.Equal(t, "tcp(eth0)", peer.railsTo(0))
	for i, side := range []btl.Side{btl.SideRemote, btl.SideLocal} {
		routes, err := ranks[i].Resolve(1 - i)
		require.NoError(t, err)
		require.NotNil(t, routes[0].Endpoint)
		require.Nil(t, routes[1].Endpoint)
		var be *btl.Error
		require.ErrorAs(t, routes[1].Down, &be)
		require.Equal(t, side, be.Side)
		_, err = routes[1].Reopen()
		require.Equal(t, i == 1, err == nil, "rank 0 does not know the address yet")
	}
	// The one of a machine's ranks warns that has fewer rails.
	peer.cards[0].Host = "here"
	require.True(t, peer.isFirstWithAsFew("tcp"))
	peer.cards[0].Rails = append(peer.cards[0].Rails, wireup.Rail{BTL: absentEntry, Address: []byte{0}})
	require.False(t, peer.isFirstWithAsFew("tcp"))
}

// TestAddressesThatComeLaterAreTold: where neither end of a rail has an address at the start, each
// end learns the other's address once both have one.
func TestAddressesThatComeLaterAreTold(t *testing.T) {
	clients := clientsOf(t, 2)
	ranks := make([]*Rails, 2)
	modules := make([][]*lateModule, 2)
	cards := make([]wireup.Card, 2)
	for i := range ranks {
		ranks[i] = railsOfRank(t, i, 2, "btl", "tcp")
		ranks[i].cfg.Client = clients[i]
		modules[i] = lateRails(ranks[i], "eth0")
		ranks[i].moved() // before the card is published, nothing has to be told
		require.Nil(t, ranks[i].exchange)
		cards[i] = ranks[i].Card(false)
	}
	w := transport.Pair{}
	for i, r := range ranks {
		r.cards = []wireup.Card{{Rails: append([]wireup.Rail(nil), cards[0].Rails...)}, {Rails: append([]wireup.Rail(nil), cards[1].Rails...)}}
		r.cfg.Lock.Lock()
		_, err := r.connect(1-i, w)
		require.ErrorIs(t, err, btl.ErrNoAddress)
		modules[i][0].there = true
		r.moved()
		r.moved()
		r.cfg.Lock.Unlock()
	}
	for i, r := range ranks {
		require.Eventually(t, func() bool {
			r.cfg.Lock.Lock()
			defer r.cfg.Lock.Unlock()
			_, err := r.connect(1-i, w)
			return err == nil && string(modules[i][0].knows) == "eth0 is there"
		}, 20*time.Second, time.Millisecond)
		r.cfg.Lock.Lock()
		r.Close()
		r.Close()
		r.moved()
		r.cfg.Lock.Unlock()
	}
	require.Equal(t, "eth0", string(ranks[0].published[0]))
}

// TestPairsAreThoseOfTheCards: both ends of a rail find the same pairs also after an address has
// come that would lead elsewhere. Only connecting uses that address.
func TestPairsAreThoseOfTheCards(t *testing.T) {
	ranks := make([]*Rails, 2)
	modules := make([][]*lateModule, 2)
	cards := make([]wireup.Card, 2)
	for i, client := range clientsOf(t, 2) {
		ranks[i] = railsOfRank(t, i, 2, "btl", "tcp")
		ranks[i].cfg.Client = client
		modules[i] = lateRails(ranks[i], "eth0", "eth1")
		cards[i] = ranks[i].Card(false)
		ranks[i].allowed[0].Leads = func(ours, theirs [][]byte) func(local, remote int) int {
			return func(local, remote int) int {
				if bytes.Equal(ours[local], theirs[remote]) {
					return 1
				}
				return 0
			}
		}
	}
	want := []transport.Pair{{Local: 0, Remote: 0}, {Local: 1, Remote: 1}}
	for i, r := range ranks {
		r.cards = cards
		require.Equal(t, want, r.waysTo(1-i, r.allowed[0]))
	}
	modules[0][1].there = true
	require.NoError(t, ranks[0].publishMoved(map[int][]byte{}))
	require.NoError(t, ranks[1].readMoved(&exchange{asks: true}))
	for i, r := range ranks {
		require.Equal(t, want, r.waysTo(1-i, r.allowed[0]))
	}
	_, err := ranks[1].connect(0, want[1])
	require.NoError(t, err)
	require.Equal(t, "eth1 is there", string(modules[1][1].knows))
}

// TestNoExchangeAfterClose: an address that has come just before Close is not published.
func TestNoExchangeAfterClose(t *testing.T) {
	r := railsOfRank(t, 0, 2, "btl", "tcp")
	modules := lateRails(r, "eth0")
	r.Card(false)
	modules[0].there = true
	for range 64 { // a select takes either of two channels
		r.closed = false
		r.exchange = &exchange{wake: make(chan struct{}, 1), done: make(chan struct{}), asks: true}
		r.exchange.wakeUp()
		r.Close()
		r.runExchange(r.exchange) // has no client
	}
}

// TestIsAbsentComparesWholeNumbers: a byte of a card is no number above 255.
func TestIsAbsentComparesWholeNumbers(t *testing.T) {
	card := wireup.Card{Rails: []wireup.Rail{{BTL: absentEntry, Address: []byte{1, 255}}}}
	for number, want := range map[int]bool{0: false, 1: true, 255: true, 256: false, 257: false} {
		require.Equal(t, want, isAbsent(card, number), "rail %d", number)
	}
}
