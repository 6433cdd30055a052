package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// Whether this end of the rail is there.
//
// The system does not end connections whose interface goes down, loses its cable or its address: TCP waits for better times, and the health
// check (health.go) for UserTimeout. So the kernel is asked to tell of such changes (rtnetlink(7)). What has changed is not read of that, only on which interface: if it is the module's it
// looks how its address is now. Without it, peers on this machine, who share its network, are out of reach too; without the link
// they are not, for what is sent to them does not leave the machine.

var (
	errNoAddress = errors.New("this machine no longer has the address")
	errLinkDown  = errors.New("the interface is down")
	errNoCarrier = errors.New("the interface has no link")
)

// link is what the kernel tells of the interface that a module's address is on.
type link struct {
	fd      int // of the news; -1 if there are none
	state   func() (interfaceState, error)
	index   int   // of the interface that had the address when last looked for
	carrier bool  // it has said once that it had a link; some may never say so
	down    error // nil while all is well
}

// interfaceState is how an address is.
type interfaceState struct {
	name        string // "": no interface has it
	index       int
	up, carrier bool
}

// watchLink has the kernel tell of changes. Where it does not, or the address is none that comes and goes, nothing is known.
func (m *module) watchLink() {
	local := m.cfg.Local
	m.link = link{fd: -1, state: func() (interfaceState, error) { return stateOf(local) }}
	s, err := m.link.state()
	if local.IsLoopback() || err != nil || s.name == "" {
		return
	}
	m.link.carrier, m.link.index = s.carrier, s.index
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return
	}
	groups := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR}
	if unix.Bind(fd, groups) != nil || m.entrance.add(fd) != nil {
		_ = unix.Close(fd)
		return
	}
	m.link.fd = fd
}

// stateOf finds the interface of an address.
func stateOf(addr netip.Addr) (interfaceState, error) {
	list, err := net.Interfaces()
	if err != nil {
		return interfaceState{}, fmt.Errorf("list network interfaces: %w", err)
	}
	for _, i := range list {
		if addr.Zone() != "" && addr.Zone() != i.Name {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it has just gone
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap().WithZone("") == addr.WithZone("") {
				return interfaceState{i.Name, i.Index, i.Flags&net.FlagUp != 0, i.Flags&net.FlagRunning != 0}, nil
			}
		}
	}
	return interfaceState{}, nil
}

// hears takes what the kernel has told, and reports whether it may be about the module's address.
func (l *link) hears() bool {
	var b [8192]byte
	ours := false
	for {
		n, errno := recv(l.fd, b[:])
		switch errno {
		case 0:
			ours = ours || l.isAbout(b[:n])
		case unix.EINTR:
		case unix.ENOBUFS: // there was more than the system keeps
			ours = true
		default:
			return ours
		}
	}
}

// isAbout reports whether news may be about the module's address. On a machine with many containers most are not.
func (l *link) isAbout(b []byte) bool {
	list, err := syscall.ParseNetlinkMessage(b)
	if err != nil || len(list) == 0 || l.down != nil {
		return true // without the address, any interface may get it
	}
	for _, msg := range list { // of links and of addresses alike, the index is the second word
		if len(msg.Data) < 8 || int(binary.NativeEndian.Uint32(msg.Data[4:])) == l.index {
			return true
		}
	}
	return false
}

// hearLink takes news, and fails what the link leads to if it is down now.
func (m *module) hearLink() {
	l := &m.link
	if !l.hears() {
		return
	}
	s, err := l.state()
	if err != nil {
		return
	}
	if s.name != "" {
		l.index = s.index
	}
	l.carrier = l.carrier || s.carrier
	before := l.down
	switch {
	case s.name == "":
		l.down = fmt.Errorf("%w %v", errNoAddress, m.cfg.Local)
		if !errors.Is(before, errNoAddress) {
			m.railDoom = m.errorf(btl.AllPeers, btl.ClassDevice, btl.SideLocal, nativeOf(unix.EADDRNOTAVAIL), l.down)
		}
		return
	case !s.up:
		l.down = fmt.Errorf("%w: %s", errLinkDown, s.name)
	case l.carrier && !s.carrier:
		l.down = fmt.Errorf("%w: %s", errNoCarrier, s.name)
	default:
		l.down = nil
		return
	}
	for _, p := range m.peers {
		if p != nil && p.ep != nil && p.ep.state == btl.Up && p.elsewhere {
			p.ep.condemn(m.linkError(p), nil)
		}
	}
}

// cannotReach is why a peer cannot be reached from here; nil if nothing is known against it.
func (m *module) cannotReach(p *peer) error {
	if down := m.link.down; down == nil || !p.elsewhere && !errors.Is(down, errNoAddress) {
		return nil
	}
	return m.linkError(p)
}

func (m *module) linkError(p *peer) *btl.Error {
	return m.errorf(p.rank, btl.ClassPath, btl.SideLocal, nativeOf(unix.ENETDOWN), m.link.down)
}
