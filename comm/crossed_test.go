package comm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
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

// ports are addresses of two ranks, all of which reach each other.
type ports struct {
	worlds []*Comm
	dead   [2][3]atomic.Bool // by rank and address
	cards  [2][2]*simhca.HCA // of verbs
	// sent is how many bytes went by a rail, by rank and its path to the peer.
	mu   sync.Mutex
	sent map[sentBy]int
	// rounds of exchange
	rounds int
}

type sentBy struct {
	rank, port int
	to         btl.Path
}

// counted is an endpoint whose bytes are counted.
type counted struct {
	btl.Endpoint
	p  *ports
	by sentBy
}

func (c counted) Send(op *btl.Op) error {
	bytes := op.Len()
	err := c.Endpoint.Send(op)
	if err == nil {
		c.p.mu.Lock()
		c.p.sent[c.by] += bytes
		c.p.mu.Unlock()
	}
	return err
}

// newVerbsPorts gives both ranks two ports of verbs.
func newVerbsPorts(t *testing.T) *ports {
	f := simhca.NewFabric(simhca.Config{})
	t.Cleanup(f.Close)
	p := &ports{sent: map[sentBy]int{}}
	open := func(j *job, wakeup *progress.PipeWakeup) (modules []btl.Module) {
		for i := range 2 {
			name := fmt.Sprintf("sim%d", i)
			node := f.NewNode(simhca.DeviceConfig{Name: name})
			p.cards[j.rank][i] = node.HCA(name)
			modules = append(modules, must(ibverbs.New(ibverbs.Config{
				Rank: j.rank, Size: 2, Events: j.pml, Wakeup: wakeup, Secret: []byte("of the job"),
				Provider: node, Device: name, Rail: "127.0.0." + string(rune('1'+i)),
			})))
		}
		return modules
	}
	everywhere := func(int, int) int { return 1 }
	p.worlds = localWorldBy(t, 2, open, func(ep btl.Endpoint, _, _ int) btl.Endpoint { return ep }, everywhere, WithSetting("pml.notices", "false"))
	return p
}

// newPorts gives ranks 0 and 1 the given numbers of addresses.
func newPorts(t *testing.T, addresses ...int) *ports {
	p := &ports{sent: map[sentBy]int{}}
	secret := sha256.Sum256([]byte("a secret"))
	open := func(j *job, wakeup *progress.PipeWakeup) (modules []btl.Module) {
		j.progressAsync()
		for i, a := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}[:addresses[j.rank]] {
			modules = append(modules, must(tcp.New(tcp.Config{
				Rank: j.rank, Size: 2, Events: j.pml, Wakeup: wakeup, AsyncProgress: j.async.request, Rail: a,
				Blocked: func(int) bool { return p.dead[j.rank][i].Load() }, Local: netip.MustParseAddr(a), Secret: secret[:],
			})))
		}
		return modules
	}
	everywhere := func(int, int) int { return 1 }
	p.worlds = localWorldBy(t, 2, open, p.count, everywhere, WithSetting("pml.notices", "false"))
	return p
}

func (p *ports) count(ep btl.Endpoint, from, port int) btl.Endpoint {
	return counted{ep, p, sentBy{from, port, ep.Path()}}
}

// kill breaks a port: its connections end, and no more are made until revive.
func (p *ports) kill(rank, port int) {
	if card := p.cards[rank][port%2]; card != nil {
		card.SetLink(1, false)
		return
	}
	p.dead[rank][port].Store(true)
	j := p.worlds[rank].job
	j.eng.Lock()
	j.modules[port].Fail(errors.New("pulled"))
	j.eng.Unlock()
}

func (p *ports) revive(rank, port int) {
	if card := p.cards[rank][port%2]; card != nil {
		card.SetLink(1, true)
	}
	p.dead[rank][port].Store(false)
}

// rails are those between the ranks that are in a state, as rank 0 sees them: its port, and the
// other one.
func (p *ports) rails(state string) (list [][2]int) {
	for _, r := range p.worlds[0].Rails() {
		if r.Peer == 1 && r.State == state {
			local := 0
			if r.Rail == "127.0.0.2" {
				local = 1
			}
			list = append(list, [2]int{local, r.Remote})
		}
	}
	return list
}

// TestCrossedPorts: each rank has two ports, and one of different number dies at each end. Traffic
// continues between the remaining ports, and returns to the first rails when the ports are back.
func TestCrossedPorts(t *testing.T) {
	t.Run("tcp", func(t *testing.T) { testCrossedPorts(t, newPorts(t, 2, 2)) })
	t.Run("verbs", func(t *testing.T) { testCrossedPorts(t, newVerbsPorts(t)) })
}

func testCrossedPorts(t *testing.T, p *ports) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	over := make(chan struct{})
	var traffic, all sync.WaitGroup
	var rounds atomic.Int64
	for _, w := range p.worlds {
		traffic.Add(1)
		met := sync.OnceFunc(traffic.Done)
		all.Go(func() {
			defer met()
			if err := exchangeUntil(ctx, w, over, func() { met(); rounds.Add(1) }); err != nil {
				t.Errorf("rank %d: %v", w.Rank(), err)
				cancel()
			}
		})
	}
	traffic.Wait()
	both := [][2]int{{0, 0}, {1, 1}}
	require.True(t, isSubset(p.rails("up"), both), "alternates are opened before they are needed")
	until := func(want [][2]int, what string) {
		for !isSubset(want, p.rails("up")) {
			require.NoError(t, ctx.Err(), "%s: up are %v, not %v", what, p.rails("up"), want)
			time.Sleep(time.Millisecond)
		}
		for before := rounds.Load(); rounds.Load() < before+20; time.Sleep(time.Millisecond) {
			require.NoError(t, ctx.Err(), "%s: no messages", what)
		}
	}
	until(both, "at first")
	require.Equal(t, both, p.rails("up"), "alternates are opened before they are needed")
	p.kill(0, 0)
	until([][2]int{{1, 1}, {1, 0}}, "one port is dead")
	p.kill(1, 1)
	until([][2]int{{1, 0}}, "crossed ports are dead")
	for up := p.rails("up"); !slices.Equal([][2]int{{1, 0}}, up); up = p.rails("up") {
		require.NoError(t, ctx.Err(), "crossed ports are dead: up are %v", up)
		time.Sleep(time.Millisecond)
	}
	p.revive(0, 0)
	until([][2]int{{0, 0}, {1, 0}}, "one port is back")
	p.revive(1, 1)
	until(both, "both ports are back")
	close(over)
	all.Wait()
}

// isSubset reports whether all of a are in b.
func isSubset(a, b [][2]int) bool {
	return !slices.ContainsFunc(a, func(x [2]int) bool { return !slices.Contains(b, x) })
}

// TestUnequalPorts: of three ports of one rank and two of the other, all carry bytes, both ways.
func TestUnequalPorts(t *testing.T) {
	p := newPorts(t, 3, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for !p.allCarry(1 << 20) {
		require.NoError(t, ctx.Err(), "some port carries next to nothing: %v", p.sent)
		p.exchange(t)
	}
}

// exchange exchanges long messages between the ranks, and checks them.
func (p *ports) exchange(t *testing.T) {
	p.rounds++
	var all sync.WaitGroup
	for _, w := range p.worlds {
		all.Go(func() {
			of := func(rank int) []byte { // by copies, which the race detector does not slow down
				all := make([]byte, 256)
				for i := range all {
					all[i] = byte(i*7 + rank + p.rounds)
				}
				return bytes.Repeat(all, 8<<20/len(all))
			}
			in, out := make([]byte, 8<<20), of(w.Rank())
			if _, err := Sendrecv(w, out, 1-w.Rank(), 0, in, 1-w.Rank(), 0); err != nil {
				t.Error(err)
			}
			if !bytes.Equal(in, of(1-w.Rank())) {
				t.Errorf("rank %d: a message arrived changed", w.Rank())
			}
		})
	}
	all.Wait()
}

// allCarry reports whether each port has sent and received the given number of bytes.
func (p *ports) allCarry(least int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	left, reached := map[[2]int]int{}, map[[2]int]int{}
	for by, bytes := range p.sent {
		left[[2]int{by.rank, by.port}] += bytes
		reached[[2]int{by.to.Peer, int(by.to.Module)}] += bytes
	}
	all := true
	for rank, w := range p.worlds {
		for port := range w.job.modules {
			all = all && left[[2]int{rank, port}] > least && reached[[2]int{rank, port}] > least
		}
	}
	return all
}
