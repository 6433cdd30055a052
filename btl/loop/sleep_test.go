package loop

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/progress"
)

// oversleep is the duration of a sleep that no wakeup ends.
const oversleep = 20 * time.Second

// sleeper is a wakeup that records whether a sleep ended without Wake.
type sleeper struct {
	*progress.ChanWakeup
	overslept bool
}

func newSleeper() *sleeper { return &sleeper{ChanWakeup: progress.NewChanWakeup()} }

func (s *sleeper) sleep() {
	start := time.Now()
	s.Sleep(int64(oversleep))
	s.overslept = s.overslept || time.Since(start) >= oversleep
}

// sendOrSleep sends a fragment. While there is no room, the rank only sleeps: it makes no progress
// call, and does not call Arm.
func (s *side) sendOrSleep(wakeup *sleeper) {
	for !s.ep.SendInline(1, nil, []byte{1}) && !wakeup.overslept {
		wakeup.sleep()
	}
}

// awaitOrSleep polls until want fragments have arrived. While nothing happens it sleeps, as an
// engine does.
func (s *side) awaitOrSleep(wakeup *sleeper, want int) {
	for s.arrived < want && !wakeup.overslept {
		s.mod.Arm()
		if s.mod.Progress() == 0 && s.arrived < want {
			wakeup.sleep()
		}
		s.mod.Disarm()
	}
}

// TestNoWakeupIsLost: two ranks sleep whenever there is nothing to do or no room, and always wake
// up.
func TestNoWakeupIsLost(t *testing.T) {
	const rounds, burst = 3000, 6
	for _, slots := range []int{1, 4} {
		wakeups := [2]*sleeper{newSleeper(), newSleeper()}
		a, b := pairOfSides(t, Config{Slots: slots}, wakeups[0], wakeups[1])
		var wg sync.WaitGroup
		wg.Go(func() { // sends bursts
			for r := range rounds {
				for range burst {
					a.sendOrSleep(wakeups[0])
				}
				a.awaitOrSleep(wakeups[0], r+1)
			}
		})
		wg.Go(func() { // answers each burst
			for r := range rounds {
				b.awaitOrSleep(wakeups[1], (r+1)*burst)
				b.sendOrSleep(wakeups[1])
			}
		})
		wg.Wait()
		require.False(t, wakeups[0].overslept || wakeups[1].overslept, "arrived %d and %d", a.arrived, b.arrived)
	}
}

// TestRoomWakesSender: a sender sleeps whenever there is no room, and the receiver only receives.
func TestRoomWakesSender(t *testing.T) {
	const fragments = 30_000
	wakeup := newSleeper()
	from, to := pairOfSides(t, Config{Slots: 1}, wakeup)
	var wg sync.WaitGroup
	var stop atomic.Bool
	wg.Go(func() {
		for to.arrived < fragments && !stop.Load() {
			if to.mod.Progress() == 0 {
				runtime.Gosched()
			}
		}
	})
	for range fragments {
		from.sendOrSleep(wakeup)
	}
	stop.Store(wakeup.overslept)
	wg.Wait()
	require.False(t, wakeup.overslept)
}
