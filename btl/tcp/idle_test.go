package tcp

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/btl/btltest"
)

// busy is a rank whose program computes: progress calls are made only if the module asks for them.
type busy struct {
	sync.Mutex // stands for the engine's lock
	m          *module
	v          mate
}

func newBusy(t *testing.T, cfg Config) *busy {
	r := &busy{}
	cfg.Size, cfg.Local, cfg.Secret = 2, loopback4, secret
	cfg.AsyncProgress = asyncProgress(t, func() { r.has(func() bool { return r.m.Progress() > 0 }) })
	cfg.Events = &r.v
	r.Lock()
	defer r.Unlock()
	m, err := New(cfg)
	require.NoError(t, err)
	r.m = m.(*module)
	t.Cleanup(func() {
		r.Lock()
		defer r.Unlock()
		require.NoError(t, r.m.Close())
	})
	return r
}

// asyncProgress returns a Config.AsyncProgress that calls turn on a goroutine, until the end of the
// test.
func asyncProgress(t *testing.T, turn func()) func() {
	wakeups, over := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(over)
		for range wakeups {
			turn()
		}
	}()
	t.Cleanup(func() {
		close(wakeups) // a wakeup after Close of the module would panic
		<-over
	})
	return func() {
		select {
		case wakeups <- struct{}{}:
		default:
		}
	}
}

// has reports, under the lock, whether cond holds.
func (r *busy) has(cond func() bool) bool {
	r.Lock()
	defer r.Unlock()
	return cond()
}

// TestFullSocketOfBusyRankIsFlushed: bytes that a full socket has not taken are sent when there is
// room, although the program computes.
func TestFullSocketOfBusyRankIsFlushed(t *testing.T) {
	leavesNothing(t)
	r, v := newBusy(t, Config{SendBuffer: 4096, ReceiveBuffer: 4096}), &mate{}
	b := newAt(t, Config{Size: 2, Local: loopback4, Secret: secret, SendBuffer: 4096, ReceiveBuffer: 4096}, 1, v)
	r.Lock()
	e := connectTo(t, r.m, 1, b.Address())
	r.Unlock()
	until(t, "a connection", func() bool { return r.has(func() bool { return e.phase == phaseReady }) }, b)
	r.Lock()
	for range 16 {
		post(t, e, make([]byte, 60000))
	}
	blocked := e.blocked
	r.Unlock()
	require.True(t, blocked)
	until(t, "all fragments", func() bool { return v.arrived.Load() == 16 }, b)
}

// TestSilentUnauthenticatedPeerOfBusyRankIsDropped: an unauthenticated peer that sends nothing is
// dropped after its timeout, although the program computes.
func TestSilentUnauthenticatedPeerOfBusyRankIsDropped(t *testing.T) {
	leavesNothing(t)
	r := newBusy(t, Config{HandshakeTimeout: 20 * time.Millisecond})
	address, ok := parseRailAddress(r.m.Address())
	require.True(t, ok)
	fd, _, errno := r.m.dial(path{address.addresses[0], address.addresses[0]})
	require.Zero(t, errno)
	defer unix.Close(fd)
	until(t, "the connection to be accepted", func() bool { return r.has(func() bool { return r.m.challenged == 1 }) })
	until(t, "the connection to be dropped", func() bool { return r.has(func() bool { return len(r.m.unauthenticated) == 0 }) })
}

// TestAcceptContinuesWhenDescriptorsAreFree: a connection that could not be accepted for lack of
// descriptors is accepted once a descriptor is free, although nothing else happens.
func TestAcceptContinuesWhenDescriptorsAreFree(t *testing.T) {
	m := newAt(t, Config{Size: 2, Local: loopback4, Secret: secret}, 0, &mate{})
	address, ok := parseRailAddress(m.Address())
	require.True(t, ok)
	fd, _, errno := m.dial(path{address.addresses[0], address.addresses[0]})
	require.Zero(t, errno)
	defer unix.Close(fd)
	until(t, "the connection to wait at the listener", func() bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(m.locals[0].listener), Events: unix.POLLIN}}, 0)
		return n > 0
	})
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: before.Max}))
	for range maintainEvery {
		m.Progress()
	}
	err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	require.NoError(t, err)
	require.Zero(t, m.challenged)
	require.True(t, m.Unsettled, "a rank that computes is not asked for a turn")
	until(t, "the connection to be accepted", func() bool { return m.challenged == 1 }, m)
}

// await waits for a count. It spins and rarely yields, so it is fast if there are enough
// processors.
func await(n *atomic.Int64, atLeast int64) {
	for i := 1; n.Load() < atLeast; i++ {
		if i%10_000 == 0 {
			runtime.Gosched()
		}
	}
}

// TestExpiringTimerKeepsWork: work that a progress call leaves while the timer expires is not lost.
func TestExpiringTimerKeepsWork(t *testing.T) {
	a := &waker{asyncProgress: func() {}, timer: time.AfterFunc(time.Hour, func() {})}
	defer a.timer.Stop()
	var begun, ended atomic.Int64
	const rounds = 50_000
	over := make(chan struct{})
	go func() {
		defer close(over)
		for i := int64(1); ; i++ {
			await(&begun, i)
			if begun.Load() > i {
				return
			}
			a.timerExpired()
			ended.Store(i)
		}
	}()
	lost, i := 0, int64(1)
	// If the two share a processor with others, a round takes long.
	for end := time.Now().Add(2 * time.Second); i <= rounds && time.Now().Before(end); i++ {
		a.needsTurn.Store(false)
		a.running.Store(true) // the timer was set, and expires now
		begun.Store(i)
		for range i % 512 {
			_ = a.closing.Load()
		}
		a.turnMade(true)
		await(&ended, i)
		if !a.running.Load() {
			lost++
		}
	}
	begun.Store(i + 1)
	<-over
	require.Zero(t, lost)
}

// TestNoWakeupAfterClose: Close waits for a wakeup that is under way.
func TestNoWakeupAfterClose(t *testing.T) {
	leavesNothing(t)
	begun := make(chan struct{})
	var a *waker
	var ended atomic.Bool
	m := newAt(t, Config{Size: 2, Local: loopback4, Secret: secret, AsyncProgress: func() {
		close(begun)
		for !a.closing.Load() {
			runtime.Gosched()
		}
		time.Sleep(10 * time.Millisecond) // Close would be over by now
		ended.Store(true)
	}}, 0, &mate{})
	a = m.waker
	a.turnMade(true)
	<-begun
	require.NoError(t, m.Close())
	require.True(t, ended.Load())
}

// TestUnparsedFramesKeepAwake: a rank does not sleep while it has frames that are read but not
// parsed.
func TestUnparsedFramesKeepAwake(t *testing.T) {
	c := newCouple(t, Config{Wakeup: btltest.NewPipeWakeup(t)})
	for range 2 * maxBurst {
		post(t, c.ea, []byte{1})
	}
	until(t, "leftovers", func() bool { return len(c.b.unparsed) > 0 }, c.b)
	require.False(t, c.b.Arm())
	c.b.Disarm()
	c.until(t, "all of them", func() bool { return c.vb.arrived.Load() == 2*maxBurst })
	require.True(t, c.b.Arm())
	c.b.Disarm()
}

// TestBusyConnectionIsReadWithoutPolling: if only one connection has received for a while, it is
// read without being polled. Other connections are still polled. The first one is polled again when
// progress calls no longer read it every time, or when the rank sleeps.
func TestBusyConnectionIsReadWithoutPolling(t *testing.T) {
	var ms [3]*module
	var received mate
	wakeup := btltest.NewPipeWakeup(t)
	ms[0] = newAt(t, Config{Size: 3, Local: loopback4, Secret: secret, Wakeup: wakeup}, 0, &received)
	var eps [3]*endpoint // to rank 0
	for i := 1; i < 3; i++ {
		ms[i] = newAt(t, Config{Size: 3, Local: loopback4, Secret: secret}, i, &mate{})
		eps[i] = connectTo(t, ms[i], 0, ms[0].Address())
		until(t, "a connection", func() bool { return eps[i].phase == phaseReady && len(ms[0].peers.Of(i)) > 0 }, ms[0], ms[i])
	}
	say := func(from int) { post(t, eps[from], []byte{1}) }
	listen := func(from, times int) {
		for range times {
			before := received.arrived.Load()
			say(from)
			until(t, "a fragment", func() bool { return received.arrived.Load() > before }, ms[:]...)
		}
	}
	isPolled := func() bool { return len(ms[0].trafficPoller.poll()) > 0 }

	listen(1, unpollAfter/2)
	say(1)
	until(t, "the poller to report the connection", isPolled)
	listen(1, 2*unpollAfter)
	say(1)
	until(t, "a fragment that no progress call has read", func() bool { return unread(ms[0].active.fd) > 0 })
	require.False(t, isPolled())
	listen(2, 3)
	require.Equal(t, 2, ms[0].active.p.rank)
	listen(1, 2*unpollAfter)

	require.True(t, ms[0].Arm())
	// This progress call polls everything, as the engine does before it sleeps.
	ms[0].Progress()
	for wakeup.Sleep(int64(10 * time.Millisecond)) { // woken for earlier events
	}
	listen(1, 2*unpollAfter) // by progress calls of others, while it sleeps
	for wakeup.Sleep(int64(10 * time.Millisecond)) {
	}
	require.NoError(t, ms[0].waker.set(unix.EPOLLIN|unix.EPOLLONESHOT), "it has been woken for that, once")
	say(1)
	require.True(t, wakeup.Sleep(int64(20*time.Second)), "no wakeup")
	ms[0].Disarm()
	listen(1, 2*unpollAfter)
	ms[0].active.Fail(base.ErrPeerFailed)
	listen(2, 3)
}

// unread returns the number of unread bytes of a socket.
func unread(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		return -1
	}
	return n
}
