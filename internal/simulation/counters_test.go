package simulation

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/request"
)

// A device breaks with messages that it has acknowledged and its rank has not polled. The ranks
// find out by another rail, or when the device is back.
func TestRecvFailsWhenDeviceLosesAcknowledgedMessages(t *testing.T) {
	for rails := 1; rails <= 2; rails++ {
		t.Run(fmt.Sprintf("%d rails", rails), func(t *testing.T) {
			w := quietWorld(t, rails, 1_000_000_000)
			from, to := w.ranks[0], w.ranks[1]
			w.say(0)
			for range 200 { // rank 1 does not poll
				from.turn()
				w.next()
			}
			require.Zero(t, from.p.Busy())
			w.net.device(1, 0, 0, 0)
			got := w.waitFor(1, 0)
			w.until(t, "the device to be closed", func() bool { return to.p.Rails()[0].State == "down" })
			w.net.port(1, 0, true, 0)
			w.until(t, "the end of the receive", func() bool { return got() != nil })
			require.ErrorIs(t, *got(), request.ErrUnreachable)
			require.ErrorContains(t, *got(), "had acknowledged")
		})
	}
}
