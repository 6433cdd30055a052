package loop

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// side is the module of a rank and an endpoint to another side. It counts the module's events.
type side struct {
	mod             *module
	ep              *endpoint
	arrived, failed int
}

func (s *side) Arrived(btl.Module, int, btl.Tag, []byte) { s.arrived++ }
func (s *side) Failed(btl.Module, btl.Path, *btl.Error)  { s.failed++ }
func (s *side) Drained(btl.Module, btl.Path)             {}

// newSides makes a fabric and all ranks' modules of its first rail. The first ranks have wakeups.
func newSides(t testing.TB, cfg Config, wakeups ...progress.Wakeup) []*side {
	f, err := NewFabric(cfg)
	require.NoError(t, err)
	sides := make([]*side, f.Ranks())
	for rank := range sides {
		s := &side{}
		var wakeup progress.Wakeup
		if rank < len(wakeups) {
			wakeup = wakeups[rank]
		}
		m, err := f.Module(rank, 0, s, wakeup)
		require.NoError(t, err)
		s.mod = m.(*module)
		sides[rank] = s
		t.Cleanup(func() { require.NoError(t, m.Close()) })
	}
	return sides
}

// connect makes the endpoint from s to another side.
func (s *side) connect(t testing.TB, to *side) {
	ep, err := s.mod.Connect(btl.Path{Peer: to.mod.port.name.Rank}, to.mod.Address())
	require.NoError(t, err)
	s.ep = ep.(*endpoint)
}

// pairOfSides makes two sides that are connected to each other.
func pairOfSides(t testing.TB, cfg Config, wakeups ...progress.Wakeup) (a, b *side) {
	cfg.Ranks = 2
	sides := newSides(t, cfg, wakeups...)
	a, b = sides[0], sides[1]
	a.connect(t, b)
	b.connect(t, a)
	return a, b
}

// poll polls the module until nothing is left to do.
func (s *side) poll() {
	for s.mod.Progress() > 0 {
	}
}

// failAndDrain fails the endpoint, and polls until it is drained.
func (s *side) failAndDrain() {
	s.ep.Fail(errTest)
	for s.ep.State() != btl.Drained {
		s.mod.Progress()
	}
}

// BenchmarkOneWay measures the time that both ranks spend on a fragment. One goroutine drives both,
// so that neither waits for the other.
func BenchmarkOneWay(b *testing.B) {
	for _, n := range []int{8, 1 << 10, 32 << 10} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			from, to := pairOfSides(b, Config{})
			op := &btl.Op{HdrLen: 16, Payload: make([]byte, n), Done: func(*btl.Op, error) {}}
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, from.ep.Send(op))
				to.mod.Progress()
			}
		})
	}
}

// BenchmarkPingPong measures one round trip of 8 bytes between two goroutines.
func BenchmarkPingPong(b *testing.B) {
	for _, how := range []string{"inline", "send", "channel"} {
		b.Run(how, func(b *testing.B) {
			if how == "channel" {
				there, back := make(chan int64), make(chan int64)
				go func() {
					for v := range there {
						back <- v
					}
					close(back)
				}()
				for b.Loop() {
					there <- 1
					<-back
				}
				close(there)
				<-back
				return
			}
			wakeups := [2]progress.Wakeup{progress.NewChanWakeup(), progress.NewChanWakeup()}
			first, second := pairOfSides(b, Config{}, wakeups[:]...)
			rounds := b.N
			play := func(s *side, serves bool) {
				cfg := progress.Config{Wakeup: wakeups[s.mod.port.name.Rank], SpinTurns: 1000, YieldNanos: 100_000}
				eng := progress.New(cfg)
				eng.Lock()
				defer eng.Unlock()
				eng.AddPoller(s.mod)
				hdr, payload := make([]byte, 16), make([]byte, 8)
				op := &btl.Op{HdrLen: 16, Payload: payload, Done: func(*btl.Op, error) {}}
				post := func() {
					for how == "inline" && !s.ep.SendInline(1, hdr, payload) || how == "send" && s.ep.Send(op) != nil {
						eng.Turn()
					}
				}
				for i := range rounds {
					if serves {
						post()
					}
					for s.arrived <= i {
						if eng.Turn() == 0 {
							runtime.Gosched()
						}
					}
					if !serves {
						post()
					}
				}
			}
			b.ResetTimer()
			done := make(chan struct{})
			go func() { play(second, false); close(done) }()
			play(first, true)
			<-done
		})
	}
}
