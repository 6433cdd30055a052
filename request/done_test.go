package request

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Progress goes on without a call until the present start is complete. The channel is one for each
// start.
func TestDoneOfEachStart(t *testing.T) {
	r := newRank()
	o, h := r.persistent("")
	require.True(t, isClosed(h.Done()), "it is inactive")
	var last <-chan struct{}
	for range 100 {
		require.NoError(t, h.Start())
		done := h.Done()
		require.NotEqual(t, last, done)
		require.Equal(t, done, h.Done())
		require.False(t, isClosed(done))
		last = done
		r.Lock()
		r.due = append(r.due, func() { o.Complete(message, errBoom) })
		r.Unlock()
		r.Wake()
		<-done
		require.True(t, isClosed(h.Done()))
		_, ended, err := h.Test()
		require.True(t, ended)
		require.ErrorIs(t, err, errBoom)
	}
}

// Every end of a start closes the channel, even if the object goes on to another operation.
func TestDoneEnds(t *testing.T) {
	for name, end := range map[string]func(r *rank, o *op, h Request){
		"complete": func(r *rank, o *op, _ Request) {
			r.Lock()
			defer r.Unlock()
			o.Complete(message, nil)
		},
		"freed":   func(_ *rank, _ *op, h Request) { require.NoError(t, h.Free()) },
		"stopped": func(r *rank, _ *op, _ Request) { r.Stop(errBang) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRank()
			o, h := r.active("")
			done := h.Done()
			end(r, o, h)
			<-done
			require.True(t, isClosed(h.Done()))
			if name == "stopped" {
				_, err := h.Wait()
				require.True(t, errors.Is(err, errBang))
				return
			}
			_, _ = h.Wait()
			require.True(t, isClosed(h.Done()), "it is null")
		})
	}
	require.True(t, isClosed(Request{}.Done()))
}

// A request whose channel is closed by one goroutine may be waited for by another one.
func TestDoneAndWait(t *testing.T) {
	r := newRank()
	for range 200 {
		o, h := r.active("")
		done := h.Done()
		go func() {
			r.Lock()
			defer r.Unlock()
			o.Complete(message, nil)
		}()
		st, err := h.Wait()
		require.NoError(t, err)
		require.Equal(t, message.Bytes, st.Bytes)
		<-done
	}
}
