package ibverbs

import (
	"errors"
	"slices"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// With RoCE, the system may have to ask the network for the link-layer address of a path. A device
// call that needs the address blocks meanwhile, for a second if there is no answer. The call is
// made under the engine's lock, so no rail would carry anything. Therefore a module first lets the
// device resolve the path of each incarnation in the background. One message in each direction
// waits for the path. Others are dropped, because every message is repeated.

// lookup is a path that is being resolved for a peer.
type lookup struct {
	p     *peer
	to    address
	epoch uint32   // the incarnation that it is for
	held  *message // REQ or REP to handle afterwards, nil if there is none
	out   *message // to send afterwards, nil if there is none

	// stale: the path begins at an address that the port has lost, or at a device that is closed.
	stale bool
	state atomic.Uint32 // lookupBegun, lookupAwaited, or lookupDone
	err   error         // valid in lookupDone
}

const (
	lookupBegun = iota
	lookupAwaited
	lookupDone
)

// knows reports whether the path for the connection of a REQ or REP is resolved. If not, the
// message is handled again once it is.
func (m *module) knows(p *peer, msg *message) bool {
	if p.ah != nil && p.ahTo == msg.address && p.resolvedFor >= msg.epoch {
		return true
	}
	return m.resolve(&lookup{p: p, to: msg.address, epoch: msg.epoch, held: msg})
}

// resolve begins to resolve a path, unless a lookup is under way. It reports whether the path is
// already resolved and the peer has a handle for it. Only one path to a peer is resolved at a time.
func (m *module) resolve(l *lookup) bool {
	p := l.p
	if now := p.lookup; now != nil {
		if now.to == l.to && !now.stale {
			now.epoch = max(now.epoch, l.epoch)
			if l.held != nil {
				now.held = l.held
			}
			if l.out != nil {
				now.out = l.out
			}
		}
		return false
	}
	p.lookup = l
	m.h.pd.Resolve(m.h.path(&m.cfg, &l.to), func(err error) {
		l.err = err
		if l.state.Swap(lookupDone) == lookupAwaited {
			m.wakeup(lookupSignal)
		}
	})
	if l.state.CompareAndSwap(lookupBegun, lookupAwaited) {
		m.lookups = append(m.lookups, l)
		return false
	}
	return m.resolved(l)
}

// resolved takes the result of a lookup, and reports whether the peer has a handle for the path.
func (m *module) resolved(l *lookup) bool {
	p := l.p
	p.lookup = nil
	if l.stale {
		return false
	}
	if p.ahTo != l.to {
		_ = p.dropHandle()
	}
	err := l.err
	if err == nil && p.ah == nil {
		var ah verbs.AH
		if ah, err = m.h.pd.CreateAH(m.h.path(&m.cfg, &l.to)); err == nil {
			p.ah, p.ahTo = ah, l.to
		}
	}
	if err != nil { // there is no path now; the next message tries again
		p.noRoute = err
		p.noRouteTries++
		return false
	}
	p.resolvedFor = max(p.resolvedFor, l.epoch)
	p.noRoute, p.noRouteTries = nil, 0
	return true
}

// takeLookups handles the messages that waited for paths that are now resolved. It returns the
// number of paths.
func (m *module) takeLookups() int {
	m.signals.And(^uint32(lookupSignal)) // first: a later result sets it again
	var done []*lookup
	m.lookups = slices.DeleteFunc(m.lookups, func(l *lookup) bool {
		if l.state.Load() != lookupDone {
			return false
		}
		done = append(done, l)
		return true
	})
	for _, l := range done {
		if !m.resolved(l) {
			continue
		}
		if l.out != nil {
			m.post(l.p, l.out)
		}
		if l.held != nil {
			m.handle(l.held)
		}
	}
	return len(done)
}

// dropHandles destroys the address handles of all peers, and makes the lookups under way stale.
func (m *module) dropHandles() {
	for p := range m.peers.All() {
		_ = p.dropHandle()
	}
	for _, l := range m.lookups {
		l.stale = true
	}
}

// pathFault returns the class and the side of an error of a call that needs the path to a peer. If
// the system finds no address or route of the peer, the peer's side is at fault, because the port
// may reach others (O2IBLND, "Handling Errors on Sends"). Any other error is an error of this end's
// device.
func pathFault(err error) (btl.Class, btl.Side) {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		switch errno {
		case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EHOSTDOWN, unix.ETIMEDOUT:
			return btl.ClassPath, btl.SideRemote
		}
	}
	return btl.ClassDevice, btl.SideLocal
}
