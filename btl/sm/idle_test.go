package sm

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/progress"
)

const wakes = 200

// wakerRole sends a fragment each time that the parent sleeps.
func wakerRole(t testing.TB, parent *btltest.Process) {
	m, _ := newTest(t, Config{Rank: 1, Size: 2})
	ep := connect(t, m, 0, btltest.Ask[[]byte](parent))
	parent.Tell(m.Address())
	for range wakes {
		for atomic.LoadUint32(ep.attention)&asleep == 0 {
			runtime.Gosched()
		}
		for !ep.SendInline(1, nil, []byte("wake up")) {
			m.Progress()
		}
	}
	parent.AwaitEnd()
}

// patience bounds how long processes may take to wake each other many times.
const patience = 4 * time.Minute

// waitFor drives an engine until n fragments have come.
func waitFor(t *testing.T, eng *progress.Engine, j *journal, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w := new(progress.Waiter)
	w.Reset(1)
	eng.AddPoller(pollerFunc(func() int {
		if j.arrived >= n {
			w.Finish()
		}
		return 0
	}))
	require.NoError(t, eng.Wait(ctx, w))
}

// TestWokenByAnotherProcess: each fragment finds the receiver asleep, or about to sleep.
func TestWokenByAnotherProcess(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		wakeup := btltest.NewPipeWakeup(t)
		a, j := newTest(t, Config{Rank: 0, Size: 2, Wakeup: wakeup})
		if fenced {
			withoutBarrier(t, a)
		}
		eng := progress.New(progress.Config{Wakeup: deepWakeup{wakeup}})
		eng.Lock()
		eng.AddPoller(a)
		c := btltest.Start(t, "waker")
		c.Tell(a.Address())
		btltest.Ask[[]byte](c)
		waitFor(t, eng, j, wakes)
		eng.Unlock()
		c.Kill()
	}
}

// TestOnlySleepersAreWoken: a fragment wakes a sleeping receiver once, and no other receiver.
func TestOnlySleepersAreWoken(t *testing.T) {
	wakeup := btltest.NewPipeWakeup(t)
	a, _ := newTest(t, Config{Rank: 0, Size: 2, Wakeup: wakeup})
	b, _ := newTest(t, Config{Rank: 1, Size: 2})
	eb := connect(t, b, 0, a.Address())
	// Another read end of the same pipe shows its content.
	name := procFD(uint32(os.Getpid()), uint32(wakeup.WriteFD()))
	end, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(end)
	woken := func() bool {
		n, _ := unix.Read(end, make([]byte, 16))
		return n > 0
	}
	for range 10 {
		require.True(t, eb.SendInline(1, nil, []byte("x")))
	}
	require.Equal(t, -1, eb.remote.wakeup, "the pipe is not even open")
	require.True(t, a.Arm())
	require.True(t, eb.SendInline(1, nil, []byte("x")))
	require.GreaterOrEqual(t, eb.remote.wakeup, 0)
	require.True(t, woken())
	require.True(t, eb.SendInline(1, nil, []byte("x")))
	require.False(t, woken(), "the first wakeup has cleared the flag")
	a.Disarm()
	require.True(t, a.Arm())
	a.Disarm()
	require.True(t, eb.SendInline(1, nil, []byte("x")))
	require.False(t, woken())
}

// TestArmWithoutWakeup: Arm reports that peers cannot wake this rank.
func TestArmWithoutWakeup(t *testing.T) {
	a, _ := newTest(t, Config{Rank: 0, Size: 1})
	require.False(t, a.Arm())
	a.Disarm()
	require.NoError(t, a.Close())
	require.False(t, a.Arm())
	a.Disarm()
}

// TestOtherPipeIsNotWritten: a pipe that has the address's descriptor number, but another inode, is
// not opened.
func TestOtherPipeIsNotWritten(t *testing.T) {
	wakeup, other := btltest.NewPipeWakeup(t), btltest.NewPipeWakeup(t)
	c := address{pid: uint32(os.Getpid()), wakeup: uint32(other.WriteFD())}
	_, node, err := wakeupOf(wakeup.WriteFD())
	require.NoError(t, err)
	c.wakeupNode = node
	require.Equal(t, -1, openWakeup(&c))
	c.wakeup = uint32(wakeup.WriteFD())
	fd := openWakeup(&c)
	require.GreaterOrEqual(t, fd, 0)
	f := remoteSegment{pidfd: -1, wakeup: fd}
	require.NoError(t, f.close())
	c.wakeup = noWakeup
	require.Equal(t, -1, openWakeup(&c))

	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer file.Close()
	c.wakeup, c.wakeupNode, err = wakeupOf(int(file.Fd()))
	require.NoError(t, err)
	require.Equal(t, -1, openWakeup(&c), "a file is no pipe")
}
