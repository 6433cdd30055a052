// Package rails opens the modules of a rank of a launched job, publishes their addresses, and finds
// the rails that lead to a peer. It knows transports only as package btl/transport describes them;
// builtin.go lists the built-in ones.
package rails

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/comm/internal/userlog"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
)

// Config of the modules of a rank.
type Config struct {
	// Env is what transports are opened from. LocalRank is set by New.
	Env transport.Env
	// Client is the connection to the process manager, nil in a world of one.
	Client *wireup.Client
	// Host names this machine (wireup.HostID).
	Host string
	// Lock is the lock of the rank's engine.
	Lock sync.Locker
	// Add makes the engine drive a module. Rails calls it under Lock.
	Add func(m btl.Module)
	// Log takes messages to the user.
	Log userlog.Logger
	// Transports are those to choose from; nil stands for Builtin.
	Transports []transport.Transport
}

// Rails are the modules of a rank, and the ways from them to its peers.
type Rails struct {
	cfg     Config
	allowed []transport.Transport // by the tunable btl, in its order
	list    []module
	missing []missing // allowed, but not there
	// leftOut is, by transport, why some devices or addresses of this machine are no modules.
	leftOut map[string][]error
	// cards of all ranks, read once. They do not change.
	cards []wireup.Card
	// movedTo has the new addresses of peers' modules. Only connect reads it.
	movedTo map[peerModule][]byte
	// published are the addresses in this rank's own card, by place in list; nil before Card.
	published [][]byte
	told      [][]byte  // addresses that peers can know now; nil before one has changed
	absentWhy []error   // why rails were absent then, by place in list; nil: present
	exchange  *exchange // nil while nothing was to be exchanged later
	untold    atomic.Pointer[error]
	closed    bool
	// The rail to the rank itself, driven only once it is used; nil if not allowed.
	self   btl.Module
	driven bool // self is
}

// module is one module of this rank, with its names for messages.
type module struct {
	transport string // the name of its transport
	port      string // the device or address, "" if there is nothing to name
	module    btl.Module
	wires     []string                // transport.Module's
	absent    func(remote bool) error // transport.Module's Absent
}

// peerModule is a module of a peer, by its number in the peer's card.
type peerModule struct{ rank, number int }

// missing is a transport that is allowed and could not be opened.
type missing struct {
	transport transport.Transport
	why       error
}

// isFurther reports whether a module, by its place in list, has the same port as an earlier one:
// messages about that one hold for it, too.
func (r *Rails) isFurther(place int) bool {
	l := r.list[place]
	return l.port != "" && slices.ContainsFunc(r.list[:place], func(o module) bool { return o.transport == l.transport && o.port == l.port })
}

// New makes the modules of a rank, none of which is open.
func New(cfg Config) *Rails {
	if cfg.Transports == nil {
		cfg.Transports = Builtin()
	}
	if cfg.Client != nil {
		cfg.Env.LocalRank = localRankOf(cfg.Client)
	}
	r := &Rails{cfg: cfg, movedTo: map[peerModule][]byte{}}
	r.cfg.Env.Moved = r.moved
	for _, name := range cfg.Env.Settings.List("btl") {
		i := slices.IndexFunc(cfg.Transports, func(t transport.Transport) bool { return t.Name == name })
		if i >= 0 { // package tunable permits no other name
			r.allowed = append(r.allowed, cfg.Transports[i])
		}
	}
	return r
}

// Open opens the modules of all allowed transports. A transport that cannot be opened, or whose
// modules are all absent, is left out if the others lead to every rank. If absent modules are
// needed, the error Is ErrAbsent: see Suffice. The caller holds the lock.
func (r *Rails) Open() error {
	for _, t := range r.allowed {
		if t.Reach != transport.Itself && (r.cfg.Env.Size == 1 || r.hostSuffices()) {
			continue
		}
		opened, err := t.Open(&r.cfg.Env)
		if err != nil {
			r.missing = append(r.missing, missing{t, err})
			continue
		}
		if len(opened.LeftOut) > 0 {
			if r.leftOut == nil {
				r.leftOut = map[string][]error{}
			}
			r.leftOut[t.Name] = opened.LeftOut
		}
		if t.Reach == transport.Itself {
			r.self = opened.Modules[0].Module
			continue
		}
		for _, o := range opened.Modules {
			r.cfg.Add(o.Module)
			r.list = append(r.list, module{transport: t.Name, port: o.Port, module: o.Module, wires: o.Wires, absent: o.Absent})
		}
	}
	return r.Suffice()
}

// hostSuffices reports whether a transport between the ranks of a machine is open and the manager
// says that all ranks are on this one. Such a transport does not fail, so the transports that
// follow it in the list are not needed.
func (r *Rails) hostSuffices() bool { return r.hasReach(transport.Host) && onOneMachine(r.cfg.Client) }

// has reports whether a transport is among the rank's modules.
func (r *Rails) has(name string) bool {
	return slices.ContainsFunc(r.list, func(l module) bool { return l.transport == name })
}

// hasReach reports whether a transport of that reach is among the rank's modules.
func (r *Rails) hasReach(reach transport.Reach) bool {
	return slices.ContainsFunc(r.allowed, func(t transport.Transport) bool { return t.Reach == reach && r.has(t.Name) })
}

// isAnyPresent reports whether a transport of that reach has a module that is not absent.
func (r *Rails) isAnyPresent(reach transport.Reach) bool {
	return slices.ContainsFunc(r.allowed, func(t transport.Transport) bool {
		return t.Reach == reach && r.has(t.Name) && r.whyAllAbsent(t.Name) == nil
	})
}

// allowedNames is the value of the tunable btl.
func (r *Rails) allowedNames() string {
	return strings.Join(r.settings().List("btl"), ",")
}

func (r *Rails) settings() tunable.Set { return r.cfg.Env.Settings }

// onOneMachine reports whether the manager says that all ranks are on one machine.
func onOneMachine(client *wireup.Client) bool {
	nodeOf, err := client.NodeOf()
	return err == nil && len(nodeOf) == client.Size() && !slices.ContainsFunc(nodeOf, func(n int) bool { return n != nodeOf[0] })
}

// LocalRanks is how many ranks of the job are on this rank's machine.
func LocalRanks(client *wireup.Client) int {
	nodeOf, err := client.NodeOf()
	if err != nil || len(nodeOf) != client.Size() {
		return client.Size() // the manager does not say: the safe guess
	}
	n := 0
	for _, node := range nodeOf {
		if node == nodeOf[client.Rank()] {
			n++
		}
	}
	return n
}

// localRankOf is how many ranks of this rank's machine are lower than this rank.
func localRankOf(client *wireup.Client) int {
	nodeOf, err := client.NodeOf()
	if err != nil || len(nodeOf) != client.Size() {
		return client.Rank() // the manager does not say: assume one machine
	}
	n := 0
	for rank := range client.Rank() {
		if nodeOf[rank] == nodeOf[client.Rank()] {
			n++
		}
	}
	return n
}
