package bml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// Route is one rail that leads to a peer.
type Route struct {
	Module   btl.Module
	Endpoint btl.Endpoint
	// Local and Remote number the modules at its two ends, as the rail's headers name them: Local
	// here is Remote at the peer. Each is at most 255.
	Local, Remote int
	// Tier: only the lowest tier with a rail that is up takes traffic. Rails of other tiers are
	// spare.
	Tier int
	// Extra: one of its modules has another rail, and this one may lead nowhere. Its first time up
	// is not reported.
	Extra bool
	// Alternate: the rail is used only while one of its modules has no other rail that is up. The
	// peer has to find the same alternates.
	Alternate bool
	// Beside: it may carry long messages beside rails of a lower tier (beside.go).
	Beside bool
	// Reopen makes the next incarnation of a drained endpoint. nil: a failed rail stays down. With
	// Reopen, Endpoint may be nil: the rail is down at first, for the reason in Down.
	Reopen func() (btl.Endpoint, error)
	Down   error
}

const (
	// maxRails bounds the rails to one peer. RailSet has a bit for each.
	maxRails = 32
	// maxModules bounds the modules of this rank that lead to one peer with remote access.
	maxModules = 8
)

// RailSet is a set of a peer's rails, by index.
type RailSet uint32

// Has reports whether rail i is in the set.
func (s RailSet) Has(i int) bool { return s>>i&1 != 0 }

// railState is the state of a rail; the package comment has the table.
type railState uint8

const (
	railUp railState = iota
	railFailing
	railDown
	railProbing

	railStates
)

var railNames = [railStates]string{"up", "failing", "down", "probing"}

func (s railState) String() string { return railNames[s] }

// railLegal is the table of transitions; the package comment says when each happens.
var railLegal = [railStates][railStates]bool{
	railUp:      {railFailing: true},
	railFailing: {railDown: true},
	railDown:    {railProbing: true},
	railProbing: {railUp: true, railFailing: true},
}

func (b *BML) moveRail(rl *Rail, to railState) {
	if !railLegal[rl.state][to] {
		b.illegal("rail: " + rl.state.String() + " → " + to.String())
	}
	rl.state = to
}

// way is one path, or all paths, from a module of this rank to a peer.
type way struct {
	module btl.Module
	remote int // the module at the peer, or allModules
}

const allModules = -1

// way is the path of the rail's endpoint.
func (rl *Rail) way() way { return way{rl.module, int(rl.remote)} }

// on lists the rails of a way. A BTL may not know the number of a peer's module if its own module
// leads to no other.
func (pr *Peer) on(w way) (found []*Rail) {
	for i := range pr.rails {
		if rl := &pr.rails[i]; rl.module == w.module && (w.remote == allModules || w.remote == int(rl.remote)) {
			found = append(found, rl)
		}
	}
	if len(found) == 0 && w.remote != allModules {
		if all := pr.on(way{w.module, allModules}); len(all) == 1 {
			return all
		}
	}
	return found
}

// Rail is a route in use.
type Rail struct {
	trustee
	module   btl.Module
	endpoint btl.Endpoint // nil if the rail started down and none was made
	// Remote access by this endpoint, nil without it or if the settings forbid it.
	getter    btl.Getter
	putter    btl.Putter
	registrar btl.Registrar

	local, remote uint8 // modules
	index         uint8 // in peer.rails
	isExtra       bool
	alternate     bool
	mayBeBeside   bool
	tier          int
	sendBytes     int // longest fragment
	pieceBytes    int // longest fragment of a long message
	latencyNanos  int64

	state    railState
	reopen   func() (btl.Endpoint, error)
	recovery recovery
	errors   railErrors
	own      *ownModule
	far      *trustee // shared with rails to the same module of the peer
	underWay int      // operations that the endpoint has
	// isRejecting: a RAILDOWN for a lost peer is under way (reject.go).
	isRejecting bool

	// queue holds operations, in posting order, while the endpoint has no room. Later operations
	// queue behind them.
	queue      btl.Queue
	isRetrying bool // workRetry is deferred
}

// name of the rail, for errors and reports.
func (rl *Rail) name() string { return rl.module.Attrs().Name }

// Resolve finds the rails to a peer if they are not known yet. It returns nil while the peer is
// alive, and otherwise why it is failing or lost. For a failing peer that had rails, it returns nil
// until the peer is lost: operations queue until then.
func (b *BML) Resolve(pr *Peer) error {
	switch {
	case pr.state == PeerLost:
		return pr.cause
	case pr.first != nil:
		return nil
	case pr.state == PeerFailing:
		return pr.cause
	case b.closed != nil:
		return b.closed
	}
	routes, err := b.cfg.Resolve(pr.rank)
	if err == nil {
		err = b.useRoutes(pr, routes)
	}
	if err == nil {
		b.move(pr, PeerConnecting)
		b.checkRails(pr)
		return nil
	}
	// A fragment may still come by a module of this rank that has failed and is not drained.
	for _, f := range b.fallen {
		if !f.drained {
			b.fail(pr, b.CauseOf(f.cause), &way{f.module, allModules})
		}
	}
	switch {
	case pr.state == PeerFailing:
		return pr.cause
	case len(pr.draining) > 0:
		return err
	}
	b.lose(pr, CauseOf(err))
	return pr.cause
}

// MaxRoutes is the most routes to a peer. A Resolve that finds more has to choose the same ones at
// both ends.
const MaxRoutes = maxRails

// useRoutes makes rails of routes, sorted by tier, and in a tier by latency.
func (b *BML) useRoutes(pr *Peer, routes []Route) error {
	err := errors.New("no rail leads there")
	routes = slices.DeleteFunc(slices.Clone(routes), func(r Route) bool {
		a := r.Module.Attrs()
		if a.MaxSendBytes >= btl.MaxHeaderBytes {
			return false
		}
		err = fmt.Errorf("%w: rail %s takes no more than %d bytes at a time", request.ErrUnreachable, a.Name, a.MaxSendBytes)
		return true
	})
	if len(routes) == 0 {
		return err
	}
	routes = routes[:min(len(routes), maxRails)]
	slices.SortStableFunc(routes, func(a, b Route) int {
		return cmp.Or(a.Tier-b.Tier, orderOf(a.Alternate)-orderOf(b.Alternate), cmp.Compare(a.Module.Attrs().LatencyNanos, b.Module.Attrs().LatencyNanos))
	})
	pr.rails = make([]Rail, len(routes))
	for i, r := range routes {
		pr.rails[i] = b.newRail(pr, r)
		pr.rails[i].index = uint8(i)
	}
	leaveOutSlowTiers(pr.rails)
	b.useFirst(pr, 0)
	// The descriptors of all modules have to fit into one fragment.
	most := min((pr.leastSendBytes()-b.cfg.AnswerBytes)/remoteKeyBytes, maxModules)
	var described []btl.Module
	for i := range pr.rails {
		rl := &pr.rails[i]
		if rl.registrar == nil {
			continue
		}
		if !slices.Contains(described, rl.module) {
			if len(described) >= most {
				continue
			}
			described = append(described, rl.module)
			pr.modules++
		}
		if rl.caps(b)&btl.CapGet != 0 {
			pr.getters |= 1 << i
		}
		if rl.caps(b)&btl.CapPut != 0 {
			pr.putters |= 1 << i
		}
	}
	return nil
}

// caps is the remote access that the rail has and the settings allow.
func (rl *Rail) caps(b *BML) btl.Caps { return rl.module.Attrs().Caps & b.cfg.RemoteAccess }

func (b *BML) newRail(pr *Peer, r Route) Rail {
	a := r.Module.Attrs()
	rl := Rail{
		trustee: trustee{health: fullHealth, peer: pr}, module: r.Module,
		local: uint8(r.Local), remote: uint8(r.Remote), tier: r.Tier,
		isExtra: r.Extra, alternate: r.Alternate, mayBeBeside: r.Beside, reopen: r.Reopen,
		sendBytes: a.MaxSendBytes, pieceBytes: a.MaxSendBytes, latencyNanos: max(a.LatencyNanos, 0),
		own: b.ownModuleOf(r.Module), far: pr.farEnd(r.Remote),
	}
	if a.PieceBytes > 0 {
		rl.pieceBytes = min(max(a.PieceBytes, btl.MaxHeaderBytes), a.MaxSendBytes)
	}
	if registrar, ok := r.Module.(btl.Registrar); ok && rl.caps(b) != 0 {
		rl.registrar = registrar
		if least := a.RDMABytes; pr.rdmaBytes == 0 || least < pr.rdmaBytes {
			pr.rdmaBytes = max(least, 1)
		}
		if b.cfg.RDMABytes > 0 {
			pr.rdmaBytes = b.cfg.RDMABytes
		}
	}
	if r.Endpoint == nil {
		rl.state, rl.recovery.cause = railDown, r.Down
	} else {
		b.adopt(&rl, r.Endpoint)
		rl.recovery.wasUp = true
	}
	return rl
}

// adopt takes an incarnation of a rail's endpoint in use.
func (b *BML) adopt(rl *Rail, ep btl.Endpoint) {
	rl.endpoint, rl.getter, rl.putter = ep, nil, nil
	if ep.State() == btl.Up {
		b.forgetFallen(rl.module)
	}
	if rl.registrar == nil {
		return
	}
	if rl.caps(b)&btl.CapGet != 0 {
		rl.getter, _ = ep.(btl.Getter)
	}
	if rl.caps(b)&btl.CapPut != 0 {
		rl.putter, _ = ep.(btl.Putter)
	}
}

// checkRails finds the rails of a peer, just resolved, that are down already.
func (b *BML) checkRails(pr *Peer) {
	b.prefer(pr)
	for i := range pr.rails {
		if rl := &pr.rails[i]; rl.endpoint != nil && rl.endpoint.State() != btl.Up {
			b.railFailed(rl, b.whyFallen(rl.module))
		}
	}
	for i := range pr.rails {
		rl := &pr.rails[i]
		if rl.state == railDown {
			b.planReopen(rl)
		}
		b.recover(&rl.own.trustee) // all its rails to other peers may be down
	}
	rl := &pr.rails[0]
	b.checkPath(rl, cmp.Or(rl.recovery.cause, b.whyFallen(rl.module)))
}

// orderOf sorts alternates behind the other rails of their tier.
func orderOf(alternate bool) int {
	if alternate {
		return 1
	}
	return 0
}

// prefer finds the rails that take traffic, and the first rail. Traffic goes by the lowest tier
// with a rail that is up, and by the rails that may be beside it. The first rail is trusted: the
// one chosen for its speed, or that of the lowest latency. If none is trusted, the healthiest is
// the first.
func (b *BML) prefer(pr *Peer) {
	best, before := -1, pr.up
	pr.up = 0
	for i := range pr.rails {
		rl := &pr.rails[i]
		isLater := best >= 0 && rl.tier > pr.rails[best].tier
		if rl.state != railUp || isLater && !pr.isBeside(rl) || rl.alternate && !pr.needs(rl) {
			continue
		}
		pr.up |= 1 << i
		if best < 0 || rl.comesBefore(&pr.rails[best]) {
			best = i
		}
	}
	if best >= 0 && pr.IsAlive() {
		b.useFirst(pr, best)
	}
	b.rateRails(pr)
	b.refresh(pr)
	if pr.up != before && len(pr.waitRoom) > 0 && !pr.isResumeDeferred {
		pr.isResumeDeferred = true
		b.postpone(work{kind: workResume, peer: pr})
	}
}

// comesBefore reports whether a rail replaces other as the first rail. other promises the same
// latency or less.
func (rl *Rail) comesBefore(other *Rail) bool {
	if rl == rl.peer.chosen && rl.trust() >= trusted && rl.tier == other.tier {
		return true
	}
	return other.trust() < trusted && rl.trust() > other.trust()
}

// useFirst makes a rail the first, and sets the peer's fields for short messages.
func (b *BML) useFirst(pr *Peer, index int) {
	first := &pr.rails[index]
	a := first.module.Attrs()
	pr.first = first
	most := pr.leastSendBytes() - b.cfg.AnnounceBytes
	pr.eagerBytes = min(a.EagerBytes-b.cfg.AnnounceBytes, most)
	pr.eagerCopyBytes = max(pr.eagerBytes, min(a.EagerCopyBytes-b.cfg.AnnounceBytes, most))
	if b.cfg.EagerBytes > 0 {
		pr.eagerBytes = min(b.cfg.EagerBytes, most)
		pr.eagerCopyBytes = pr.eagerBytes
	}
	pr.stopInline()
	if a.Caps&btl.CapInline != 0 && first.state == railUp && first.queue.Empty() {
		pr.inliner, _ = first.endpoint.(btl.Inliner)
	}
	if pr.inliner != nil && !b.cfg.NoShortcuts {
		pr.shortSender, _ = first.endpoint.(btl.ShortSender)
		pr.shortReceiver, _ = first.endpoint.(btl.ShortReceiver)
		pr.runReceiver, _ = first.endpoint.(btl.RunReceiver)
	}
	if pr.inliner != nil {
		pr.inlineRail = first.index
		pr.inlineBytes = min(a.InlineBytes, pr.eagerBytes+b.cfg.MatchBytes)
	}
}

// leastSendBytes is the longest fragment that every rail to the peer takes: a fragment must be able
// to change its rail.
func (pr *Peer) leastSendBytes() int {
	least := pr.rails[0].sendBytes
	for i := range pr.rails {
		least = min(least, pr.rails[i].sendBytes)
	}
	return least
}

// needs reports whether an alternate is needed: one of its modules has no other rail of the tier
// that is up, trusted, and does not lag. The health of this rank's module does not count: its
// errors with other peers may be theirs.
func (pr *Peer) needs(alternate *Rail) bool {
	local, remote := false, false
	for i := range pr.rails {
		if rl := &pr.rails[i]; rl.state == railUp && !rl.alternate && rl.tier == alternate.tier && min(rl.health, rl.far.health) >= trusted && !pr.lagging.Has(i) {
			local = local || rl.local == alternate.local
			remote = remote || rl.remote == alternate.remote
		}
	}
	return !local || !remote
}

// between is the rail between a module of this rank and one of the peer, nil if there is none.
func (pr *Peer) between(local, remote uint8) *Rail {
	for i := range pr.rails {
		if rl := &pr.rails[i]; rl.local == local && rl.remote == remote {
			return rl
		}
	}
	return nil
}

// by is the first rail of a module in a set, nil if there is none.
func (pr *Peer) by(m btl.Module, among RailSet) *Rail {
	for i := range pr.rails {
		if among.Has(i) && pr.rails[i].module == m {
			return &pr.rails[i]
		}
	}
	return nil
}

// uses reports whether a module leads to the peer, or brought its first fragment.
func (pr *Peer) uses(m btl.Module) bool { return pr.via == m || pr.by(m, ^RailSet(0)) != nil }

// isSpare reports whether a rail would take no traffic if it were up.
func (pr *Peer) isSpare(rl *Rail) bool {
	return pr.up != 0 && rl.tier > pr.first.tier && !pr.isBeside(rl) || rl.alternate && !pr.needs(rl)
}
