package sm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
)

// journal is Events that record all events in order.
type journal struct {
	lines   []string
	frags   [][]byte
	arrived int
	err     *btl.Error
	state   string // of the peer or rail: "", "failed", "drained"
}

func (j *journal) Arrived(_ btl.Module, peer int, tag btl.Tag, frag []byte) {
	j.arrived++
	if j.arrived <= 100 {
		j.lines = append(j.lines, fmt.Sprintf("arrived %d", peer))
		j.frags = append(j.frags, append([]byte(nil), frag...))
	}
}

func (j *journal) Failed(_ btl.Module, to btl.Path, err *btl.Error) {
	j.lines = append(j.lines, fmt.Sprintf("failed %d %v %v", to.Peer, err.Class, err.Side))
	j.err, j.state = err, "failed"
}

func (j *journal) Drained(_ btl.Module, to btl.Path) {
	j.lines = append(j.lines, fmt.Sprintf("drained %d", to.Peer))
	j.state = "drained"
}

// newTest makes a module whose events are recorded. It is closed at the end of the test.
func newTest(t testing.TB, cfg Config) (*module, *journal) {
	j := &journal{}
	cfg.Events = j
	m, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m.(*module), j
}

// twoTest makes two such modules.
func twoTest(t testing.TB) (a, b *module, ja, jb *journal) {
	a, ja = newTest(t, Config{Rank: 0, Size: 2})
	b, jb = newTest(t, Config{Rank: 1, Size: 2})
	return a, b, ja, jb
}

func connect(t testing.TB, m *module, rank int, addr []byte) *endpoint {
	ep, err := m.Connect(btl.Path{Peer: rank}, addr)
	require.NoError(t, err)
	return ep.(*endpoint)
}

// until polls modules until cond holds. It fails after 30 s without an event.
func until(t testing.TB, what string, cond func() bool, ms ...*module) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !cond() {
		n := 0
		for _, m := range ms {
			n += m.Progress()
		}
		if n == 0 {
			require.True(t, time.Now().Before(deadline), "waited too long for %s", what)
		}
	}
}

// failAndDrain fails an endpoint of m, and waits until it is drained.
func failAndDrain(t testing.TB, m *module, e *endpoint) {
	e.Fail(errEnough)
	until(t, "the end", func() bool { return e.State() == btl.Drained }, m)
}

func TestNewWithBadConfigFails(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "rail sm: 0 ranks, must be 1 to 1048576"},
		{Config{Size: -1}, "rail sm: -1 ranks, must be 1 to 1048576"},
		{Config{Rank: 2, Size: 2}, "rail sm: rank 2 of 2"},
		{Config{Rank: -1, Size: 2}, "rail sm: rank -1 of 2"},
		{Config{Size: 1, RingSlots: -1}, "rail sm: ring of -1 slots, must be 2 to 1048576"},
		{Config{Size: 1, RingSlots: 1 << 30}, "rail sm: ring of 1073741824 slots, must be 2 to 1048576"},
		{Config{Size: 1, RingBytes: -1}, "rail sm: ring of -1 bytes, must be at most 17179869184"},
		{Config{Size: 1, FragBytes: -1}, "rail sm: fragments of -1 bytes, must be at most 4294967296"},
		{Config{Size: 1 << 20, FragBytes: 1 << 32, RingSlots: 1 << 20, RingBytes: 1 << 34}, ""},
	} {
		m, err := New(c.cfg)
		if c.want == "" { // everything is too large: an error, if there is one, is one line
			if err == nil {
				require.NoError(t, m.Close())
			} else {
				assert.NotContains(t, err.Error(), "\n")
			}
			continue
		}
		assert.EqualError(t, err, c.want)
	}
}

// exceedsFileLimit makes something while files may not be longer than 1 MiB, and expects the error
// that names this limit.
func exceedsFileLimit(t *testing.T, what func() error) {
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: old.Max}))
	err := what()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &old))
	require.ErrorContains(t, err, "over the file size limit (ulimit -f) of 1048576")
}

func TestNewOverFileSizeLimitFails(t *testing.T) {
	exceedsFileLimit(t, func() error {
		_, err := New(Config{Rank: 0, Size: 2})
		return err
	})
}

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		cfg                  Config
		slots, data, longest uint64
	}{
		{Config{Size: 1}, 256, 1 << 20, 64<<10 + 64},
		{Config{Size: 1, RingSlots: 1, FragBytes: 1}, 2, 1 << 20, slotData},
		{Config{Size: 1, RingSlots: 5, RingBytes: 3000}, 8, 4096, 750},
		{Config{Size: 1, RingBytes: 4096, FragBytes: 10000}, 256, 65536, 10000},
	} {
		l, err := layoutOf(c.cfg)
		require.NoError(t, err)
		assert.Equal(t, geometry{c.slots, c.data}, l.ring, "%+v", c.cfg)
		assert.Equal(t, c.longest, l.longest, "%+v", c.cfg)
		assert.GreaterOrEqual(t, l.ring.dataBytes, 4*align(l.longest))
	}
	l, err := layoutOf(Config{Size: 100_000})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, l.headerBytes(), uint64(hdrBitmap+100_000/8))
	assert.Zero(t, l.channelOffset(99_999)%l.page)
}

// TestSegmentIsSafe: no peer can change the size of a segment, other users cannot open it, and it
// has no name.
func TestSegmentIsSafe(t *testing.T) {
	m, _ := newTest(t, Config{Rank: 0, Size: 4})
	c, ok := parseAddress(m.Address())
	require.True(t, ok)
	fd, err := unix.Open(procFD(c.pid, c.segment), unix.O_RDWR, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.ErrorIs(t, unix.Ftruncate(fd, 0), unix.EPERM)
	require.ErrorIs(t, unix.Ftruncate(fd, 1<<30), unix.EPERM)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	require.ErrorIs(t, err, unix.EPERM)
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &st))
	require.Equal(t, uint32(0o600), st.Mode&0o777)
	name, err := os.Readlink(procFD(c.pid, c.segment))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(name, "/memfd:") && strings.HasSuffix(name, "(deleted)"), name)
}

// TestSparse: the unused part of a segment takes no memory.
func TestSparse(t *testing.T) {
	m, _ := newTest(t, Config{Rank: 0, Size: 256})
	used := func() int64 {
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(m.own.fd, &st))
		return st.Blocks * 512
	}
	require.LessOrEqual(t, used(), int64(2*m.own.page))
	b, _ := newTest(t, Config{Rank: 200, Size: 256})
	ep := connect(t, b, 0, m.Address())
	m.Progress()
	require.True(t, ep.SendInline(1, nil, []byte("hello")))
	m.Progress()
	require.LessOrEqual(t, used(), int64(6*m.own.page), "of %d", m.own.bytes())
	require.Greater(t, m.own.bytes(), uint64(256<<20))
}

func openFiles(t testing.TB) int {
	d, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(d)
}

func mappings(t testing.TB) int {
	b, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(b), "mpigo-sm")
}

func TestCloseLeavesNothing(t *testing.T) {
	var files, maps int
	for i := range 4 {
		a, _ := newTest(t, Config{Rank: 0, Size: 2, Wakeup: btltest.NewPipeWakeup(t)})
		b, _ := newTest(t, Config{Rank: 1, Size: 2, Wakeup: btltest.NewPipeWakeup(t)})
		ea, eb := connect(t, a, 1, b.Address()), connect(t, b, 0, a.Address())
		a.Arm()
		b.Arm()
		require.True(t, ea.SendInline(1, nil, []byte("x")))
		require.True(t, eb.SendInline(1, nil, []byte("x")))
		a.Progress()
		b.Progress()
		require.NoError(t, a.cfg.Wakeup.Close())
		require.NoError(t, b.cfg.Wakeup.Close())
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
		if i == 0 { // now the runtime has opened the files that it keeps open
			files, maps = openFiles(t), mappings(t)
		}
	}
	require.Equal(t, maps, mappings(t))
	require.Equal(t, files, openFiles(t))
	named, err := filepath.Glob("/dev/shm/*mpigo*")
	require.NoError(t, err)
	require.Empty(t, named)
}

// changed returns the address of a module after a change.
func changed(t testing.TB, m *module, change func(*address)) []byte {
	c, ok := parseAddress(m.Address())
	require.True(t, ok)
	change(&c)
	return c.encode()
}

// TestPieceBytesFollowFragBytes: by default, fragments of long messages are shorter than the
// longest.
func TestPieceBytesFollowFragBytes(t *testing.T) {
	for frag, want := range map[int64]int{
		0: 32<<10 + 64, 256 + 64: 256 + 64, 40 << 10: 32<<10 + 64, 64<<10 + 64: 32<<10 + 64, 256<<10 + 64: 256<<10 + 64,
	} {
		m, err := newModule(Config{Size: 1, FragBytes: frag, Events: &journal{}})
		require.NoError(t, err)
		require.Equal(t, want, m.Attrs().PieceBytes, "fragments of %d bytes", frag)
		require.NoError(t, m.Close())
	}
}

func TestConnectWithAddressThatDoesNotFitFails(t *testing.T) {
	a, b, _, _ := twoTest(t)
	for _, c := range []struct {
		what        string
		change      func(*address)
		unreachable bool
		class       btl.Class
		text        string
	}{
		{"another machine", func(c *address) { c.host[3]++ }, true, 0, "rail sm: peer not reachable by this rail: rank 1 is on another machine, or in another process number space"},
		{"another rank", func(c *address) { c.rank = 0 }, true, 0, "rail sm: peer not reachable by this rail: address of rank 0 for rank 1"},
		{"another size", func(c *address) { c.size = 3 }, false, btl.ClassUsage, "rail sm to rank 1: usage: a job of 3 ranks there, of 2 here"},
		{"other rings", func(c *address) { c.slots = 512 }, false, btl.ClassUsage, "rail sm to rank 1: usage: sm.ring.slots is 256 at rank 0 and 512 at rank 1: set it to the same value for all ranks, by mpirun-go --set"},
		{"longer rings", func(c *address) { c.data *= 2 }, false, btl.ClassUsage, "rail sm to rank 1: usage: sm.ring.bytes is 1M at rank 0 and 2M at rank 1"},
		{"longer fragments", func(c *address) { c.longest, c.data = 1<<20+btl.MaxHeaderBytes, c.data*8 }, false, btl.ClassUsage, "rail sm to rank 1: usage: sm.frag.bytes is 64K at rank 0 and 1M at rank 1"},
		{"no process", func(c *address) { c.pid = 1 << 30 }, false, btl.ClassPeerGone, "rail sm to rank 1: peer gone: process 1073741824 has ended"},
		{"no descriptor", func(c *address) { c.segment = 1 << 20 }, false, btl.ClassPeerGone, "rail sm to rank 1: peer gone: process "},
		{"another process with that number", func(c *address) { c.pid = uint32(os.Getppid()) }, false, btl.ClassPeerGone, ""},
		{"another file", func(c *address) { c.segment = 0 }, false, btl.ClassPeerGone, ""},
		{"another segment", func(c *address) { c.nonce[0]++ }, false, btl.ClassPeerGone, "rail sm to rank 1: peer gone: segment of process"},
		{"the connecting rank's own segment", func(c *address) { c.segment = uint32(a.own.fd) }, false, btl.ClassPeerGone, ""},
	} {
		ep, err := a.Connect(btl.Path{Peer: 1}, changed(t, b, c.change))
		require.Error(t, err, c.what)
		require.Nil(t, ep)
		assert.Equal(t, c.unreachable, errors.Is(err, btl.ErrUnreachable), "%s: %v", c.what, err)
		if !c.unreachable {
			assert.Equal(t, c.class, btltest.AsError(t, err).Class, "%s: %v", c.what, err)
		}
		assert.Contains(t, err.Error(), c.text, c.what)
	}
	connect(t, a, 1, b.Address())
}

// TestConnectToShrinkableSegmentFails: a segment of another size, or one that its owner can shrink,
// is not used.
func TestConnectToShrinkableSegmentFails(t *testing.T) {
	a, b, _, _ := twoTest(t)
	size := int64(b.own.bytes())
	for _, c := range []struct {
		size  int64
		seals int
		want  string
	}{
		{size, 0, "not sealed"},
		{size, unix.F_SEAL_SEAL | unix.F_SEAL_GROW, "not sealed"},
		{size - 4096, seals, fmt.Sprintf("%d bytes, not %d", size-4096, size)},
		{size + 1, seals, fmt.Sprintf("%d bytes, not %d", size+1, size)},
	} {
		fd, err := unix.MemfdCreate("false", unix.MFD_ALLOW_SEALING)
		require.NoError(t, err)
		require.NoError(t, unix.Ftruncate(fd, c.size))
		h, err := mapHeader(fd, b.own.layout)
		require.NoError(t, err)
		copy(h.mem, b.own.mem)
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, c.seals)
		require.NoError(t, err)
		_, err = a.Connect(btl.Path{Peer: 1}, changed(t, b, func(addr *address) { addr.segment = uint32(fd) }))
		require.ErrorContains(t, err, c.want)
		require.NoError(t, h.unmap())
		require.NoError(t, unix.Close(fd))
	}
}

// TestConnectAfterDescriptorWasReused: another file has the number of the segment's descriptor. The
// error says that the peer is gone, even if the file cannot be opened.
func TestConnectAfterDescriptorWasReused(t *testing.T) {
	a, b, _, _ := twoTest(t)
	program, err := os.Executable()
	require.NoError(t, err)
	for _, name := range []string{t.TempDir(), program, "/dev/null"} {
		f, err := os.Open(name)
		require.NoError(t, err)
		_, err = a.Connect(btl.Path{Peer: 1}, changed(t, b, func(c *address) { c.segment = uint32(f.Fd()) }))
		require.Equal(t, btl.ClassPeerGone, btltest.AsError(t, err).Class, "%s: %v", name, err)
		require.NoError(t, f.Close())
	}
}

// TestSelf: a rank can be its own peer.
func TestSelf(t *testing.T) {
	a, j := newTest(t, Config{Rank: 1, Size: 2})
	ep := connect(t, a, 1, a.Address())
	require.True(t, ep.SendInline(3, []byte("to "), []byte("myself")))
	until(t, "the fragment", func() bool { return j.arrived == 1 }, a)
	require.Equal(t, "to myself", string(j.frags[0]))
	failAndDrain(t, a, ep)
	ep = connect(t, a, 1, a.Address())
	require.Equal(t, uint32(2), ep.Epoch())
	until(t, "the next incarnation", func() bool { return ep.SendInline(3, nil, []byte("again")) }, a)
	until(t, "the fragment", func() bool { return j.arrived == 2 }, a)
}

// TestPeerClosesAfterTraffic: the endpoint to a peer that closes its module fails after all
// fragments of the peer were handed up, because a receive may wait for a fragment that will not
// come.
func TestPeerClosesAfterTraffic(t *testing.T) {
	a, b, ja, jb := twoTest(t)
	ea, eb := connect(t, a, 1, b.Address()), connect(t, b, 0, a.Address())
	require.True(t, ea.SendInline(1, nil, []byte("x")))
	require.True(t, eb.SendInline(1, nil, []byte("last words")))
	until(t, "traffic", func() bool { return jb.arrived == 1 }, b)
	require.NoError(t, b.Close())
	until(t, "the end", func() bool { return ja.state == "drained" }, a)
	require.Equal(t, []string{"arrived 1", "failed 1 closed remote", "drained 1"}, ja.lines)
	require.False(t, ea.SendInline(1, nil, []byte("anybody there?")))
	_, err := a.Connect(btl.Path{Peer: 1}, b.Address())
	require.Equal(t, btl.ClassClosed, btltest.AsError(t, err).Class)
}

// TestPeerClosesWithoutTraffic: the same for a peer that has sent nothing, and for one that does
// not know that this rank has connected.
func TestPeerClosesWithoutTraffic(t *testing.T) {
	for _, knows := range []bool{true, false} {
		a, b, ja, jb := twoTest(t)
		ea := connect(t, a, 1, b.Address())
		require.True(t, ea.SendInline(1, nil, []byte("x")))
		if knows {
			until(t, "the fragment", func() bool { return jb.arrived == 1 }, b)
		}
		a.Progress()
		require.Empty(t, ja.lines)
		require.NoError(t, b.Close())
		turns := 1 // the peer notifies this rank
		if !knows {
			turns = lookEvery
		}
		for ; turns > 0 && len(ja.lines) == 0; turns-- {
			a.Progress()
		}
		require.Equal(t, []string{"failed 1 closed remote", "drained 1"}, ja.lines)
		require.Equal(t, btl.ErrFailed, ea.Send(&btl.Op{}))
		_, err := a.Connect(btl.Path{Peer: 1}, b.Address())
		require.Equal(t, btl.ClassClosed, btltest.AsError(t, err).Class)
	}
}

// TestPeerClosesWithoutNotice: the peer has marked its segment closed, but has notified this rank
// neither of that nor of its first fragment. All its fragments are handed up first.
func TestPeerClosesWithoutNotice(t *testing.T) {
	const count = 3 * maxBurst
	a, ja := newTest(t, Config{Rank: 0, Size: 2, Wakeup: btltest.NewPipeWakeup(t)})
	b, _ := newTest(t, Config{Rank: 1, Size: 2})
	ea, eb := connect(t, a, 1, b.Address()), connect(t, b, 0, a.Address())
	for range count {
		require.True(t, eb.SendInline(1, nil, []byte("x")))
	}
	want := slices.Repeat([]string{"arrived 1"}, count)
	atomic.StoreUint64(a.own.bits(0), 0)
	atomic.StoreUint32(b.own.closed, 1)
	require.False(t, a.Arm(), "there is something to do")
	a.Disarm()
	a.Progress()
	require.Equal(t, append(want, "failed 1 closed remote", "drained 1"), ja.lines)
	require.Equal(t, btl.Drained, ea.State())
}

// TestFirstContactWhileRailFails: the fragment is handed up once the rail is drained.
func TestFirstContactWhileRailFails(t *testing.T) {
	a, b, ja, _ := twoTest(t)
	a.Fail(errEnough)
	eb := connect(t, b, 0, a.Address())
	require.True(t, eb.SendInline(1, nil, []byte("x")))
	for range 3 {
		a.Progress()
	}
	require.Equal(t, []string{"failed -1 device local", "drained -1", "arrived 1"}, ja.lines)
}

// TestNewModuleOfSameRank: a rank that starts again with a new segment works with the channels that
// its old module used.
func TestNewModuleOfSameRank(t *testing.T) {
	a, ja := newTest(t, Config{Rank: 0, Size: 2})
	for i := range 3 {
		b, jb := newTest(t, Config{Rank: 1, Size: 2})
		ea, eb := connect(t, a, 1, b.Address()), connect(t, b, 0, a.Address())
		until(t, "room there", func() bool { return ea.SendInline(1, nil, []byte("there")) }, a, b)
		until(t, "room back", func() bool { return eb.SendInline(1, nil, []byte("back")) }, a, b)
		until(t, "traffic", func() bool { return ja.arrived == i+1 && jb.arrived == 1 }, a, b)
		require.NoError(t, b.Close())
		ja.state = ""
		until(t, "the end", func() bool {
			if ea.State() == btl.Up {
				ea.SendInline(1, nil, []byte("x"))
			}
			return ja.state == "drained"
		}, a)
	}
}

// TestEpochsAgree: both ends of an incarnation have the same epoch, even if one end has missed
// several incarnations.
func TestEpochsAgree(t *testing.T) {
	a, b, _, _ := twoTest(t)
	for range 4 {
		failAndDrain(t, a, connect(t, a, 1, b.Address()))
	}
	ea := connect(t, a, 1, b.Address())
	require.Equal(t, uint32(5), ea.Epoch())
	until(t, "the beginning", func() bool { return ea.SendInline(1, nil, []byte("x")) }, a, b)
	b.Progress()
	eb := connect(t, b, 0, a.Address())
	require.Equal(t, ea.Epoch(), eb.Epoch())
	require.Equal(t, btl.Up, ea.State())
	until(t, "room back", func() bool { return eb.SendInline(1, nil, []byte("x")) }, a, b)
}

// TestStaleFragmentIsDropped: a fragment of an old epoch in the ring is counted, but not handed up.
func TestStaleFragmentIsDropped(t *testing.T) {
	a, b, _, jb := twoTest(t)
	ea := connect(t, a, 1, b.Address())
	require.NoError(t, ea.Send(&btl.Op{Done: func(*btl.Op, error) {}, Payload: []byte("once")}))
	until(t, "the fragment", func() bool { return jb.arrived == 1 }, a, b)
	ea.Fail(errEnough)
	until(t, "the end", func() bool { return jb.state == "drained" && ea.State() == btl.Drained }, a, b)
	again := connect(t, a, 1, b.Address())
	until(t, "room", func() bool { return again.SendStale(ea.Epoch(), 1, []byte("once")) }, a, b)
	until(t, "the stale fragment", func() bool { return b.Stale == 1 }, a, b)
	require.Equal(t, 1, jb.arrived)
}

// TestFragmentThatWasReadIsNotRetracted: a sender has published a fragment, but has not yet checked
// the attention word. The receiver reads the fragment, and then fails its end or closes its module.
// The fragment was delivered, and the sender reports it as taken.
func TestFragmentThatWasReadIsNotRetracted(t *testing.T) {
	for name, end := range map[string]func(b *module){
		"fails":  failPeer,
		"closes": func(b *module) { require.NoError(t, b.Close()) },
	} {
		a, b, _, jb := twoTest(t)
		ea := connect(t, a, 1, b.Address())
		connect(t, b, 0, a.Address())
		until(t, "open", func() bool { return ea.begin() && len(b.inbounds) == 1 }, a, b)
		require.Equal(t, good, ea.out.put(7, []byte("header"), []byte("payload")))
		until(t, "the fragment", func() bool { return jb.arrived == 1 }, b)
		end(b)
		require.NotEqual(t, ea.seen, atomic.LoadUint32(ea.attention), name)
		require.True(t, ea.attend(), "taken, when it %s", name)
	}
}

// TestProgressIsBounded: a progress call hands up a limited number of fragments of each peer. The
// limit grows with the number that the last call handed up.
func TestProgressIsBounded(t *testing.T) {
	a, j := newTest(t, Config{Rank: 0, Size: 3})
	for rank := 1; rank <= 2; rank++ {
		m, _ := newTest(t, Config{Rank: rank, Size: 3})
		ep := connect(t, m, 0, a.Address())
		for range 2*maxBurst + 1 {
			require.True(t, ep.SendInline(1, nil, []byte("x")))
		}
	}
	require.Equal(t, 0, a.Progress()) // only detects that they send
	for _, n := range []int{1, 5, maxBurst, 3, 0} {
		before := j.arrived
		require.Equal(t, 2*n, a.Progress())
		require.Equal(t, 2*n, j.arrived-before)
	}
}

// TestConnectToSecondModuleOfRank: a rank has a new module. Its old one is still open, or was just
// closed.
func TestConnectToSecondModuleOfRank(t *testing.T) {
	for _, closes := range []bool{false, true} {
		a, ja := newTest(t, Config{Rank: 0, Size: 2, Wakeup: btltest.NewPipeWakeup(t)})
		old, _ := newTest(t, Config{Rank: 1, Size: 2})
		failAndDrain(t, a, connect(t, a, 1, old.Address()))
		if closes {
			require.NoError(t, old.Close())
			a.Arm() // detects that
		}
		b, jb := newTest(t, Config{Rank: 1, Size: 2})
		ea := connect(t, a, 1, b.Address())
		require.Equal(t, 1, a.watched)
		ja.lines = nil
		until(t, "a fragment", func() bool { return ea.SendInline(1, nil, []byte("x")) || jb.arrived == 1 }, a, b)
		until(t, "a fragment", func() bool { return jb.arrived > 0 }, a, b)
		require.Empty(t, ja.lines)
		require.NoError(t, a.Close())
		require.Zero(t, a.watched)
	}
}

// TestFenced: a publish is a fence exactly if a side has no membarrier.
func TestFenced(t *testing.T) {
	for _, without := range [][]int{{}, {0}, {1}, {0, 1}} {
		a, b, _, _ := twoTest(t)
		for _, i := range without {
			withoutBarrier(t, []*module{a, b}[i])
		}
		ea := connect(t, a, 1, b.Address())
		require.True(t, ea.isOpen)
		require.Equal(t, len(without) > 0 && !publishFences, ea.out.fenced, "without: %v", without)
	}
}
