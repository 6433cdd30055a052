package comm

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMessageOfGoneSenderIsReceived: a complete send has delivered its message. So the message is
// received even if the sender ends at once, and whether or not the receiver has polled.
func TestMessageOfGoneSenderIsReceived(t *testing.T) {
	for _, length := range []int{8, 4000, 1 << 20} {
		for _, when := range []string{"before", "after", "meanwhile"} {
			if length == 1<<20 && when == "after" {
				continue // such a message is not sent before it is received
			}
			for range 20 {
				waits, gone := make(chan *Comm, 1), make(chan struct{})
				require.NoError(t, RunLocal(2, func(w *Comm) error {
					if w.Rank() == 1 {
						waits <- w
						if when == "after" {
							<-gone
						}
						buf := make([]byte, length)
						_, err := Recv(w, buf, 0, 0)
						assert.NoError(t, err, "%d bytes, the receive is posted %s", length, when)
						assert.Equal(t, length, count(buf, 7))
						_, err = Recv(w, buf, 0, 0)
						assert.ErrorIs(t, err, ErrProcFailed)
						return nil
					}
					if when == "before" {
						awaitPending(context.Background(), <-waits)
					}
					buf := make([]byte, length)
					fill(buf, 7)
					if err := Send(w, buf, 1, 0); err != nil {
						return err
					}
					w.job.eng.Lock()
					defer w.job.eng.Unlock()
					defer close(gone)
					return w.job.modules[0].Close()
				}, WithSetting("pml.protocol", "copy")))
			}
		}
	}
}
