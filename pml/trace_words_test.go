package pml

import (
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
)

// The words of scripts for fragments and registered memory.

// name returns the name of a request. A request that no command made is the copy of a buffered
// send.
func (s *script) name(r any) string {
	if name, ok := s.names[r]; ok {
		return name
	}
	if r == any((*SendRequest)(nil)) || r == any((*RecvRequest)(nil)) {
		return "an ended request"
	}
	return "(a copy)"
}

// fragment prints a step of a fragment, read or write.
func (s *script) fragment(what string, f *flight) {
	kind, detail := "?", func() string { return "" }
	switch f.tag {
	case tagMatch, tagRndv, tagRget:
		var in incoming
		data, err := in.decode(f.tag, f.frag)
		require.NoError(s.t, err)
		kind = "MATCH"
		text := fmt.Sprintf("number %d, context %d, tag %d, with %d bytes", in.seq, in.context, in.tag, len(data))
		detail = func() string { return text }
		if in.kind == tagRndv {
			kind = "RNDV "
			send := s.w.pmls[f.from].sends.get(in.send)
			text = fmt.Sprintf("number %d, context %d, tag %d, of %d bytes, with %d", in.seq, in.context, in.tag, in.length, len(data))
			if in.flags&flagPut != 0 {
				text += ", or to be written"
			}
			detail = func() string { return text + ", for " + s.name(send) }
		}
		if in.kind == tagRget {
			kind = "RGET "
			send := s.w.pmls[f.from].sends.get(in.send)
			text = fmt.Sprintf("number %d, context %d, tag %d, of %d bytes, to be read", in.seq, in.context, in.tag, in.length)
			if in.flags&flagPut != 0 {
				text += " or written"
			}
			text += s.exposed(data)
			detail = func() string { return text + ", for " + s.name(send) }
		}
	case tagAck:
		var h ackHdr
		require.NoError(s.t, h.decode(f.frag))
		kind = "ACK  "
		send, recv := s.w.pmls[f.to].sends.get(h.send), s.w.pmls[f.from].recvs.get(h.recv)
		detail = func() string {
			switch {
			case h.rejects():
				return fmt.Sprintf("for %s, rejected", s.name(send))
			case h.recv == 0:
				return fmt.Sprintf("for %s, nothing more wanted", s.name(send))
			case recv == nil:
				return fmt.Sprintf("for %s, of an ended receive", s.name(send))
			}
			return fmt.Sprintf("for %s, %s wants bytes %d to %d", s.name(send), s.name(recv), h.from, h.to)
		}
	case tagFrag:
		var h fragHdr
		require.NoError(s.t, h.decode(f.frag))
		kind = "FRAG "
		recv := s.w.pmls[f.to].recvs.get(h.recv)
		detail = func() string {
			return fmt.Sprintf("for %s, bytes %d to %d", s.name(recv), h.offset, h.offset+int64(len(f.frag)-fragBytes))
		}
	case tagPut:
		var h ackHdr
		require.NoError(s.t, h.decode(f.frag[:ackBytes]))
		kind = "PUT  "
		send, recv := s.w.pmls[f.to].sends.get(h.send), s.w.pmls[f.from].recvs.get(h.recv)
		where := s.exposed(f.frag[ackBytes:])
		detail = func() string {
			return fmt.Sprintf("for %s, %s wants bytes %d to %d written%s", s.name(send), s.name(recv), h.from, h.to, where)
		}
	case tagFin:
		var h finHdr
		require.NoError(s.t, h.decode(f.frag))
		kind = "FIN  "
		if h.ofReceive {
			recv := s.w.pmls[f.to].recvs.get(h.handle)
			detail = func() string { return fmt.Sprintf("for %s, written", s.name(recv)) }
		} else {
			send := s.w.pmls[f.to].sends.get(h.handle)
			detail = func() string { return fmt.Sprintf("for %s, read", s.name(send)) }
		}
	case tagRestartNotify, tagRestartNack:
		var h restartHdr
		require.NoError(s.t, h.decode(f.frag))
		if kind = "RNDVRESTARTNOTIFY"; f.tag == tagRestartNotify {
			send, recv := s.w.pmls[f.from].sends.get(h.send), s.w.pmls[f.to].recvs.get(h.recv)
			detail = func() string { return fmt.Sprintf("%s restarts to %s", s.name(send), s.name(recv)) }
		} else {
			kind = "RNDVRESTARTNACK"
			send := s.w.pmls[f.to].sends.get(h.send)
			detail = func() string { return fmt.Sprintf("for %s, already complete", s.name(send)) }
		}
	case tagNack:
		var h nackHdr
		require.NoError(s.t, h.decode(f.frag))
		kind = "NACK "
		detail = func() string {
			if h.kind == tagFrag {
				return "for the rest of a message"
			}
			return "instead of " + kindName(h.kind)
		}
	case tagRestartAck:
		var h ackHdr
		require.NoError(s.t, h.decode(f.frag))
		kind = "RNDVRESTARTACK"
		send, recv := s.w.pmls[f.to].sends.get(h.send), s.w.pmls[f.from].recvs.get(h.recv)
		detail = func() string {
			return fmt.Sprintf("for %s, %s wants bytes %d to %d again", s.name(send), s.name(recv), h.from, h.to)
		}
	case bml.TagRailDown, bml.TagRailDownAck, bml.TagProbe, bml.TagProbeAck:
		var h railHeader
		require.NoError(s.t, h.decode(f.frag))
		kind = map[btl.Tag]string{bml.TagRailDown: "RAILDOWN", bml.TagRailDownAck: "RAILDOWNACK", bml.TagProbe: "PROBE", bml.TagProbeAck: "PROBEACK"}[f.tag]
		detail = func() string { return fmt.Sprintf("rail %d, epoch %d", h.rail, h.epoch) }
	case tagCredit:
		var h creditHdr
		require.NoError(s.t, h.decode(f.frag))
		kind = "CREDIT"
		detail = func() string {
			return fmt.Sprintf("%d bytes taken, %d announcements allowed", h.taken, h.rtsLimit)
		}
	case bml.TagGet, bml.TagPut:
		kind = "READ "
		owner := f.op.Owner.(*bml.Op).Request
		var buf []byte
		switch r := owner.(type) {
		case *RecvRequest:
			buf = r.buf
		case *SendRequest:
			kind, buf = "WRITE", r.buf
			if r.detachment != nil && holds(r.detachment.buf, f.op.Payload) {
				buf = r.detachment.buf
			}
		}
		at := uintptr(unsafe.Pointer(&f.op.Payload[0])) - uintptr(unsafe.Pointer(&buf[0]))
		end := at + uintptr(len(f.op.Payload))
		detail = func() string { return fmt.Sprintf("for %s, bytes %d to %d", s.name(owner), at, end) }
	}
	if len(s.w.others) > 0 {
		kind = fmt.Sprintf("rail %d %s", f.rail, kind)
	}
	from, to := f.from, f.to
	s.out = append(s.out, func() string { return fmt.Sprintf("%d→%d %s %s: %s", from, to, kind, what, detail()) })
}

// exposed names the rails of a list of remote keys, if the wire has several rails.
func (s *script) exposed(list []byte) string {
	if len(s.w.others) == 0 {
		return ""
	}
	var rails []string
	for ; len(list) > 0; list = list[remoteKeyBytes:] {
		rails = append(rails, strconv.Itoa(int(list[0])))
	}
	return " by rail " + strings.Join(rails, " and ")
}

// region prints a step of registered memory.
func (s *script) region(what string, r *wireRegion) {
	use := map[btl.Access]string{
		btl.AccessLocal:       "for local use",
		btl.AccessRemoteRead:  "to be read",
		btl.AccessRemoteWrite: "to be written",
	}[r.access]
	if len(s.w.others) > 0 {
		use += fmt.Sprintf(" by rail %d", r.m.rail)
	}
	s.print("%d: %s %d bytes %s", r.m.rank, what, len(r.mem), use)
}
