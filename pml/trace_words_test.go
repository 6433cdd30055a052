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
	rail, kind := "", kindName(f.tag)
	if len(s.w.others) > 0 {
		rail = fmt.Sprintf("rail %d ", f.rail)
	}
	say := func(format string, args ...any) {
		begin := fmt.Sprintf("%d→%d %s%-5s %s: ", f.from, f.to, rail, kind, what)
		s.out = append(s.out, func() string {
			for i, arg := range args {
				switch arg.(type) {
				case *SendRequest, *RecvRequest:
					args[i] = s.name(arg)
				}
			}
			return begin + fmt.Sprintf(format, args...)
		})
	}
	decode := func(h interface{ decode([]byte) error }, frag []byte) {
		require.NoError(s.t, h.decode(frag))
	}
	sender, receiver := s.w.pmls[f.from], s.w.pmls[f.to]
	switch f.tag {
	case tagMatch, tagRndv, tagRget:
		var in incoming
		data, err := in.decode(f.tag, f.frag)
		require.NoError(s.t, err)
		text := fmt.Sprintf("number %d, context %d, tag %d, ", in.seq, in.context, in.tag)
		mayPut := in.flags&flagPut != 0
		switch {
		case in.kind == tagMatch:
			say(text+"with %d bytes", len(data))
			return
		case in.kind == tagRndv && mayPut:
			text += fmt.Sprintf("of %d bytes, with %d, or to be written", in.length, len(data))
		case in.kind == tagRndv:
			text += fmt.Sprintf("of %d bytes, with %d", in.length, len(data))
		case mayPut:
			text += fmt.Sprintf("of %d bytes, to be read or written%s", in.length, s.exposed(data))
		default:
			text += fmt.Sprintf("of %d bytes, to be read%s", in.length, s.exposed(data))
		}
		say(text+", for %v", sender.sends.get(in.send))
	case tagAck, tagPut, tagRestartAck:
		var h ackHdr
		decode(&h, f.frag[:ackBytes])
		send, recv := receiver.sends.get(h.send), sender.recvs.get(h.recv)
		switch {
		case f.tag == tagPut:
			by := s.exposed(f.frag[ackBytes:])
			say("for %v, %v wants bytes %d to %d written%s", send, recv, h.from, h.to, by)
		case f.tag == tagRestartAck:
			say("for %v, %v wants bytes %d to %d again", send, recv, h.from, h.to)
		case h.rejects():
			say("for %v, rejected", send)
		case h.recv == 0:
			say("for %v, nothing more wanted", send)
		case recv == nil:
			say("for %v, of an ended receive", send)
		default:
			say("for %v, %v wants bytes %d to %d", send, recv, h.from, h.to)
		}
	case tagFrag:
		var h fragHdr
		decode(&h, f.frag)
		end := h.offset + int64(len(f.frag)-fragBytes)
		say("for %v, bytes %d to %d", receiver.recvs.get(h.recv), h.offset, end)
	case tagFin:
		var h finHdr
		if decode(&h, f.frag); h.ofReceive {
			say("for %v, written", receiver.recvs.get(h.handle))
		} else {
			say("for %v, read", receiver.sends.get(h.handle))
		}
	case tagRestartNotify, tagRestartNack:
		var h restartHdr
		if decode(&h, f.frag); f.tag == tagRestartNotify {
			say("%v restarts to %v", sender.sends.get(h.send), receiver.recvs.get(h.recv))
		} else {
			say("for %v, already complete", receiver.sends.get(h.send))
		}
	case tagNack:
		var h nackHdr
		if decode(&h, f.frag); h.kind == tagFrag {
			say("for the rest of a message")
		} else {
			say("instead of %s", kindName(h.kind))
		}
	case bml.TagRailDown, bml.TagRailDownAck, bml.TagProbe, bml.TagProbeAck:
		var h railHeader
		decode(&h, f.frag)
		say("rail %d, epoch %d", h.rail, h.epoch)
	case tagCredit:
		var h creditHdr
		decode(&h, f.frag)
		say("%d bytes taken, %d announcements allowed", h.taken, h.rtsLimit)
	case bml.TagGet, bml.TagPut:
		owner := f.op.Owner.(*bml.Op).Request
		var buf []byte
		switch r := owner.(type) {
		case *RecvRequest:
			buf = r.buf
		case *SendRequest:
			buf = r.buf
			if r.detachment != nil && holds(r.detachment.buf, f.op.Payload) {
				buf = r.detachment.buf
			}
		}
		at := uintptr(unsafe.Pointer(&f.op.Payload[0])) - uintptr(unsafe.Pointer(&buf[0]))
		say("for %v, bytes %d to %d", owner, at, at+uintptr(len(f.op.Payload)))
	default:
		say("")
	}
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
