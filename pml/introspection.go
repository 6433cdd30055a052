package pml

import (
	"encoding/binary"
	"fmt"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
)

// Read-only access to a PML for simulations: the contents of fragments, and the states of requests,
// rails and peers.

// Gone is the state of a request that is over, or of a rail that is not known.
const Gone = "gone"

// Fragment is a decoded fragment.
type Fragment struct {
	// Name of its kind: MATCH, RNDV, …
	Name string
	// Number in the sequence between the two ranks, if Numbered.
	Number   uint32
	Numbered bool
	// Send and Recv are the handles of requests in the fragment, 0 if it has none.
	Send, Recv uint64
	// RailMessage is set if AboutRail.
	AboutRail bool
	bml.RailMessage

	tag       btl.Tag
	ofReceive bool
}

// FragmentName returns the name of a kind of fragments.
func (p *PML) FragmentName(tag btl.Tag) string { return p.bml.KindName(tag) }

// Look decodes the header of a fragment.
func (p *PML) Look(tag btl.Tag, frag []byte) (Fragment, error) {
	f := Fragment{Name: p.FragmentName(tag), tag: tag}
	var err error
	switch {
	case isMessage(tag):
		var in incoming
		_, err = in.decode(tag, frag)
		f.Send = uint64(in.send)
	case tag == tagAck || tag == tagPut || tag == tagRestartAck:
		var h ackHdr
		err = h.decode(frag[:min(len(frag), ackBytes)])
		f.Send, f.Recv = uint64(h.send), uint64(h.recv)
	case tag == tagFin:
		var h finHdr
		err = h.decode(frag)
		if f.ofReceive = h.ofReceive; h.ofReceive {
			f.Recv = uint64(h.handle)
		} else {
			f.Send = uint64(h.handle)
		}
	case tag == tagRestartNotify || tag == tagRestartNack:
		var h restartHdr
		err = h.decode(frag)
		f.Send, f.Recv = uint64(h.send), uint64(h.recv)
	case tag == tagFrag:
		var h fragHdr
		err = h.decode(frag)
		f.Recv = uint64(h.recv)
	case tag == tagNack:
		var h nackHdr
		err = h.decode(frag)
	default:
		f.RailMessage, f.AboutRail, err = bml.DecodeRail(tag, frag, Version)
	}
	if f.Numbered = isNumbered(tag) && err == nil; f.Numbered {
		f.Number = binary.LittleEndian.Uint32(frag[12:])
	}
	return f, err
}

// StateOf returns the state, at this rank, of the object of a fragment: a request, a rail, or
// otherwise the peer. With sent, this rank has sent the fragment to that peer; without it, this
// rank has received it. For a rail the result also compares the epoch of its current incarnation
// with the fragment's.
func (p *PML) StateOf(peer int, f Fragment, sent bool) string {
	pr := p.peers[peer]
	if pr == nil {
		return "unknown"
	}
	ofSend := func() string {
		if s := p.sends.get(handle(f.Send)); s != nil && s.peer == pr {
			return s.state.String()
		}
		return Gone
	}
	ofRecv := func() string {
		if r := p.recvs.get(handle(f.Recv)); r != nil && r.from == pr {
			return r.state.String()
		}
		return Gone
	}
	switch {
	case f.AboutRail:
		if state, isKnown := pr.RailState(f.RailMessage, sent); isKnown {
			return state
		}
		return Gone
	case f.tag == tagRndv || f.tag == tagRget:
		if sent {
			return ofSend()
		}
	case f.tag == tagRestartNotify:
		if sent {
			return ofSend()
		}
		return ofRecv()
	case f.tag == tagAck || f.tag == tagPut || f.tag == tagRestartAck || f.tag == tagRestartNack || f.tag == tagFin && !f.ofReceive:
		if !sent {
			return ofSend()
		}
		if f.Recv != 0 {
			return ofRecv()
		}
		return Gone // the receive has its whole message, or the message was rejected
	case f.tag == tagFin || f.tag == tagFrag:
		if !sent {
			return ofRecv()
		}
		state := Gone
		p.sends.each(func(s *SendRequest) {
			if s.peer == pr && uint64(s.recv) == f.Recv {
				state = s.state.String()
			}
		})
		return state
	}
	return pr.standing()
}

// standing returns whether a peer is reachable, has no path, is failing, or is lost.
func (pr *peer) standing() string {
	switch {
	case pr.IsLost(), pr.IsFailing(), pr.State() == bml.PeerNoPath:
		return pr.State().String()
	case pr.AwaitsPath():
		return bml.PeerNoPath.String()
	}
	return "reachable"
}

// Turn compares the number of a fragment from a peer with the number that is expected next: −1 if
// the fragment has arrived before, 0 if it is the next one, 1 if it is ahead.
func (p *PML) Turn(peer int, number uint32) int { return p.peer(peer).Turn(number) }

// PeerState returns the state of a peer.
func (p *PML) PeerState(peer int) bml.PeerState { return p.peer(peer).State() }

// IsOver reports whether a peer is lost or about to be, or has called Finalize.
func (p *PML) IsOver(peer int) bool {
	pr := p.peer(peer)
	return !pr.IsAlive() || pr.finalized != notFinalized
}

// RailsUp returns how many rails to a peer are up, and how many there are.
func (p *PML) RailsUp(peer int) (up, all int) { return p.peer(peer).RailsUp() }

// Leftovers lists state that must not exist when every operation is complete, every message is
// received, and every rail is up.
func (p *PML) Leftovers() []string {
	out := p.bml.Leftovers()
	add := func(is bool, format string, args ...any) {
		if is {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(p.busy != 0, "%d sends and answers", p.busy)
	add(len(p.detached) != 0, "%d buffers with devices", len(p.detached))
	for _, op := range p.Pending() {
		add(true, "%v", op)
	}
	add(p.stats.UnexpectedBytes != 0, "%d unexpected bytes", p.stats.UnexpectedBytes)
	add(p.stats.Illegal != 0, "%d illegal transitions", p.stats.Illegal)
	add(len(p.earlyContext) != 0, "fragments of %d unknown contexts", len(p.earlyContext))
	for _, pr := range p.peers {
		if pr == nil || pr.IsLost() {
			continue
		}
		add(pr.pending.head != nil, "rank %d: pending sends", pr.Rank())
		add(pr.credit.kept != 0, "rank %d: %d kept bytes", pr.Rank(), pr.credit.kept)
		add(pr.credit.notices != 0, "rank %d: %d kept notices", pr.Rank(), pr.credit.notices)
	}
	return out
}
