package ibverbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// absentWorld is a world of two ranks that are not connected. The ports of some ranks are down when
// their modules are made. moved counts the modules that have got an address.
func absentWorld(t *testing.T, seed byte, down ...int) (w *world, moved *int) {
	f := simhca.NewFabric(simhca.Config{Virtual: true})
	w = &world{t: t, f: f, clock: fabricClock{f, new(int64)}}
	moved = new(int)
	for rank := range 2 {
		node := f.NewNode(simhca.DeviceConfig{Name: "sim0"})
		r := &testRank{w: w, rank: rank, hca: node.HCA("sim0")}
		for _, d := range down {
			if d == rank {
				r.hca.SetLink(1, false)
			}
		}
		m, err := New(Config{
			Rank: rank, Size: 2, Events: r, Provider: node, Device: "sim0", Secret: testSecret, Random: &fixedRandom{seed + byte(rank)},
			Clock: w.clock, Pass: w.clock.pass, MayCome: true, Moved: func() { *moved++ }, Siblings: new(Siblings),
		})
		require.NoError(t, err)
		r.m = m.(*module)
		w.ranks = append(w.ranks, r)
	}
	t.Cleanup(func() {
		for _, r := range w.ranks {
			require.NoError(t, r.m.Close())
		}
		f.Close()
	})
	return w, moved
}

// comes brings the rank's port up, and lets the module notice.
func (r *testRank) comes() {
	r.hca.SetLink(1, true)
	r.w.until("the port", func() bool {
		r.w.clock.skip(time.Millisecond)
		return r.m.Absent(true) == nil
	})
}

// TestPortThatIsDownAtStartConnectsLater: a module whose port was down connects once it is up,
// although its peer does not know the address.
func TestPortThatIsDownAtStartConnectsLater(t *testing.T) {
	for down := range 2 {
		w, moved := absentWorld(t, 0, down)
		r, peer := w.ranks[down], w.ranks[1-down]
		before := r.m.Address()
		for range 2 {
			_, err := r.m.Connect(btl.Path{Peer: peer.rank}, peer.m.Address())
			require.ErrorContains(t, err, "port 1 is ")
			require.NotErrorIs(t, err, btl.ErrUnreachable)
			require.ErrorContains(t, r.m.Absent(true), "port 1 is ")
			_, err = peer.m.Connect(btl.Path{Peer: r.rank}, before)
			require.ErrorIs(t, err, btl.ErrNoAddress)
			require.True(t, r.m.Arm(), "the rank may sleep")
			r.m.Disarm()
			w.turns(3 * attendEvery)
		}
		require.Zero(t, *moved)
		r.comes()
		require.Equal(t, 1, *moved)
		require.NotEqual(t, before, r.m.Address())
		r.connect()
		w.until("a connection", func() bool {
			ep, err := peer.m.Connect(btl.Path{Peer: r.rank}, before)
			peer.ep = ep
			return err == nil && r.isReady() && peer.isReady()
		})
		w.works()
	}
}

// TestPortsThatAreDownAtStartConnectByTheirSiblings: if both ports were down, each end sends its
// address over another verbs rail, if there is one. Without such a rail, an end needs the other's
// address.
func TestPortsThatAreDownAtStartConnectByTheirSiblings(t *testing.T) {
	for _, hasSiblings := range []bool{true, false} {
		w, _ := absentWorld(t, 0, 0, 1)
		other, _ := absentWorld(t, 100)
		before := [2][]byte{w.ranks[0].m.Address(), w.ranks[1].m.Address()}
		for rank, r := range w.ranks {
			require.Positive(t, leads([][]byte{before[rank], other.ranks[rank].m.Address()}, [][]byte{before[1-rank], other.ranks[1-rank].m.Address()})(0, 0))
			if hasSiblings {
				s := new(Siblings)
				for _, m := range []*module{r.m, other.ranks[rank].m} {
					m.cfg.Siblings = s
					s.add(m)
				}
			}
			r.comes()
		}
		for rank, r := range w.ranks {
			_, err := r.m.Connect(btl.Path{Peer: 1 - rank}, before[1-rank])
			require.ErrorIs(t, err, btl.ErrNoAddress, "no sibling is connected")
		}
		other.connect()
		for rank, r := range w.ranks {
			if !hasSiblings {
				r.connect()
				continue
			}
			ep, err := r.m.Connect(btl.Path{Peer: 1 - rank}, before[1-rank])
			require.NoError(t, err)
			r.ep = ep
		}
		w.until("a connection", func() bool {
			other.turn()
			return w.ranks[0].isReady() && w.ranks[1].isReady()
		})
		w.works()
	}
}

// plugged is a node whose device "late" exists only once it is plugged in.
type plugged struct {
	*simhca.Node
	in    bool
	opens int
}

func (p *plugged) Open(name string) (verbs.Device, error) {
	p.opens++
	if name == "late" && !p.in {
		return nil, verbs.ErrNoDevice
	}
	return p.Node.Open(name)
}

// TestOpenNamedPortThatIsAbsent: if the user names a port that is down or whose device is missing,
// its rail is Absent until the port comes up.
func TestOpenNamedPortThatIsAbsent(t *testing.T) {
	f := simhca.NewFabric(simhca.Config{})
	t.Cleanup(f.Close)
	node := &plugged{Node: f.NewNode(simhca.DeviceConfig{Name: "one"}, simhca.DeviceConfig{Name: "late"}, simhca.DeviceConfig{Name: "down"})}
	node.HCA("down").SetLink(1, false)
	opened, err := openPorts(envOf(t, "late,one,down"), node)
	require.NoError(t, err)
	require.Empty(t, opened.LeftOut)
	require.Len(t, opened.Modules, 3)
	for _, r := range opened.Modules {
		defer r.Module.Close()
	}
	require.NoError(t, opened.Modules[1].Absent(true))
	require.ErrorIs(t, opened.Modules[0].Absent(true), verbs.ErrNoDevice)
	require.ErrorContains(t, opened.Modules[2].Absent(true), "device down: port 1 is ")
	require.Equal(t, opened.Modules[1].Module.Attrs().Caps, opened.Modules[2].Module.Attrs().Caps, "as its siblings")
	node.in = true
	node.HCA("down").SetLink(1, true)
	for _, r := range opened.Modules {
		require.Eventually(t, func() bool { return r.Absent(true) == nil }, 20*time.Second, time.Millisecond)
	}
}

// TestAbsentDeviceIsOpenedMoreRarelyLater: the module looks for a missing device twice a second in
// the first minute, and then less often. It finds the device even then.
func TestAbsentDeviceIsOpenedMoreRarelyLater(t *testing.T) {
	f := simhca.NewFabric(simhca.Config{Virtual: true})
	t.Cleanup(f.Close)
	node := &plugged{Node: f.NewNode(simhca.DeviceConfig{Name: "late"})}
	w := &world{t: t, f: f, clock: fabricClock{f, new(int64)}}
	m, err := newModule(Config{
		Size: 2, Events: &testRank{w: w}, Provider: node, Device: "late", Secret: testSecret, Random: &fixedRandom{1},
		Clock: w.clock, Pass: w.clock.pass, MayCome: true, Siblings: new(Siblings),
	})
	require.NoError(t, err)
	defer m.Close()
	opens := func(d time.Duration) int {
		before := node.opens
		for range d / (100 * time.Millisecond) {
			w.clock.skip(100 * time.Millisecond)
			_ = m.Absent(true)
		}
		return node.opens - before
	}
	require.InDelta(t, 120, opens(time.Minute), 10)
	opens(time.Minute)
	require.InDelta(t, 60, opens(10*time.Minute), 2)
	node.in = true
	require.Equal(t, 1, opens(11*time.Second))
	require.NoError(t, m.Absent(true))
}
