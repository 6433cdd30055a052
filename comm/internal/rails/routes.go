package rails

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/comm/internal/userlog"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/pml"
)

// Resolve makes the endpoints to a peer. It is pml.Config.Resolve: an error makes the peer
// unreachable.
//
// A peer is reached by the best modules of the first transport in btl that leads there. The others
// are spare, and so are alternates: they are opened when they are needed, those of the same
// transport first. If the first transport is a network, the others may carry long messages beside
// it (pml.beside), unless they use the same interfaces here. Beside shared memory they would add no
// bandwidth. An extra pair, or a rail that was absent at the start, takes part once a probe was
// answered.
func (r *Rails) Resolve(peer int) ([]pml.Route, error) {
	if peer == r.cfg.Env.Rank {
		return r.toSelf()
	}
	card := r.cards[peer]
	var routes Routes
	overNetwork := false // the first routes are over a network
	var wires []string   // interfaces that the first routes use here
	limited := r.allWaysTo(peer)
	tier := 0 // of level 0 of a transport
	for place, t := range r.allowed {
		now := routes.up == 0
		if now && t.Reach == transport.Anywhere {
			r.askLater()
		}
		ways := limited[place]
		levels := 1
		if len(routes.List) == 0 && len(ways) > 0 {
			overNetwork = t.Reach == transport.Anywhere
			for _, w := range ways {
				wires = append(wires, r.list[w.Local].wires...)
			}
		}
		for _, w := range ways {
			route := pml.Route{Module: r.list[w.Local].module, Local: w.Local, Remote: w.Remote, Tier: tier + w.Level, Extra: w.Extra, Alternate: w.Alternate, Beside: overNetwork && w.Level == 0 && !r.uses(w.Local, wires)}
			levels = max(levels, w.Level+1)
			if w.Alternate || w.Extra || w.Level > 0 {
				now = routes.up == 0
			}
			route.Down = r.absentPair(peer, w)
			route.Reopen = func() (btl.Endpoint, error) { return r.reopen(peer, w) }
			routes.Add(route, now && route.Down == nil, func() (btl.Endpoint, error) { return r.connect(peer, w) })
		}
		tier += levels
	}
	if len(routes.List) == 0 {
		return nil, r.unreachable(peer, card, routes.Refused)
	}
	return routes.List, nil
}

// uses reports whether a module, by its place in list, uses one of some interfaces.
func (r *Rails) uses(place int, wires []string) bool {
	return slices.ContainsFunc(r.list[place].wires, func(name string) bool { return slices.Contains(wires, name) })
}

// absentPair is why a pair of modules cannot be used at first; nil if both are there.
func (r *Rails) absentPair(peer int, w transport.Pair) error {
	why, side := r.absent(w.Local), btl.SideLocal
	if why == nil && isAbsent(r.cards[peer], w.Remote) {
		why, side = errAbsentThere, btl.SideRemote
	}
	if why == nil {
		return nil
	}
	return &btl.Error{Rail: r.list[w.Local].module.Attrs().Name, Peer: peer, Class: btl.ClassPath, Side: side, Err: why}
}

var errAbsentThere = errors.New("the peer's rail was not there at the start")

// reopen is connect for a pair that has failed, was not needed, or was absent.
func (r *Rails) reopen(peer int, w transport.Pair) (btl.Endpoint, error) {
	r.ask()
	return r.connect(peer, w)
}

// connect makes the next incarnation of the endpoint of a pair.
func (r *Rails) connect(peer int, w transport.Pair) (btl.Endpoint, error) {
	address, moved := r.movedTo[peerModule{peer, w.Remote}]
	if !moved {
		address = r.cards[peer].Modules[w.Remote].Address
	}
	return r.list[w.Local].module.Connect(btl.Path{Peer: peer, Module: uint8(w.Remote)}, address)
}

// Routes collects the routes to a peer.
type Routes struct {
	List    []pml.Route
	Refused []error // why rails cannot be used now, or do not lead to the peer
	up      int     // routes with an endpoint
}

// Add adds a route. connect makes its endpoint, also later unless the route has its own Reopen.
// With now, Add calls connect; otherwise the layer above does when it needs the route. A module
// that cannot be used now is still a route; one that does not lead to the peer is none.
func (r *Routes) Add(route pml.Route, now bool, connect func() (btl.Endpoint, error)) {
	if route.Reopen == nil {
		route.Reopen = connect
	}
	if now {
		ep, err := connect()
		if err != nil {
			r.Refused = append(r.Refused, err)
			if errors.Is(err, btl.ErrUnreachable) {
				return
			}
			route.Down = err
		} else {
			route.Endpoint = ep
			r.up++
		}
	}
	r.List = append(r.List, route)
}

// waysTo pairs the modules of a transport with the peer's modules that they lead to: places in
// r.list with places in the peer's card. Both ends must always find the same pairs, because a rank
// does not answer the probe of an unknown pair. So it reads only the two cards, never a later
// address.
func (r *Rails) waysTo(peer int, t transport.Transport) []transport.Pair {
	card := r.cards[peer]
	if t.Reach == transport.Itself || t.Reach == transport.Host && card.Host != r.cfg.Host {
		return nil
	}
	local, ours := r.modulesOf(t.Name)
	remote, theirs := modulesOf(card, t.Name)
	leads := func(local, remote int) int { return 1 }
	if t.Leads != nil {
		leads = t.Leads(ours, theirs)
	}
	ways := transport.Pairs(len(local), len(remote), leads, r.cfg.Env.Rank < peer)
	for i, w := range ways {
		ways[i].Local, ways[i].Remote = local[w.Local], remote[w.Remote]
	}
	return ways
}

// allWaysTo returns the pairs of all allowed transports, in their order, at most as many as package
// pml takes.
func (r *Rails) allWaysTo(peer int) [][]transport.Pair {
	lists := make([][]transport.Pair, len(r.allowed))
	for i, t := range r.allowed {
		lists[i] = r.waysTo(peer, t)
	}
	return transport.Limit(lists, pml.MaxRoutes)
}

// modulesOf returns the places of a transport's modules in r.list, and their addresses in this
// rank's card.
func (r *Rails) modulesOf(name string) (places []int, addresses [][]byte) {
	for i, l := range r.list {
		if l.transport == name {
			places, addresses = append(places, i), append(addresses, r.published[i])
		}
	}
	return places, addresses
}

// toSelf is the route of the rank to itself.
func (r *Rails) toSelf() ([]pml.Route, error) {
	rank := r.cfg.Env.Rank
	if r.self == nil {
		return nil, fmt.Errorf("rank %d to itself: btl=%s has no self", rank, r.allowedNames())
	}
	ep, err := r.self.Connect(btl.Path{Peer: rank}, r.self.Address())
	if err != nil {
		return nil, err
	}
	if !r.driven {
		r.driven = true
		r.cfg.Add(r.self)
	}
	return []pml.Route{{Module: r.self, Endpoint: ep}}, nil
}

// unreachable is a one-line error: this rank cannot reach a peer, and why no transport leads there.
func (r *Rails) unreachable(peer int, card wireup.Card, refused []error) error {
	here, err := os.Hostname()
	if err != nil {
		here = "?"
	}
	err = fmt.Errorf("no rail leads from rank %d on %s to rank %d on %s (btl=%s)",
		r.cfg.Env.Rank, here, peer, hostName(card), r.allowedNames())
	for _, t := range r.allowed {
		if why := r.explain(peer, t); why != "" {
			err = fmt.Errorf("%w; %s", err, why)
		}
	}
	for _, e := range refused {
		err = fmt.Errorf("%w: %w", err, e)
	}
	return err
}

// explain is why no rail of a transport leads to a peer; "" if one does, or the transport gives no
// reason.
func (r *Rails) explain(peer int, t transport.Transport) string {
	if t.Explain == nil || len(r.waysTo(peer, t)) > 0 {
		return ""
	}
	if i := slices.IndexFunc(r.missing, func(m missing) bool { return m.transport.Name == t.Name }); i >= 0 {
		return userlog.OneLine(r.missing[i].why) // it names the user's settings
	}
	_, ours := r.modulesOf(t.Name)
	_, theirs := modulesOf(r.cards[peer], t.Name)
	why := t.Name + ": " + t.Explain(ours, theirs)
	if chosen := transport.Chosen(r.settings(), t.Choices...); chosen != "" {
		why += " (" + chosen + " here)"
	}
	return why
}
