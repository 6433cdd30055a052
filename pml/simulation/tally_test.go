package simulation

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// TestDeviceTakesMessagesAlong: a device that breaks with messages which it has acknowledged, and at which its rank has not looked, is found
// out: nobody waits for them without end.
func TestDeviceTakesMessagesAlong(t *testing.T) {
	for rails := 1; rails <= 2; rails++ {
		t.Run(fmt.Sprintf("%d rails", rails), func(t *testing.T) {
			setup := setup{
				ranks: 2, rails: make([]railSetup, rails), slots: 16, fragBytes: 1024, eager: 512, rdma: 1 << 30, window: 1 << 20,
				groups: [][]int{{0, 1}}, scar: -1, most: 64, lazy: 1 << 30, grace: 1e9,
			}
			for i := range setup.rails {
				setup.rails[i] = railSetup{latency: 1000 + int64(i), mbps: 10000}
			}
			w, err := newWorld(&plan{seed: 1, transport: Verbs, setup: setup}, false)
			require.NoError(t, err)
			defer w.close()
			from, to := w.ranks[0], w.ranks[1]
			drive := func(what string, ranks []*rank, until func() bool) {
				t.Helper()
				for range 100_000 {
					if until() {
						return
					}
					for _, r := range ranks {
						r.turn()
					}
					if !w.next() {
						w.pass(1_000_000)
					}
				}
				require.FailNow(t, "waited too long for "+what)
			}
			receive := func(b []byte) (rq *pml.RecvRequest) {
				to.call(func(p *pml.PML) { rq = p.Irecv(to.ctxs[0], b, 1, 0, 7, "recv") })
				return rq
			}
			send := func(b []byte) (rq *pml.SendRequest) {
				from.call(func(p *pml.PML) { rq = p.Isend(from.ctxs[0], b, 1, 7, pml.Standard, "send") })
				return rq
			}
			first, got := send([]byte{1}), make([]byte, 1)
			r := receive(got)
			drive("the first message", w.ranks, func() bool { return first.State() == request.Complete && r.State() == request.Complete })
			require.Equal(t, []byte{1}, got)
			r.Take()
			first.Take()

			second := send([]byte{2})
			turns := 0
			drive("the device to have acknowledged", []*rank{from}, func() bool { turns++; return turns > 200 && from.p.Busy() == 0 })
			require.Equal(t, request.Complete, second.State())
			w.net.device(1, 0, 0, 0)
			r = receive(got)
			drive("the device to be closed", w.ranks, func() bool { return to.p.RailStands(0, 0) == "down" })
			w.net.port(1, 0, true, 0)
			drive("the end of the receive", w.ranks, func() bool { return r.State() == request.Complete })
			_, err = r.Handle().Wait()
			require.ErrorIs(t, err, request.ErrUnreachable)
			require.ErrorContains(t, err, "had acknowledged")
		})
	}
}
