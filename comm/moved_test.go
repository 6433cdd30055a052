package comm

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/comm/internal/rails"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// TestUnreachablePeerOfMovedRankIsExplained: an error says that the other ranks do not know this
// rank's new address. Other errors do not.
func TestUnreachablePeerOfMovedRankIsExplained(t *testing.T) {
	run(t, 1, func(w *Comm) {
		untold := fmt.Errorf("rail x has moved")
		w.job.untold = func() error { return untold }
		err := w.fail(calls.Send, 0, 0, fmt.Errorf("%w: it failed", ErrUnreachable))
		EqualError(t, err, "world: send (peer 0, tag 0): peer unreachable: it failed; rail x has moved")
		require.ErrorIs(t, err, untold)
		require.NotErrorIs(t, w.fail(calls.Send, 0, 0, ErrTag), untold)
		untold = nil
		EqualError(t, w.fail(calls.Send, 0, 0, ErrUnreachable), "world: send (peer 0, tag 0): peer unreachable")
	})
}

// launchedWorld makes ranks of this process that a launcher serves, as it does processes: each on a
// machine of its own, with the rails that open makes.
func launchedWorld(t *testing.T, ranks int, kind transport.Transport, opts ...Option) []*Comm {
	_, settings, err := makeOptions(append(opts, WithSetting("btl", kind.Name)))
	require.NoError(t, err)
	cfg := wireup.ServerConfig{Size: ranks, JobID: "test"}
	for rank := range ranks {
		cfg.NodeOf = append(cfg.NodeOf, rank)
	}
	server, err := wireup.NewServer(cfg)
	require.NoError(t, err)
	worlds := make([]*Comm, ranks)
	var all sync.WaitGroup
	for rank := range worlds {
		ours, theirs := net.Pipe()
		go server.Serve(rank, ours)
		client, err := wireup.NewClient(theirs, rank, ranks)
		require.NoError(t, err)
		wakeup, err := progress.NewPipeWakeup()
		require.NoError(t, err)
		idle := idlePolicy(settings, ranks, 2, crowdedLocalYieldNanos)
		idle.Wakeup = wakeup
		host := fmt.Sprint("host", rank)
		j := newJob(rank, ranks, settings, idle, host, nil)
		j.others = localRank{nil, rank}
		var r *rails.Rails
		j.makePML(func(peer int) ([]pml.Route, error) { return r.Resolve(peer) })
		r = rails.New(rails.Config{
			Env:    transport.Env{Rank: rank, Size: ranks, Settings: settings, Events: j.pml, Wakeup: wakeup, AsyncProgress: j.wakeup},
			Client: client, Host: host, Lock: j.eng, Add: j.addModule, Transports: []transport.Transport{kind},
		})
		all.Go(func() {
			if err := j.connect(r, client); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
			worlds[rank] = j.world
		})
		t.Cleanup(func() {
			require.NoError(t, locked(j.world, func() error { return j.close(ErrFinalized) }))
			require.NoError(t, wakeup.Close())
			_ = client.Close()
		})
	}
	all.Wait()
	return worlds
}

// simulated are the rails of two ranks on simulated devices, two each.
type simulated struct {
	worlds []*Comm
	cards  [2][2]*simhca.HCA // by rank
	gids   byte              // so far
}

func newSimulated(t *testing.T, link verbs.LinkLayer) *simulated {
	f := simhca.NewFabric(simhca.Config{Link: link})
	t.Cleanup(f.Close)
	s := &simulated{}
	kind := ibverbs.Transport()
	kind.Open = func(env *transport.Env) (opened transport.Opened, err error) {
		siblings := new(ibverbs.Siblings)
		for i := range 2 {
			name := fmt.Sprint("sim", i)
			node := f.NewNode(simhca.DeviceConfig{Name: name})
			s.cards[env.Rank][i] = node.HCA(name)
			m, err := ibverbs.New(ibverbs.Config{
				Rank: env.Rank, Size: env.Size, Events: env.Events, Wakeup: env.Wakeup, Moved: env.Moved,
				Provider: node, Device: name, Rail: "ibverbs:" + name, Siblings: siblings,
			})
			if err != nil {
				return opened, err
			}
			opened.Modules = append(opened.Modules, transport.Module{Module: m})
		}
		return opened, nil
	}
	s.worlds = launchedWorld(t, 2, kind, WithSetting("pml.notices", "false"), WithSetting("pml.grace", "30s"))
	return s
}

// each calls do for each device.
func (s *simulated) each(do func(card *simhca.HCA)) {
	for _, cards := range s.cards {
		for _, card := range cards {
			do(card)
		}
	}
}

// failed is the number of rails that have failed so far, at both ranks; up is the number of rails
// that are up.
func (s *simulated) failed() (failed, up int) {
	for _, w := range s.worlds {
		failed += int(w.Stats().RailsFailed)
		for _, r := range w.Rails() {
			if r.State == "up" && !r.Alternate {
				up++
			}
		}
	}
	return failed, up
}

// settle makes progress until there are no more events.
func (s *simulated) settle() {
	for quiet := 0; quiet < 1000; quiet++ {
		for _, w := range s.worlds {
			if locked(w, func() bool { return w.job.eng.Turn() > 0 }) {
				quiet = 0
			}
		}
	}
}

// TestRanksThatBothMoveFindEachOther: all ports of both ranks get other addresses at the same time,
// under traffic, or lose their devices, and get them back. The ranks learn the new addresses by
// their launcher, messages arrive, and all rails come back.
func TestRanksThatBothMoveFindEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		link  verbs.LinkLayer
		quiet bool // a device may lose messages that it has acknowledged
		move  func(s *simulated)
	}{
		"LIDs": {verbs.LinkInfiniBand, false, func(s *simulated) { s.each(func(card *simhca.HCA) { card.ChangeLID(1) }) }},
		"GIDs": {verbs.LinkEthernet, false, func(s *simulated) {
			s.each(func(card *simhca.HCA) {
				s.gids++
				card.ChangeGID(1, 1, netip.AddrFrom4([4]byte{10, 99, 0, s.gids}).As16())
			})
		}},
		"devices": {verbs.LinkEthernet, true, func(s *simulated) {
			s.each(func(card *simhca.HCA) { card.Raise(verbs.EventDeviceFatal, 0) })
			s.settle()
			s.each((*simhca.HCA).Revive)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulated(t, c.link)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			for n := range 3 {
				fail := 4 * (n + 1)
				if c.quiet {
					fail = 4 * n // at first there is no connection
				}
				over := make(chan struct{})
				var all, met sync.WaitGroup
				begin := func() {
					for _, w := range s.worlds {
						met.Add(1)
						all.Go(func() {
							if err := exchangeUntil(ctx, w, over, sync.OnceFunc(met.Done)); err != nil {
								t.Errorf("rank %d: %v", w.Rank(), err)
								cancel()
							}
						})
					}
				}
				if c.quiet {
					s.settle()
					c.move(s)
					begin()
				} else {
					begin()
					met.Wait()
					c.move(s)
				}
				require.Eventually(t, func() bool {
					failed, up := s.failed()
					return ctx.Err() != nil || failed >= fail && up == 4
				}, 4*time.Minute, time.Millisecond)
				met.Wait()
				close(over)
				all.Wait()
				require.NoError(t, ctx.Err())
			}
		})
	}
}
