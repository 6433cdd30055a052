package simulation

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The subnet manager changes a port of InfiniBand. Its rail fails if its address or the entry of
// its partition key has changed, and comes back. Messages arrive, at the latest then.
func TestMessagesSurviveSubnetManager(t *testing.T) {
	for rails := 1; rails <= 2; rails++ {
		for _, c := range []struct {
			what, after int
			fails       bool
		}{{newLID, 0, true}, {smChange, 0, false}, {clientReregister, 0, false}, {newPKeys, 2, true}, {newPKeys, 4, true}} {
			t.Run(fmt.Sprint(rails, c), func(t *testing.T) {
				w := quietWorld(t, Verbs, rails, 1_000_000_000)
				before := w.ranks[1].p.Stats().RailsFailed
				got := w.waitFor(0, 1)
				w.net.device(1, rails-1, c.what, c.after)
				if c.fails {
					w.until(t, "the failure", func() bool { return w.ranks[1].p.Stats().RailsFailed > before })
				} else {
					w.until(t, "the event", func() bool { return !w.isBusy() })
				}
				if c.after == 4 && rails == 1 { // the port has left the partition
					w.net.port(port{1, 0}, true, 0)
				}
				w.sendFrom(1)
				w.until(t, "the message", func() bool { return got() != nil })
				require.NoError(t, *got())
				if c.after == 4 {
					w.net.port(port{1, rails - 1}, true, 0)
				}
				w.until(t, "the rails", w.allUp)
				got = w.waitFor(1, 0)
				w.sendFrom(0)
				w.until(t, "the message", func() bool { return got() != nil })
				require.NoError(t, *got())
				require.Equal(t, c.fails, w.ranks[1].p.Stats().RailsFailed > before)
			})
		}
	}
}
