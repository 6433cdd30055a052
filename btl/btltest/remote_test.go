package btltest_test

import (
	"errors"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/progress"
)

// serve serves the module that open makes through a connection, as if in another process. It
// returns both ends of the connection, and the result of Serve.
func serve(t testing.TB, open func(ev btl.Events) (btl.Module, error)) (near, other net.Conn, served chan error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		conns[i], err = net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	served = make(chan error)
	go func() { served <- btltest.Serve(conns[1], open) }()
	return conns[0], conns[1], served
}

// TestRemoteModule: a module behind a connection passes the suite like a module in this process.
func TestRemoteModule(t *testing.T) {
	btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
		f, err := loop.NewFabric(loop.Config{Ranks: 2})
		require.NoError(t, err)
		wakeup := progress.NewChanWakeup()
		a, err := f.Module(0, 0, evA, wakeup)
		require.NoError(t, err)
		near, _, served := serve(t, func(ev btl.Events) (btl.Module, error) { return f.Module(1, 0, ev, nil) })
		b, err := btltest.Dial(near, evB)
		require.NoError(t, err)
		return &btltest.Pair{A: a, B: b, RankA: 0, RankB: 1, WakeupA: wakeup, Remote: true, Close: func() {
			require.NoError(t, near.Close())
			require.NoError(t, <-served)
		}}
	})
}

// TestDialWithoutModuleFails: an error between the processes is reported on both sides.
func TestDialWithoutModuleFails(t *testing.T) {
	errMade := errors.New("not today")
	near, other, served := serve(t, func(btl.Events) (btl.Module, error) { return nil, errMade })
	_, err := btltest.Dial(near, nil)
	require.ErrorContains(t, err, "not today")
	require.ErrorIs(t, <-served, errMade)

	require.NoError(t, other.Close())
	_, err = btltest.Dial(near, nil)
	require.ErrorContains(t, err, "no answer from the other process")
}

// TestRemoteModuleDies: calls of a module whose process has ended do not hang, and report an error.
func TestRemoteModuleDies(t *testing.T) {
	f, err := loop.NewFabric(loop.Config{Ranks: 2})
	require.NoError(t, err)
	near, other, served := serve(t, func(ev btl.Events) (btl.Module, error) { return f.Module(1, 0, ev, nil) })
	m, err := btltest.Dial(near, nil)
	require.NoError(t, err)
	require.Zero(t, m.Progress())
	require.NoError(t, other.Close())
	require.Error(t, <-served)
	require.Zero(t, m.Progress())
	require.ErrorContains(t, m.(interface{ Err() error }).Err(), "the other process")
	_, err = m.Connect(btl.Path{Peer: 0}, nil)
	require.Error(t, err)
}
