package loop

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// counter counts what arrives.
type counter struct{ arrived, bytes int }

func (c *counter) Arrived(_ btl.Module, _ int, _ btl.Tag, frag []byte) {
	c.arrived++
	c.bytes += len(frag)
}
func (c *counter) Failed(btl.Module, int, *btl.Error) {}
func (c *counter) Drained(btl.Module, int)            {}

// side is one rank with its engine.
type side struct {
	counter
	eng *progress.Engine
	mod btl.Module
	ep  btl.Endpoint
}

func newSides(t testing.TB, n int) []*side {
	f, err := NewFabric(Config{Ranks: n})
	require.NoError(t, err)
	sides := make([]*side, n)
	for i := range sides {
		s := &side{}
		bell := progress.NewChanWakeup()
		s.eng = progress.New(progress.Config{Wakeup: bell, SpinTurns: 1000, YieldNanos: 100_000})
		s.mod, err = f.Module(i, 0, s, bell)
		require.NoError(t, err)
		s.eng.AddPoller(s.mod)
		sides[i] = s
		t.Cleanup(func() {
			require.NoError(t, s.mod.Close())
			require.NoError(t, s.eng.Close())
		})
	}
	return sides
}

func (s *side) connect(t testing.TB, peer int, to *side) {
	var err error
	s.ep, err = s.mod.Connect(peer, to.mod.Address())
	require.NoError(t, err)
}

// BenchmarkOneWay is what the ranks themselves spend on a fragment: both sides from one goroutine,
// so that neither waits for the other.
func BenchmarkOneWay(b *testing.B) {
	for _, n := range []int{8, 1 << 10, 32 << 10} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := newSides(b, 2)
			s[0].connect(b, 1, s[1])
			op := &btl.Op{HdrLen: 16, Payload: make([]byte, n), Done: func(*btl.Op, error) {}}
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if err := s[0].ep.Send(op); err != nil {
					b.Fatal(err)
				}
				s[1].mod.Progress()
			}
		})
	}
}

// BenchmarkPingPong is one round trip of 8 bytes between two goroutines.
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
			s := newSides(b, 2)
			s[0].connect(b, 1, s[1])
			s[1].connect(b, 0, s[0])
			rounds := b.N
			play := func(s *side, serves bool) {
				s.eng.Lock()
				defer s.eng.Unlock()
				hdr, payload := make([]byte, 16), make([]byte, 8)
				op := &btl.Op{HdrLen: 16, Payload: payload, Done: func(*btl.Op, error) {}}
				post := func() {
					for {
						if how == "inline" && s.ep.(btl.Inliner).SendInline(1, hdr, payload) {
							return
						}
						if how == "send" && s.ep.Send(op) == nil {
							return
						}
						s.eng.Turn()
					}
				}
				for i := range rounds {
					if serves {
						post()
					}
					for s.arrived <= i {
						if s.eng.Turn() == 0 {
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
			go func() { play(s[1], false); close(done) }()
			play(s[0], true)
			<-done
		})
	}
}
