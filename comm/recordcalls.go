package comm

import "github.com/mpigo/mpigo/internal/calls"

// The functions by which calls inform the recorder of calls, if the rank has one. Lock held.

// isTimed counts a call on a fast path, and reports whether the call has to be timed.
func (c *Comm) isTimed(op calls.ID, bytes int) bool {
	rec := c.job.eng.Calls
	return rec != nil && rec.Count(op, bytes)
}

// count counts a call that is not on a fast path.
func (c *Comm) count(op calls.ID, bytes int) {
	if rec := c.job.eng.Calls; rec != nil {
		rec.Count(op, bytes)
	}
}

// record begins the record of a call that was counted already. The rank must have a recorder.
func (c *Comm) record(op calls.ID, peer, tag, bytes int) *calls.Call {
	rec := c.job.eng.Calls
	return c.describeCall(rec.Begin(op, peer, tag, bytes))
}

// beginCall counts a call, and begins its record, which endCall ends. It returns nil without a
// recorder.
func (c *Comm) beginCall(op calls.ID, peer, tag, bytes int) *calls.Call {
	rec := c.job.eng.Calls
	if rec == nil {
		return nil
	}
	return c.describeCall(rec.CountAndBegin(op, peer, tag, bytes))
}

func (c *Comm) describeCall(r *calls.Call) *calls.Call {
	r.Comm, r.Size = *c.name.Load(), len(c.group)
	r.Peer, r.Tag = max(r.Peer, -1), max(r.Tag, -1) // −1: none, or any
	if r.Peer >= 0 && r.Peer < len(c.group) {
		r.Peer = c.group[r.Peer]
	}
	return r
}

func (c *Comm) endCall(r *calls.Call) {
	if r != nil {
		c.job.eng.Calls.End(r)
	}
}
