package ibverbs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
)

// withoutBuffers leaves the endpoint without buffers for sending, as if other connections had the
// common ones and its own messages the rest, until free is called.
func (e *endpoint) withoutBuffers() (free func()) {
	own, common := e.share.own, e.m.h.bounceFree
	e.share.own, e.m.h.bounceFree = 0, nil
	return func() { e.share.own, e.m.h.bounceFree = own, common }
}

// TestBounceShares: what an endpoint may take is bounded by what is free, and it always has its
// own.
func TestBounceShares(t *testing.T) {
	h := new(hca)
	for i := range int32(bounceBuffers) {
		h.bounceFree = append(h.bounceFree, i)
	}
	var shares []*bounceShare
	var held [][]int32
	seen := map[int32]bool{}
	for n := range 2 * bounceBuffers {
		s := wholeShare
		var mine []int32
		own := map[int32]bool{}
		for i := s.take(h); i != noBuffer; i = s.take(h) {
			if i < bounceBuffers {
				require.False(t, seen[i], "buffer %d twice", i)
				seen[i] = true
			} else {
				require.False(t, own[i], "own buffer %d twice", i)
				own[i] = true
			}
			mine = append(mine, i)
		}
		require.Len(t, own, ownBuffers)
		require.LessOrEqual(t, s.common, bounceBuffers/4)
		switch n {
		case 0:
			require.Equal(t, bounceBuffers/4, s.common, "one alone")
		case 4:
			require.GreaterOrEqual(t, s.common, 20, "beside four that keep what they have")
		}
		shares, held = append(shares, &s), append(held, mine)
	}
	for n, s := range shares {
		for _, i := range held[n] {
			s.giveBack(h, i)
		}
		require.Equal(t, wholeShare, *s)
	}
	require.Len(t, h.bounceFree, bounceBuffers)
}

// crowd is one rank with connections to many, on a simulated network in virtual time.
type crowd struct {
	t     *testing.T
	f     *simhca.Fabric
	clock fabricClock
	ranks []*crowdRank
}

type crowdRank struct {
	m       *module
	ep      btl.Endpoint // of rank 0: to this one
	arrived int
	failed  []*btl.Error
	under   int
}

func (r *crowdRank) Arrived(btl.Module, int, btl.Tag, []byte) { r.arrived++ }

func (r *crowdRank) Failed(_ btl.Module, _ int, err *btl.Error) { r.failed = append(r.failed, err) }

func (r *crowdRank) Drained(btl.Module, int) {}

func newCrowd(t *testing.T, size int, cfg Config) *crowd {
	c := &crowd{t: t, f: simhca.NewFabric(simhca.Config{Virtual: true})}
	c.clock = fabricClock{c.f, new(int64)}
	for rank := range size {
		r := new(crowdRank)
		cfg := cfg
		cfg.Rank, cfg.Size, cfg.Events, cfg.Secret = rank, size, r, testSecret
		cfg.Provider, cfg.Device = c.f.NewNode(simhca.DeviceConfig{Name: "sim0"}), "sim0"
		cfg.Clock, cfg.Pass, cfg.Random = c.clock, c.clock.pass, &zeros{byte(rank)}
		m, err := New(cfg)
		require.NoError(t, err)
		r.m = m.(*module)
		c.ranks = append(c.ranks, r)
	}
	t.Cleanup(func() {
		for _, r := range c.ranks {
			require.NoError(t, r.m.Close())
			require.Zero(t, r.under)
		}
		c.f.Close()
	})
	for rank, r := range c.ranks[1:] {
		var err error
		r.ep, err = c.ranks[0].m.Connect(rank+1, r.m.Address())
		require.NoError(t, err)
	}
	c.until("connections", func() bool {
		for _, r := range c.ranks[1:] {
			if r.ep.(*endpoint).phase != phaseReady || len(c.ranks[0].m.asking) > 0 {
				return false
			}
		}
		return true
	})
	return c
}

func (c *crowd) until(what string, cond func() bool) {
	c.t.Helper()
	for range 200000 {
		if cond() {
			return
		}
		n := 0
		for _, r := range c.ranks {
			n += r.m.Progress()
		}
		if n == 0 {
			c.clock.pass()
		}
	}
	require.FailNow(c.t, "waited too long for "+what)
}

// send posts a fragment from rank 0 that does not go inline.
func (r *crowdRank) send() error {
	r.under++
	op := &btl.Op{Payload: []byte(strings.Repeat("x", 1000)), Done: func(*btl.Op, error) { r.under-- }}
	err := r.ep.Send(op)
	if err != nil {
		r.under--
	}
	return err
}

// TestSendBesideSilentPeers: peers whose devices do not acknowledge keep what they have got of the
// buffers, however much is sent to them. Sends to another peer go on, in bursts if there are few of
// the former.
func TestSendBesideSilentPeers(t *testing.T) {
	for _, silent := range []int{1, 4, 40} {
		t.Run(fmt.Sprint(silent), func(t *testing.T) {
			// Those that are silent stay so, and connected, for the whole test.
			c := newCrowd(t, silent+2, Config{AckTimeout: 24, RetryCount: 6, Deadline: 1 << 40})
			sender, well := c.ranks[0], c.ranks[silent+1]
			here := sender.m.h.gid.GID
			for _, r := range c.ranks[1 : silent+1] {
				require.True(t, c.f.Partition(here, r.m.h.gid.GID, true))
				for r.send() == nil {
				}
			}
			burst := 0
			for well.send() == nil {
				burst++
			}
			require.GreaterOrEqual(t, burst, ownBuffers)
			if silent <= 4 {
				require.GreaterOrEqual(t, burst, ownBuffers+20)
			}
			for sent := burst; sent < 2000; {
				c.until("room", func() bool {
					if well.send() == nil {
						sent++
						return true
					}
					return false
				})
			}
			c.until("the fragments", func() bool { return well.arrived == 2000 && well.under == 0 })
			require.Empty(t, sender.failed)
			for _, r := range c.ranks[1 : silent+1] {
				require.Positive(t, r.under)
				require.ErrorIs(t, r.send(), btl.ErrResource)
				c.f.Heal(here, r.m.h.gid.GID)
				r.ep.Fail(nil)
			}
			c.until("all to be called back", func() bool {
				for _, r := range c.ranks {
					if r.under > 0 {
						return false
					}
				}
				return true
			})
			require.Len(t, sender.m.h.bounceFree, bounceBuffers)
		})
	}
}

// TestSendWithOwnBuffersAlone: others have all of the common buffers. An endpoint goes on with its
// own.
func TestSendWithOwnBuffersAlone(t *testing.T) {
	c := newCrowd(t, 2, Config{})
	peer, h := c.ranks[1], c.ranks[0].m.h
	free := h.bounceFree
	h.bounceFree = nil
	for range ownBuffers {
		require.NoError(t, peer.send())
	}
	require.ErrorIs(t, peer.send(), btl.ErrResource)
	for sent := ownBuffers; sent < 500; {
		c.until("room", func() bool {
			if peer.send() == nil {
				sent++
				return true
			}
			return false
		})
	}
	c.until("the fragments", func() bool { return peer.arrived == 500 && peer.under == 0 })
	h.bounceFree = free
	require.Equal(t, wholeShare, peer.ep.(*endpoint).share)
}
