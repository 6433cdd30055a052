package tcp

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// TestSideOfEachError: an error of a connection names the end at fault. Errors of this machine's
// resources, addresses and rules point to this end. If a peer refuses, or the system finds no
// address or route of it, the error points to the peer, because the rail leads to others.
func TestSideOfEachError(t *testing.T) {
	m := newAt(t, Config{Size: 2, Local: loopback4, Secret: secret}, 0, &mate{})
	seen := map[string]bool{}
	for side, names := range map[btl.Side]string{
		btl.SideLocal:  "ENETDOWN ENODEV EADDRNOTAVAIL EMFILE ENFILE ENOBUFS ENOMEM ENOSPC EACCES EPERM",
		btl.SideRemote: "ECONNREFUSED ECONNRESET EPIPE ENETUNREACH EHOSTUNREACH EHOSTDOWN",
	} {
		for _, name := range strings.Fields(names) {
			seen[name] = true
			errno := errnoOf(t, name)
			err := m.pathError(1, errno, "connect")
			require.Equal(t, []any{1, btl.ClassPath, side, name}, []any{err.Peer, err.Class, err.Side, err.Native}, name)
			require.ErrorIs(t, err, errno)
		}
	}
	for errno := unix.Errno(1); errno < 256; errno++ { // for others, either end may be the cause
		if name := unix.ErrnoName(errno); name != "" && !seen[name] {
			require.Equal(t, btl.SideBoth, m.pathError(1, errno, "connect").Side, name)
		}
	}
}

func errnoOf(t *testing.T, name string) unix.Errno {
	t.Helper()
	for errno := unix.Errno(1); errno < 256; errno++ {
		if unix.ErrnoName(errno) == name {
			return errno
		}
	}
	require.FailNow(t, "no such error", name)
	return 0
}

// TestConnectWithoutRouteBlamesPeer: if the system has no route to the peer, the failed connection
// points to the peer, not to this rank's port.
func TestConnectWithoutRouteBlamesPeer(t *testing.T) {
	va := &mate{}
	cfg := Config{Size: 2, Local: loopback4, Secret: secret}
	b := newAt(t, cfg, 1, &mate{})
	cfg.Blocked = func(int) bool { return true }
	a := newAt(t, cfg, 0, va)
	e := connectTo(t, a, 1, b.Address())
	until(t, "the end", func() bool { return e.State() == btl.Drained }, a)
	require.Equal(t, []any{1, btl.ClassPath, btl.SideRemote, "ENETUNREACH"}, []any{va.failed.Peer, va.failed.Class, va.failed.Side, va.failed.Native})
}
