package bml

// Deferred is the number of pieces of work that wait for the next turn.
func (b *BML) Deferred() int { return len(b.deferred) }
