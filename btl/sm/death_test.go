package sm

import (
	"context"
	"encoding/gob"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// spinPlan is for a child that sends some fragments and then waits for its end.
type spinPlan struct {
	Address []byte
	Count   int
}

func spinRole(conn *net.UnixConn) error {
	dec, enc := gob.NewDecoder(conn), gob.NewEncoder(conn)
	var plan spinPlan
	if err := dec.Decode(&plan); err != nil {
		return err
	}
	m, err := New(Config{Rank: 1, Size: 2, Events: &journal{}})
	if err != nil {
		return err
	}
	if plan.Count > 0 {
		ep, err := m.Connect(0, plan.Address)
		if err != nil {
			return err
		}
		for i := range plan.Count {
			for !ep.(btl.Inliner).SendInline(1, nil, content(i, 10*i)) {
				m.Progress()
			}
		}
	}
	if err := enc.Encode(m.Address()); err != nil {
		return err
	}
	var never bool
	_ = dec.Decode(&never)
	return nil
}

// TestPeerKilled: what a process has sent before its end is handed up, and then the end is
// reported, whether or not we had connected to it. It may be more than a turn hands up.
func TestPeerKilled(t *testing.T) {
	const count = 3 * maxBurst
	for _, connects := range []bool{false, true} {
		a, j := newTest(t, Config{Rank: 0, Size: 2, Wakeup: newBell(t)})
		c := start(t, "spin")
		c.tell(t, spinPlan{Address: a.Address(), Count: count})
		var addr []byte
		c.ask(t, &addr)
		var ep *endpoint
		if connects {
			ep = connect(t, a, 1, addr)
			require.True(t, ep.SendInline(1, nil, []byte("x")))
		}
		a.Progress() // it is known from now on
		require.Empty(t, j.lines)
		c.kill()
		a.Arm() // looks for it
		a.Disarm()
		a.Progress()
		var want []string
		for range count {
			want = append(want, "arrived 1")
		}
		require.Equal(t, append(want, "failed 1 peer gone remote", "drained 1"), j.lines)
		for i, frag := range j.frags {
			require.Equal(t, string(content(i, 10*i)), string(frag))
		}
		if connects {
			require.Equal(t, btl.Drained, ep.State())
			require.False(t, ep.SendInline(1, nil, []byte("x")))
		}
		_, err := a.Connect(1, addr)
		var be *btl.Error
		require.ErrorAs(t, err, &be)
		require.Equal(t, btl.ClassPeerGone, be.Class)
		require.Equal(t, btl.SideRemote, be.Side)
	}
}

// TestKilledBeforeWeLook: the process is gone before we hear of it for the first time.
func TestKilledBeforeWeLook(t *testing.T) {
	a, j := newTest(t, Config{Rank: 0, Size: 2})
	c := start(t, "spin")
	c.tell(t, spinPlan{Address: a.Address(), Count: 3})
	var addr []byte
	c.ask(t, &addr)
	c.kill()
	until(t, "the end", func() bool { return j.state == "drained" }, a)
	require.Equal(t, []string{"arrived 1", "arrived 1", "arrived 1", "failed 1 peer gone remote", "drained 1"}, j.lines)
}

// TestKilledWhileWeSleep: a rank that sleeps finds out, too.
func TestKilledWhileWeSleep(t *testing.T) {
	bell := newBell(t)
	a, j := newTest(t, Config{Rank: 0, Size: 2, Wakeup: bell})
	eng := progress.New(progress.Config{Wakeup: bell})
	c := start(t, "spin")
	c.tell(t, spinPlan{Address: a.Address()})
	var addr []byte
	c.ask(t, &addr)
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
			c.kill()
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
