package comm

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
)

// TestMessageThatNoRailTakesFailsAlone: over simulated verbs, a message that the rail calls wrong
// ends with an error at both ends, and no other operation fails. A collective ends at every rank,
// and the communicator can still be used.
func TestMessageThatNoRailTakesFailsAlone(t *testing.T) {
	const often = 4 // attempts, after which the operation is given up
	for _, n := range []int{10, 5000, 200_000} {
		for _, protocol := range []string{"copy", "get", "put"} {
			w := verbsPair(t, simhca.Config{}, WithSetting("pml.protocol", protocol))
			in, out := bytes.Repeat([]byte{5}, n), make([]byte, n)
			both := func(from, to func() error) (sent, got error) {
				done := make(chan error, 1)
				go func() { done <- from() }()
				got = to()
				return <-done, got
			}
			send := func() error { return Ssend(w[0], in, 1, 3) }
			recv := func() error { _, err := Recv(w[1], out, 0, 3); return err }
			sent, got := both(send, recv)
			require.NoError(t, sent)
			require.NoError(t, got)

			wrong := func() {
				w[0].job.eng.Lock()
				w[0].job.modules[0].(btl.Injector).Inject(btl.Fault{Kind: btl.FaultWrong, Peer: 1, Count: often})
				w[0].job.eng.Unlock()
			}
			wrong()
			sent, got = both(send, recv)
			assert.ErrorContains(t, sent, "no rail takes it: rail ibverbs to rank 1: usage: fragment too long", "%d bytes by %s", n, protocol)
			assert.ErrorContains(t, got, "the other rank could not send it", "%d bytes by %s", n, protocol)
			assert.NotErrorIs(t, sent, ErrUnreachable)

			wrong()
			sent, got = both(func() error { return Bcast(w[0], in, 0) }, func() error { return Bcast(w[1], out, 0) })
			if n > 8<<10 { // a shorter one goes from a copy, and Finalize reports it
				assert.ErrorContains(t, sent, "no rail takes it")
			}
			assert.ErrorContains(t, got, "the other rank could not send it")

			clear(out)
			sent, got = both(send, recv)
			require.NoError(t, sent)
			require.NoError(t, got)
			require.Equal(t, in, out)
			for _, c := range w {
				require.Zero(t, c.Stats().RailsFailed)
			}
		}
	}
}
