package sm

import (
	"context"
	"encoding/gob"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

const wakes = 200

// wakerRole sends a fragment each time that the parent sleeps.
func wakerRole(conn *net.UnixConn) error {
	dec, enc := gob.NewDecoder(conn), gob.NewEncoder(conn)
	var addr []byte
	if err := dec.Decode(&addr); err != nil {
		return err
	}
	m, err := New(Config{Rank: 1, Size: 2, Events: &journal{}})
	if err != nil {
		return err
	}
	ep, err := m.Connect(0, addr)
	if err != nil {
		return err
	}
	if err := enc.Encode(m.Address()); err != nil {
		return err
	}
	for range wakes {
		for atomic.LoadUint32(ep.(*endpoint).attention)&asleep == 0 {
			runtime.Gosched()
		}
		for !ep.(btl.Inliner).SendInline(1, nil, []byte("wake up")) {
			m.Progress()
		}
	}
	_ = dec.Decode(&addr) // until the parent ends
	return m.Close()
}

// waitFor drives an engine until n fragments have come, or too much time has passed.
func waitFor(t *testing.T, eng *progress.Engine, j *journal, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	w := new(progress.Waiter)
	w.Reset(1)
	done := pollerFunc(func() int {
		if j.arrived >= n {
			w.Finish()
		}
		return 0
	})
	eng.AddPoller(done)
	require.NoError(t, eng.Wait(ctx, w))
}

// TestWokenByAnotherProcess: each fragment finds the receiver asleep, or about to be.
func TestWokenByAnotherProcess(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		bell := newBell(t)
		a, j := newTest(t, Config{Rank: 0, Size: 2, Wakeup: bell})
		if fenced {
			withoutBarrier(t, a)
		}
		eng := progress.New(progress.Config{Wakeup: deepBell{bell}})
		eng.Lock()
		eng.AddPoller(a)
		c := start(t, "waker")
		c.tell(t, a.Address())
		var addr []byte
		c.ask(t, &addr)
		waitFor(t, eng, j, wakes)
		require.NotZero(t, eng.Counters().Sleeps)
		eng.Unlock()
		c.kill()
	}
}

// TestNobodyRingsForNothing: who does not sleep is not rung, and one who does is rung once.
func TestNobodyRingsForNothing(t *testing.T) {
	bell := newBell(t)
	a, _ := newTest(t, Config{Rank: 0, Size: 2, Wakeup: bell})
	b, _ := newTest(t, Config{Rank: 1, Size: 2})
	eb := connect(t, b, 0, a.Address())
	// Another read end of the same pipe, to see what is in it.
	end, err := unix.Open(procFD(uint32(os.Getpid()), uint32(bell.WriteFD())), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(end)
	rung := func() bool {
		var b [16]byte
		n, _ := unix.Read(end, b[:])
		return n > 0
	}
	for range 10 {
		require.True(t, eb.SendInline(1, nil, []byte("x")))
	}
	require.Equal(t, -1, eb.remote.bell, "not even opened")
	require.True(t, a.Arm())
	require.True(t, eb.SendInline(1, nil, []byte("x")))
	require.GreaterOrEqual(t, eb.remote.bell, 0)
	require.True(t, rung())
	require.True(t, eb.SendInline(1, nil, []byte("x")))
	require.False(t, rung(), "the flag was taken down")
	a.Disarm()
	require.True(t, a.Arm())
	a.Disarm()
	require.True(t, eb.SendInline(1, nil, []byte("x")))
	require.False(t, rung())
}

// TestArmWithoutBell: peers cannot wake this rank, and it says so.
func TestArmWithoutBell(t *testing.T) {
	a, _ := newTest(t, Config{Rank: 0, Size: 1})
	require.False(t, a.Arm())
	a.Disarm()
	require.NoError(t, a.Close())
	require.False(t, a.Arm())
	a.Disarm()
}

// TestBellOfSomebodyElse: a pipe that only has the number of the bell is not written to.
func TestBellOfSomebodyElse(t *testing.T) {
	bell, other := newBell(t), newBell(t)
	c := address{pid: uint32(os.Getpid()), bell: uint32(other.WriteFD())}
	_, node, err := bellOf(bell.WriteFD())
	require.NoError(t, err)
	c.bellNode = node
	require.Equal(t, -1, openBell(&c))
	c.bell = uint32(bell.WriteFD())
	fd := openBell(&c)
	require.GreaterOrEqual(t, fd, 0)
	f := remoteSegment{pidfd: -1, bell: fd}
	require.NoError(t, f.close())
	c.bell = noBell
	require.Equal(t, -1, openBell(&c))

	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer file.Close()
	c.bell, c.bellNode, err = bellOf(int(file.Fd()))
	require.NoError(t, err)
	require.Equal(t, -1, openBell(&c), "no pipe at all")
}
