package pml

import (
	"encoding/binary"
	"fmt"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
)

// Version of the wire format, which the package comment describes. It is in every fragment that can
// be the first from a peer.
const Version = 7

// The tags of fragments.
const (
	tagMatch btl.Tag = 1 + iota
	tagRndv
	tagAck
	tagFrag
	tagRget
	tagPut
	tagFin
	tagCredit
	tagRevoke
	tagMismatchProbe
	tagFinalized
	tagRestartNotify
	tagRestartAck
	tagRestartNack
	_ // 15 to 20 are the tags of package bml
	_
	_
	_
	_
	_
	tagWaiting
	tagNack
	tagInvite
)

// Sets of tags.
const (
	messageKinds  = 1<<tagMatch | 1<<tagRndv | 1<<tagRget
	controlKinds  = 1<<tagRevoke | 1<<tagMismatchProbe | 1<<tagInvite
	numberedKinds = messageKinds | controlKinds | 1<<tagAck | 1<<tagPut | 1<<tagFin |
		1<<tagRestartNotify | 1<<tagRestartAck | 1<<tagRestartNack | 1<<tagNack | 1<<tagFinalized | 1<<tagWaiting
)

// isNumbered reports whether fragments of a kind have a sequence number.
func isNumbered(tag btl.Tag) bool { return uint64(numberedKinds)>>tag&1 != 0 }

// isMessage reports whether fragments of a kind are matched with receives.
func isMessage(tag btl.Tag) bool { return uint64(messageKinds)>>tag&1 != 0 }

// isControl reports whether fragments of a kind are for the handler of a context (control.go).
func isControl(tag btl.Tag) bool { return uint64(controlKinds)>>tag&1 != 0 }

const (
	// flagPut is the flag of a RNDV or RGET whose sender can write, given remote key descriptors.
	flagPut uint8 = 1
	// The other flags are the kind of the elements of a message, or 0.
	kindShift = 1
)

// Lengths of headers.
const (
	matchBytes   = 16
	rndvBytes    = 32
	ackBytes     = 40
	fragBytes    = 16
	finBytes     = 24
	restartBytes = 24
	creditBytes  = 16
)

// maxMessageBytes bounds the length of a message, so that sums of offsets do not overflow.
const maxMessageBytes = 1 << 56

// errMalformed says that a fragment breaks the wire format.
var errMalformed = bml.ErrMalformed

// matchHdr is the header of a MATCH. Other kinds begin with it.
type matchHdr struct {
	context ContextID
	flags   uint8
	tag     int32
	seq     uint32
}

func (h *matchHdr) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, matchFirst(h.context)|uint64(h.flags)<<48)
	binary.LittleEndian.PutUint64(b[8:], matchSecond(int(h.tag), h.seq))
}

// matchFirst and matchSecond are the little-endian words of a header without flags.
func matchFirst(id ContextID) uint64         { return uint64(id) | Version<<56 }
func matchSecond(tag int, seq uint32) uint64 { return uint64(uint32(tag)) | uint64(seq)<<32 }

func (h *matchHdr) decode(b []byte) error {
	if len(b) < matchBytes {
		return fmt.Errorf("%w: header of %d bytes", errMalformed, len(b))
	}
	if h.parse(b) {
		return nil
	}
	if v := b[7]; v != Version {
		return fmt.Errorf("%w: wire format version %d, not %d", errMalformed, v, Version)
	}
	return fmt.Errorf("%w: tag %d", errMalformed, h.tag)
}

// parse is decode without a reason. Inlining it keeps the fast path short.
func (h *matchHdr) parse(b []byte) bool {
	if len(b) < matchBytes {
		return false
	}
	first, second := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	h.context = ContextID(first & (1<<48 - 1))
	h.flags = uint8(first >> 48)
	h.tag = int32(uint32(second))
	h.seq = uint32(second >> 32)
	return first>>56 == Version && h.tag >= 0
}

// parsePlain is parse of a header without flags. It reports false for all others.
func (h *matchHdr) parsePlain(b []byte) bool {
	if len(b) < matchBytes {
		return false
	}
	first, second := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	h.context = ContextID(first & (1<<48 - 1))
	h.tag = int32(uint32(second))
	h.seq = uint32(second >> 32)
	return first>>48 == Version<<8 && h.tag >= 0
}

// rndvHdr is the header of a RNDV or RGET.
type rndvHdr struct {
	matchHdr
	length int64
	send   handle
}

func (h *rndvHdr) encode(b []byte) {
	h.matchHdr.encode(b)
	binary.LittleEndian.PutUint64(b[16:], uint64(h.length))
	binary.LittleEndian.PutUint64(b[24:], uint64(h.send))
}

func (h *rndvHdr) decode(b []byte) error {
	if len(b) < rndvBytes {
		return fmt.Errorf("%w: RNDV of %d bytes", errMalformed, len(b))
	}
	if err := h.matchHdr.decode(b); err != nil {
		return err
	}
	h.length = int64(binary.LittleEndian.Uint64(b[16:]))
	h.send = handle(binary.LittleEndian.Uint64(b[24:]))
	if h.length < 0 || h.length > maxMessageBytes {
		return fmt.Errorf("%w: RNDV of length %d", errMalformed, h.length)
	}
	return nil
}

// ackHdr is an ACK or RNDVRESTARTACK, or the header of a PUT.
type ackHdr struct {
	send, recv handle
	// from and to are the range of the message that the receiver still wants. In a rejection both
	// are the reason.
	from, to int64
}

// Reasons to reject a message: from and to of the ACK.
const (
	discarded = 0  // the handler of the context does not want it; the send succeeds
	freed     = -1 // the receiver has freed the communicator
	unmatched = -2 // all ranks are in Finalize, and no receive matches
)

// rejects reports whether an ACK rejects the message, which ends the send with an error.
func (h *ackHdr) rejects() bool {
	return h.from == h.to && (h.from == freed || h.from == unmatched)
}

func (h ackHdr) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(h.send))
	binary.LittleEndian.PutUint64(b[8:], 0) // the BML sets the sequence number
	binary.LittleEndian.PutUint64(b[16:], uint64(h.recv))
	binary.LittleEndian.PutUint64(b[24:], uint64(h.from))
	binary.LittleEndian.PutUint64(b[32:], uint64(h.to))
}

func (h *ackHdr) decode(b []byte) error {
	if len(b) != ackBytes {
		return fmt.Errorf("%w: ACK of %d bytes", errMalformed, len(b))
	}
	h.send = handle(binary.LittleEndian.Uint64(b))
	h.recv = handle(binary.LittleEndian.Uint64(b[16:]))
	h.from = int64(binary.LittleEndian.Uint64(b[24:]))
	h.to = int64(binary.LittleEndian.Uint64(b[32:]))
	if (h.from < 0 || h.to < h.from) && !h.rejects() {
		return fmt.Errorf("%w: ACK from %d to %d", errMalformed, h.from, h.to)
	}
	return nil
}

// restartHdr is a RNDVRESTARTNOTIFY or RNDVRESTARTNACK.
type restartHdr struct{ send, recv handle }

func (h restartHdr) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(h.send))
	binary.LittleEndian.PutUint64(b[8:], 0)
	binary.LittleEndian.PutUint64(b[16:], uint64(h.recv))
}

func (h *restartHdr) decode(b []byte) error {
	if len(b) != restartBytes {
		return fmt.Errorf("%w: RNDVRESTARTNOTIFY or RNDVRESTARTNACK of %d bytes", errMalformed, len(b))
	}
	h.send = handle(binary.LittleEndian.Uint64(b))
	h.recv = handle(binary.LittleEndian.Uint64(b[16:]))
	return nil
}

// fragHdr is the header of a FRAG.
type fragHdr struct {
	recv   handle
	offset int64
}

func (h *fragHdr) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(h.recv))
	binary.LittleEndian.PutUint64(b[8:], uint64(h.offset))
}

func (h *fragHdr) decode(b []byte) error {
	if len(b) < fragBytes {
		return fmt.Errorf("%w: FRAG of %d bytes", errMalformed, len(b))
	}
	h.recv = handle(binary.LittleEndian.Uint64(b))
	h.offset = int64(binary.LittleEndian.Uint64(b[8:]))
	if h.offset < 0 || h.offset > maxMessageBytes {
		return fmt.Errorf("%w: FRAG at offset %d", errMalformed, h.offset)
	}
	return nil
}

// finHdr is the header of a FIN, which ends a transfer by remote access. That to a receive has a
// list of fences behind it (bml.Transfer.AppendFences).
type finHdr struct {
	handle    handle
	ofReceive bool // the handle names a receive, else a send
	// fragments is how many bytes of the message have gone in fragments: they may still be on their
	// way from the receiver's device to the receiver.
	fragments int64
	fences    []byte // of the fragment that was decoded; not encoded
}

func (h finHdr) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(h.handle))
	typ := uint64(0)
	if h.ofReceive {
		typ = 1
	}
	binary.LittleEndian.PutUint64(b[8:], typ) // the BML sets the sequence number
	binary.LittleEndian.PutUint64(b[16:], uint64(h.fragments))
}

func (h *finHdr) decode(b []byte) error {
	if len(b) < finBytes {
		return fmt.Errorf("%w: FIN of %d bytes", errMalformed, len(b))
	}
	h.handle = handle(binary.LittleEndian.Uint64(b))
	typ := binary.LittleEndian.Uint32(b[8:])
	if typ > 1 {
		return fmt.Errorf("%w: FIN of type %d", errMalformed, typ)
	}
	h.ofReceive = typ == 1
	h.fragments = int64(binary.LittleEndian.Uint64(b[16:]))
	if h.fragments < 0 || h.fragments > maxMessageBytes {
		return fmt.Errorf("%w: FIN after %d bytes of fragments", errMalformed, h.fragments)
	}
	h.fences = b[finBytes:]
	return bml.CheckFences(h.fences)
}

// creditHdr is a CREDIT. It has totals since the beginning, so a late one does no harm: taken is
// how many bytes the receiver has consumed, rtsLimit how many RTS messages without data it allows.
type creditHdr struct{ taken, rtsLimit int64 }

func (h creditHdr) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(h.taken))
	binary.LittleEndian.PutUint64(b[8:], uint64(h.rtsLimit))
}

func (h *creditHdr) decode(b []byte) error {
	if len(b) != creditBytes {
		return fmt.Errorf("%w: CREDIT of %d bytes", errMalformed, len(b))
	}
	h.taken = int64(binary.LittleEndian.Uint64(b))
	h.rtsLimit = int64(binary.LittleEndian.Uint64(b[8:]))
	if h.taken < 0 || h.rtsLimit < 0 {
		return fmt.Errorf("%w: CREDIT of %d, %d", errMalformed, h.taken, h.rtsLimit)
	}
	return nil
}
