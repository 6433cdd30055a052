package sm

import (
	"os"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/progress"
)

// sharerRole maps memory that the parent shares, and answers in it.
func sharerRole(t testing.TB, parent *btltest.Process) {
	m, _ := newTest(t, Config{Rank: 1, Size: 2})
	connect(t, m, 0, btltest.Ask[[]byte](parent))
	parent.Tell(m.Address())
	mem, err := m.MapShared(0, btltest.Ask[btl.Key](parent), 10_000)
	require.NoError(t, err)
	require.Equal(t, byte(7), mem[9999])
	mem[0] = 8
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&mem[8])), 1)
	m.WakePeer(0)
	parent.AwaitEnd()
}

// TestSharedMemoryOfProcesses: both processes read and write the memory, and one wakes the other.
func TestSharedMemoryOfProcesses(t *testing.T) {
	wakeup := btltest.NewPipeWakeup(t)
	a, _ := newTest(t, Config{Rank: 0, Size: 2, Wakeup: wakeup})
	mem, key, err := a.Share(10_000)
	require.NoError(t, err)
	mem[9999] = 7
	eng := progress.New(progress.Config{Wakeup: deepWakeup{wakeup}})
	eng.Lock()
	defer eng.Unlock()
	eng.AddPoller(a)
	c := btltest.Start(t, "sharer")
	c.Tell(a.Address())
	connect(t, a, 1, btltest.Ask[[]byte](c))
	c.Tell(key)
	w := new(progress.Waiter)
	w.Reset(1)
	eng.AddPoller(pollerFunc(func() int {
		if atomic.LoadUint64((*uint64)(unsafe.Pointer(&mem[8]))) == 1 {
			w.Finish()
		}
		return 0
	}))
	require.NoError(t, eng.Wait(t.Context(), w))
	require.Equal(t, byte(8), mem[0])
	require.NoError(t, a.Unshare(mem))
	c.Kill()
}

func TestSharedMemoryLifeCycle(t *testing.T) {
	a, _ := newTest(t, Config{Rank: 0, Size: 2})
	b, _ := newTest(t, Config{Rank: 1, Size: 2})
	connect(t, b, 0, a.Address())
	files, maps := openFiles(t), mappings(t)
	mem, key, err := a.Share(1)
	require.NoError(t, err)
	require.Zero(t, uintptr(unsafe.Pointer(&mem[0]))%uintptr(a.own.page))
	theirs, err := b.MapShared(0, key, len(mem))
	require.NoError(t, err)
	theirs[0] = 5
	require.Equal(t, byte(5), mem[0])

	a.Hide(mem)
	_, err = b.MapShared(0, key, 1)
	require.ErrorIs(t, err, base.ErrKey, "hidden")
	require.Equal(t, files, openFiles(t))
	require.NoError(t, a.Close())
	mem[1] = 6 // the user keeps it
	require.Equal(t, byte(6), theirs[1])
	require.NoError(t, a.Unshare(mem))
	require.ErrorIs(t, a.Unshare(mem), btl.ErrMemory, "a second time")
	require.Equal(t, byte(6), theirs[1])
	require.NoError(t, b.Unshare(theirs))
	require.LessOrEqual(t, mappings(t), maps)
	_, _, err = a.Share(1)
	require.ErrorIs(t, err, btl.ErrClosed)
}

// TestMapSharedOfWrongKeyFails: a key may contain anything. Memory that is not shared, or is
// shorter than the caller needs, is not mapped.
func TestMapSharedOfWrongKeyFails(t *testing.T) {
	a, _ := newTest(t, Config{Rank: 0, Size: 3})
	b, _ := newTest(t, Config{Rank: 1, Size: 3})
	connect(t, b, 0, a.Address())
	mem, key, err := a.Share(5000)
	require.NoError(t, err)
	good, ok := parseSharedKey(&key)
	require.True(t, ok)
	plain, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer plain.Close()
	require.NoError(t, plain.Truncate(int64(good.bytes)))
	maps := mappings(t)
	for name, change := range map[string]func(k *sharedKey){
		"nonce":         func(k *sharedKey) { k.nonce[3] ^= 1 },
		"no descriptor": func(k *sharedKey) { k.fd = 1 << 20 },
		"segment":       func(k *sharedKey) { k.fd = uint32(a.own.fd) },
		"another file":  func(k *sharedKey) { k.fd = uint32(plain.Fd()) },
		"length":        func(k *sharedKey) { k.bytes += uint64(a.own.page) },
		"no length":     func(k *sharedKey) { k.bytes = 0 },
	} {
		k := good
		change(&k)
		_, err := b.MapShared(0, k.encode(), 5000)
		require.ErrorIs(t, err, base.ErrKey, name)
	}
	_, err = b.MapShared(0, btl.Key{}, 5000)
	require.ErrorIs(t, err, base.ErrKey)
	_, err = b.MapShared(0, key, len(mem)+1)
	require.ErrorIs(t, err, base.ErrKey, "too short")
	for _, rank := range []int{-1, 2, 3} {
		_, err = b.MapShared(rank, key, 1)
		require.ErrorIs(t, err, base.ErrKey, "rank %d", rank)
	}
	require.Equal(t, maps, mappings(t))
	for _, bytes := range []int{-1, 0} {
		_, _, err = a.Share(bytes)
		require.ErrorIs(t, err, btl.ErrMemory)
	}
	require.NoError(t, a.Unshare(mem))
}
