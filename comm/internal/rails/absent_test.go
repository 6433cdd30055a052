package rails

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/wireup"
)

// lateModule is a module that is absent until it comes. Its address comes with it.
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

// lateModules are the modules of a rank: one for each name, all of TCP and absent.
func lateModules(r *Rails, names ...string) (modules []*lateModule) {
	r.cfg.Lock = new(sync.Mutex)
	for _, name := range names {
		m := &lateModule{name: name}
		modules = append(modules, m)
		r.list = append(r.list, module{transport: "tcp", port: name, module: m, absent: m.absent})
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

// asking is an exchange that asks for addresses.
func asking() *exchange {
	return &exchange{wake: make(chan struct{}, 1), done: make(chan struct{}), askUntil: time.Now().Add(time.Hour)}
}

// TestAwaitReturnsOnceARailIsThere: without any module a rank waits, and goes on with the first
// that comes.
func TestAwaitReturnsOnceARailIsThere(t *testing.T) {
	r := railsOfRank(t, 0, 2, "btl", "tcp", "pml.grace", "1h")
	r.cfg.Client = clientsOf(t, 2)[0]
	modules := lateModules(r, "eth0", "eth1")
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
		lateModules(r, "eth0")
		require.EqualError(t, r.Await(r.Suffice()), want)
	}
}

// TestSufficeWithAbsentRails: modules that are absent do not count. Nothing is awaited if another
// transport leads everywhere, or if something is missing that cannot come.
func TestSufficeWithAbsentRails(t *testing.T) {
	r := railsOfRank(t, 0, 2, "btl", "self,ibverbs,tcp")
	r.cfg.Client, r.self = clientsOf(t, 2)[0], addressModule{}
	modules := lateModules(r, "eth0", "eth1")
	require.ErrorIs(t, r.Suffice(), ErrAbsent)
	r.list = append(r.list, module{transport: "ibverbs", module: addressModule{}})
	require.NoError(t, r.Suffice())
	r.list = r.list[:2]
	modules[0].there = true
	require.NoError(t, r.Suffice())
	r.list, r.missing = nil, []missing{{transport.Transport{Name: "tcp"}, errors.New("locked")}}
	require.NotErrorIs(t, r.Suffice(), ErrAbsent)
}

// TestAbsentRailIsConnectedLater: at first there is no endpoint of a module that was absent at
// either end when the cards were published. It has a reason, and can be made later.
func TestAbsentRailIsConnectedLater(t *testing.T) {
	clients := clientsOf(t, 2)
	ranks := make([]*Rails, 2)
	for i := range ranks {
		ranks[i] = railsOfRank(t, i, 2, "btl", "tcp")
		ranks[i].cfg.Client = clients[i]
		for _, m := range lateModules(ranks[i], "eth0", "eth1") {
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
		ranks[i].cfg.Lock.Lock()
		routes, err := ranks[i].Resolve(1 - i)
		require.NoError(t, err)
		require.NotNil(t, routes[0].Endpoint)
		require.Nil(t, routes[1].Endpoint)
		var be *btl.Error
		require.ErrorAs(t, routes[1].Down, &be)
		require.Equal(t, side, be.Side)
		_, err = routes[1].Reopen()
		require.Equal(t, i == 1, err == nil, "rank 0 does not know the address yet")
		ranks[i].Close()
		ranks[i].cfg.Lock.Unlock()
	}
	// Of the ranks of a machine, the one with fewer modules warns.
	peer.cards[0].Host = "here"
	require.True(t, peer.isFirstWithAsFew("tcp"))
	peer.cards[0].Modules = append(peer.cards[0].Modules, wireup.Module{BTL: absentEntry, Address: []byte{0}})
	require.False(t, peer.isFirstWithAsFew("tcp"))
}

// TestAddressesThatComeLaterAreTold: where neither end of a module has an address at the start,
// each end learns the other's address once both have one.
func TestAddressesThatComeLaterAreTold(t *testing.T) {
	clients := clientsOf(t, 2)
	ranks := make([]*Rails, 2)
	modules := make([][]*lateModule, 2)
	cards := make([]wireup.Card, 2)
	for i := range ranks {
		ranks[i] = railsOfRank(t, i, 2, "btl", "tcp")
		ranks[i].cfg.Client = clients[i]
		modules[i] = lateModules(ranks[i], "eth0")
		ranks[i].moved() // before the card is published, nothing has to be told
		require.Nil(t, ranks[i].exchange)
		cards[i] = ranks[i].Card(false)
	}
	w := transport.Pair{}
	for i, r := range ranks {
		r.cards = []wireup.Card{{Modules: append([]wireup.Module(nil), cards[0].Modules...)}, {Modules: append([]wireup.Module(nil), cards[1].Modules...)}}
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
			_, err := r.reopen(1-i, w)
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

// movingModule is a module that leads to the present address of its peer only.
type movingModule struct {
	btl.Module
	address string
	leads   string           // the address that leads to the peer
	told    map[int][]string // by peer
}

func (m *movingModule) Attrs() *btl.Attrs { return &btl.Attrs{Name: "moving"} }
func (m *movingModule) Address() []byte   { return []byte(m.address) }
func (m *movingModule) PeerMoved(peer int, address []byte) {
	m.told[peer] = append(m.told[peer], string(address))
}

func (m *movingModule) Connect(_ btl.Path, address []byte) (btl.Endpoint, error) {
	if string(address) != m.leads {
		return nil, btl.ErrNoAddress
	}
	return stubEndpoint{}, nil
}

// movingModules are ranks with one module each, which lead to each other.
func movingModules(t *testing.T, clients []*wireup.Client) (ranks []*Rails, modules []*movingModule) {
	var cards []wireup.Card
	for i, client := range clients {
		r := railsOfRank(t, i, len(clients), "btl", "tcp")
		m := &movingModule{address: "start", leads: "start", told: map[int][]string{}}
		r.cfg.Client, r.cfg.Lock = client, new(sync.Mutex)
		r.list = []module{{transport: "tcp", module: m}}
		cards = append(cards, r.Card(false))
		ranks, modules = append(ranks, r), append(modules, m)
	}
	for _, r := range ranks {
		r.cards = cards
		t.Cleanup(func() {
			r.cfg.Lock.Lock()
			r.Close()
			r.cfg.Lock.Unlock()
		})
	}
	return ranks, modules
}

// TestRanksThatMoveAtTheSameTimeFindEachOther: all modules of both ranks get other addresses, which
// each rank learns. That holds for each of several moves, also for one back to the start, and for a
// rank whose peer alone has moved.
func TestRanksThatMoveAtTheSameTimeFindEachOther(t *testing.T) {
	ranks, modules := movingModules(t, clientsOf(t, 2))
	for _, to := range [][2]string{{"a", "b"}, {"a2", "b"}, {"start", "start"}, {"start", "b3"}} {
		for i, r := range ranks {
			r.cfg.Lock.Lock()
			moves := modules[i].address != to[i]
			modules[i].address, modules[i].leads = to[i], to[1-i]
			if moves {
				r.moved()
			}
			r.cfg.Lock.Unlock()
		}
		for i, r := range ranks {
			require.Eventually(t, func() bool {
				r.cfg.Lock.Lock()
				defer r.cfg.Lock.Unlock()
				_, err := r.reopen(1-i, transport.Pair{})
				return err == nil
			}, 20*time.Second, time.Millisecond, "rank %d: %v", i, to)
			require.NoError(t, r.Untold())
		}
	}
	for i, r := range ranks {
		r.cfg.Lock.Lock()
		told := modules[i].told[1-i]
		require.Equal(t, modules[i].leads, told[len(told)-1])
		r.cfg.Lock.Unlock()
	}
}

// TestRailThatStaysDownIsAskedForLessOften: the time between two requests doubles, up to a limit. A
// module that is opened again after a calm time is asked for at once.
func TestRailThatStaysDownIsAskedForLessOften(t *testing.T) { synctest.Test(t, testAskedLessOften) }

// testAskedLessOften runs with synctest's clock.
func testAskedLessOften(t *testing.T) {
	r := railsOfRank(t, 0, 1000, "btl", "tcp")
	r.cfg.Lock = new(sync.Mutex)
	x := asking()
	var waits []time.Duration
	for range 7 {
		require.True(t, r.isToAsk(x))
		require.False(t, r.isToAsk(x))
		require.Len(t, x.wake, 1, "it looks again")
		<-x.wake
		waits = append(waits, x.wait/time.Millisecond)
		x.askAt = time.Now()
	}
	require.Equal(t, []time.Duration{500, 1000, 2000, 4000, 4250, 4250, 4250}, waits)
	x.askUntil = time.Now().Add(-time.Second)
	require.False(t, r.isToAsk(x), "no rail was opened again")
	r.exchange, r.cfg.Client = x, new(wireup.Client)
	r.ask()
	require.True(t, r.isToAsk(x))
	require.Equal(t, r.scaled(askPeriod), x.wait)
	r.askLater()
	require.False(t, x.isLazy, "it asks anyway")
	x.askUntil = time.Now().Add(-time.Second)
	r.askLater()
	require.False(t, r.isToAsk(x), "later")
	x.askAt = time.Now()
	require.True(t, r.isToAsk(x))
	x.askAt = time.Now()
	require.False(t, r.isToAsk(x), "only once")
	r.askLater()
	r.ask()
	require.True(t, r.isToAsk(x), "a rail is opened again")
	x.hasMoved, x.askUntil = true, time.Time{}
	r.askLater()
	require.True(t, r.isToAsk(x), "this rank has moved")
	x.noAnswer = wireup.ErrUnsupported
	x.askAt = time.Time{}
	require.False(t, r.isToAsk(x))
}

// TestMoveUnderOtherManagerIsExplained: a manager that does not exchange addresses later is the
// reason why peers may not be found.
func TestMoveUnderOtherManagerIsExplained(t *testing.T) {
	ranks, modules := movingModules(t, []*wireup.Client{{}, {}})
	r := ranks[0]
	r.cfg.Lock.Lock()
	_, err := r.reopen(1, transport.Pair{}) // no manager answers
	require.NoError(t, err)
	modules[0].address = "a"
	r.moved()
	r.cfg.Lock.Unlock()
	require.Eventually(t, func() bool { return r.Untold() != nil }, 20*time.Second, time.Millisecond)
	require.ErrorIs(t, r.Untold(), wireup.ErrUnsupported)
	require.EqualError(t, r.Untold(), "the other ranks do not learn that rail moving has another address now: "+
		"wireup: publish a module: not supported by the process manager (mpirun-go tells them)")
}

// TestPairsAreThoseOfTheCards: both ranks find the same pairs of modules also after an address has
// come that would lead elsewhere. Only connecting uses that address.
func TestPairsAreThoseOfTheCards(t *testing.T) {
	ranks := make([]*Rails, 2)
	modules := make([][]*lateModule, 2)
	cards := make([]wireup.Card, 2)
	for i, client := range clientsOf(t, 2) {
		ranks[i] = railsOfRank(t, i, 2, "btl", "tcp")
		ranks[i].cfg.Client = client
		modules[i] = lateModules(ranks[i], "eth0", "eth1")
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
	require.NoError(t, ranks[0].publishMoved())
	ranks[1].readMoved(asking())
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
	modules := lateModules(r, "eth0")
	r.Card(false)
	modules[0].there = true
	for range 64 { // a select takes either of two channels
		r.closed = false
		r.exchange = asking()
		r.exchange.wakeUp()
		r.Close()
		r.runExchange(r.exchange) // has no client
	}
}

// TestIsAbsentComparesWholeNumbers: a byte of a card is no number above 255.
func TestIsAbsentComparesWholeNumbers(t *testing.T) {
	card := wireup.Card{Modules: []wireup.Module{{BTL: absentEntry, Address: []byte{1, 255}}}}
	for number, want := range map[int]bool{0: false, 1: true, 255: true, 256: false, 257: false} {
		require.Equal(t, want, isAbsent(card, number), "rail %d", number)
	}
}
