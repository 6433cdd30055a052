package tcp

import (
	"encoding/binary"

	"github.com/mpigo/mpigo/btl"
)

// kind of a frame.
type kind uint8

const (
	frameFrag kind = 1 + iota // a fragment
	frameAck                  // an acknowledgement alone
	frameBye                  // the last frame: the sender closes its rail
	kindEnd
)

// head precedes the header and payload in each frame. Numbers are little-endian.
type head struct {
	length uint32 // of the header and payload, in bytes
	// ack is the number of fragments of this incarnation that the frame's sender has handed up,
	// modulo 2^32.
	ack   uint32
	epoch uint32
	kind  kind
	tag   btl.Tag
}

const headBytes = 16

// put writes headBytes.
func (h *head) put(b []byte) {
	_ = b[headBytes-1]
	binary.LittleEndian.PutUint32(b, h.length)
	binary.LittleEndian.PutUint32(b[4:], h.ack)
	binary.LittleEndian.PutUint32(b[8:], h.epoch)
	b[12], b[13], b[14], b[15] = byte(h.kind), byte(h.tag), 0, 0
}

// parseHead reads headBytes. ok is false if no module would send these bytes. longest is the
// longest fragment in bytes.
func parseHead(b []byte, longest uint32) (h head, ok bool) {
	_ = b[headBytes-1]
	h.length = binary.LittleEndian.Uint32(b)
	h.ack = binary.LittleEndian.Uint32(b[4:])
	h.epoch = binary.LittleEndian.Uint32(b[8:])
	h.kind, h.tag = kind(b[12]), btl.Tag(b[13])
	switch {
	case b[14]|b[15] != 0 || h.epoch == 0:
		return h, false
	case h.kind == frameFrag:
		return h, h.length <= longest
	}
	return h, h.kind > frameFrag && h.kind < kindEnd && h.length == 0 && h.tag == 0
}
