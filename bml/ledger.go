package bml

// span is the bytes from..to of a message.
type span struct{ from, to int64 }

func (s span) bytes() int64 { return s.to - s.from }

// ledger tracks each byte of a message: to be handed out, under way in a piece, or arrived. A piece
// whose delivery is not confirmed is handed out again. Confirmed bytes never are.
type ledger struct {
	span
	next  int64       // first byte that was never handed out
	again []givenBack // to be handed out again
	left  int64       // bytes to be handed out: those from next on, and those of again
	// redone counts the bytes that were given back and have not arrived yet.
	redone int64
	// fragments counts the bytes that have arrived in fragments.
	fragments int64
}

// givenBack is a piece, or the rest of one, that is to be moved again. Bytes that may have arrived
// as a fragment go as a fragment again: the receiver counts the bytes of fragments.
type givenBack struct {
	span
	asFragment bool
	mistakes   uint8 // how often a rail called it invalid
}

func (l *ledger) begin(from, to int64) {
	*l = ledger{span: span{from, to}, next: from, left: to - from, again: l.again[:0]}
}

// isNextFragment reports whether the next bytes have to go as a fragment.
func (l *ledger) isNextFragment() bool { return len(l.again) > 0 && l.again[len(l.again)-1].asFragment }

// take hands out up to most bytes. isAgain: they were handed out before. mistakes is how often
// rails called them invalid.
func (l *ledger) take(most int64) (s span, isAgain bool, mistakes uint8) {
	if last := len(l.again) - 1; last >= 0 {
		old := &l.again[last]
		s = span{old.from, min(old.to, old.from+most)}
		if old.from = s.to; old.bytes() == 0 {
			l.again = l.again[:last]
		}
		isAgain, mistakes = true, old.mistakes
	} else {
		s = span{l.next, min(l.to, l.next+most)}
		l.next = s.to
	}
	l.left -= s.bytes()
	return s, isAgain, mistakes
}

// giveBack takes back a piece that has to be moved again.
func (l *ledger) giveBack(s givenBack, wasAgain bool) {
	l.again = append(l.again, s)
	l.left += s.bytes()
	if !wasAgain {
		l.redone += s.bytes()
	}
}

// arrived notes that a piece has arrived.
func (l *ledger) arrived(s span, wasAgain, asFragment bool) {
	if wasAgain {
		l.redone -= s.bytes()
	}
	if asFragment {
		l.fragments += s.bytes()
	}
}
