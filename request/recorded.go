package request

import "github.com/mpigo/mpigo/internal/calls"

// This file reports the calls of this package to the rank's recorder, if it has one.

// counted counts a Wait that did not have to wait. It returns true.
func counted(rec *calls.Recorder) bool {
	if rec != nil {
		rec.Count(calls.Wait, 0)
	}
	return true
}

// begin begins the record of a call for one request. leave ends it, and releases the lock.
func (o *Object) begin(call calls.ID) *calls.Call {
	rec := o.eng.Calls
	if rec == nil {
		return nil
	}
	c := rec.CountAndBegin(call, -1, -1, 0)
	c.Receives, c.Sends = o.direction()
	return c
}

func (o *Object) leave(c *calls.Call) {
	if c != nil {
		o.eng.Calls.End(c)
	}
	o.eng.Unlock()
}

// direction reports whether the operation is a receive, or a send.
func (o *Object) direction() (receives, sends bool) {
	return o.ahead != nil && !o.MustEnd, o.ahead == nil && !o.MustEnd
}

// begin begins the record of a call for several requests.
func (l list) begin(call calls.ID) *calls.Call {
	rec := l.eng.Calls
	c := rec.CountAndBegin(call, -1, -1, 0)
	for i := range l.reqs {
		if o := l.at(i); o != nil && o.state == Active {
			receives, sends := o.direction()
			c.Receives, c.Sends = c.Receives || receives, c.Sends || sends
		}
	}
	return c
}

// traceBegin tells the recorder that the operation begins. traceEnd tells it that the user has
// observed the completion, or will not.
func (o *Object) traceBegin() {
	if o.eng.Calls != nil {
		o.traced = o.eng.Calls.BeginRequest()
	}
}

func (o *Object) traceEnd() {
	if o.traced != 0 {
		o.eng.Calls.EndRequest(o.traced)
		o.traced = 0
	}
}
