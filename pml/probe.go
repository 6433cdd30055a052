package pml

import (
	"slices"

	"github.com/mpigo/mpigo/request"
)

// Envelope is the part of a message that a probe returns.
type Envelope struct {
	Source, Tag int // rank in the communicator
	Bytes       int64
}

// Message was taken out of matching by a matched probe (MPI 4.1, section 3.8.2). Imrecv receives
// it, once.
type Message struct {
	ctx *Context
	msg *message // nil once received
	env Envelope
}

// Envelope of the message.
func (m *Message) Envelope() Envelope { return m.env }

func (c *Context) envelope(m *message) Envelope {
	source, _ := c.group.Rank(m.source)
	return Envelope{Source: source, Tag: int(m.tag), Bytes: m.length}
}

func (c *Context) key(source, tag int) matchKey { return keyOf(c.world(source), tag) }

// take takes m out of matching.
func (c *Context) take(m *message) *Message {
	c.unexpected.remove(m)
	c.p.taken.add(m)
	return &Message{ctx: c, msg: m, env: c.envelope(m)}
}

// Iprobe searches for a message that a receive of source and tag would match now.
func (p *PML) Iprobe(c *Context, source, tag int) (Envelope, bool) {
	m := c.unexpected.oldest(c.key(source, tag))
	if m == nil {
		p.grant(c, c.world(source))
		return Envelope{}, false
	}
	return c.envelope(m), true
}

// Improbe is Iprobe, and takes the message out of matching.
func (p *PML) Improbe(c *Context, source, tag int) (*Message, Envelope, bool) {
	m := c.unexpected.oldest(c.key(source, tag))
	if m == nil {
		p.grant(c, c.world(source))
		return nil, Envelope{}, false
	}
	env := c.envelope(m)
	return c.take(m), env, true
}

// ProbeRequest waits for a message without receiving it.
type ProbeRequest struct {
	request.Object
	p           *PML
	ctx         *Context
	source, tag int
	key         matchKey
	matched     bool
	message     *Message
	op          string
}

// Probe waits for a message that a receive of source and tag would match. The status has Source,
// Tag and Bytes. With matched, the probe takes the message out of matching.
func (p *PML) Probe(c *Context, source, tag int, matched bool, op string) *ProbeRequest {
	r := p.freeProbe.get()
	if r == nil {
		r = &ProbeRequest{p: p}
		r.Bind(p.eng, r)
	}
	r.ctx, r.source, r.tag, r.matched, r.op = c, source, tag, matched, op
	r.key = c.key(source, tag)
	r.Activate()
	if m := c.unexpected.oldest(r.key); m != nil {
		r.found(m)
	} else if err := p.waitError(c, c.world(source)); err != nil {
		r.Complete(request.Empty(), err)
	} else {
		c.probes = append(c.probes, r)
		p.grant(c, c.world(source))
	}
	return r
}

// Message returns the message that a completed matched probe took out of matching.
func (r *ProbeRequest) Message() *Message { return r.message }

func (r *ProbeRequest) found(m *message) {
	env := r.ctx.envelope(m)
	if r.matched {
		r.message = r.ctx.take(m)
	}
	r.Complete(request.Status{Source: env.Source, Tag: env.Tag, Bytes: env.Bytes}, nil)
}

// offerProbes completes the probes that match a new unexpected message, oldest first, up to a
// matched probe, which takes the message.
func (c *Context) offerProbes(m *message) {
	if len(c.probes) == 0 {
		return
	}
	taken := false
	c.probes = slices.DeleteFunc(c.probes, func(r *ProbeRequest) bool {
		if taken || !r.key.covers(m.source, int(m.tag)) {
			return false
		}
		r.found(m)
		taken = r.matched
		return true
	})
}

// covers reports whether a receive of key k matches a message of this source and tag.
func (k matchKey) covers(source, tag int) bool {
	s, t := int(int32(uint32(k>>32))), int(int32(uint32(k)))
	return (s == source || s == request.AnySource) && (t == tag || t == request.AnyTag)
}

// failProbes ends every probe of the context with err.
func (c *Context) failProbes(err error) {
	probes := c.probes
	c.probes = nil
	for _, r := range probes {
		r.Complete(request.Empty(), err)
	}
}

// Start implements request.Operation. Probes are not persistent, so it is never called.
func (r *ProbeRequest) Start() {}

// Cancel implements request.Operation.
func (r *ProbeRequest) Cancel() {
	i := slices.Index(r.ctx.probes, r)
	if i < 0 {
		return
	}
	r.ctx.probes = slices.Delete(r.ctx.probes, i, i+1)
	st := request.Empty()
	st.Cancelled = true
	r.Complete(st, nil)
}

// Release implements request.Operation.
func (r *ProbeRequest) Release() {
	r.ctx, r.message = nil, nil
	if !r.p.freeProbe.put(r) {
		r.Unbind()
	}
}

// Describe implements request.Operation.
func (r *ProbeRequest) Describe(err error) error {
	return r.ctx.caller.Describe(r.op, r.source, r.tag, err)
}
