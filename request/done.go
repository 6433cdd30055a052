package request

import (
	"context"

	"github.com/mpigo/mpigo/progress"
)

// closedChannel is the result of Done if there is nothing to wait for.
var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done returns a channel for select. It is closed when the present start of the operation has
// ended: it completed or failed, it was freed, or the job has ended. Then Wait and Test return at
// once, with the status and the error. For a null, inactive or complete request the channel is
// closed already. Calls during one start return the same channel.
//
// Progress needs no call: a goroutine of the library waits for the request as Wait does. Goroutines
// may share the request.
func (r Request) Done() <-chan struct{} {
	o := r.enter()
	if o == nil {
		return closedChannel
	}
	defer o.eng.Unlock()
	if o.state != Active || o.eng.Stopped() != nil {
		return closedChannel
	}
	if o.done == nil {
		o.done = make(chan struct{})
		w := new(progress.Waiter)
		w.Reset(1)
		o.watch(w)
		go o.closeWhenDone(o.done, w)
	}
	return o.done
}

// closeWhenDone waits for the present start. The object may have gone on to another one when it
// gets the lock.
func (o *Object) closeWhenDone(done chan struct{}, w *progress.Waiter) {
	defer close(done)
	o.eng.Lock()
	defer o.eng.Unlock()
	if stopped := o.eng.Wait(context.Background(), w); stopped != nil {
		o.unwatch(w)
		if o.done == done {
			o.done = nil
		}
	}
}
