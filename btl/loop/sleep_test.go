package loop

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// oversleep is how long a sleep lasts of somebody whom nobody rings.
const oversleep = 20 * time.Second

// sleeper sleeps on its bell and knows if it was not rung.
type sleeper struct {
	*progress.ChanWakeup
	overslept bool
}

func (s *sleeper) nap() {
	start := time.Now()
	s.Sleep(int64(oversleep))
	s.overslept = s.overslept || time.Since(start) >= oversleep
}

// TestNoRingIsLost: two ranks that sleep whenever there is nothing, and a sender that is refused
// again and again, always wake up.
func TestNoRingIsLost(t *testing.T) {
	for _, slots := range []int{1, 4} {
		f, err := NewFabric(Config{Ranks: 2, Slots: slots})
		require.NoError(t, err)
		var evs [2]counter
		var bells [2]*sleeper
		var mods [2]btl.Module
		for i := range 2 {
			bells[i] = &sleeper{ChanWakeup: progress.NewChanWakeup()}
			mods[i], err = f.Module(i, 0, &evs[i], bells[i])
			require.NoError(t, err)
		}
		const rounds, burst = 3000, 6
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				ep, err := mods[i].Connect(1-i, mods[1-i].Address())
				if err != nil {
					t.Error(err)
					return
				}
				idler := mods[i].(progress.Idler)
				// rest is what an engine does that has nothing to do.
				rest := func(over func() bool) {
					idler.Arm()
					if mods[i].Progress() == 0 && !over() && !bells[i].overslept {
						bells[i].nap()
					}
					idler.Disarm()
				}
				for r := range rounds {
					// A burst there, then one back.
					if i == 0 {
						for range burst {
							taken := func() bool { return ep.(btl.Inliner).SendInline(1, nil, []byte{1}) }
							for !taken() && !bells[i].overslept {
								// Whoever waits for room waits for nothing else: no turn, no Arm.
								bells[i].nap()
							}
						}
						for evs[i].arrived <= r && !bells[i].overslept {
							rest(func() bool { return evs[i].arrived > r })
						}
						continue
					}
					want := (r + 1) * burst
					for evs[i].arrived < want && !bells[i].overslept {
						rest(func() bool { return evs[i].arrived >= want })
					}
					for !ep.(btl.Inliner).SendInline(1, nil, []byte{1}) && !bells[i].overslept {
						bells[i].nap()
					}
				}
			}()
		}
		wg.Wait()
		require.False(t, bells[0].overslept || bells[1].overslept, "a ring was lost; arrived %d and %d", evs[0].arrived, evs[1].arrived)
		require.NoError(t, mods[0].Close())
		require.NoError(t, mods[1].Close())
	}
}

// TestRoomIsRungFor: a sender that sleeps whenever it is refused, and a receiver that does nothing
// but receive.
func TestRoomIsRungFor(t *testing.T) {
	f, err := NewFabric(Config{Ranks: 2, Slots: 1})
	require.NoError(t, err)
	bell := &sleeper{ChanWakeup: progress.NewChanWakeup()}
	from, err := f.Module(0, 0, &counter{}, bell)
	require.NoError(t, err)
	var ev counter
	to, err := f.Module(1, 0, &ev, nil)
	require.NoError(t, err)
	ep, err := from.Connect(1, to.Address())
	require.NoError(t, err)
	const fragments = 30_000
	var wg sync.WaitGroup
	var stop atomic.Bool
	wg.Add(1)
	go func() {
		defer wg.Done()
		for ev.arrived < fragments && !stop.Load() {
			if to.Progress() == 0 {
				runtime.Gosched()
			}
		}
	}()
	for range fragments {
		for !ep.(btl.Inliner).SendInline(1, nil, nil) && !bell.overslept {
			bell.nap()
		}
	}
	stop.Store(bell.overslept)
	wg.Wait()
	require.False(t, bell.overslept, "nobody rang when there was room")
	require.NoError(t, from.Close())
	require.NoError(t, to.Close())
}
