package sm

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// alloc allocates memory, which is freed at the end of the test unless the test frees it.
func alloc(t testing.TB, m *module, bytes int) []byte {
	mem, err := m.Alloc(bytes)
	require.NoError(t, err)
	t.Cleanup(func() {
		if _, a := m.findAllocation(mem); a != nil && &a.data[0] == &mem[0] {
			require.NoError(t, m.Close())
			require.NoError(t, m.Free(mem))
		}
	})
	return mem
}

func register(t testing.TB, m *module, mem []byte, access btl.Access) *region {
	r, err := m.Register(mem, access)
	require.NoError(t, err)
	return r.(*region)
}

func TestAlloc(t *testing.T) {
	m, _ := newTest(t, Config{Size: 1})
	page := int(m.own.page)
	files, maps := openFiles(t), mappings(t)
	var mems [][]byte
	for i, bytes := range []int{0, 1, page, page + 1, hugeBytes, 3*hugeBytes + 1} {
		mem, err := m.Alloc(bytes)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(mem), max(bytes, 1))
		require.Less(t, len(mem), bytes+page+1)
		require.Zero(t, uintptr(unsafe.Pointer(&mem[0]))%uintptr(page))
		require.Equal(t, make([]byte, len(mem)), mem)
		for j := range mem {
			mem[j] = byte(i + 1)
		}
		mems = append(mems, mem)
	}
	require.Equal(t, files+len(mems), openFiles(t))
	require.NoError(t, m.Free(mems[2]))
	require.NoError(t, m.Close())
	// The user keeps the memory when the module is closed.
	for i, mem := range mems {
		if i != 2 {
			require.Equal(t, byte(i+1), mem[len(mem)-1])
			mem[0] = 9
			require.NoError(t, m.Free(mem))
		}
	}
	require.Equal(t, files-2, openFiles(t), "the module had the segment and the watch open")
	require.LessOrEqual(t, mappings(t), maps)
	_, err := m.Alloc(1)
	require.Equal(t, btl.ErrClosed, err)
}

func TestAllocOverLimitsFails(t *testing.T) {
	m, _ := newTest(t, Config{Size: 1})
	files := openFiles(t)
	_, err := m.Alloc(-1)
	require.EqualError(t, err, "rail sm: allocation of -1 bytes")
	for _, bytes := range []int{1 << 50, math.MaxInt - 1, math.MaxInt} {
		_, err = m.Alloc(bytes)
		require.ErrorIs(t, err, unix.ENOMEM)
	}
	exceedsFileLimit(t, func() error {
		_, err := m.Alloc(1 << 20)
		return err
	})
	m.maxAllocations = 2
	alloc(t, m, 1)
	alloc(t, m, 1)
	_, err = m.Alloc(1)
	require.ErrorIs(t, err, btl.ErrResource)
	require.Equal(t, files+2, openFiles(t))
}

// TestFree: Free takes exactly the memory that Alloc returned, once, and only while no region of it
// is registered.
func TestFree(t *testing.T) {
	m, _ := newTest(t, Config{Size: 1})
	mem, other := alloc(t, m, 10000), alloc(t, m, 1)
	refuses := func(b []byte) {
		t.Helper()
		require.ErrorIs(t, m.Free(b), btl.ErrMemory)
	}
	refuses(nil)
	refuses(make([]byte, 4096))
	refuses(mem[1:])
	refuses(mem[:100])
	r, s := register(t, m, mem, btl.AccessRemoteRead), register(t, m, mem, btl.AccessLocal)
	require.EqualError(t, m.Free(mem), "rail sm: memory with 1 regions that were not released")
	require.NoError(t, r.Release())
	require.NoError(t, m.Free(mem))
	refuses(mem)
	require.NoError(t, s.Release())

	// Close has released all regions.
	r = register(t, m, other, btl.AccessRemoteRead)
	require.NoError(t, m.Close())
	other[0] = 1
	require.NoError(t, m.Free(other))
	require.NoError(t, r.Release(), "after Close it has no effect")
}

// TestFreeReleasesMemoryThatPeerHasMapped: the system has the pages back at once.
func TestFreeReleasesMemoryThatPeerHasMapped(t *testing.T) {
	a, b, _, _ := twoTest(t)
	g := newGetter(t, a, b)
	mem := alloc(t, b, 1<<20)
	for i := range mem {
		mem[i] = 1
	}
	_, allocation := b.findAllocation(mem)
	fd, err := unix.Dup(allocation.fd)
	require.NoError(t, err)
	defer unix.Close(fd)
	blocks := func() int64 {
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(fd, &st))
		return st.Blocks
	}
	r := register(t, b, mem, btl.AccessRemoteRead)
	require.NoError(t, g.get(r.Key(), 0, 1<<20))
	require.Greater(t, blocks(), int64(1<<20/512))
	require.NoError(t, r.Release())
	require.NoError(t, b.Free(mem))
	require.Less(t, blocks(), int64(1<<17/512))
	require.Len(t, a.views, 1)
}
