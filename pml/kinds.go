package pml

import (
	"fmt"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
)

// kinds is the table of the kinds of fragments of this package: the name of each, whether it is
// numbered, and its handler.
func (p *PML) kinds() [bml.NumKinds]bml.Kind {
	kinds := [bml.NumKinds]bml.Kind{
		tagMatch:         {Name: "MATCH", Check: checkMatch, Handle: p.inContext(tagMatch)},
		tagRndv:          {Name: "RNDV", Check: checkMatch, Handle: p.inContext(tagRndv)},
		tagRget:          {Name: "RGET", Check: checkMatch, Handle: p.inContext(tagRget)},
		tagAck:           {Name: "ACK", Check: checkAnswer, Handle: p.on(p.ackArrived)},
		tagPut:           {Name: "PUT", Check: checkAnswer, Handle: p.on(p.putArrived)},
		tagFin:           {Name: "FIN", Check: checkAnswer, Handle: p.on(p.finArrived)},
		tagRestartNotify: {Name: "RNDVRESTARTNOTIFY", Check: checkAnswer, Handle: p.on(p.restartNotifyArrived)},
		tagRestartAck:    {Name: "RNDVRESTARTACK", Check: checkAnswer, Handle: p.on(p.restartAckArrived)},
		tagRestartNack:   {Name: "RNDVRESTARTNACK", Check: checkAnswer, Handle: p.on(p.restartNackArrived)},
		tagNack:          {Name: "NACK", Check: checkAnswer, Handle: p.on(p.nackArrived)},
		tagRevoke:        {Name: "REVOKE", Check: checkNotice, Handle: p.inContext(tagRevoke)},
		tagMismatchProbe: {Name: "MISMATCHPROBE", Check: checkNotice, Handle: p.inContext(tagMismatchProbe)},
		tagInvite:        {Name: "INVITE", Check: checkNotice, Handle: p.inContext(tagInvite)},
		tagFinalized:     {Name: "FINALIZED", Check: checkNotice, Handle: p.on(p.finalizedArrived)},
		tagWaiting:       {Name: "WAITING", Check: checkNotice, Handle: p.on(p.waitingArrived)},
		tagFrag:          {Name: "FRAG", Handle: p.on(p.fragArrived)},
		tagCredit:        {Name: "CREDIT", Handle: p.on(p.creditArrived)},
	}
	for tag := range kinds {
		kinds[tag].Numbered = isNumbered(btl.Tag(tag))
		kinds[tag].During = bml.Reachable
	}
	return kinds
}

// checkMatch checks the header of a MATCH, with which other kinds begin too.
func checkMatch(frag []byte) error { return new(matchHdr).decode(frag) }

// A fragment that is not a message may be kept for its turn or its context. Flow control counts
// such fragments by number (maxNotices), so their length has to be bounded when they arrive.

// maxAnswerBytes is the length of the longest answer: a PUT, or a FIN.
const maxAnswerBytes = max(ackBytes+bml.MaxRemoteKeysBytes, finBytes+bml.MaxFencesBytes)

// checkAnswer checks the length of a fragment that names a request. Its handler checks the rest.
func checkAnswer(frag []byte) error {
	if len(frag) > maxAnswerBytes {
		return fmt.Errorf("%w: answer of %d bytes", errMalformed, len(frag))
	}
	return nil
}

// checkNotice checks the header and the length of a fragment that has the header of a MATCH but is
// not a message.
func checkNotice(frag []byte) error {
	if len(frag) > matchBytes+maxControlBytes {
		return fmt.Errorf("%w: control fragment of %d bytes", errMalformed, len(frag))
	}
	return checkMatch(frag)
}

// on makes a handler for the table of kinds from a handler of this package.
func (p *PML) on(handle func(pr *peer, frag []byte) error) func(*bml.Peer, btl.Module, []byte) error {
	return func(bp *bml.Peer, _ btl.Module, frag []byte) error { return handle(p.peers[bp.Rank()], frag) }
}

// inContext makes a handler for a kind of fragments that belong to a context.
func (p *PML) inContext(kind btl.Tag) func(*bml.Peer, btl.Module, []byte) error {
	return p.on(func(pr *peer, frag []byte) error {
		var in incoming
		data, err := in.decode(kind, frag)
		if err != nil {
			return err
		}
		return p.deliver(pr, &in, data)
	})
}

// cost returns the kind and the payload length with which a numbered fragment counts in the peer's
// windows. A NACK counts as the message that it replaces, because the sender has counted the
// message.
func (p *PML) cost(pr *peer, tag btl.Tag, frag []byte) (kind btl.Tag, bytes int, err error) {
	header := matchBytes
	switch tag {
	case tagRndv, tagRget:
		header = rndvBytes
	case tagNack:
		var h nackHdr
		if err := h.decode(frag); err != nil {
			return 0, 0, err
		}
		if isMessage(h.kind) {
			if int64(h.bytes) > pr.credit.window {
				return 0, 0, fmt.Errorf("%w: NACK of a message with %d bytes of payload", errMalformed, h.bytes)
			}
			return h.kind, int(h.bytes), nil
		}
	}
	if len(frag) < header {
		return 0, 0, fmt.Errorf("%w: %d bytes of kind %d", errMalformed, len(frag), tag)
	}
	return tag, len(frag) - header, nil
}
