package comm

import (
	"fmt"
	"slices"
)

// If several arguments of a call are wrong, its error is about the first wrong one in this order:
// type, communicator, rank, tag, root, counts and lengths, the view's context. checkElem,
// Comm.enter, the functions of this file and Comm.contextErr are called in that order.

// checkDest checks the destination of a send.
func (s *state) checkDest(dest int) error {
	if uint(dest) < uint(len(s.group)) || dest == ProcNull {
		return nil
	}
	return s.rankError(ErrRank, dest)
}

// checkSource checks the source of a receive or probe.
func (s *state) checkSource(source int) error {
	if uint(source) < uint(len(s.group)) || source == AnySource || source == ProcNull {
		return nil
	}
	return s.rankError(ErrRank, source)
}

// checkRoot checks the root of a collective.
func (s *state) checkRoot(root int) error {
	if uint(root) < uint(len(s.group)) {
		return nil
	}
	return s.rankError(ErrRoot, root)
}

func (s *state) rankError(kind error, rank int) error {
	return &argumentError{kind, rank, len(s.group) - 1}
}

// checkSendTag checks the tag of a send.
func checkSendTag(tag int) error {
	if uint(tag) <= tagUB {
		return nil
	}
	return tagError(tag)
}

// checkRecvTag checks the tag of a receive or probe.
func checkRecvTag(tag int) error {
	if uint(tag) <= tagUB || tag == AnyTag {
		return nil
	}
	return tagError(tag)
}

func tagError(tag int) error {
	return &argumentError{ErrTag, tag, tagUB}
}

// argumentError is the error of a rank, root or tag that is not in 0…last.
type argumentError struct {
	kind        error // ErrRank, ErrRoot or ErrTag
	value, last int
}

func (e *argumentError) Error() string {
	return fmt.Sprintf("%v: %d is not in 0…%d", e.kind, e.value, e.last)
}

// Unwrap returns the kind.
func (e *argumentError) Unwrap() error { return e.kind }

// isAbout reports whether err says that an argument of the call, equal to value, is wrong, and is
// of one of the kinds.
func isAbout(err error, value int, kinds ...error) bool {
	bad, ok := err.(*argumentError) // an error that wraps one is about something else
	return ok && bad.value == value && slices.Contains(kinds, bad.kind)
}
