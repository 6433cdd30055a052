package pml

import (
	"fmt"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
)

// kinds is the table of what arrives: for each kind of fragment its name, whether it is numbered, in which states of the peer it
// counts, and its handler. The kinds about rails are in bml.
func (p *PML) kinds() [bml.NumKinds]bml.Kind {
	const numbered = true
	return [bml.NumKinds]bml.Kind{
		tagMatch:         {Name: "MATCH", Numbered: numbered, During: bml.Reachable, Check: checkMatch, Handle: p.message(tagMatch)},
		tagRndv:          {Name: "RNDV", Numbered: numbered, During: bml.Reachable, Check: checkMatch, Handle: p.message(tagRndv)},
		tagRget:          {Name: "RGET", Numbered: numbered, During: bml.Reachable, Check: checkMatch, Handle: p.message(tagRget)},
		tagAck:           {Name: "ACK", Numbered: numbered, During: bml.Reachable, Handle: p.on(p.ackArrived)},
		tagPut:           {Name: "PUT", Numbered: numbered, During: bml.Reachable, Handle: p.on(p.putArrived)},
		tagFin:           {Name: "FIN", Numbered: numbered, During: bml.Reachable, Handle: p.on(p.finArrived)},
		tagRestartNotify: {Name: "RNDVRESTARTNOTIFY", Numbered: numbered, During: bml.Reachable, Handle: p.on(p.restartNotifyArrived)},
		tagRestartAck:    {Name: "RNDVRESTARTACK", Numbered: numbered, During: bml.Reachable, Handle: p.on(p.restartAckArrived)},
		tagRestartNack:   {Name: "RNDVRESTARTNACK", Numbered: numbered, During: bml.Reachable, Handle: p.on(p.restartNackArrived)},
		tagNack:          {Name: "NACK", Numbered: numbered, During: bml.Reachable, Handle: p.on(p.nackArrived)},
		tagRevoke:        {Name: "REVOKE", Numbered: numbered, During: bml.Reachable, Check: checkMatch, Handle: p.message(tagRevoke)},
		tagMismatchProbe: {Name: "MISMATCHPROBE", Numbered: numbered, During: bml.Reachable, Check: checkMatch, Handle: p.message(tagMismatchProbe)},
		tagFinalized:     {Name: "FINALIZED", Numbered: numbered, During: bml.Reachable, Check: checkMatch, Handle: p.on(p.finalizedArrived)},
		tagWaiting:       {Name: "WAITING", Numbered: numbered, During: bml.Reachable, Check: checkMatch, Handle: p.on(p.waitingArrived)},
		tagFrag:          {Name: "FRAG", During: bml.Reachable, Handle: p.on(p.fragArrived)},
		tagCredit:        {Name: "CREDIT", During: bml.Reachable, Handle: p.on(p.creditArrived)},
	}
}

// checkMatch checks the header of a MATCH, with which other kinds begin too.
func checkMatch(frag []byte) error { return new(matchHdr).decode(frag) }

// on adapts a handler to the table.
func (p *PML) on(handle func(pr *peer, frag []byte) error) func(*bml.Peer, btl.Module, []byte) error {
	return func(bp *bml.Peer, _ btl.Module, frag []byte) error { return handle(p.peers[bp.Rank()], frag) }
}

// message is the handler of fragments that belong to a context.
func (p *PML) message(kind btl.Tag) func(*bml.Peer, btl.Module, []byte) error {
	return p.on(func(pr *peer, frag []byte) error {
		var in incoming
		data, err := in.decode(kind, frag)
		if err != nil {
			return err
		}
		return p.deliver(pr, &in, data)
	})
}

// cost is what a numbered fragment counts as in the peer's window: its kind, and the bytes that came along. A NACK counts as the
// message in whose place it came.
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
				return 0, 0, fmt.Errorf("%w: nack with %d bytes", errMalformed, h.bytes)
			}
			return h.kind, int(h.bytes), nil
		}
	}
	if len(frag) < header {
		return 0, 0, fmt.Errorf("%w: %d bytes", errMalformed, len(frag))
	}
	return tag, len(frag) - header, nil
}

func (p *PML) ackArrived(pr *peer, frag []byte) error {
	var h ackHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	return p.acknowledged(pr, sendAnnounced, &h)
}

// putArrived takes a PUT apart.
func (p *PML) putArrived(pr *peer, frag []byte) error {
	if len(frag) < ackBytes {
		return fmt.Errorf("%w: put of %d bytes", errMalformed, len(frag))
	}
	var h ackHdr
	if err := h.decode(frag[:ackBytes]); err != nil {
		return err
	}
	if h.rejects() {
		return fmt.Errorf("%w: put that rejects", errMalformed)
	}
	list := frag[ackBytes:]
	if err := bml.CheckRemoteKeys(list); err != nil {
		return err
	}
	return p.invited(pr, &h, list)
}

func (p *PML) finArrived(pr *peer, frag []byte) error {
	var h finHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	p.finished(pr, &h)
	return nil
}

func (p *PML) fragArrived(pr *peer, frag []byte) error {
	var h fragHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	return p.fragment(pr, &h, frag[fragBytes:])
}

func (p *PML) creditArrived(pr *peer, frag []byte) error {
	var h creditHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	return p.credited(pr, h)
}
