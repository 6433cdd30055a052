package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// How the module detects that its end of the rail does not work:
//
// The system does not end connections whose interface goes down, or loses its cable or its address:
// TCP waits for the state to recover, and the health check (health.go) waits for UserTimeout.
// Therefore the module asks the kernel to report such changes (rtnetlink(7)).
//
// It reads only which interface has changed. If it is its own, the module looks up the current
// state of its addresses. Connections from an address that is gone fail. Without any address, the
// rail fails.
//
// If the address is gone, peers on this machine, which share its network, are out of reach too. If
// only the link is gone, they are not, because traffic to them does not leave the machine.

var (
	errNoAddress = errors.New("this machine no longer has the address")
	errLinkDown  = errors.New("the interface is down")
	errNoCarrier = errors.New("the interface has no link (its cable, or the port at the other end)")
	errChanging  = errors.New("they are changing")
)

// link is what the kernel reports about the interface of the module's addresses.
type link struct {
	fd    int // of the netlink socket; -1 if there is none
	state func(netip.Addr) (interfaceState, error)
	// index of the interface that had the addresses at the last check.
	index   int
	carrier bool  // the interface has had a link; some interfaces never report one
	down    error // why no address works, or why the link does not; nil if they do
	unsure  bool  // a change was reported, and the new state is not known yet
	// isMoved: the module has lost all its first addresses, and has made no connection with the new
	// ones yet.
	isMoved bool
}

// interfaceState is the state of an address's interface.
type interfaceState struct {
	name        string // "" if no interface has the address
	index       int
	up, carrier bool
}

// watchLink asks the kernel to report changes. Without netlink, or on loopback, link state is not
// monitored.
func (m *module) watchLink() {
	if m.isOnLoopback() {
		return
	}
	m.link.state = stateOf
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return
	}
	groups := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR}
	if unix.Bind(fd, groups) != nil {
		_ = unix.Close(fd)
		return
	}
	if m.handshakePoller.add(fd) != nil {
		_ = unix.Close(fd)
		return
	}
	m.link.fd = fd
	if len(m.locals) > 0 {
		m.beginToWatch()
	}
}

// isOnLoopback reports whether the module's addresses are on loopback.
func (m *module) isOnLoopback() bool { return len(m.locals) > 0 && m.locals[0].Address.IsLoopback() }

// beginToWatch records the first state of the addresses. The kernel reports changes after that.
func (m *module) beginToWatch() {
	l := &m.link
	if m.isOnLoopback() {
		m.stopToWatch()
		return
	}
	s, err := m.lookUpAddresses()
	if err != nil || s.name == "" {
		if l.unsure = l.isMoved; !l.unsure {
			m.stopToWatch()
		}
		return
	}
	l.carrier, l.index = s.carrier, s.index
	if !s.up {
		l.down = fmt.Errorf("%w: %s", errLinkDown, s.name)
	}
}

func (m *module) stopToWatch() {
	if m.link.fd >= 0 {
		_ = unix.Close(m.link.fd)
		m.link.fd = -1
	}
}

// isUnproven reports whether the interface has had no link yet. Some never report one.
func (l *link) isUnproven() bool { return l.fd >= 0 && l.down == nil && !l.carrier }

// stateOf finds the interface of an address. If several have it, it prefers one that is up. It asks
// the kernel for all addresses once: there may be hundreds of interfaces, and the engine's lock is
// held.
func stateOf(addr netip.Addr) (interfaceState, error) {
	indices, err := interfacesOf(addr.Unmap().WithZone(""))
	if err != nil {
		return interfaceState{}, err
	}
	var found interfaceState
	for _, index := range indices {
		s, err := stateAt(index)
		if err != nil {
			return interfaceState{}, fmt.Errorf("interface %d: %w", index, err)
		}
		if (found.name == "" || s.up && !found.up) && (addr.Zone() == "" || addr.Zone() == s.name) {
			found = s
		}
	}
	return found, nil
}

// stateAt asks for one interface (netdevice(7)); Go's InterfaceByIndex would ask for all.
func stateAt(index int) (s interfaceState, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return s, err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("")
	if err != nil {
		return s, err
	}
	request.SetUint32(uint32(index))
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFNAME, request); err != nil {
		return s, err
	}
	name := request.Name()
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return s, err
	}
	flags := request.Uint16()
	return interfaceState{name, index, flags&unix.IFF_UP != 0, flags&unix.IFF_RUNNING != 0}, nil
}

// interfacesOf returns the indices of the interfaces that have an address.
func interfacesOf(addr netip.Addr) (indices []int, err error) {
	family := unix.AF_INET6
	if addr.Is4() {
		family = unix.AF_INET
	}
	err = eachAddress(family, func(index int, _ byte, has netip.Addr) {
		if has == addr && !slices.Contains(indices, index) {
			indices = append(indices, index)
		}
	})
	return indices, err
}

// eachAddress calls f for each address of this machine of a family, with the index of its interface
// and its flags (IFA_F_…).
func eachAddress(family int, f func(index int, flags byte, addr netip.Addr)) error {
	b, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, family)
	if err != nil {
		return fmt.Errorf("list the addresses of this machine: %w", err)
	}
	list, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return fmt.Errorf("list the addresses of this machine: %w", err)
	}
	for _, msg := range list {
		if msg.Header.Flags&unix.NLM_F_DUMP_INTR != 0 {
			return fmt.Errorf("list the addresses of this machine: %w", errChanging)
		}
		if msg.Header.Type != syscall.RTM_NEWADDR || len(msg.Data) < unix.SizeofIfAddrmsg {
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(&msg)
		if err != nil {
			return fmt.Errorf("list the addresses of this machine: %w", err)
		}
		f(int(binary.NativeEndian.Uint32(msg.Data[4:])), msg.Data[2], localOf(attrs))
	}
	return nil
}

// localOf returns the address in a message's attributes. On a point-to-point link, it is the local
// end.
func localOf(attrs []syscall.NetlinkRouteAttr) (addr netip.Addr) {
	for _, a := range attrs {
		if a.Attr.Type == unix.IFA_LOCAL || a.Attr.Type == unix.IFA_ADDRESS && !addr.IsValid() {
			if got, ok := netip.AddrFromSlice(a.Value); ok {
				addr = got
			}
		}
	}
	return addr
}

// readNews reads the kernel's reports, and records whether one may concern the module's address.
func (l *link) readNews() {
	var b [8192]byte
	for {
		n, errno := recv(l.fd, b[:])
		switch errno {
		case 0:
			l.unsure = l.unsure || l.isAbout(b[:n])
		case unix.EINTR:
		case unix.ENOBUFS: // the socket's queue has overflowed
			l.unsure = true
		default:
			return
		}
	}
}

// isAbout reports whether a message may concern the module's address. On a machine with many
// containers, most do not.
func (l *link) isAbout(b []byte) bool {
	list, err := syscall.ParseNetlinkMessage(b)
	if err != nil || len(list) == 0 {
		return true
	}
	if l.index == 0 || l.isMoved {
		return true // the address is not there yet, or a better one may come
	}
	// In messages about links and about addresses, the index is the second word.
	for _, msg := range list {
		if l.down != nil && msg.Header.Type == unix.RTM_NEWADDR {
			return true // another interface may have the address now
		}
		if len(msg.Data) < 8 || int(binary.NativeEndian.Uint32(msg.Data[4:])) == l.index {
			return true
		}
	}
	return false
}

// lookUpAddresses returns the state of the interface that has the module's addresses. If several
// have them, it prefers one that is up. It records which addresses are gone.
func (m *module) lookUpAddresses() (best interfaceState, err error) {
	var gone [maxAddresses]bool
	for n, l := range m.locals {
		s, err := m.link.state(l.Address)
		if err != nil {
			return best, err
		}
		gone[n] = s.name == ""
		if best.name == "" || s.up && !best.up {
			best = s
		}
	}
	for n := range m.locals {
		m.locals[n].gone = gone[n]
	}
	return best, nil
}

// lookAtLink looks up the state after a change, and fails the rail or connections that do not work
// any more. If it cannot determine the state, it tries again in the next progress call.
func (m *module) lookAtLink() {
	l := &m.link
	if len(m.locals) == 0 {
		l.unsure = !m.lookForAddresses()
		return
	}
	s, err := m.lookUpAddresses()
	if err != nil {
		return
	}
	l.unsure = false
	if s.name != "" && s.index != l.index {
		l.index, l.carrier = s.index, false
	}
	l.carrier = l.carrier || s.carrier
	before := l.down
	switch {
	case s.name == "":
		l.down = m.noAddress()
		if !errors.Is(before, errNoAddress) {
			m.deferred = m.NewError(btl.AllPeers, btl.ClassDevice, btl.SideLocal, nativeOf(unix.EADDRNOTAVAIL), l.down)
		}
		l.unsure = !m.lookForAddresses() || l.unsure
		return
	case !s.up:
		l.down = fmt.Errorf("%w: %s", errLinkDown, s.name)
	case l.carrier && !s.carrier:
		l.down = fmt.Errorf("%w: %s", errNoCarrier, s.name)
	default:
		l.down = nil
		m.failGone()
		l.unsure = !m.lookForAddresses() || l.unsure
		return
	}
	m.failGone()
	for e := range m.Endpoints() {
		if e.State() == btl.Up && e.p.onOtherMachine {
			e.failDeferred(m.linkError(e.p))
		}
	}
}

// noAddress is the error of a module whose addresses are gone.
func (m *module) noAddress() error {
	return fmt.Errorf("%w %s", errNoAddress, namesOf(m.locals))
}

// cannotReach returns why a peer cannot be reached from here, or nil if no reason is known.
func (m *module) cannotReach(p *peer) error {
	if m.link.down == nil || m.hasAddress() && !p.onOtherMachine {
		return nil
	}
	return m.linkError(p)
}

// linkError makes an error of the local side. Even if the other end of the cable caused the loss of
// the link, no connection over this interface works.
func (m *module) linkError(p *peer) *btl.Error {
	return m.NewError(p.rank, btl.ClassPath, btl.SideLocal, nativeOf(unix.ENETDOWN), m.link.down)
}
