package pml

import (
	"slices"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// Detach gives the buffer back before the send is complete: what is still to be sent goes on from a
// copy, unless it does already. Operations that a rail has accepted, and not copied, use the buffer until they are called back.
// The send is not persistent.
func (s *SendRequest) Detach() {
	if s.State() != request.Active || len(s.buf) == 0 || s.copied {
		return
	}
	old := s.buf
	s.buf = slices.Clone(old)
	var regions *[maxRails]btl.Region
	if s.t != nil && s.t.mine.set != 0 {
		switch {
		case s.state == sendPutting:
			// Writes that a rail has accepted still use the old registration.
			s.t.retired = append(s.t.retired, s.t.mine)
			s.t.mine = registration{}
			s.p.register(&s.t.mine, s.peer, s.t.theirs.set&s.peer.up, s.buf, btl.AccessLocal)
			regions = &s.t.mine.regions
		case s.state == sendAnnounced && s.head.Tag == tagRget:
			// Who comes to read finds nothing any more, and asks for fragments.
			s.p.revoke(&s.t.mine)
		default:
			s.t.mine.release()
		}
	}
	for op := range s.peer.posting() {
		if op.Owner != any(s) || !holds(old, op.Payload) {
			continue
		}
		if op.Tag == opPut {
			region := regions[op.Hdr[pieceRail]]
			if region == nil {
				continue // it goes as it is, and again in fragments
			}
			op.Local = region
		}
		at := uintptr(unsafe.Pointer(&op.Payload[0])) - uintptr(unsafe.Pointer(&old[0]))
		op.Payload = s.buf[at:][:len(op.Payload)]
	}
	if regions != nil && !s.ended && s.t.mine.set != s.t.retired[len(s.t.retired)-1].set&s.peer.up {
		s.fail(errUnregistered)
	}
}

// holds reports whether b is a part of whole that is not empty.
func holds(whole, b []byte) bool {
	if len(b) == 0 {
		return false
	}
	at, base := uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&whole[0]))
	return at >= base && at < base+uintptr(len(whole))
}
