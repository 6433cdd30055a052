package loop

import (
	"bytes"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/progress"
)

// register registers memory with the module of a node.
func (n *node) register(mem []byte, access btl.Access) btl.Region {
	return n.inner.register(n.w.t, mem, access)
}

func (m *module) register(t testing.TB, mem []byte, access btl.Access) btl.Region {
	r, err := m.Register(mem, access)
	require.NoError(t, err)
	return r
}

const forPeers = btl.AccessRemoteRead | btl.AccessRemoteWrite

// TestPutFromBadLocalMemoryFails: the local memory of a Put or Get must be registered with its
// rail.
func TestPutFromBadLocalMemoryFails(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		w, a, b := twoNodes(t, Config{Rails: 2, Virtual: virtual})
		mem := make([]byte, 100)
		theirs := b.register(make([]byte, 100), forPeers)
		good, released := a.register(mem[10:50], btl.AccessLocal), a.register(mem, btl.AccessLocal)
		require.NoError(t, released.Release())
		for name, c := range map[string]struct {
			local   btl.Region
			payload []byte
			wrong   error
		}{
			"none":       {nil, mem[:1], base.ErrLocal},
			"other rail": {w.nodes[0][1].register(mem, btl.AccessLocal), mem[:1], base.ErrLocal},
			"other rank": {theirs, mem[:1], base.ErrLocal},
			"no access":  {a.register(mem, btl.AccessRemoteRead), mem[:1], base.ErrAccess},
			"released":   {released, mem[:1], base.ErrReleased},
			"before":     {good, mem[9:20], base.ErrBounds},
			"beyond":     {good, mem[40:51], base.ErrBounds},
			"elsewhere":  {good, make([]byte, 4), base.ErrBounds},
			"empty":      {a.register(nil, btl.AccessLocal), mem[:1], base.ErrBounds},
			"all of it":  {good, mem[10:50], nil},
			"nothing":    {good, nil, nil},
		} {
			var ends []error
			op := &btl.Op{Payload: c.payload, Local: c.local, Remote: theirs.Key()}
			op.Done = func(_ *btl.Op, err error) { ends = append(ends, err) }
			require.NoError(t, a.connect(1).(btl.Putter).Put(op), name)
			w.settle()
			require.Len(t, ends, 1, name)
			if c.wrong == nil {
				require.NoError(t, ends[0], name)
				continue
			}
			require.ErrorIs(t, ends[0], c.wrong, name)
			require.Equal(t, btl.ClassUsage, btltest.AsError(t, ends[0]).Class, name)
			require.Equal(t, btl.Up, a.eps[1].State(), name)
		}
	}
}

func TestRegions(t *testing.T) {
	m := newSides(t, Config{})[0].mod
	mem := make([]byte, 10)
	seen := map[btl.Key]bool{}
	for range 50 {
		a, b := m.register(t, mem, btl.AccessRemoteRead), m.register(t, mem, btl.AccessRemoteRead)
		for _, r := range []btl.Region{a, b} {
			require.False(t, seen[r.Key()], "a key came back")
			seen[r.Key()] = true
			require.Equal(t, r.Key(), r.Key())
			require.NoError(t, r.Release())
			require.Error(t, r.Release(), "released twice")
		}
	}
	require.LessOrEqual(t, len(m.port.regions.slots), 2, "slots are used again")

	// A slot whose generations are used up is not used again.
	r := m.register(t, mem, btl.AccessRemoteRead).(*region)
	slot := r.h.slot
	m.port.regions.slots[slot].generation = math.MaxUint32
	r.h.generation = math.MaxUint32
	require.NoError(t, r.Release())
	for range 3 {
		require.NotEqual(t, slot, m.register(t, mem, btl.AccessRemoteRead).(*region).h.slot)
	}

	bare := newSides(t, Config{Rail: []RailConfig{{Without: btl.CapPut | btl.CapGet}}})[0]
	_, err := bare.mod.Register(mem, btl.AccessLocal)
	require.Error(t, err)
	require.NoError(t, m.Close())
	_, err = m.Register(mem, btl.AccessLocal)
	require.ErrorIs(t, err, btl.ErrClosed)
}

// TestRemoteAccessIsBounded: a rank reads and writes remotely only a bounded number of bytes
// between two progress calls, for all peers together. The rank does not sleep while it could
// continue.
func TestRemoteAccessIsBounded(t *testing.T) {
	sides := newSides(t, Config{Ranks: 3}, progress.NewChanWakeup())
	m := sides[0].mod
	mem := make([]byte, turnBytes/4)
	local := m.register(t, mem, btl.AccessLocal)
	var eps [3]*endpoint
	var keys [3]btl.Key
	for i, s := range sides {
		keys[i] = s.mod.register(t, make([]byte, len(mem)), forPeers).Key()
		sides[0].connect(t, s)
		eps[i] = sides[0].ep
	}
	ended := 0
	post := func(i int) error {
		op := &btl.Op{Payload: mem, Local: local, Remote: keys[i%3], Done: func(_ *btl.Op, err error) {
			require.NoError(t, err)
			ended++
		}}
		if i%2 == 0 {
			return eps[i%3].Get(op)
		}
		return eps[i%3].Put(op)
	}
	for turn := range 3 {
		require.True(t, m.Arm())
		for i := range 4 {
			require.NoError(t, post(turn+i))
		}
		for i := range 4 {
			require.Equal(t, btl.ErrResource, post(i))
		}
		require.False(t, m.Arm())
		m.Disarm()
		require.Equal(t, 4*(turn+1), ended)
		m.Progress()
	}
}

// TestReleaseRacesWithPut: a peer writes repeatedly. Once Release has returned, or the target's end
// is Drained or closed, the peer's writes no longer reach the memory.
func TestReleaseRacesWithPut(t *testing.T) {
	for _, how := range []string{"release", "drain", "close"} {
		for range 30 {
			from, to := pairOfSides(t, Config{})
			src := bytes.Repeat([]byte{7}, 8192)
			dst := make([]byte, len(src))
			local := from.mod.register(t, src, btl.AccessLocal)
			remote := to.mod.register(t, dst, btl.AccessRemoteWrite)
			var wg sync.WaitGroup
			started := make(chan struct{})
			written := 0
			wg.Go(func() {
				failed := 0
				op := &btl.Op{Payload: src, Local: local, Remote: remote.Key(), Done: func(_ *btl.Op, err error) {
					if err != nil {
						failed++
					} else if written++; written == 10 {
						close(started)
					}
				}}
				for from.ep.State() == btl.Up && failed < 100 {
					_ = from.ep.Put(op) // until it fails
					from.mod.Progress()
				}
				if written < 10 {
					close(started) // the test fails
				}
			})
			<-started
			switch how {
			case "release":
				require.NoError(t, remote.Release())
			case "drain":
				to.failAndDrain()
			case "close":
				require.NoError(t, to.mod.Close())
			}
			clear(dst) // the race detector finds a peer that still writes
			runtime.Gosched()
			wg.Wait()
			require.GreaterOrEqual(t, written, 10, "writes before the %s", how)
			require.Equal(t, make([]byte, len(dst)), dst)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add(address{1, 2, 3}.append(nil))
	f.Add([]byte(nil))
	f.Add([]byte(magic))
	f.Add(bytes.Repeat([]byte{0xff}, addressBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := parseAddress(b)
		if ok {
			require.Equal(t, b, a.append(nil))
		}
		// Connect does not panic, and succeeds only with the address of the peer.
		m := newSides(t, Config{Ranks: 2})[0].mod
		if _, err := m.Connect(btl.Path{Peer: 1}, b); err == nil {
			require.True(t, ok)
			require.Equal(t, m.f.ports[0][1].addr, a)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	good := makeKey(address{1, 2, 3}, handle{4, 5})
	f.Add(good[:], uint64(0), 8)
	f.Add(make([]byte, 32), uint64(1)<<63, 1)
	f.Add(bytes.Repeat([]byte{0xff}, 32), ^uint64(0), 100)
	f.Fuzz(func(t *testing.T, b []byte, offset uint64, n int) {
		var k btl.Key
		copy(k[:], b)
		if a, h, ok := parseKey(k); ok {
			require.Equal(t, k, makeKey(a, h))
		}
		// Only the key of a region gives access, within the bounds of the region.
		m := newSides(t, Config{})[0].mod
		mem := make([]byte, 64)
		r := m.register(t, mem, btl.AccessRemoteWrite)
		data := bytes.Repeat([]byte{1}, min(max(n, 0), 1000))
		if m.port.copyRemote(put, k, offset, data) == nil {
			require.Equal(t, r.Key(), k)
		}
		want := make([]byte, 64)
		err := m.port.copyRemote(put, r.Key(), offset, data)
		if offset <= 64 && uint64(len(data)) <= 64-offset {
			require.NoError(t, err)
			copy(want[offset:], data)
		} else {
			require.Error(t, err)
		}
		require.Equal(t, want, mem)
	})
}
