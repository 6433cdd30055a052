package comm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/tcp"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/progress"
)

// tcpWorld makes ranks of this process that rails over TCP join, one for each address.
func tcpWorld(t *testing.T, ranks int, addresses ...string) []*Comm {
	secret := sha256.Sum256([]byte("a secret"))
	return hereWorld(t, ranks, func(j *job, bell *progress.PipeWakeup) (modules []btl.Module) {
		j.kicker = newKicker(j.eng, j.pml.HasBcopies)
		for _, a := range addresses {
			m, err := tcp.New(tcp.Config{Rank: j.rank, Size: ranks, Events: j.pml, Bell: bell, Kick: j.kicker.kick, Local: netip.MustParseAddr(a), Secret: secret[:]})
			require.NoError(t, err)
			modules = append(modules, m)
		}
		return modules
	}, WithSetting("pml.notices", "false"))
}

func TestPortsOfTCP(t *testing.T) {
	var set tunable.Set
	require.Zero(t, tcpConfig(set).FirstPort)
	require.Zero(t, tcpConfig(set).LastPort)
	set, err := set.With("tcp.ports", "20000-20099", tunable.FromCommandLine)
	require.NoError(t, err)
	require.EqualValues(t, 20000, tcpConfig(set).FirstPort)
	require.EqualValues(t, 20099, tcpConfig(set).LastPort)
}

// tcpCardOf is what a rank says of a rail at an address.
func tcpCardOf(t *testing.T, rank int, address string) wireup.Rail {
	w := tcpWorld(t, 2, address)
	return wireup.Rail{BTL: "tcp", Address: w[rank].job.modules[0].Card()}
}

// TestUnreachableByTCP: what both ends have, why that does not do, and what the user has set, in one line.
func TestUnreachableByTCP(t *testing.T) {
	four, six := tcpCardOf(t, 0, "127.0.0.1"), tcpCardOf(t, 1, "::1")
	r := &rails{
		job: &job{rank: 0, settings: settings(t, "tcp.include", "lo")}, allowed: []string{"self", "sm", "tcp"},
		list: []rail{{name: "tcp", module: cardModule{card: four.Address}}},
	}
	far := cardOf("far")
	require.ErrorContains(t, r.unreachable(1, far, nil), " to rank 1 on far (btl=self,sm,tcp); tcp: 127.0.0.1 here and no address there: ")
	far.Rails = append(far.Rails, six)
	err := r.unreachable(1, far, nil)
	require.ErrorContains(t, err, " on far (btl=self,sm,tcp); tcp: 127.0.0.1 here and ::1 there: no family in common (tcp.include=lo here)")
	require.NotContains(t, err.Error(), "\n")
	r.list, r.missing = nil, []missing{{"tcp", errors.New("rail tcp: all is dust")}}
	require.ErrorContains(t, r.unreachable(1, far, nil), " on far (btl=self,sm,tcp); rail tcp: all is dust")
	r.allowed = []string{"sm"}
	require.NotContains(t, r.unreachable(1, far, nil).Error(), "tcp")
}

// cardModule has nothing but a card.
type cardModule struct {
	btl.Module
	card []byte
}

func (m cardModule) Card() []byte { return m.card }

// TestAddressRefused: an address at which no port is free is left out, and that is said; that there is none is an error.
func TestAddressRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	for include, want := range map[string][]string{"127.0.0.1,127.0.0.2": {"127.0.0.2"}, "127.0.0.1": nil} {
		hereWorld(t, 1, func(j *job, bell *progress.PipeWakeup) []btl.Module {
			j.eng.Lock()
			defer j.eng.Unlock()
			r := &rails{job: j}
			err := r.openTCP(bell)
			var ports []string
			for _, l := range r.list {
				ports = append(ports, l.port)
			}
			require.Equal(t, want, ports)
			why := fmt.Sprintf("listen on 127.0.0.1: none of ports %[1]d to %[1]d is free", port)
			if want == nil {
				require.ErrorContains(t, err, why)
				return nil
			}
			require.NoError(t, err)
			require.Len(t, r.refused["tcp"], 1)
			require.ErrorContains(t, r.refused["tcp"][0], why)
			require.True(t, r.firstWithAsFew("tcp"))
			return nil
		}, WithSetting("tcp.include", include), WithSetting("tcp.ports", fmt.Sprintf("%[1]d-%[1]d", port)))
	}
}

// TestNoAddress: that none is left is told with what the user has set, and without what has nothing to do with it.
func TestNoAddress(t *testing.T) {
	for _, c := range []struct {
		settings []string
		want     string
	}{
		{[]string{"tcp.include", "[2001:db8::77]"}, `^rail tcp: tcp.include=\[2001:db8::77\]: no such`},
		{[]string{"tcp.include", "nonsense"}, `^rail tcp: tcp.include=nonsense: no such interface or address on .*, which has lo 127.0.0.1`},
		{[]string{"tcp.include", "nonsense", "tcp.exclude", "lo"}, `^rail tcp: tcp.include=nonsense: no such`},
		{[]string{"tcp.exclude", "0.0.0.0/0,::/0"}, `^rail tcp: tcp.exclude=0.0.0.0/0,::/0: no address is left on .*: it has lo 127.0.0.1`},
		{[]string{"tcp.include", "lo", "tcp.exclude", "lo"}, `^rail tcp: tcp.include=lo, tcp.exclude=lo: no address is left on `},
	} {
		r := &rails{job: &job{settings: settings(t, c.settings...)}}
		err := r.openTCP(nil)
		require.Error(t, err)
		require.Regexp(t, c.want, err.Error())
	}
}

// TestStrangeWords: what fits nothing of this machine is named, and what fits is not.
func TestStrangeWords(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Empty(t, strangeWords(settings(t)))
	require.Empty(t, strangeWords(settings(t, "tcp.include", "lo,127.0.0.1,127.0.0.2,127.0.0.0/8")))
	require.Equal(t, []string{
		"tcp.exclude=none-such: " + host + " has no interface or address none-such",
		"tcp.include=lo,l0,[2001:db8::77]: " + host + " has no interface or address l0, 2001:db8::77",
	}, strangeWords(settings(t, "tcp.include", "lo,l0,[2001:db8::77]", "tcp.exclude", "none-such")))
}

// TestMissingInOrder: that verbs are not to be had here is nothing that a user who has not asked for them should read first, or at all.
func TestMissingInOrder(t *testing.T) {
	verbs, address := errors.New("rail ibverbs: there is no device"), errors.New("rail tcp: all is dust")
	for _, c := range []struct {
		settings []string
		missing  []missing
		want     string
	}{
		{nil, []missing{{"ibverbs", verbs}, {"tcp", address}}, address.Error()},
		{nil, []missing{{"ibverbs", verbs}}, verbs.Error()},
		{[]string{"btl", "self,ibverbs,tcp"}, []missing{{"ibverbs", verbs}, {"tcp", address}}, address.Error() + "\n" + verbs.Error()},
		{[]string{"ibverbs.devices", "rxe0"}, []missing{{"ibverbs", verbs}, {"tcp", address}}, address.Error() + "\n" + verbs.Error()},
	} {
		r := &rails{job: &job{settings: settings(t, c.settings...), size: 2}, missing: c.missing}
		require.EqualError(t, r.mustSuffice(), c.want, "%v", c.settings)
	}
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
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // and the first error ends the calls of all
	defer cancel()
	over := make(chan struct{})
	var traffic, all sync.WaitGroup
	for _, w := range worlds {
		traffic.Add(1) // until it has met the others
		met := sync.OnceFunc(traffic.Done)
		all.Go(func() {
			defer met()
			if err := exchangeUntil(ctx, w, over, met); err != nil {
				t.Errorf("rank %d: %v", w.Rank(), err)
				cancel()
			}
		})
	}
	traffic.Wait()
	before := openDescriptors(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 0; n < cuts && ctx.Err() == nil; {
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
		j.eng.Unlock()
		moved := (&observed{job: j}).Progress
		for target := moved() + uint64(rng.IntN(40)); moved() < target && ctx.Err() == nil; { // traffic goes on meanwhile
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

// exchangeUntil exchanges messages of all sizes with both neighbours in a ring until over is closed, and all ranks know, or ctx ends. It calls
// met when it has exchanged some.
func exchangeUntil(ctx context.Context, w *Comm, over <-chan struct{}, met func()) error {
	me, n := w.Rank(), w.Size()
	next, prev := (me+1)%n, (me+n-1)%n
	sizes := []int{1, 100, 5000, 70_000, 300_000}
	w = w.WithContext(ctx)
	for round := 0; ; round++ {
		size := sizes[round%len(sizes)]
		in, out := make([]byte, size), make([]byte, size)
		for i := range in {
			in[i] = byte(i*7 + me + round)
		}
		r, err := Irecv(w, out, prev, 1)
		if err != nil {
			return err
		}
		if err := Send(w, in, next, 1); err != nil {
			return err
		}
		if _, err := r.WaitContext(ctx); err != nil {
			return err
		}
		for i := range out {
			if out[i] != byte(i*7+prev+round) {
				return fmt.Errorf("round %d: byte %d of %d is %d", round, i, size, out[i])
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
		if err := Bcast(w, stop, 0); err != nil {
			return err
		}
		if round == len(sizes) {
			met()
		}
		if stop[0] == 1 {
			return nil
		}
	}
}

// TestOneAddressGoes: the connections by one address fail again and again at once, and a rank that only waits goes on by the other.
func TestOneAddressGoes(t *testing.T) {
	worlds := tcpWorld(t, 2, "127.0.0.1", "127.0.0.2")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sender, receiver := worlds[0].WithContext(ctx), worlds[1].WithContext(ctx)
	done := make(chan error, 1)
	go func() {
		for i := range 200 {
			got := make([]int, 1)
			if _, err := Recv(receiver, got, 0, 0); err != nil || got[0] != i {
				done <- fmt.Errorf("message %d is %d: %w", i, got[0], err)
				return
			}
		}
		done <- nil
	}()
	for i := range 200 {
		require.NoError(t, Send(sender, []int{i}, 1, 0))
		if i%20 == 10 {
			j := worlds[0].job
			j.eng.Lock()
			j.modules[0].Fail(btl.ErrInjected)
			j.eng.Unlock()
		}
	}
	require.NoError(t, <-done)
}
