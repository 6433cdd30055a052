package comm

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/tcp"
	"github.com/mpigo/mpigo/progress"
)

// TestAbsentRailJoins: two ranks begin with one rail, because a port or address of rank 0 is
// absent. When it appears, the second rail comes up, and carries bytes from both ranks.
func TestAbsentRailJoins(t *testing.T) {
	secret := sha256.Sum256([]byte("a secret"))
	straight := func(local, remote int) int {
		if local == remote {
			return 1
		}
		return 0
	}
	t.Run("tcp", func(t *testing.T) {
		p := &ports{sent: map[sentBy]int{}}
		var there atomic.Bool
		p.worlds = localWorldBy(t, 2, func(j *job, wakeup *progress.PipeWakeup) (modules []btl.Module) {
			j.progressAsync()
			for i, name := range []string{"127.0.0.1", "127.0.0.2"} {
				cfg := tcp.Config{
					Rank: j.rank, Size: 2, Events: j.pml, Wakeup: wakeup, AsyncProgress: j.async.request, Rail: name,
					Local: netip.MustParseAddr(name), Secret: secret[:], Word: uint8(i + 1),
				}
				if j.rank == 0 && i == 1 {
					come := tcp.Interface{Name: "late", Address: cfg.Local, Bits: 8, Word: cfg.Word, Up: true}
					cfg.Local, cfg.Find = netip.Addr{}, func() []tcp.Interface {
						if !there.Load() {
							return nil
						}
						return []tcp.Interface{come}
					}
				}
				modules = append(modules, must(tcp.New(cfg)))
			}
			return modules
		}, p.count, straight, WithSetting("pml.notices", "false"))
		testAbsentRailJoins(t, p, func() { there.Store(true) })
	})
	verbs := func(t *testing.T, wrap func(p *ports) func(ep btl.Endpoint, rank, module int) btl.Endpoint, protocol string) *ports {
		f := simhca.NewFabric(simhca.Config{})
		t.Cleanup(f.Close)
		p := &ports{sent: map[sentBy]int{}}
		p.worlds = localWorldBy(t, 2, func(j *job, wakeup *progress.PipeWakeup) (modules []btl.Module) {
			for i := range 2 {
				name := fmt.Sprintf("sim%d", i)
				node := f.NewNode(simhca.DeviceConfig{Name: name})
				p.cards[j.rank][i] = node.HCA(name)
				p.cards[j.rank][i].SetLink(1, j.rank != 0 || i == 0)
				modules = append(modules, must(ibverbs.New(ibverbs.Config{
					Rank: j.rank, Size: 2, Events: j.pml, Wakeup: wakeup, Secret: secret[:],
					Provider: node, Device: name, Rail: "127.0.0." + string(rune('1'+i)), MayCome: true,
				})))
			}
			return modules
		}, wrap(p), straight, WithSetting("pml.notices", "false"), WithSetting("pml.protocol", protocol))
		return p
	}
	t.Run("verbs", func(t *testing.T) {
		p := verbs(t, func(p *ports) func(ep btl.Endpoint, rank, module int) btl.Endpoint { return p.count }, "copy")
		testAbsentRailJoins(t, p, func() { p.cards[0][1].SetLink(1, true) })
	})
	// An absent module exposes no memory until it appears.
	for _, protocol := range []string{"get", "put"} {
		t.Run("verbs by "+protocol, func(t *testing.T) {
			as := func(ep btl.Endpoint, _, _ int) btl.Endpoint { return ep }
			p := verbs(t, func(*ports) func(ep btl.Endpoint, rank, module int) btl.Endpoint { return as }, protocol)
			for range 3 {
				p.exchange(t)
			}
			p.cards[0][1].SetLink(1, true)
			require.Eventually(t, func() bool {
				p.exchange(t)
				return len(p.rails("up")) == 2
			}, 3*time.Minute, time.Millisecond)
			for range 3 {
				p.exchange(t)
			}
			for _, w := range p.worlds {
				require.Zero(t, w.Stats().RailsFailed)
			}
		})
	}
}

func testAbsentRailJoins(t *testing.T, p *ports, comes func()) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for range 3 {
		p.exchange(t)
	}
	require.Equal(t, [][2]int{{0, 0}}, p.rails("up"))
	require.NotEmpty(t, p.rails("down"))
	comes()
	for !p.allCarry(1 << 20) {
		require.NoError(t, ctx.Err(), "rails %+v carry %v", p.worlds[0].Rails(), p.sent)
		p.exchange(t)
	}
	require.Equal(t, [][2]int{{0, 0}, {1, 1}}, p.rails("up"))
	for _, w := range p.worlds {
		require.Zero(t, w.Stats().RailsFailed)
	}
}
