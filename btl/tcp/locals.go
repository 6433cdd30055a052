package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// local is an address that the module listens on and connects from. All addresses of a module are
// on one interface. They share one cable, and form one rail.
type local struct {
	Interface
	zone     uint32
	listener int // -1 if it is broken
	port     uint16
	gone     bool // this machine no longer has the address
}

// listenAt makes the listener of an address.
func (m *module) listenAt(i Interface) (l local, err error) {
	l = local{Interface: i}
	if l.zone, err = zoneOf(i.Address); err != nil {
		return l, err
	}
	if err := m.listen(&l); err != nil {
		return l, err
	}
	return l, m.pollListener(&l)
}

func (m *module) pollListener(l *local) error {
	if err := m.handshakePoller.add(l.listener); err != nil {
		_ = unix.Close(l.listener)
		l.listener = -1
		return err
	}
	return nil
}

// listenAtAll makes the listeners of the first addresses. It leaves out addresses that cannot be
// used, as long as there is another one.
func (m *module) listenAtAll(list []Interface) error {
	for _, i := range list {
		l, err := m.listenAt(i)
		if err != nil {
			m.leftOut = append(m.leftOut, err)
			continue
		}
		m.locals = append(m.locals, l)
	}
	if len(m.locals) == 0 {
		return errors.Join(m.leftOut...)
	}
	return nil
}

// reopenListeners reopens broken listeners at the ports in the module's published address. It
// succeeds if one listener works.
func (m *module) reopenListeners() (err error) {
	open := 0
	for n := range m.locals {
		l := &m.locals[n]
		if l.listener >= 0 {
			open++
			continue
		}
		why := m.listenAtPort(l, l.port)
		if why == nil {
			why = m.pollListener(l)
		}
		if why == nil {
			open++
		}
		err = errors.Join(err, why)
	}
	if open > 0 {
		return nil
	}
	return err
}

// close closes the listener.
func (l *local) close(m *module) error {
	if l.listener < 0 {
		return nil
	}
	m.handshakePoller.remove(l.listener)
	err := unix.Close(l.listener)
	l.listener = -1
	return err
}

// listening returns the address of a listener, or nil if there is none.
func (m *module) listening(fd int) *local {
	if i := slices.IndexFunc(m.locals, func(l local) bool { return l.listener == fd }); i >= 0 {
		return &m.locals[i]
	}
	return nil
}

// published returns those of the module's published addresses that f accepts.
func (m *module) published(f func(l local) bool) (list []netAddress) {
	for _, l := range m.locals {
		if f(l) {
			list = append(list, netAddress{netip.AddrPortFrom(l.Address.WithZone(""), l.port), uint8(l.Bits)})
		}
	}
	return list
}

// isThere reports whether this machine has an address, as far as the module knows.
func isThere(l local) bool { return !l.gone }

// isAny accepts each address.
func isAny(local) bool { return true }

// findAddresses begins to use the addresses that the machine has now, and drops those that are
// gone. If there is none, the module keeps its old ones.
func (m *module) findAddresses() {
	found := m.cfg.Find()
	if len(found) == 0 || m.Closed {
		return
	}
	hadAddress := m.hasAddress()
	for n := range m.locals { // an address may stay though new rails would not use it
		l := &m.locals[n]
		if l.gone = l.gone || !hadAddress; !l.gone && !slices.ContainsFunc(found, func(i Interface) bool { return i.Address == l.Address }) {
			found = append(slices.Clip(found), l.Interface)
		}
	}
	var next []local
	var why error
	isChanged := false
	for _, i := range m.distinct(found) {
		if n := slices.IndexFunc(m.locals, func(l local) bool { return l.Address == i.Address }); n >= 0 {
			next = append(next, m.locals[n])
			next[len(next)-1].gone = false
			continue
		}
		l, err := m.listenAt(i)
		if err != nil { // a new IPv6 address cannot be used at once
			why = err
			continue
		}
		next, isChanged = append(next, l), true
	}
	if len(next) == 0 {
		if len(m.locals) == 0 {
			m.link.down = why
		}
		return
	}
	for n := range m.locals {
		l := &m.locals[n]
		if !slices.ContainsFunc(next, func(o local) bool { return o.Address == l.Address }) {
			l.gone, isChanged = true, true
			_ = l.close(m)
		}
	}
	m.failGone()
	m.locals = next
	if !hadAddress {
		m.link.down = nil // one is back, or has come
	}
	if !isChanged {
		return
	}
	if !hadAddress {
		m.link.isMoved = len(m.first) > 0 && !slices.ContainsFunc(m.first, func(a netip.Addr) bool { return m.isLocal(a) })
		m.beginToWatch()
	}
	m.SetAddress(m.encodeAddress())
	m.Unsettled = true
	if m.cfg.Moved != nil {
		m.cfg.Moved()
	}
}

// distinct returns the found addresses that the module uses, at most one of each network. It
// prefers addresses of start-up, then addresses that the module already uses.
func (m *module) distinct(found []Interface) (list []Interface) {
	rank := func(i Interface) int {
		switch {
		case slices.Contains(m.first, i.Address):
			return 0
		case m.isLocal(i.Address):
			return 1
		}
		return 2
	}
	found = slices.Clone(found)
	slices.SortStableFunc(found, func(a, b Interface) int { return rank(a) - rank(b) })
	for _, i := range found {
		i.Rail = "" // all belong to this rail
		list = addDistinct(list, i)
	}
	return list
}

// isLocal reports whether the module uses an address.
func (m *module) isLocal(a netip.Addr) bool {
	return slices.ContainsFunc(m.locals, func(l local) bool { return l.Address == a })
}

// failGone fails the connections from addresses that are gone.
func (m *module) failGone() {
	for _, l := range m.locals {
		if !l.gone {
			continue
		}
		for e := range m.Endpoints() {
			if e.State() == btl.Up && e.phase == phaseReady && e.local == l.Address.WithZone("") {
				why := fmt.Errorf("%w %v", errNoAddress, l.Address)
				e.failDeferred(m.NewError(e.p.rank, btl.ClassPath, btl.SideLocal, nativeOf(unix.EADDRNOTAVAIL), why))
			}
		}
	}
}

// namesOf lists addresses for a message.
func namesOf(locals []local) string {
	names := make([]string, len(locals))
	for n, l := range locals {
		names[n] = l.Address.String()
	}
	return strings.Join(names, ", ")
}
