package loop

import (
	"bytes"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/progress"
)

// TestLocalMemory: our own side of a Put or Get has to be registered memory of this rail.
func TestLocalMemory(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		w := newWorld(t, Config{Ranks: 2, Rails: 2, Virtual: virtual})
		a := w.nodes[0][0]
		register := func(n *node, mem []byte, access btl.Access) btl.Region {
			r, err := n.m.(btl.Registrar).Register(mem, access)
			require.NoError(t, err)
			return r
		}
		mem := make([]byte, 100)
		theirs := register(w.nodes[1][0], make([]byte, 100), btl.AccessRemoteRead|btl.AccessRemoteWrite)
		good := register(a, mem[10:50], btl.AccessLocal)
		released := register(a, mem, btl.AccessLocal)
		require.NoError(t, released.Release())
		for name, c := range map[string]struct {
			local   btl.Region
			payload []byte
			wrong   error
		}{
			"none":       {nil, mem[:1], base.ErrLocal},
			"other rail": {register(w.nodes[0][1], mem, btl.AccessLocal), mem[:1], base.ErrLocal},
			"other rank": {theirs, mem[:1], base.ErrLocal},
			"no access":  {register(a, mem, btl.AccessRemoteRead), mem[:1], base.ErrAccess},
			"released":   {released, mem[:1], base.ErrReleased},
			"before":     {good, mem[9:20], base.ErrBounds},
			"beyond":     {good, mem[40:51], base.ErrBounds},
			"elsewhere":  {good, make([]byte, 4), base.ErrBounds},
			"empty":      {register(a, nil, btl.AccessLocal), mem[:1], base.ErrBounds},
			"all of it":  {good, mem[10:50], nil},
			"nothing":    {good, nil, nil},
		} {
			ep := a.connect(1)
			var got error
			ended := 0
			op := &btl.Op{Payload: c.payload, Local: c.local, Remote: theirs.Key(), Done: func(_ *btl.Op, err error) { ended++; got = err }}
			require.NoError(t, ep.(btl.Putter).Put(op), name)
			w.settle()
			require.Equal(t, 1, ended, name)
			if c.wrong == nil {
				require.NoError(t, got, name)
				continue
			}
			var be *btl.Error
			require.ErrorAs(t, got, &be, name)
			require.Equal(t, btl.ClassUsage, be.Class, name)
			require.ErrorIs(t, got, c.wrong, name)
			require.Equal(t, btl.Up, ep.State(), name)
		}
	}
}

func TestRegions(t *testing.T) {
	w := newWorld(t, Config{Ranks: 1})
	m := w.nodes[0][0].inner
	mem := make([]byte, 10)
	seen := map[btl.Key]bool{}
	for range 50 {
		a, err := m.Register(mem, btl.AccessRemoteRead)
		require.NoError(t, err)
		b, err := m.Register(mem, btl.AccessRemoteRead)
		require.NoError(t, err)
		for _, r := range []btl.Region{a, b} {
			require.False(t, seen[r.Key()], "a key came back")
			seen[r.Key()] = true
			require.Equal(t, r.Key(), r.Key())
			require.NoError(t, r.Release())
			require.Error(t, r.Release(), "released twice")
		}
	}
	require.LessOrEqual(t, len(m.port.regions.slots), 2, "slots are used again")

	// A slot whose generations are used up is given up.
	r, err := m.Register(mem, btl.AccessRemoteRead)
	require.NoError(t, err)
	slot := r.(*region).h.slot
	m.port.regions.slots[slot].generation = ^uint32(0)
	r.(*region).h.generation = ^uint32(0)
	require.NoError(t, r.Release())
	for range 3 {
		r, err := m.Register(mem, btl.AccessRemoteRead)
		require.NoError(t, err)
		require.NotEqual(t, slot, r.(*region).h.slot)
	}

	bare := newWorld(t, Config{Rail: []RailConfig{{Without: btl.CapPut | btl.CapGet}}})
	_, err = bare.nodes[0][0].m.(btl.Registrar).Register(mem, btl.AccessLocal)
	require.Error(t, err)
	require.NoError(t, m.Close())
	_, err = m.Register(mem, btl.AccessLocal)
	require.ErrorIs(t, err, btl.ErrClosed)
}

// TestRemoteAccessIsBounded: what is read and written remotely between two turns is bounded, all
// peers together, and a rank does not sleep while it could go on.
func TestRemoteAccessIsBounded(t *testing.T) {
	f, err := NewFabric(Config{Ranks: 3})
	require.NoError(t, err)
	var mods [3]btl.Module
	var eps [3]btl.Endpoint
	var keys [3]btl.Key
	mem := make([]byte, turnBytes/4)
	for i := range mods {
		mods[i], err = f.Module(i, 0, &counter{}, progress.NewChanWakeup())
		require.NoError(t, err)
		region, err := mods[i].(btl.Registrar).Register(make([]byte, len(mem)), btl.AccessRemoteRead|btl.AccessRemoteWrite)
		require.NoError(t, err)
		keys[i] = region.Key()
		eps[i], err = mods[0].Connect(i, mods[i].Address())
		require.NoError(t, err)
	}
	local, err := mods[0].(btl.Registrar).Register(mem, btl.AccessLocal)
	require.NoError(t, err)
	ended := 0
	post := func(i int) error {
		op := &btl.Op{Payload: mem, Local: local, Remote: keys[i%3], Done: func(_ *btl.Op, err error) {
			require.NoError(t, err)
			ended++
		}}
		if i%2 == 0 {
			return eps[i%3].(btl.Getter).Get(op)
		}
		return eps[i%3].(btl.Putter).Put(op)
	}
	idler := mods[0].(progress.Idler)
	for turn := range 3 {
		require.True(t, idler.Arm())
		for i := range 4 {
			require.NoError(t, post(turn+i))
		}
		for i := range 4 {
			require.Equal(t, btl.ErrResource, post(i))
		}
		require.False(t, idler.Arm())
		idler.Disarm()
		require.Equal(t, 4*(turn+1), ended)
		mods[0].Progress()
	}
	for _, m := range mods {
		require.NoError(t, m.Close())
	}
}

// TestReleaseRacesWithPut: once Release, or the Drained of the target's end, has come, a peer that
// goes on writing does not write there any more.
func TestReleaseRacesWithPut(t *testing.T) {
	for _, how := range []string{"release", "drain", "close"} {
		for range 30 {
			f, err := NewFabric(Config{Ranks: 2})
			require.NoError(t, err)
			from, err := f.Module(0, 0, &counter{}, nil)
			require.NoError(t, err)
			to, err := f.Module(1, 0, &counter{}, nil)
			require.NoError(t, err)
			src := bytes.Repeat([]byte{7}, 8192)
			local, err := from.(btl.Registrar).Register(src, btl.AccessLocal)
			require.NoError(t, err)
			dst := make([]byte, len(src))
			remote, err := to.(btl.Registrar).Register(dst, btl.AccessRemoteWrite)
			require.NoError(t, err)
			key := remote.Key()
			ep, err := from.Connect(1, to.Address())
			require.NoError(t, err)
			back, err := to.Connect(0, from.Address())
			require.NoError(t, err)
			var wg sync.WaitGroup
			started := make(chan struct{})
			written := 0
			wg.Add(1)
			go func() {
				defer wg.Done()
				failed := 0
				op := &btl.Op{Payload: src, Local: local, Remote: key, Done: func(_ *btl.Op, err error) {
					if err != nil {
						failed++
					} else if written++; written == 10 {
						close(started)
					}
				}}
				for ep.State() == btl.Up && failed < 100 {
					_ = ep.(btl.Putter).Put(op) // until it fails
					from.Progress()
				}
				if written < 10 {
					close(started) // the test fails
				}
			}()
			<-started
			switch how {
			case "release":
				require.NoError(t, remote.Release())
			case "drain":
				back.Fail(errTest)
				for back.State() != btl.Drained {
					to.Progress()
				}
			case "close":
				require.NoError(t, to.Close())
			}
			// The race detector knows whether anybody still writes.
			clear(dst)
			runtime.Gosched()
			wg.Wait()
			require.GreaterOrEqual(t, written, 10, "writes before the %s", how)
			require.Equal(t, make([]byte, len(dst)), dst)
			require.NoError(t, from.Close())
			require.NoError(t, to.Close())
		}
	}
}

func FuzzParseCard(f *testing.F) {
	f.Add(address{1, 2, 3}.append(nil))
	f.Add([]byte(nil))
	f.Add([]byte(magic))
	f.Add(bytes.Repeat([]byte{0xff}, addressBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := parseAddress(b)
		if ok && !bytes.Equal(a.append(nil), b) {
			t.Errorf("address %x reads as %v, which is written %x", b, a, a.append(nil))
		}
		// Whatever it says, Connect neither panics nor leads elsewhere.
		fab, err := NewFabric(Config{Ranks: 2})
		require.NoError(t, err)
		m, err := fab.Module(0, 0, &counter{}, nil)
		require.NoError(t, err)
		if ep, err := m.Connect(1, b); err == nil && (!ok || a != fab.ports[0][1].addr) {
			t.Errorf("address %x leads to %v", b, ep)
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
		a, h, ok := parseKey(k)
		if ok && makeKey(a, h) != k {
			t.Errorf("key %x reads as %v %v, which is written %x", k, a, h, makeKey(a, h))
		}
		// Whatever it says, what is reached is a region, within its bounds.
		fab, err := NewFabric(Config{})
		require.NoError(t, err)
		m, err := fab.Module(0, 0, &counter{}, nil)
		require.NoError(t, err)
		mem := make([]byte, 64)
		r, err := m.(btl.Registrar).Register(mem, btl.AccessRemoteWrite)
		require.NoError(t, err)
		p := fab.ports[0][0]
		data := bytes.Repeat([]byte{1}, min(max(n, 0), 1000))
		if err := p.copyRemote(put, k, offset, data); err == nil && k != r.Key() {
			t.Errorf("key %x is as good as %x", k, r.Key())
		}
		want := make([]byte, 64)
		err = p.copyRemote(put, r.Key(), offset, data)
		if fits := offset <= 64 && uint64(len(data)) <= 64-offset; fits != (err == nil) {
			t.Errorf("%d bytes at %d: %v", len(data), offset, err)
		} else if fits {
			copy(want[offset:], data)
		}
		require.Equal(t, want, mem)
	})
}
