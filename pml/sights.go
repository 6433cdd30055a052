package pml

import (
	"cmp"
	"fmt"

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
	// Rail is its number at whoever has sent the fragment, of a RAILDOWNACK at whom it goes to, and Epoch the incarnation, if AboutRail.
	AboutRail bool
	Rail      int
	Epoch     uint32

	tag       btl.Tag
	ofReceive bool
}

var fragmentNames = [...]string{
	tagMatch: "MATCH", tagRndv: "RNDV", tagAck: "ACK", tagFrag: "FRAG", tagRget: "RGET", tagPut: "PUT", tagFin: "FIN", tagCredit: "CREDIT",
	tagRevoke: "REVOKE", tagMismatchProbe: "MISMATCHPROBE", tagLeft: "LEFT",
	tagRestartNotify: "RNDVRESTARTNOTIFY", tagRestartAck: "RNDVRESTARTACK", tagRestartNack: "RNDVRESTARTNACK",
	tagRailDown: "RAILDOWN", tagRailDownAck: "RAILDOWNACK", tagProbe: "PROBE", tagProbeAck: "PROBEACK", tagWaiting: "WAITING", tagNack: "NACK",
}

// FragmentName is the name of a kind of fragments.
func FragmentName(tag btl.Tag) string {
	if int(tag) < len(fragmentNames) && fragmentNames[tag] != "" {
		return fragmentNames[tag]
	}
	return fmt.Sprintf("kind %d", tag)
}

// Look reads a fragment's header.
func Look(tag btl.Tag, frag []byte) (Fragment, error) {
	f := Fragment{Name: FragmentName(tag), tag: tag}
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
	case isAboutRail(tag):
		var h railHdr
		err = h.decode(frag)
		f.AboutRail, f.Rail, f.Epoch = true, int(h.rail), h.epoch
	}
	if f.Numbered = isNumbered(tag) && err == nil; f.Numbered {
		f.Number = sequenceOf(frag)
	}
	return f, err
}

// Stands says where what a fragment is about stands here: a request, a rail, or else the peer. sent says that this rank has
// sent it, to that peer, and not received it. Of a rail it also says how the present incarnation's epoch compares to the fragment's.
func (p *PML) Stands(peer int, f Fragment, sent bool) string {
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
		i := pr.numbered(uint8(f.Rail))
		if sent != (f.tag == tagRailDownAck) { // which names the rail of whom it goes to
			i = pr.ours(uint8(f.Rail))
		}
		if i >= 0 {
			return pr.rails[i].stands(f.Epoch)
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
	return pr.stands()
}

func (rl *rail) stands(epoch uint32) string {
	if rl.endpoint == nil {
		return rl.state.String()
	}
	return rl.state.String() + [...]string{", older", "", ", newer"}[1+cmp.Compare(rl.endpoint.Epoch(), epoch)]
}

func (pr *peer) stands() string {
	switch {
	case pr.lost != nil:
		return "lost"
	case pr.failing != nil:
		return "failing"
	case pr.stranded != nil:
		return "stranded"
	}
	return "reachable"
}

// Turn says whether the number of a fragment from a peer is behind what is expected (−1: it has been here), next (0), or ahead (1).
func (p *PML) Turn(peer int, number uint32) int {
	next := uint32(0)
	if pr := p.peers[peer]; pr != nil {
		next = uint32(pr.recvSeq)
		if pr.early[pr.recvSeq+uint64(number-next)] != nil {
			return -1
		}
	}
	return cmp.Compare(int32(number-next), 0)
}

// PeerStands says where a peer stands: unknown, reachable, stranded, failing or lost.
func (p *PML) PeerStands(peer int) string {
	pr := p.peers[peer]
	if pr == nil || pr.unknown() && pr.lost == nil {
		return "unknown"
	}
	return pr.stands()
}

// RailsUp is how many rails to a peer take traffic, and how many there are.
func (p *PML) RailsUp(peer int) (up, all int) {
	if pr := p.peers[peer]; pr != nil {
		all = len(pr.rails)
		for i := range pr.rails {
			if pr.up.has(i) {
				up++
			}
		}
	}
	return up, all
}

// RailStands says where the rail to a peer of that number here stands.
func (p *PML) RailStands(peer, local int) string {
	if pr := p.peers[peer]; pr != nil {
		if i := pr.ours(uint8(local)); i >= 0 {
			return pr.rails[i].state.String()
		}
	}
	return Gone
}

// Leftovers says what is kept that should not be when every operation is complete, all has been received, and every rail is up.
func (p *PML) Leftovers() []string {
	var out []string
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
	st := p.Stats()
	add(st.UnexpectedBytes != 0, "%d unexpected bytes", st.UnexpectedBytes)
	add(st.Illegal != 0, "%d illegal transitions", st.Illegal)
	add(len(p.broken)+len(p.condemned) != 0, "%d peers to be mended, %d to be condemned", len(p.broken), len(p.condemned))
	add(len(p.strays) != 0, "fragments of %d unknown contexts", len(p.strays))
	for _, pr := range p.peers {
		if pr == nil || pr.lost != nil {
			continue
		}
		for _, q := range []struct {
			is   bool
			what string
		}{
			{!pr.limbo.Empty(), "limbo"}, {!pr.waiting.Empty(), "operations that wait for a rail"}, {pr.unfenced != 0, "rails that are not fenced"},
			{len(pr.draining) != 0, "rails to be drained"}, {len(pr.early) != 0, "early fragments"}, {pr.held.head != nil, "held sends"},
			{pr.credit.kept != 0, "kept bytes"}, {pr.credit.notices != 0, "kept notices"}, {pr.grace.timer != nil && !pr.grace.isNeeded(), "a grace timer"},
			{pr.stranded != nil, "being stranded"}, {pr.failing != nil, "failing"}, {pr.barred, "a bar"},
		} {
			add(q.is, "rank %d: %s", pr.rank, q.what)
		}
		for i := range pr.rails {
			rl := &pr.rails[i]
			add(rl.state != railUp, "rank %d: rail %d is %v", pr.rank, rl.local, rl.state)
			add(!rl.queue.Empty(), "rank %d: rail %d has a queue", pr.rank, rl.local)
		}
	}
	return out
}
