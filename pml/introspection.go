package pml

import (
	"encoding/binary"
	"fmt"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
)

// What a simulation sees of a PML: what fragments say, and where requests, rails and peers stand. Nothing here changes anything.

// Gone is the state of a request that is over, or of a rail that is not known.
const Gone = "gone"

// Fragment is what a fragment says.
type Fragment struct {
	// Name of its kind: MATCH, RNDV, …
	Name string
	// Number that it has in the sequence between the two ranks, if Numbered.
	Number   uint32
	Numbered bool
	// Send and Recv are the names of the requests that it is for, where it says; 0 else.
	Send, Recv uint64
	// RailMessage is what it says of a rail, if AboutRail.
	AboutRail bool
	bml.RailMessage

	tag       btl.Tag
	ofReceive bool
}

// FragmentName is the name of a kind of fragments.
func (p *PML) FragmentName(tag btl.Tag) string { return p.bml.KindName(tag) }

// Look reads a fragment's header.
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

// StateOf is the state here of what a fragment is about: a request, a rail, or else the peer. sent says that this rank has
// sent it, to that peer, and not received it. Of a rail it also says how the present incarnation's epoch compares to the fragment's.
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
		return Gone // it had all, or will never want it
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

// standing is where a peer stands: reachable, no path, failing or lost.
func (pr *peer) standing() string {
	switch {
	case pr.IsLost(), pr.IsFailing(), pr.State() == bml.PeerNoPath:
		return pr.State().String()
	case pr.AwaitsPath():
		return bml.PeerNoPath.String()
	}
	return "reachable"
}

// Turn says whether the number of a fragment from a peer is behind what is expected (−1: it has been here), next (0), or ahead (1).
func (p *PML) Turn(peer int, number uint32) int { return p.peer(peer).Turn(number) }

// PeerState is the state of a peer.
func (p *PML) PeerState(peer int) bml.PeerState { return p.peer(peer).State() }

// RailsUp is how many rails to a peer take traffic, and how many there are.
func (p *PML) RailsUp(peer int) (up, all int) { return p.peer(peer).RailsUp() }

// RailState is the state of the rail to a peer with that number here.
func (p *PML) RailState(peer, local int) string {
	if state, isKnown := p.peer(peer).LocalRailState(local); isKnown {
		return state
	}
	return Gone
}

// Leftovers lists what should not be there when every operation is complete, everything has been received, and every rail is
// up.
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
	add(len(p.strays) != 0, "fragments of %d unknown contexts", len(p.strays))
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
