package comm

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/btl/sm"
	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// hostNameRail is an entry of a card that is no rail: the name of the rank's machine, for
// messages.
const hostNameRail = "hostname"

// rail is one transport of this rank.
type rail struct {
	name   string // of its transport
	nth    int    // of the rails of that transport, from 0: it leads to the peer's nth (of TCP see tcpWays)
	port   string // "rxe0/1", "eth0 10.0.0.1"; "" where there are none
	module btl.Module
	// reaches reports whether it may lead to the peer with that card; nil of TCP, whose cards say so themselves.
	reaches func(peer int, card wireup.Card) bool
}

// rails is every transport of a rank of a launched job, in the order of the tunable btl.
type rails struct {
	job     *job
	allowed []string // the tunable btl
	list    []rail
	missing []missing // allowed, but not there
	// refused is, by transport, why addresses or ports of this machine are no rails, though others
	// are.
	refused map[string][]error
	client  *wireup.Client // nil in a world of one
	host    string         // wireup.HostID
	hook    observe.Hook
	cards   []wireup.Card // of all ranks, so that nothing is asked of the manager later
	self    btl.Module    // the rail to itself, polled only once it is used; nil if not allowed
	polled  bool          // self is
}

// open makes the modules of all transports that are allowed. One that cannot be made is left out, if the others lead to every rank all the
// same. Lock held.
func (r *rails) open(bell *progress.PipeWakeup) error {
	for _, name := range r.allowed {
		var err error
		switch {
		case name == "self":
			err = r.openSelf(bell)
		case r.job.size == 1 || r.sharedSuffices():
		case name == "sm":
			err = r.openShared(bell)
		case name == "ibverbs":
			err = r.openVerbs(bell)
		default:
			err = r.openTCP(bell)
		}
		if err != nil {
			r.missing = append(r.missing, missing{name, err})
		}
	}
	return r.mustSuffice()
}

// sharedSuffices reports whether every rank is reached by shared memory, which does not fail: what comes after it in the list is not needed.
func (r *rails) sharedSuffices() bool { return r.has("sm") && onOneMachine(r.client) }

// kick is what a rail calls that has news while the rank may be busy elsewhere.
func (r *rails) kick() func() {
	if r.job.kicker == nil {
		r.job.kicker = newKicker(r.job.eng, r.job.pml.HasBcopies)
	}
	return r.job.kicker.kick
}

func (r *rails) openSelf(bell *progress.PipeWakeup) error {
	fabric, err := loop.NewFabric(loop.Config{Ranks: r.job.size})
	if err == nil {
		r.self, err = fabric.Module(r.job.rank, 0, r.job.pml, bell)
	}
	if err != nil {
		return fmt.Errorf("rail self: %w", err)
	}
	return nil
}

// openShared makes the rail to ranks of this machine. Lock held.
func (r *rails) openShared(bell *progress.PipeWakeup) error {
	set := r.job.settings
	m, err := sm.New(sm.Config{
		Rank: r.job.rank, Size: r.job.size, Events: r.job.pml, Bell: bell,
		RingSlots: int(set.Int("sm.ring.slots")),
		RingBytes: set.Bytes("sm.ring.bytes"),
		FragBytes: set.Bytes("sm.frag.bytes") + btl.MaxHeaderBytes,
	})
	if err != nil {
		return fmt.Errorf("rail sm: %w", err)
	}
	r.job.addModule(m)
	r.list = append(r.list, rail{name: "sm", module: m, reaches: func(_ int, card wireup.Card) bool { return card.Host == r.host }})
	return nil
}

// card is what the other ranks need to know.
func (r *rails) card() wireup.Card {
	card := wireup.Card{Host: r.host, PID: os.Getpid(), Oversubscribed: r.job.crowded}
	for _, l := range r.list {
		card.Rails = append(card.Rails, wireup.Rail{BTL: l.name, Address: l.module.Card()})
	}
	if name, err := os.Hostname(); err == nil {
		card.Rails = append(card.Rails, wireup.Rail{BTL: hostNameRail, Address: []byte(name)})
	}
	return card
}

// readCards reads what all ranks have published before the barrier. Later it would be too
// late: a peer is first needed at any time, also in the middle of a turn of the engine,
// which does not wait, or while the connection to the manager waits in a barrier.
func (r *rails) readCards() error {
	var err error
	if r.cards, err = r.client.GetCards(); err != nil {
		return err
	}
	if err := r.shareSecret(); err != nil {
		return err
	}
	r.job.eng.Lock()
	r.job.crowded = anyCrowded(r.cards, r.job.crowded)
	r.job.eng.Unlock()
	return nil
}

// anyCrowded reports whether some rank's machine is crowded, our own included: all ranks have to agree on that.
func anyCrowded(others []wireup.Card, own bool) bool {
	return own || slices.ContainsFunc(others, func(c wireup.Card) bool { return c.Oversubscribed })
}

// enough decides by how many of the transports in btl a peer is reached: by the first one that leads there, with all its rails. The others
// are ways to go on if that one fails, and nothing is opened for them before.
func enough(routes int) bool { return routes > 0 }

// resolve makes the endpoints to a peer. It is pml.Config.Resolve: whatever goes wrong
// makes the peer unreachable.
func (r *rails) resolve(peer int) ([]pml.Route, error) {
	if peer == r.job.rank {
		return r.toSelf()
	}
	card := r.cards[peer]
	var all ways
	for tier, transport := range r.allowed {
		now := !enough(all.up) // the others only when they are needed
		for _, w := range r.waysTo(peer, transport) {
			m, address := r.list[w.local].module, card.Rails[w.remote].Address
			all.add(pml.Route{Module: m, Local: w.local, Remote: w.remote, Tier: tier}, now, func() (btl.Endpoint, error) { return m.Connect(peer, address) })
		}
	}
	if len(all.list) == 0 {
		return nil, r.unreachable(peer, card, all.refused)
	}
	return all.list, nil
}

// ways collects the routes to a peer.
type ways struct {
	list    []pml.Route
	up      int // of them, those that can be used now
	refused []error
}

// add notes a route, and how to make its endpoint. It does so now, or leaves it to the PML. A rail that does not
// lead to the peer at all is none; one that cannot now may later.
func (w *ways) add(route pml.Route, now bool, connect func() (btl.Endpoint, error)) {
	if now {
		ep, err := connect()
		switch {
		case err == nil:
			route.Endpoint = ep
			w.up++
		default:
			w.refused = append(w.refused, err)
			route.Down = err
			if errors.Is(err, btl.ErrUnreachable) {
				return
			}
		}
	}
	route.Reopen = connect
	w.list = append(w.list, route)
}

// way is a rail of ours that leads to a peer, and the number of its other end in the peer's card.
type way struct{ local, remote int }

// waysTo are the rails of a transport that lead to a peer, as its card says.
func (r *rails) waysTo(peer int, transport string) []way {
	var ways []way
	card := r.cards[peer]
	if transport == "tcp" {
		return r.tcpWays(peer, card)
	}
	for i, l := range r.list {
		if l.name != transport {
			continue
		}
		if number, ok := railOf(card, l.name, l.nth); ok && l.reaches(peer, card) {
			ways = append(ways, way{i, number})
		}
	}
	return ways
}

func (r *rails) toSelf() ([]pml.Route, error) {
	if r.self == nil {
		return nil, fmt.Errorf("rank %d to itself: btl=%s has no self", r.job.rank, strings.Join(r.allowed, ","))
	}
	ep, err := r.self.Connect(r.job.rank, r.self.Card())
	if err != nil {
		return nil, err
	}
	if !r.polled {
		r.polled = true
		r.job.addModule(r.self)
	}
	return []pml.Route{{Module: r.self, Endpoint: ep}}, nil
}

// unreachable says in one line who cannot reach whom, and why TCP, which leads nearly everywhere, does not.
func (r *rails) unreachable(peer int, card wireup.Card, refused []error) error {
	here, err := os.Hostname()
	if err != nil {
		here = "?"
	}
	err = fmt.Errorf("no rail leads from rank %d on %s to rank %d on %s (btl=%s)",
		r.job.rank, here, peer, hostName(card), strings.Join(r.allowed, ","))
	if why := r.tcpApart(peer, card); why != "" {
		err = fmt.Errorf("%w; %s", err, why)
	}
	for _, e := range refused {
		err = fmt.Errorf("%w: %w", err, e)
	}
	return err
}

// railOf is the number, in a card, of the nth rail of a transport, from 0.
func railOf(card wireup.Card, name string, nth int) (number int, ok bool) {
	for number, r := range card.Rails {
		if r.BTL == name {
			if nth == 0 {
				return number, true
			}
			nth--
		}
	}
	return 0, false
}

// hostName is the name in a card, which may be nonsense, as it can be printed.
func hostName(card wireup.Card) string {
	var address []byte
	if number, ok := railOf(card, hostNameRail, 0); ok {
		address = card.Rails[number].Address
	}
	name := strings.Map(func(c rune) rune {
		if c == '.' || c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			return c
		}
		return -1
	}, string(address))
	if name == "" {
		return "?"
	}
	return name[:min(len(name), 64)]
}

// onOneMachine reports whether the manager says that all ranks are on one machine.
func onOneMachine(client *wireup.Client) bool {
	nodeOf, err := client.NodeOf()
	return err == nil && len(nodeOf) == client.Size() && !slices.ContainsFunc(nodeOf, func(n int) bool { return n != nodeOf[0] })
}

// localRanks is how many ranks of the job are on this rank's machine.
func localRanks(client *wireup.Client) int {
	nodeOf, err := client.NodeOf()
	if err != nil || len(nodeOf) != client.Size() {
		return client.Size() // the manager does not say: the careful guess
	}
	n := 0
	for _, node := range nodeOf {
		if node == nodeOf[client.Rank()] {
			n++
		}
	}
	return n
}
