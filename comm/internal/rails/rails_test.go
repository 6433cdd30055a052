package rails

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/pml"
)

// settings sets tunables.
func settings(t *testing.T, keysAndValues ...string) (set tunable.Set) {
	t.Helper()
	for i := 0; i < len(keysAndValues); i += 2 {
		var err error
		set, err = set.With(keysAndValues[i], keysAndValues[i+1], tunable.FromCommandLine)
		require.NoError(t, err)
	}
	return set
}

// railsOfRank makes the Rails of a rank, none of which is open.
func railsOfRank(t *testing.T, rank, size int, keysAndValues ...string) *Rails {
	return New(Config{Env: transport.Env{Rank: rank, Size: size, Settings: settings(t, keysAndValues...)}, Host: "here"})
}

func cardOf(name string) wireup.Card {
	return wireup.Card{Host: "x", Modules: []wireup.Module{{BTL: "sm", Address: []byte{1}}, {BTL: hostNameEntry, Address: []byte(name)}}}
}

// TestTunableNamesBuiltinTransports: the tunable btl names the transports that are built in, and no
// others.
func TestTunableNamesBuiltinTransports(t *testing.T) {
	var names []string
	for _, b := range Builtin() {
		names = append(names, b.Name)
		require.NotNil(t, b.Open)
		_, err := tunable.Set{}.With("btl", b.Name, tunable.FromCommandLine)
		require.NoError(t, err)
		for _, key := range b.Choices {
			text, _ := tunable.Set{}.Text(key)
			require.NotEmpty(t, text, "tunable %s", key)
		}
	}
	var set tunable.Set
	require.ElementsMatch(t, names, set.List("btl"))
	require.Equal(t, tunable.Transports(), set.List("btl"))
}

// TestHostNameIsPrintable: errors contain only the letters, digits and similar characters of a
// peer's host name.
func TestHostNameIsPrintable(t *testing.T) {
	assert.Equal(t, "node-7.cluster", hostName(cardOf("node-7.cluster")))
	assert.Equal(t, "node31m", hostName(cardOf("node\x1b[31m\n")))
	assert.Equal(t, "?", hostName(cardOf("\n\n")))
	assert.Equal(t, "?", hostName(wireup.Card{}))
	assert.Len(t, hostName(cardOf(strings.Repeat("a", 500))), mostHostNameBytes)
}

// TestUnreachableNamesBothMachines: the error is one line that names both machines and wraps the
// errors of the modules.
func TestUnreachableNamesBothMachines(t *testing.T) {
	r := railsOfRank(t, 3, 6, "btl", "self,sm")
	r.cards = make([]wireup.Card, 6)
	err := r.unreachable(5, cardOf("far"), nil)
	assert.ErrorContains(t, err, "no rail leads from rank 3 on ")
	assert.ErrorContains(t, err, " to rank 5 on far (btl=self,sm)")
	cause := errors.New("connection refused")
	err = r.unreachable(5, cardOf("far"), []error{cause})
	assert.ErrorIs(t, err, cause)
	assert.NotContains(t, err.Error(), "\n")
	_, err = r.toSelf()
	assert.ErrorContains(t, err, "rank 3 to itself")
}

// pairless is a transport whose modules do not connect to any peer, and that explains why.
func pairless() transport.Transport {
	return transport.Transport{
		Name: "tcp", Reach: transport.Anywhere, Choices: []string{"tcp.include"},
		Leads:   func(_, _ [][]byte) func(_, _ int) int { return func(_, _ int) int { return 0 } },
		Explain: func(local, remote [][]byte) string { return fmt.Sprintf("%s here and %s there", local, remote) },
	}
}

// TestUnreachableExplains: the error names the addresses of both ends, the reason why no module
// connects them, and the user's settings, in one line.
func TestUnreachableExplains(t *testing.T) {
	r := railsOfRank(t, 0, 2, "btl", "self,sm,tcp", "tcp.include", "lo")
	r.allowed[2] = pairless()
	r.list = []module{{transport: "tcp", module: addressModule{address: []byte("four")}}}
	r.Card(false)
	r.cards = []wireup.Card{{}, cardOf("far")}
	require.ErrorContains(t, r.unreachable(1, r.cards[1], nil), " to rank 1 on far (btl=self,sm,tcp); tcp: [four] here and [] there (tcp.include=lo here)")
	r.cards[1].Modules = append(r.cards[1].Modules, wireup.Module{BTL: "tcp", Address: []byte("six")})
	err := r.unreachable(1, r.cards[1], nil)
	require.ErrorContains(t, err, " on far (btl=self,sm,tcp); tcp: [four] here and [six] there (tcp.include=lo here)")
	require.NotContains(t, err.Error(), "\n")
	r.list, r.missing = nil, []missing{{pairless(), errors.New("rail tcp: no interface is up")}}
	require.ErrorContains(t, r.unreachable(1, r.cards[1], nil), " on far (btl=self,sm,tcp); rail tcp: no interface is up")
	r.allowed = r.allowed[:2]
	require.NotContains(t, r.unreachable(1, r.cards[1], nil).Error(), "no interface")
}

// addressModule has nothing but an address.
type addressModule struct {
	btl.Module
	address []byte
}

func (m addressModule) Address() []byte { return m.address }

// stubModule is a module that connects, unless refuses is set.
type stubModule struct {
	btl.Module
	refuses  error
	connects int
}

type stubEndpoint struct{ btl.Endpoint }

func (m *stubModule) Address() []byte { return nil }

func (m *stubModule) Connect(btl.Path, []byte) (btl.Endpoint, error) {
	m.connects++
	if m.refuses != nil {
		return nil, m.refuses
	}
	return stubEndpoint{}, nil
}

// TestFirstTransportOfTheListIsUsed: Resolve connects all modules of the first transport of the
// list that reaches the peer. It lists the modules of the other transports and does not connect
// them.
func TestFirstTransportOfTheListIsUsed(t *testing.T) {
	both := []wireup.Module{{BTL: "sm"}, {BTL: hostNameEntry}, {BTL: "ibverbs"}, {BTL: "ibverbs"}}
	sm, verbs0, verbs1 := new(stubModule), new(stubModule), new(stubModule)
	open := func(btls string) *Rails {
		r := railsOfRank(t, 0, 4, "btl", btls)
		r.list = []module{{transport: "ibverbs", module: verbs0}, {transport: "ibverbs", module: verbs1}, {transport: "sm", module: sm}}
		r.Card(false)
		r.cards = []wireup.Card{{}, {Host: "here", Modules: both}, {Host: "there", Modules: both}, {Host: "here", Modules: both[2:3]}}
		return r
	}
	type route struct {
		module              *stubModule
		tier, local, remote int
		alternate           bool
		connected           bool
	}
	for _, c := range []struct {
		btls   string
		peer   int
		beside bool // the first transport is a network
		want   []route
	}{
		{"self,sm,ibverbs", 1, false, []route{
			{sm, 1, 2, 0, false, true},
			{verbs0, 2, 0, 2, false, false}, {verbs1, 2, 1, 3, false, false}, {verbs0, 2, 0, 3, true, false}, {verbs1, 2, 1, 2, true, false},
		}},
		{"self,ibverbs,sm", 1, true, []route{
			{verbs0, 1, 0, 2, false, true}, {verbs1, 1, 1, 3, false, true}, {verbs0, 1, 0, 3, true, false}, {verbs1, 1, 1, 2, true, false},
			{sm, 2, 2, 0, false, false},
		}},
		{"sm,ibverbs", 3, true, []route{{verbs0, 1, 0, 0, false, true}, {verbs1, 1, 1, 0, false, false}}},
	} {
		*sm, *verbs0, *verbs1 = stubModule{}, stubModule{}, stubModule{}
		list, err := open(c.btls).Resolve(c.peer)
		require.NoError(t, err)
		var got []route
		for _, l := range list {
			m := l.Module.(*stubModule)
			require.Equal(t, c.beside, l.Beside)
			got = append(got, route{m, l.Tier, l.Local, l.Remote, l.Alternate, l.Endpoint != nil})
			if l.Endpoint != nil {
				m.connects--
			}
		}
		assert.Zero(t, sm.connects+verbs0.connects+verbs1.connects, "endpoints that are not in the list")
		for _, l := range list {
			_, err := l.Reopen()
			require.NoError(t, err)
		}
		assert.Equal(t, c.want, got, "%v to %d", c.btls, c.peer)
	}

	// A module that refuses may connect later. The next transport is used now.
	r := open("sm,ibverbs")
	sm.refuses = errors.New("connection refused")
	got, err := r.Resolve(1)
	require.NoError(t, err)
	require.Len(t, got, 5)
	assert.Nil(t, got[0].Endpoint)
	assert.NotNil(t, got[1].Endpoint)
	sm.refuses = fmt.Errorf("%w: never", btl.ErrUnreachable)
	got, err = r.Resolve(1)
	require.NoError(t, err)
	require.Len(t, got, 4)
	verbs0.refuses, verbs1.refuses = sm.refuses, sm.refuses
	_, err = r.Resolve(1)
	assert.ErrorIs(t, err, sm.refuses)
}

// TestRailsThatLeadLessWellAreSpare: they come after those of their transport that lead best, and
// before the next transport. Nothing is opened for them.
func TestRailsThatLeadLessWellAreSpare(t *testing.T) {
	r := railsOfRank(t, 0, 2, "btl", "ibverbs,sm")
	r.allowed[0].Leads = func(_, _ [][]byte) func(_, _ int) int { return func(i, j int) int { return 1 + i*j } }
	a, b, sm := new(stubModule), new(stubModule), new(stubModule)
	r.list = []module{{transport: "ibverbs", module: a}, {transport: "ibverbs", module: b}, {transport: "sm", module: sm}}
	r.Card(false)
	r.cards = []wireup.Card{{}, {Host: "here", Modules: []wireup.Module{{BTL: "ibverbs"}, {BTL: "ibverbs"}, {BTL: "sm"}, {BTL: hostNameEntry}}}}
	list, err := r.Resolve(1)
	require.NoError(t, err)
	var tiers []int
	for _, l := range list {
		tiers = append(tiers, l.Tier)
		require.Equal(t, l.Tier == 0, l.Endpoint != nil)
		require.Equal(t, l.Tier != 1, l.Beside, "a spare rail carries nothing beside others")
	}
	require.Equal(t, []int{0, 1, 1, 1, 2}, tiers)
	require.Equal(t, []int{0, 1, 0}, []int{a.connects, b.connects, sm.connects})

	b.refuses = errors.New("no link")
	list, err = r.Resolve(1)
	require.NoError(t, err)
	require.NotNil(t, list[1].Endpoint, "no better rail is up")
	require.Nil(t, list[4].Endpoint)
}

// TestModulesOfOneInterfaceAreNotBeside: a module of a later transport that uses an interface of
// the first one adds no bandwidth.
func TestModulesOfOneInterfaceAreNotBeside(t *testing.T) {
	r := railsOfRank(t, 0, 2, "btl", "ibverbs,tcp")
	m := new(stubModule)
	r.list = []module{
		{transport: "ibverbs", module: m, wires: []string{"eth0"}},
		{transport: "ibverbs", module: m, wires: []string{"bond0", "eth1"}},
		{transport: "tcp", module: m, wires: []string{"eth1.7", "eth1"}},
		{transport: "tcp", module: m, wires: []string{"eth2"}},
		{transport: "tcp", module: m},
	}
	r.Card(false)
	r.cards = []wireup.Card{{}, {Host: "there", Modules: []wireup.Module{{BTL: "ibverbs"}, {BTL: "tcp"}, {BTL: hostNameEntry}}}}
	for i := range r.allowed {
		r.allowed[i].Leads = nil
	}
	list, err := r.Resolve(1)
	require.NoError(t, err)
	beside := map[int]bool{}
	for _, l := range list {
		beside[l.Local] = l.Beside
	}
	require.Equal(t, map[int]bool{0: false, 1: false, 2: false, 3: true, 4: true}, beside)
}

// TestOneRankOfAMachineWarns: the first rank of a machine that lacks a transport warns.
func TestOneRankOfAMachineWarns(t *testing.T) {
	none, verbs := wireup.Card{Host: "here"}, wireup.Card{Host: "here", Modules: []wireup.Module{{BTL: "ibverbs"}}}
	r := railsOfRank(t, 2, 3)
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
		assert.Equal(t, c.first, r.isFirstWithout("ibverbs"))
	}
}

// TestOneRankOfAMachineWarnsOfDevices: the first of the ranks of a machine that have the fewest
// modules of a transport warns.
func TestOneRankOfAMachineWarnsOfDevices(t *testing.T) {
	with := func(host string, n int) wireup.Card {
		return wireup.Card{Host: host, Modules: slices.Repeat([]wireup.Module{{BTL: "tcp"}}, n)}
	}
	r := railsOfRank(t, 2, 3)
	r.list = []module{{transport: "sm", module: addressModule{}}, {transport: "tcp", module: addressModule{}}}
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
		assert.Equal(t, c.first, r.isFirstWithAsFew("tcp"))
	}
}

// TestWarnsOfLeftOut: addresses that were left out are reported only if the user has named
// some, or said how many modules there are to be.
func TestWarnsOfLeftOut(t *testing.T) {
	for _, c := range []struct {
		settings  []string
		transport string
		want      bool
	}{
		{nil, "ibverbs", true},
		{nil, "tcp", false},
		{[]string{"tcp.include", "lo"}, "tcp", true},
		{[]string{"tcp.connections", "4"}, "tcp", true},
		{[]string{"tcp.ports", "20000-20001"}, "tcp", true},
		{[]string{"tcp.include", "lo", "verbose", "true"}, "tcp", false},
		{nil, "sm", false},
	} {
		r := railsOfRank(t, 0, 2, c.settings...)
		r.cards = make([]wireup.Card, 2)
		r.leftOut = map[string][]error{"ibverbs": {errors.New("locked")}, "tcp": {errors.New("no port")}}
		i := slices.IndexFunc(r.allowed, func(t transport.Transport) bool { return t.Name == c.transport })
		require.Equal(t, c.want, r.warnsOfLeftOut(r.allowed[i]), "%v", c)
	}
}

func TestReach(t *testing.T) {
	sm, verbs := wireup.Module{BTL: "sm"}, wireup.Module{BTL: "ibverbs"}
	here := wireup.Card{Host: "here", Modules: []wireup.Module{sm, verbs, verbs}}
	open := func(rank, size int, btls string) *Rails {
		r := railsOfRank(t, rank, size, "btl", btls)
		r.list = []module{
			{transport: "sm", module: addressModule{}},
			{transport: "ibverbs", port: "rxe0/1", module: addressModule{}}, {transport: "ibverbs", port: "rxe1/1", module: addressModule{}},
		}
		r.Card(false)
		r.cards = []wireup.Card{here, here, {}, here, {Host: "there", Modules: here.Modules}, {Host: "there", Modules: here.Modules[:2]}, {}, here}
		return r
	}
	assert.Equal(t, "sm to 0-1,3,7; ibverbs(rxe0/1,rxe1/1) to 4-5; nothing to 6", open(2, 8, "self,sm,ibverbs").reach())
	assert.Equal(t, "ibverbs(rxe0/1,rxe1/1) to 0-1,3-5,7; nothing to 6", open(2, 8, "ibverbs,sm").reach())
	assert.Equal(t, "there are no other ranks", open(0, 1, "sm").reach())
}

// TestModulesOfOnePortAreToldOnce: a message about a port with several modules is logged once.
func TestModulesOfOnePortAreToldOnce(t *testing.T) {
	there := wireup.Module{BTL: "tcp", Address: []byte("there")}
	r := railsOfRank(t, 0, 2, "btl", "self,tcp")
	r.allowed[1].Leads = func(_, _ [][]byte) func(_, _ int) int { return func(_, _ int) int { return 1 } }
	for n := range 6 {
		r.list = append(r.list, module{transport: "tcp", port: []string{"eth0", "eth1"}[n%2], module: addressModule{}})
	}
	r.Card(false)
	r.cards = []wireup.Card{{Host: "here"}, {Host: "there", Modules: []wireup.Module{there, there, there, there, there}}}
	require.Equal(t, "tcp(eth0 x3,eth1 x3) to 1", r.reach())

	r.list = nil
	modules := lateModules(r, "eth0", "eth1", "eth0", "eth1")
	const want = "rail eth0: no interface eth0; rail eth1: no interface eth1"
	require.EqualError(t, r.whyAllAbsent("tcp"), want)
	r.Card(false)
	require.Equal(t, want, strings.ReplaceAll(strings.Join(r.whyLeftOut("tcp"), "; "), "; it joins when it is there", ""))
	modules[3].there = true
	require.NoError(t, r.whyAllAbsent("tcp"))
}

// TestRareTransportIsReportedLast: an error says that there are no RDMA devices after other errors,
// and only if the user has asked for them or there is no other error.
func TestRareTransportIsReportedLast(t *testing.T) {
	verbs, address := errors.New("rail ibverbs: there is no device"), errors.New("rail tcp: no interface is up")
	noVerbs := missing{transport.Transport{Name: "ibverbs", Rare: true, Choices: []string{"ibverbs.devices"}}, verbs}
	noTCP := missing{transport.Transport{Name: "tcp"}, address}
	for _, c := range []struct {
		settings []string
		missing  []missing
		want     string
	}{
		{nil, []missing{noVerbs, noTCP}, address.Error()},
		{nil, []missing{noVerbs}, verbs.Error()},
		{[]string{"btl", "self,ibverbs,tcp"}, []missing{noVerbs, noTCP}, address.Error() + "\n" + verbs.Error()},
		{[]string{"ibverbs.devices", "rxe0"}, []missing{noVerbs, noTCP}, address.Error() + "\n" + verbs.Error()},
	} {
		r := railsOfRank(t, 0, 2, c.settings...)
		r.missing = c.missing
		require.EqualError(t, r.mustSuffice(r.missing), c.want, "%v", c.settings)
	}
}

// portModule is a port that cannot connect now.
type portModule struct {
	btl.Module
	latency int64
}

func (m portModule) Address() []byte { return nil }
func (m portModule) Attrs() *btl.Attrs {
	return &btl.Attrs{Name: "port", LatencyNanos: m.latency, MaxSendBytes: 4096}
}
func (m portModule) Connect(btl.Path, []byte) (btl.Endpoint, error) {
	return nil, errors.New("not now")
}

// TestBothRanksKeepTheSameOfManyPairs: if two ranks have more pairs of ports than package pml
// takes, both keep the same pairs, with one for each port, even if they know different things of
// their ports.
func TestBothRanksKeepTheSameOfManyPairs(t *testing.T) {
	for _, ports := range [][2]int{{20, 20}, {24, 1}, {5, 17}, {6, 6}, {32, 32}} {
		var ranks [2]*Rails
		var cards [2]wireup.Card
		for rank := range ranks {
			r := railsOfRank(t, rank, 2, "btl", "tcp")
			r.allowed = []transport.Transport{{Name: "tcp", Reach: transport.Anywhere}}
			for n := range ports[rank] {
				latency := int64(1000 + n)
				if rank == 1 {
					latency = int64(5000 - n)
				}
				r.list = append(r.list, module{transport: "tcp", module: portModule{latency: latency}})
			}
			ranks[rank], cards[rank] = r, r.Card(false)
		}
		var pairs [2]map[[2]int]bool
		var used [2]map[int]bool
		for rank, r := range ranks {
			r.cards = cards[:]
			routes, err := r.Resolve(1 - rank)
			require.NoError(t, err)
			require.LessOrEqual(t, len(routes), pml.MaxRoutes)
			pairs[rank], used[rank] = map[[2]int]bool{}, map[int]bool{}
			for _, route := range routes {
				ends := [2]int{route.Local, route.Remote}
				used[rank][ends[0]] = true
				if rank == 1 {
					ends = [2]int{route.Remote, route.Local}
				}
				pairs[rank][ends] = true
			}
			require.Len(t, used[rank], ports[rank], "a port without a pair")
		}
		require.Equal(t, pairs[0], pairs[1], "%v", ports)
	}
}
