package bml

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// NumKinds bounds the tags of fragments.
const NumKinds = 32

// Kind says how the fragments with a tag are handed up. Only the table of kinds tells arriving
// fragments apart.
type Kind struct {
	// Name in the wire format: MATCH, RNDV, …
	Name string
	// Numbered fragments arrive exactly once and in order: they have a sequence number, and are
	// replayed when a rail fails. Others may come twice, late or not at all.
	Numbered bool
	// During is the peer states in which a fragment of this kind counts. In other states it is
	// dropped.
	During StateSet
	// Check, if set, checks a numbered fragment, which is at least MatchBytes long. It runs before
	// the fragment is dropped as a duplicate or kept for later.
	Check func(frag []byte) error
	// Handle takes a fragment that came by a module, a numbered one in its turn. frag is valid
	// during the call. An error says that the fragment breaks the protocol, and the peer fails.
	Handle func(pr *Peer, by btl.Module, frag []byte) error
}

// The tags of the fragments of this package; the package comment has their format.
const (
	TagRailDown btl.Tag = 15 + iota
	TagRailDownAck
	TagProbe
	TagProbeAck
	TagTrial
)

// addKinds adds the kinds of this package to the table.
func (b *BML) addKinds() {
	b.kinds[TagRailDown] = Kind{Name: "RAILDOWN", During: Alive, Handle: b.aboutRail(b.railDownArrived)}
	b.kinds[TagRailDownAck] = Kind{Name: "RAILDOWNACK", During: Alive, Handle: b.aboutRail(noReaction)}
	b.kinds[TagProbe] = Kind{Name: "PROBE", During: Alive, Handle: b.aboutRail(b.probeArrived)}
	b.kinds[TagProbeAck] = Kind{Name: "PROBEACK", During: Alive, Handle: b.aboutRail(b.probeAckArrived)}
	b.kinds[TagTrial] = Kind{Name: "TRIAL", During: Alive, Handle: b.aboutRail(noReaction)}
}

// noReaction handles RAILDOWNACK and TRIAL. Of a RAILDOWNACK only the delivery counters matter, and
// the sender of a TRIAL learns from its BTL that it was delivered.
func noReaction(*Peer, btl.Module, *Rail, railHeader) {}

// isNumbered reports whether fragments with a tag are numbered.
func (b *BML) isNumbered(tag btl.Tag) bool { return int(tag) < NumKinds && b.kinds[tag].Numbered }

// Arrived implements btl.Events.
func (b *BML) Arrived(m btl.Module, rank int, tag btl.Tag, frag []byte) {
	if rank < 0 || rank >= len(b.peers) || b.closed != nil {
		b.stats.Malformed++
		return
	}
	pr := b.Peer(rank)
	switch pr.state {
	case PeerLost:
		if !b.isReject(tag, frag) {
			b.reject(pr, m) // the peer may not know that it is lost here
		}
		return
	case PeerFailing:
		pr.heard = m
		if pr.isIgnored {
			return
		}
	}
	if pr.via == nil {
		pr.via = m
	}
	if err := b.dispatch(pr, m, tag, frag); err != nil {
		pr.heard = m
		b.ProtocolError(pr, err)
	}
}

// dispatch hands a fragment up by the table of kinds.
func (b *BML) dispatch(pr *Peer, m btl.Module, tag btl.Tag, frag []byte) error {
	if int(tag) >= NumKinds || b.kinds[tag].Handle == nil {
		return fmt.Errorf("%w: of kind %d", ErrMalformed, tag)
	}
	kind := &b.kinds[tag]
	switch {
	case !kind.During.has(pr.state):
		return nil
	case kind.Numbered:
		return b.sequenced(pr, m, tag, frag)
	}
	return kind.Handle(pr, m, frag)
}

// earlyFragment is a numbered fragment that came before its turn.
type earlyFragment struct {
	tag  btl.Tag
	via  btl.Module
	frag []byte // a copy
}

// sequenced hands a numbered fragment up if it is the next one. It keeps a later one, and drops a
// duplicate.
func (b *BML) sequenced(pr *Peer, m btl.Module, tag btl.Tag, frag []byte) error {
	kind := &b.kinds[tag]
	if len(frag) < b.cfg.MatchBytes {
		return fmt.Errorf("%w: %s of %d bytes", ErrMalformed, kind.Name, len(frag))
	}
	if kind.Check != nil {
		if err := kind.Check(frag); err != nil {
			return err
		}
	}
	ahead := int32(sequenceOf(frag) - uint32(pr.recvSeq))
	switch {
	case ahead < 0:
		b.stats.Duplicates++
		return nil
	case ahead > 0:
		return b.keepEarly(pr, pr.recvSeq+uint64(ahead), earlyFragment{tag, m, frag})
	}
	if err := b.upper.Admit(pr, tag, frag, false); err != nil {
		return err
	}
	pr.recvSeq++
	err := kind.Handle(pr, m, frag)
	for err == nil && len(pr.early) > 0 {
		e, here := pr.early[pr.recvSeq]
		if !here {
			return nil
		}
		delete(pr.early, pr.recvSeq)
		b.upper.Forget(pr, e.tag, e.frag)
		pr.recvSeq++
		err = b.kinds[e.tag].Handle(pr, e.via, e.frag)
	}
	return err
}

func (b *BML) keepEarly(pr *Peer, seq uint64, e earlyFragment) error {
	if _, here := pr.early[seq]; here {
		b.stats.Duplicates++
		return nil
	}
	e.frag = slices.Clone(e.frag) // before Admit reads it: the peer may still write the original
	if err := b.upper.Admit(pr, e.tag, e.frag, true); err != nil {
		return err
	}
	if pr.early == nil {
		pr.early = make(map[uint64]earlyFragment)
	}
	b.stats.Early++
	pr.early[seq] = e
	return nil
}

// IsNext reports whether the fragment with this number would be handed up at once.
func (pr *Peer) IsNext(seq uint32) bool {
	return seq == uint32(pr.recvSeq) && len(pr.early) == 0 && pr.via != nil && pr.state < PeerFailing
}

// TakeNext counts n fragments that the layer above has handled itself. IsNext was true for the
// first of them.
func (pr *Peer) TakeNext(n int) { pr.recvSeq += uint64(n) }
