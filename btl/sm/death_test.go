package sm

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/progress"
)

// spinPlan is for a child that sends some fragments and then waits for its end.
type spinPlan struct {
	Address []byte
	Count   int
}

func spinRole(t testing.TB, parent *btltest.Process) {
	plan := btltest.Ask[spinPlan](parent)
	m, _ := newTest(t, Config{Rank: 1, Size: 2})
	if plan.Count > 0 {
		ep := connect(t, m, 0, plan.Address)
		for i := range plan.Count {
			for !ep.SendInline(1, nil, content(i, 10*i)) {
				m.Progress()
			}
		}
	}
	parent.Tell(m.Address())
	parent.AwaitEnd()
}

// startSpin starts a child that sends count fragments to a, and returns the child's address once it
// has sent them.
func startSpin(t testing.TB, a *module, count int) (c *btltest.Process, addr []byte) {
	c = btltest.Start(t, "spin")
	c.Tell(spinPlan{Address: a.Address(), Count: count})
	return c, btltest.Ask[[]byte](c)
}

// TestKilledPeerIsReported: all fragments of a process that ends are handed up, even if they are
// more than one progress call hands up. Then the end is reported, whether or not this rank had
// connected.
func TestKilledPeerIsReported(t *testing.T) {
	const count = 3 * maxBurst
	for _, connects := range []bool{false, true} {
		a, j := newTest(t, Config{Rank: 0, Size: 2, Wakeup: btltest.NewPipeWakeup(t)})
		c, addr := startSpin(t, a, count)
		var ep *endpoint
		if connects {
			ep = connect(t, a, 1, addr)
			require.True(t, ep.SendInline(1, nil, []byte("x")))
		}
		a.Progress() // from now on the module knows the peer
		require.Empty(t, j.lines)
		c.Kill()
		a.Arm() // checks whether peers have ended
		a.Disarm()
		a.Progress()
		want := slices.Repeat([]string{"arrived 1"}, count)
		require.Equal(t, append(want, "failed 1 peer gone remote", "drained 1"), j.lines)
		for i, frag := range j.frags {
			require.Equal(t, string(content(i, 10*i)), string(frag))
		}
		if connects {
			require.Equal(t, btl.Drained, ep.State())
			require.False(t, ep.SendInline(1, nil, []byte("x")))
		}
		_, err := a.Connect(btl.Path{Peer: 1}, addr)
		require.Equal(t, btl.ClassPeerGone, btltest.AsError(t, err).Class)
		require.Equal(t, btl.SideRemote, btltest.AsError(t, err).Side)
	}
}

// TestPeerKilledBeforeFirstProgress: the process ends before this rank knows that it exists.
func TestPeerKilledBeforeFirstProgress(t *testing.T) {
	a, j := newTest(t, Config{Rank: 0, Size: 2})
	c, _ := startSpin(t, a, 3)
	c.Kill()
	until(t, "the end", func() bool { return j.state == "drained" }, a)
	require.Equal(t, []string{"arrived 1", "arrived 1", "arrived 1", "failed 1 peer gone remote", "drained 1"}, j.lines)
}

// TestPeerKilledWhileRankSleeps: a sleeping rank detects the end too.
func TestPeerKilledWhileRankSleeps(t *testing.T) {
	wakeup := btltest.NewPipeWakeup(t)
	a, j := newTest(t, Config{Rank: 0, Size: 2, Wakeup: wakeup})
	eng := progress.New(progress.Config{Wakeup: wakeup})
	c, addr := startSpin(t, a, 0)
	connect(t, a, 1, addr)
	w := new(progress.Waiter)
	w.Reset(1)
	eng.Lock()
	defer eng.Unlock()
	eng.AddPoller(a)
	eng.AddPoller(pollerFunc(func() int {
		if j.state == "drained" {
			w.Finish()
		} else if eng.Counters().Sleeps == 1 {
			c.Kill()
		}
		return 0
	}))
	require.NoError(t, eng.Wait(context.Background(), w))
	require.Equal(t, []string{"failed 1 peer gone remote", "drained 1"}, j.lines)
}

type pollerFunc func() int

func (f pollerFunc) Progress() int { return f() }
func (f pollerFunc) Arm() bool     { return true }
func (f pollerFunc) Disarm()       {}
