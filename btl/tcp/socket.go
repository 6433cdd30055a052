package tcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of every progress call do not pass through Go's scheduler (RawSyscall). None of
// them blocks, because all sockets are non-blocking, and each takes only as long as the copy of its
// bytes.

// recv reads the available bytes, at most len(b).
func recv(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	return int(n), errno
}

// send writes as many bytes as fit.
func send(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

// sendVectors writes as many bytes as fit.
func sendVectors(fd int, msg *unix.Msghdr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(msg)), unix.MSG_NOSIGNAL)
	return int(n), errno
}

// isTransient reports whether an error may go away soon.
func isTransient(errno unix.Errno) bool {
	return errno == unix.EAGAIN || errno == unix.EINTR || errno == unix.ENOBUFS || errno == unix.ENOMEM
}

// sockaddr is an address in the system's form.
func sockaddr(a netip.AddrPort, zone uint32) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16(), ZoneId: zone}
}

// zoneOf returns the index of the interface of a link-local address.
func zoneOf(a netip.Addr) (uint32, error) {
	if a.Zone() == "" {
		return 0, nil
	}
	i, err := net.InterfaceByName(a.Zone())
	if err != nil {
		return 0, fmt.Errorf("interface of %v: %w", a, err)
	}
	return uint32(i.Index), nil
}

// socketFor makes a socket of an address's family.
func socketFor(a netip.Addr) (int, error) {
	family := unix.AF_INET6
	if a.Is4() {
		family = unix.AF_INET
	}
	return unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
}

// backlog is the number of connections that the system queues, if its own limit (somaxconn)
// permits.
const backlog = 4096

// listen makes the listener of an address, at a free port.
func (m *module) listen(l *local) error {
	first, last := m.cfg.FirstPort, m.cfg.LastPort
	for port := int(first); port <= int(last); port++ {
		err := m.listenAtPort(l, uint16(port))
		if !errors.Is(err, unix.EADDRINUSE) {
			return err
		}
	}
	if first == 0 {
		return fmt.Errorf("listen on %v: no port is free: %w", l.Address, unix.EADDRINUSE)
	}
	return fmt.Errorf("listen on %v: none of ports %d to %d is free: %w", l.Address, first, last, unix.EADDRINUSE)
}

// listenAtPort makes the listener of an address at a port; 0 is any.
func (m *module) listenAtPort(l *local, port uint16) error {
	l.listener = -1
	fd, err := socketFor(l.Address)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	fail := func(what string, err error) error {
		_ = unix.Close(fd)
		switch {
		case errors.Is(err, unix.EADDRNOTAVAIL):
			return fmt.Errorf("%s %v: this machine has no such address: %w", what, l.Address, err)
		case errors.Is(err, unix.EACCES):
			return fmt.Errorf("%s %v: port %d: %w", what, l.Address, port, err)
		}
		return fmt.Errorf("%s %v: %w", what, l.Address, err)
	}
	// With it, a port of the range can be reused although old connections linger there.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fail("prepare to listen on", err)
	}
	if err := m.sizeBuffers(fd); err != nil { // accepted sockets inherit them
		return fail("prepare to listen on", err)
	}
	if l.Address.IsLoopback() {
		disablePacing(fd)
	}
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(l.Address, port), l.zone)); err != nil {
		return fail("listen on", err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return fail("listen on", err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return fail("port of the listener on", err)
	}
	l.listener, l.port = fd, addrPortOf(sa).Port()
	return nil
}

// addrPortOf is the inverse of sockaddr, without a zone.
func addrPortOf(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// endsOf returns the addresses of a connection's ends. They are invalid if the system does not
// know.
func endsOf(fd int) (local, remote netip.Addr) {
	if here, err := unix.Getsockname(fd); err == nil {
		local = addrPortOf(here).Addr()
	}
	if there, err := unix.Getpeername(fd); err == nil {
		remote = addrPortOf(there).Addr()
	}
	return local, remote
}

func (m *module) sizeBuffers(fd int) error {
	for _, o := range [...]struct{ option, bytes int }{{unix.SO_SNDBUF, m.cfg.SendBuffer}, {unix.SO_RCVBUF, m.cfg.ReceiveBuffer}} {
		if o.bytes > 0 {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, o.option, o.bytes); err != nil {
				return fmt.Errorf("size a socket's buffer: %w", err)
			}
		}
	}
	return nil
}

// keepAliveProbes is how many times the system probes a silent peer's machine, a third of KeepAlive
// apart.
const keepAliveProbes = 3

// tune sets the options of a connection. TCP_USER_TIMEOUT is not set: it would also end connections
// to healthy peers that compute and do not read, once their windows are full. health.go does its
// work.
func (m *module) tune(fd int) error {
	idle := int((m.cfg.KeepAlive + time.Second - 1) / time.Second)
	for _, o := range [...]struct{ level, option, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, idle},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, max(1, idle/keepAliveProbes)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveProbes},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.option, o.value); err != nil {
			return fmt.Errorf("prepare a socket: %w", err)
		}
	}
	return nil
}

// disablePacing keeps the system from delaying the bytes of a connection that stays on this
// machine. If the system's congestion control is bbr, timers pace such connections, which halved
// the bandwidth of consecutive 4 MiB messages. Reno does not pace; every kernel has it, and every
// process may choose it. The option must be set before the socket is connected, because pacing does
// not stop once it has begun. Accepted sockets inherit it from the listener. Without the option,
// everything works, only slower.
func disablePacing(fd int) {
	_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
}

// bindAddressNoPort (IP_BIND_ADDRESS_NO_PORT): the system chooses the port when the peer is known,
// so that one port serves several peers.
const bindAddressNoPort = 24

// dial begins a connection. The errno is the error of the step that failed. local says that this
// step was the binding to the local address.
func (m *module) dial(p path) (fd int, local bool, errno unix.Errno) {
	from, zone := p.local.Addr(), uint32(0)
	for _, l := range m.locals {
		if l.Address.WithZone("") == from {
			zone = l.zone
		}
	}
	fd, err := socketFor(from)
	if err != nil {
		return -1, false, asErrno(err)
	}
	err = errors.Join(m.sizeBuffers(fd), m.tune(fd))
	if err == nil {
		if p.remote.Addr() == from {
			disablePacing(fd)
		}
		// Without it, only fewer ports are available.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, bindAddressNoPort, 1)
		err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(from, 0), zone))
		local = err != nil
	}
	if err == nil {
		err = unix.Connect(fd, sockaddr(p.remote.AddrPort, zone))
		if errors.Is(err, unix.EINPROGRESS) {
			err = nil
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, local, asErrno(err)
	}
	return fd, false, 0
}

// asErrno returns the errno in an error, or EIO if there is none.
func asErrno(err error) unix.Errno {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return unix.EIO
	}
	return errno
}

// The ioctls of tcp(7) that report how many written bytes are not acknowledged, and how many not
// even sent.
const (
	unacknowledged = 0x5411 // SIOCOUTQ
	unsentBytes    = 0x894b // SIOCOUTQNSD
)

// undelivered returns how many bytes have not reached the peer's machine. On the same machine, sent
// bytes have.
func undelivered(fd int, sameMachine bool) int {
	request := uint(unacknowledged)
	if sameMachine {
		request = unsentBytes
	}
	n, err := unix.IoctlGetInt(fd, request)
	if err != nil {
		return 0
	}
	return n
}
