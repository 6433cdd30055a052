package pml

// Unreceived is a message that has arrived and that no receive has matched.
type Unreceived struct {
	Envelope
	// Context that it belongs to, and whom that was made for.
	Context ContextID
	Caller  Caller
}

// Unreceived lists the messages that wait to be received, in the order in which they arrived
// within each context. It does so after Close too. What was taken out of matching, or
// belonged to a context that is removed, is not among them.
func (p *PML) Unreceived() []Unreceived {
	var out []Unreceived
	for _, c := range p.sortedContexts() {
		q := c.unexpected.table.find(anyKey)
		if q == nil {
			continue
		}
		for n := q.head; n != nil; n = n.next {
			out = append(out, Unreceived{Envelope: c.envelope(n.item), Context: c.id, Caller: c.caller})
		}
	}
	return out
}
