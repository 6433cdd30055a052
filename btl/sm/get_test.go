package sm

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
)

// getter reads from a peer.
type getter struct {
	t     testing.TB
	m     *module
	ep    *endpoint
	into  []byte
	local *region
}

const getterRoom = 8 << 20

// newGetter connects two modules. a reads from b.
func newGetter(t testing.TB, a, b *module) *getter {
	g := &getter{t: t, m: a, ep: connect(t, a, b.cfg.Rank, b.Address()), into: make([]byte, getterRoom)}
	connect(t, b, a.cfg.Rank, a.Address())
	until(t, "the connection", func() bool { return g.ep.begin() }, a, b)
	g.local = register(t, a, g.into, btl.AccessLocal)
	return g
}

// pull is an outstanding Get.
type pull struct {
	op    btl.Op
	ended bool
	err   error
}

func (g *getter) newPull(key btl.Key, offset uint64, n int) *pull {
	p := &pull{op: btl.Op{Payload: g.into[:n], Local: g.local, Remote: key, RemoteOffset: offset}}
	p.op.Done = func(_ *btl.Op, err error) {
		require.False(g.t, p.ended, "done twice")
		p.ended, p.err = true, err
	}
	return p
}

func (g *getter) post(key btl.Key, offset uint64, n int) *pull {
	g.t.Helper()
	p := g.newPull(key, offset, n)
	require.NoError(g.t, g.ep.Get(&p.op))
	return p
}

// get does a whole Get.
func (g *getter) get(key btl.Key, offset uint64, n int) error {
	g.t.Helper()
	p := g.post(key, offset, n)
	until(g.t, "a Get", func() bool { return p.ended }, g.m)
	return p.err
}

// usage expects an error of ClassUsage, and expects that the endpoint stays Up.
func (g *getter) usage(err error) {
	g.t.Helper()
	require.Equal(g.t, btl.ClassUsage, btltest.AsError(g.t, err).Class, "%v", err)
	require.Equal(g.t, btl.Up, g.ep.State())
}

// refused posts a Get to a peer that has ended. It expects that the Get is refused, and that the
// endpoint fails with an error of this class.
func (g *getter) refused(j *journal, key btl.Key, n int, class btl.Class) {
	g.t.Helper()
	p := g.newPull(key, 0, n)
	require.Equal(g.t, btl.ErrResource, g.ep.Get(&p.op))
	until(g.t, "the end", func() bool { return j.state == "drained" }, g.m)
	require.Equal(g.t, class, j.err.Class)
	require.Equal(g.t, btl.ErrFailed, g.ep.Get(&p.op))
	require.False(g.t, p.ended)
}

// number fills memory with bytes that distinguish places.
func number(mem []byte, from int) {
	for i := range mem {
		mem[i] = byte((from + i) * 2654435761 >> 13)
	}
}

// TestLongGet: a progress call reads up to its limit, for one Get after the other.
func TestLongGet(t *testing.T) {
	a, b, _, _ := twoTest(t)
	g := newGetter(t, a, b)
	mem := alloc(t, b, 3*turnBytes+4)
	number(mem, 0)
	key := register(t, b, mem, btl.AccessRemoteRead).Key()
	a.Progress()

	p := g.post(key, 1, 3*turnBytes+3)
	require.False(t, p.ended)
	require.True(t, slices.Equal(mem[1:turnBytes+1], g.into[:turnBytes]), "at once")
	require.Zero(t, g.into[turnBytes+1])
	short := g.post(key, 0, 0)
	require.True(t, short.ended)
	require.NoError(t, short.err)
	second := g.post(key, 1, turnBytes/2)
	require.False(t, second.ended, "the limit of the progress call is reached")
	require.False(t, a.Arm(), "there is something to do")
	a.Disarm()

	a.Progress()
	require.True(t, second.ended)
	turns := 1
	for !p.ended {
		turns++
		a.Progress()
		require.LessOrEqual(t, a.readBytes, uint64(turnBytes))
	}
	require.Equal(t, 3, turns)
	require.NoError(t, p.err)
	require.True(t, slices.Equal(mem[1:3*turnBytes+4], g.into[:3*turnBytes+3]))
	require.False(t, a.Unsettled)
	require.Zero(t, g.ep.Pending.Len())
}

// TestLongGetEnds: a region is released or freed, or one of the ends fails, in the middle of a Get.
func TestLongGetEnds(t *testing.T) {
	type end func(g *getter, b *module, r *region, mem []byte)
	release := func(g *getter, _ *module, r *region, _ []byte) { require.NoError(g.t, r.Release()) }
	for name, c := range map[string]struct {
		end   end
		class btl.Class
	}{
		"released": {release, btl.ClassUsage},
		"freed": {func(g *getter, b *module, r *region, mem []byte) {
			release(g, b, r, mem)
			require.NoError(g.t, b.Free(mem))
		}, btl.ClassUsage},
		"another region": {func(g *getter, b *module, r *region, mem []byte) {
			release(g, b, r, mem)
			require.Equal(g.t, r.entry, register(g.t, b, mem, btl.AccessRemoteRead).entry)
		}, btl.ClassUsage},
		"failed":      {func(g *getter, _ *module, _ *region, _ []byte) { g.ep.Fail(nil) }, btl.ClassFlushed},
		"rail failed": {func(g *getter, _ *module, _ *region, _ []byte) { g.m.Fail(nil) }, btl.ClassFlushed},
		"closed":      {func(g *getter, _ *module, _ *region, _ []byte) { require.NoError(g.t, g.m.Close()) }, btl.ClassFlushed},
		"peer closed": {func(g *getter, b *module, _ *region, _ []byte) { require.NoError(g.t, b.Close()) }, btl.ClassFlushed},
		"peer failed": {func(_ *getter, b *module, _ *region, _ []byte) { failPeer(b) }, btl.ClassFlushed},
		"local released": {func(g *getter, b *module, _ *region, mem []byte) {
			release(g, b, g.local, mem)
		}, btl.ClassUsage},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, _, _ := twoTest(t)
			g := newGetter(t, a, b)
			mem := alloc(t, b, 3*turnBytes)
			number(mem, 1)
			r := register(t, b, mem, btl.AccessRemoteRead)
			p, q := g.post(r.Key(), 0, 3*turnBytes), g.post(r.Key(), 0, 3*turnBytes)
			c.end(g, b, r, mem)
			until(t, "the end", func() bool { return p.ended && q.ended }, a)
			for _, err := range []error{p.err, q.err} {
				require.Equal(t, c.class, btltest.AsError(t, err).Class, "%v", err)
			}
			if c.class == btl.ClassUsage {
				require.Equal(t, btl.Up, g.ep.State())
			} else {
				until(t, "the endpoint to be drained", func() bool { return a.Closed || g.ep.State() == btl.Drained }, a)
			}
			// Nothing is written to memory that the caller owns again.
			clear(g.into)
			for range 5 {
				a.Progress()
			}
			require.True(t, slices.Equal(make([]byte, getterRoom), g.into))
			require.Zero(t, g.ep.Pending.Len())
		})
	}
}

// failPeer fails the end of rank 1, as its layer above does.
func failPeer(b *module) {
	b.peers[0].ep.Fail(nil)
	b.Progress()
}

// TestGetFromEndedPeerIsRefused: the keys of a peer that has closed its module or failed its end
// are invalid, but that is not a usage error. It makes no difference whether the memory is mapped.
func TestGetFromEndedPeerIsRefused(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		for class, end := range map[btl.Class]func(b *module){
			btl.ClassClosed: func(b *module) { require.NoError(t, b.Close()) },
			btl.ClassPath:   failPeer,
		} {
			a, b, j, _ := twoTest(t)
			g := newGetter(t, a, b)
			key := register(t, b, alloc(t, b, 100), btl.AccessRemoteRead).Key()
			if mapped {
				require.NoError(t, g.get(key, 0, 100))
			}
			end(b)
			g.refused(j, key, 100, class)
		}
	}
}

// ownerRole makes an allocation with a region, and waits for its end.
func ownerRole(t testing.TB, parent *btltest.Process) {
	m, _ := newTest(t, Config{Rank: 1, Size: 2})
	connect(t, m, 0, btltest.Ask[[]byte](parent))
	mem, err := m.Alloc(1 << 20)
	require.NoError(t, err)
	number(mem, 3)
	parent.Tell(owned{m.Address(), register(t, m, mem, btl.AccessRemoteRead).Key()})
	parent.AwaitEnd()
}

type owned struct {
	Address []byte
	Key     btl.Key
}

// TestGetFromKilledPeer: memory of a killed process can be read to the end if it is mapped.
// Otherwise the endpoint reports the peer's death.
func TestGetFromKilledPeer(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		a, j := newTest(t, Config{Rank: 0, Size: 2})
		c := btltest.Start(t, "owner")
		c.Tell(a.Address())
		owned := btltest.Ask[owned](c)
		g := &getter{t: t, m: a, ep: connect(t, a, 1, owned.Address), into: make([]byte, 1<<20)}
		g.local = register(t, a, g.into, btl.AccessLocal)
		want := make([]byte, 1<<20)
		number(want, 3)
		if mapped {
			require.NoError(t, g.get(owned.Key, 10, 1))
			require.Equal(t, want[10], g.into[0])
			a.Progress() // the next progress call may read all of it
		}
		c.Kill()
		if mapped {
			p := g.post(owned.Key, 0, 1<<20)
			require.True(t, p.ended)
			require.NoError(t, p.err)
			require.True(t, slices.Equal(want, g.into))
			until(t, "the end", func() bool { return j.state == "drained" }, a)
			require.Equal(t, btl.ClassPeerGone, j.err.Class)
			require.Equal(t, btl.ErrFailed, g.ep.Get(&g.newPull(owned.Key, 0, 1).op))
		} else {
			g.refused(j, owned.Key, 1<<20, btl.ClassPeerGone)
		}
	}
}

// TestForgedFiles: a key that names another descriptor of the peer does not make a rank read it.
func TestForgedFiles(t *testing.T) {
	a, b, _, _ := twoTest(t)
	g := newGetter(t, a, b)
	mem := alloc(t, b, 100)
	r := register(t, b, mem, btl.AccessRemoteRead)
	good, ok := parseKey(&r.key)
	require.True(t, ok)

	file := func(seal int, size int64, fill func(l *ledger)) int {
		fd, err := unix.MemfdCreate("forged", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Close(fd) })
		require.NoError(t, unix.Ftruncate(fd, size))
		if size >= ledgerBytes {
			mem, err := mapShared(fd, 0, uint64(size))
			require.NoError(t, err)
			l := ledgerOf(mem)
			l.magic, l.nonce, l.bytes = ledgerMagic, good.nonce, uint64(size-ledgerBytes)
			l.entries[good.entry] = entry{generation: good.generation, bytes: 100}
			fill(l)
			require.NoError(t, unix.Munmap(mem))
		}
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seal)
		require.NoError(t, err)
		return fd
	}
	same := func(*ledger) {}
	pipe := make([]int, 2)
	require.NoError(t, unix.Pipe2(pipe, unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	disk, err := os.Create(t.TempDir() + "/file")
	require.NoError(t, err)
	defer disk.Close()
	require.NoError(t, disk.Truncate(1<<20))
	files := map[string]int{
		"none":            1 << 30,
		"segment":         b.own.fd,
		"epoll":           b.watch.epoll,
		"pipe":            pipe[0],
		"disk":            int(disk.Fd()),
		"unsealed":        file(0, 1<<20, same),
		"half sealed":     file(unix.F_SEAL_GROW|unix.F_SEAL_SEAL, 1<<20, same),
		"empty":           file(seals, 0, same),
		"short":           file(seals, 4096, same),
		"only a ledger":   file(seals, ledgerBytes, same),
		"no magic":        file(seals, 1<<20, func(l *ledger) { l.magic++ }),
		"other nonce":     file(seals, 1<<20, func(l *ledger) { l.nonce[3]++ }),
		"other size":      file(seals, 1<<20, func(l *ledger) { l.bytes++ }),
		"dead":            file(seals, 1<<20, func(l *ledger) { l.dead = 1 }),
		"stale":           file(seals, 1<<20, func(l *ledger) { l.entries[good.entry].generation += 2 }),
		"offset outside":  file(seals, 1<<20, func(l *ledger) { l.entries[good.entry].offset = 1 << 20 }),
		"end outside":     file(seals, 1<<20, func(l *ledger) { l.entries[good.entry].bytes = 1 << 20 }),
		"offset overflow": file(seals, 1<<20, func(l *ledger) { l.entries[good.entry].offset = ^uint64(49) }),
	}
	// Access to such a file would fault if there are not enough huge pages.
	if huge, err := unix.MemfdCreate("huge", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB); err == nil {
		defer unix.Close(huge)
		require.NoError(t, unix.Ftruncate(huge, 1<<30))
		_, err = unix.FcntlInt(uintptr(huge), unix.F_ADD_SEALS, seals)
		require.NoError(t, err)
		files["huge"] = huge
	}
	for name, fd := range files {
		forged := good
		forged.fd = uint32(fd)
		p := g.post(forged.encode(), 0, 10)
		require.False(t, p.ended, name)
		a.Progress()
		require.True(t, p.ended, name)
		g.usage(p.err)
	}
	// A valid key and a well-forged file are read, so the keys above are refused for the right
	// reason.
	forged := good
	forged.fd = uint32(file(seals, 1<<20, same))
	require.NoError(t, g.get(forged.encode(), 0, 10))
	require.NoError(t, g.get(r.Key(), 0, 10))

	forged = good
	forged.nonce[0]++ // the file is already mapped
	g.usage(g.get(forged.encode(), 0, 10))
}

// TestForgedOffsets: a peer that changes its ledger does not make a rank read outside of the file.
func TestForgedOffsets(t *testing.T) {
	a, b, _, _ := twoTest(t)
	g := newGetter(t, a, b)
	mem := alloc(t, b, 100)
	r := register(t, b, mem, btl.AccessRemoteRead)
	require.NoError(t, g.get(r.Key(), 0, 100))
	e := &r.a.ledger.entries[r.entry]
	size := uint64(len(mem))
	for _, c := range [][2]uint64{{1 << 63, 100}, {0, 1 << 63}, {size + 1, 0}, {1, size}, {^uint64(0), 2}} {
		e.offset, e.bytes = c[0], c[1]
		g.usage(g.get(r.Key(), 0, 10))
	}
}

// TestGetLeavesNothing: neither side keeps a descriptor, a mapping or memory of a freed allocation.
func TestGetLeavesNothing(t *testing.T) {
	a, b, _, _ := twoTest(t)
	g := newGetter(t, a, b)
	files, maps, entries := openFiles(t), mappings(t), len(a.views)
	for i := range 2000 {
		mem, err := b.Alloc(100)
		require.NoError(t, err)
		number(mem, i)
		r := register(t, b, mem, btl.AccessRemoteRead)
		require.NoError(t, g.get(r.Key(), 0, 100))
		require.True(t, slices.Equal(mem[:100], g.into[:100]))
		require.NoError(t, r.Release())
		require.NoError(t, b.Free(mem))
		g.usage(g.get(r.Key(), 0, 100))
	}
	require.Equal(t, files, openFiles(t))
	require.Empty(t, b.allocations)
	until(t, "dead views to be dropped", func() bool { return len(a.views) == entries }, a)
	require.Equal(t, maps, mappings(t))

	// Dead views are also dropped before a sleep.
	mem := alloc(t, b, 100)
	require.NoError(t, g.get(register(t, b, mem, btl.AccessRemoteRead).Key(), 0, 100))
	require.Len(t, a.views, entries+1)
	require.NoError(t, b.Close())
	a.cfg.Wakeup = btltest.NewPipeWakeup(t)
	a.Arm()
	a.Disarm()
	require.Len(t, a.views, entries)
}

// TestViews: a rank keeps a bounded number of views: those that it uses, and none of an old module.
func TestViews(t *testing.T) {
	a, b, _, _ := twoTest(t)
	g := newGetter(t, a, b)
	maps := mappings(t)
	a.maxViews = 10
	var regions []*region
	for i := range 30 {
		mem := alloc(t, b, 1000)
		number(mem, i)
		regions = append(regions, register(t, b, mem, btl.AccessRemoteRead))
	}
	for range 3 {
		for _, r := range regions {
			a.Progress()
			require.NoError(t, g.get(regions[0].Key(), 0, 1))
			require.NoError(t, g.get(r.Key(), 0, 1000))
			require.True(t, slices.Equal(r.mem[:1000], g.into[:1000]))
			require.LessOrEqual(t, len(a.views), 10)
			require.Contains(t, a.views, viewID{1, uint32(regions[0].a.fd)}, "the view that is always used")
		}
	}
	require.Len(t, a.views, 10)
	require.Equal(t, maps+30+10, mappings(t))

	g.ep.Fail(nil)
	until(t, "the end", func() bool { return g.ep.State() == btl.Drained }, a, b)
	next, _ := newTest(t, Config{Rank: 1, Size: 2})
	connect(t, a, 1, next.Address())
	require.Empty(t, a.views)
}

// TestGetWhileReleased: the owner releases regions at any time. A Get that succeeds has read the
// content from when the region lived.
func TestGetWhileReleased(t *testing.T) {
	a, b, _, _ := twoTest(t)
	g := newGetter(t, a, b)
	const room, rounds = 256 << 10, 300
	mem := alloc(t, b, room)[:room]
	fill := func(v byte) {
		for i := range mem {
			mem[i] = v
		}
	}
	offers, answers := make(chan btl.Key), make(chan bool)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(offers)
		for i := range rounds {
			fill(byte(i))
			r, err := b.Register(mem, btl.AccessRemoteRead)
			if !assert.NoError(t, err) {
				return
			}
			offers <- r.Key()
			if i%3 == 0 {
				<-answers
			} else {
				for range i % 20 {
					runtime.Gosched()
				}
			}
			assert.NoError(t, r.Release())
			fill(byte(i + 1))
			if i%3 != 0 {
				<-answers
			}
		}
	})
	round, good := 0, 0
	for key := range offers {
		if err := g.get(key, 0, room); err == nil {
			good++
			other := slices.IndexFunc(g.into[:room], func(v byte) bool { return v != byte(round) })
			require.Negative(t, other, "a byte that is not of round %d", round)
		} else {
			require.NotZero(t, round%3)
			g.usage(err)
		}
		answers <- true
		round++
	}
	wg.Wait()
	require.GreaterOrEqual(t, good, rounds/3)
}

func TestGetDoesNotAllocate(t *testing.T) {
	a, b, _, _ := twoTest(t)
	g := newGetter(t, a, b)
	key := register(t, b, alloc(t, b, 4*turnBytes), btl.AccessRemoteRead).Key()
	ended := false
	op := &btl.Op{Local: g.local, Remote: key, Done: func(_ *btl.Op, err error) { ended = err == nil }}
	for _, n := range []int{100, 2*turnBytes + 1} {
		op.Payload = g.into[:n]
		require.Zero(t, testing.AllocsPerRun(20, func() {
			ended = false
			assert.NoError(t, g.ep.Get(op))
			for !ended {
				a.Progress()
			}
		}))
	}
}
