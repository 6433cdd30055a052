package comm

import (
	"crypto/sha256"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/tcp"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// tcpWorld makes ranks of this process that rails over TCP join, one for each address.
func tcpWorld(t *testing.T, ranks int, addresses ...string) []*Comm {
	_, settings, err := makeOptions([]Option{WithSetting("pml.notices", "false")})
	require.NoError(t, err)
	secret := sha256.Sum256([]byte("a secret"))
	jobs := make([]*job, ranks)
	for rank := range jobs {
		bell, err := progress.NewPipeBell()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, bell.Close()) })
		idle := idlePolicy(settings, ranks, 1)
		idle.Bell = bell
		j := newJob(rank, ranks, settings, idle, "here")
		j.others = localRank{nil, rank}
		j.pml = pml.New(pmlConfig(j, func(peer int) ([]pml.Route, error) {
			if peer == rank {
				return nil, ErrUnreachable
			}
			var all ways
			for i, m := range j.modules {
				card := jobs[peer].modules[i].Card()
				all.add(pml.Route{Module: m, Local: i, Remote: i}, true, func() (btl.Endpoint, error) { return m.Connect(peer, card) })
			}
			return all.list, nil
		}))
		j.kicker = newKicker(j.eng)
		j.eng.Lock() // which a turn that is kicked takes
		for _, a := range addresses {
			m, err := tcp.New(tcp.Config{Rank: rank, Size: ranks, Events: j.pml, Bell: bell, Kick: j.kicker.kick, Local: netip.MustParseAddr(a), Secret: secret[:]})
			require.NoError(t, err)
			j.addModule(m)
		}
		j.eng.AddHigh(j.pml)
		j.makeWorld()
		j.eng.Unlock()
		jobs[rank] = j
		t.Cleanup(func() {
			j.eng.Lock()
			defer j.eng.Unlock()
			require.NoError(t, j.close(ErrFinalized))
		})
	}
	worlds := make([]*Comm, ranks)
	for rank, j := range jobs {
		worlds[rank] = j.world
	}
	return worlds
}

func openDescriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// TestConnectionsDie: a hundred times a connection is cut under traffic of all kinds, now and then several at once or a whole rail. The
// ranks notice nothing, every byte is right, and no descriptor is left.
func TestConnectionsDie(t *testing.T) {
	const ranks, cuts = 3, 100
	worlds := tcpWorld(t, ranks, "127.0.0.1", "127.0.0.2")
	over := make(chan struct{})
	var traffic, all sync.WaitGroup
	for _, w := range worlds {
		traffic.Add(1) // until it has met the others
		all.Go(func() { exchangeUntil(t, w, over, traffic.Done) })
	}
	traffic.Wait()
	before := openDescriptors(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 0; n < cuts; {
		j := worlds[rng.IntN(ranks)].job
		m := j.modules[rng.IntN(len(j.modules))]
		j.eng.Lock()
		switch {
		case n%10 == 9:
			m.Fail(btl.ErrInjected)
			n++
		case m.(interface{ Break(peer int) bool }).Break((j.rank + 1 + rng.IntN(ranks-1)) % ranks):
			n++
		}
		moved := j.pml.Moved()
		j.eng.Unlock()
		for target := moved + uint64(rng.IntN(40)); moved < target && !t.Failed(); { // traffic goes on meanwhile
			j.eng.Lock()
			moved = j.pml.Moved()
			j.eng.Unlock()
		}
	}
	close(over)
	all.Wait()
	var st Stats
	for _, w := range worlds {
		one := w.Stats()
		st.RailsFailed += one.RailsFailed
		st.RailsReturned += one.RailsReturned
		require.Zero(t, one.Malformed)
	}
	require.Positive(t, st.RailsFailed)
	require.Positive(t, st.RailsReturned)
	require.LessOrEqual(t, openDescriptors(t), before+2*ranks*len(worlds[0].job.modules), "connections and attempts that are left open")
	t.Logf("%d failures, %d returns", st.RailsFailed, st.RailsReturned)
}

// exchangeUntil exchanges messages of all sizes with both neighbours in a ring until over is closed, and all ranks know.
func exchangeUntil(t *testing.T, w *Comm, over <-chan struct{}, met func()) {
	me, n := w.Rank(), w.Size()
	next, prev := (me+1)%n, (me+n-1)%n
	sizes := []int{1, 100, 5000, 70_000, 300_000}
	for round := 0; ; round++ {
		size := sizes[round%len(sizes)]
		in, out := make([]byte, size), make([]byte, size)
		for i := range in {
			in[i] = byte(i*7 + me + round)
		}
		r, err := Irecv(w, out, prev, 1)
		if !check(t, err) || !check(t, Send(w, in, next, 1)) {
			return
		}
		if _, err := r.Wait(); !check(t, err) {
			return
		}
		for i := range out {
			if out[i] != byte(i*7+prev+round) {
				t.Errorf("rank %d round %d: byte %d of %d is %d", me, round, i, size, out[i])
				return
			}
		}
		stop := []int{0}
		if me == 0 {
			select {
			case <-over:
				stop[0] = 1
			default:
			}
		}
		if !check(t, Bcast(w, stop, 0)) {
			return
		}
		if round == len(sizes) {
			met()
		}
		if stop[0] == 1 {
			return
		}
	}
}

func check(t *testing.T, err error) bool {
	if err != nil {
		t.Errorf("%v", err)
	}
	return err == nil
}

// TestOneAddressGoes: the connections by one address fail again and again at once, and a rank that only waits goes on by the other.
func TestOneAddressGoes(t *testing.T) {
	worlds := tcpWorld(t, 2, "127.0.0.1", "127.0.0.2")
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 200 && err == nil; i++ {
			_, err = Recv(worlds[1], make([]int, 1), 0, 0)
		}
		done <- err
	}()
	for i := range 200 {
		require.NoError(t, Send(worlds[0], []int{i}, 1, 0))
		if i%20 == 10 {
			j := worlds[0].job
			j.eng.Lock()
			j.modules[0].Fail(btl.ErrInjected)
			j.eng.Unlock()
		}
	}
	require.NoError(t, <-done)
}
