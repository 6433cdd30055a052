package pml

import (
	"encoding/binary"
	"fmt"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
)

// Version of the wire format. It is in every fragment that can be the first from a peer.
const Version = 4

// The fragments. Numbers are little-endian.
//
//	MATCH            16   context 6, flags 1, version 1, tag 4, sequence 4      then the message
//	RNDV             32   as MATCH, then length 8, send handle 8                then its first bytes, if any
//	RGET             32   as RNDV                                               then exposures of the message
//	ACK              40   send handle 8, zero 4, sequence 4, receive handle 8, from 8, to 8; the last two a rejection: nobody will receive it
//	PUT              40   as ACK                                                then exposures of the buffer
//	FIN              16   handle 8, whose 1 (0 the sender's, 1 the receiver's), zero 3, sequence 4
//	RNDVRESTARTNOTIFY 24  send handle 8, zero 4, sequence 4, receive handle 8
//	RNDVRESTARTACK   40   as ACK
//	RNDVRESTARTNACK  24   as RNDVRESTARTNOTIFY
//	REVOKE           24   as MATCH, then 8 that the context's handler defines (comm/internal/coll/revoke.go)
//	MISMATCHPROBE    48   as MATCH, then 32 that the context's handler defines (comm/internal/coll/mismatch.go)
//	FINALIZED        16   as MATCH, with tag 1, or 0 if it may still match what comes
//	WAITING          16   as MATCH, with tag 0
//
//	NACK             32   the first 24 bytes of the fragment in whose place it comes, zero where that has none, but behind a
//	                      MATCH length 8; then kind 1, zero 3, bytes that would have come along 4. Of kind FRAG, in
//	                      no fragment's place: receive handle 8, zero 4, sequence 4, zero 8
//
//	FRAG             16   receive handle 8, offset 8                            then a piece of the message
//	CREDIT           16   bytes taken 8, announcements that may be sent 8
//	RAILDOWN         24   rail 1, version 1, zero 2, epoch 4, tally 12, zero 4
//	RAILDOWNACK      24   as RAILDOWN, of which it returns the rail
//	PROBE            24   as RAILDOWN, but instead of the last zero the length of the padding that follows
//	PROBEACK         24   as PROBE
//
//	exposure         48   rail 1, zero 7, offset 8, key 32
//
// Those of the first group are numbered: the sequence is the low half of a 64-bit number that
// counts them from one rank to another, whatever their communicator. So each arrives once and in
// order, whatever rails fail (failover.go). The others may come twice, or late, or not at all, and
// do no harm then.
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
	_ // 15 to 18 are the kinds about rails, in bml
	_
	_
	_
	tagWaiting
	tagNack
)

// Kinds of fragments, as sets of tags.
const (
	messageKinds  = 1<<tagMatch | 1<<tagRndv | 1<<tagRget
	answerKinds   = 1<<tagAck | 1<<tagPut | 1<<tagFin | 1<<tagRestartNotify | 1<<tagRestartAck | 1<<tagRestartNack | 1<<tagNack
	controlKinds  = 1<<tagRevoke | 1<<tagMismatchProbe
	numberedKinds = messageKinds | answerKinds | controlKinds | 1<<tagFinalized | 1<<tagWaiting
)

// isNumbered reports whether fragments of a kind have a sequence number.
func isNumbered(tag btl.Tag) bool { return uint64(numberedKinds)>>tag&1 != 0 }

// isMessage reports whether fragments of a kind are matched with receives.
func isMessage(tag btl.Tag) bool { return uint64(messageKinds)>>tag&1 != 0 }

// isAnswer reports whether fragments of a kind name a request of whom they go to.
func isAnswer(tag btl.Tag) bool { return uint64(answerKinds)>>tag&1 != 0 }

// isControl reports whether fragments of a kind are for the handler of a context (control.go).
func isControl(tag btl.Tag) bool { return uint64(controlKinds)>>tag&1 != 0 }

// Flags of a MATCH, RNDV or RGET.
const (
	// flagPut: the sender can put, if it is given exposures.
	flagPut uint8 = 1 << iota
)

const (
	matchBytes   = 16
	rndvBytes    = 32
	ackBytes     = 40
	fragBytes    = 16
	finBytes     = 16
	restartBytes = 24
	creditBytes  = 16
)

// maxMessageBytes bounds the length that a peer can announce.
const maxMessageBytes = 1 << 56

// errMalformed says that a fragment breaks the wire format.
var errMalformed = bml.ErrMalformed

type matchHdr struct {
	context ContextID
	flags   uint8
	tag     int32
	seq     uint32
}

func (h *matchHdr) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(h.context)|uint64(h.flags)<<48|Version<<56)
	binary.LittleEndian.PutUint64(b[8:], uint64(uint32(h.tag))|uint64(h.seq)<<32)
}

func (h *matchHdr) decode(b []byte) error {
	if len(b) < matchBytes {
		return fmt.Errorf("%w: match of %d bytes", errMalformed, len(b))
	}
	if h.parse(b) {
		return nil
	}
	if v := b[7]; v != Version {
		return fmt.Errorf("%w: wire format version %d, not %d", errMalformed, v, Version)
	}
	return fmt.Errorf("%w: tag %d", errMalformed, h.tag)
}

// parse is decode that does not say what is wrong.
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
		return fmt.Errorf("%w: rendezvous of %d bytes", errMalformed, len(b))
	}
	if err := h.matchHdr.decode(b); err != nil {
		return err
	}
	h.length = int64(binary.LittleEndian.Uint64(b[16:]))
	h.send = handle(binary.LittleEndian.Uint64(b[24:]))
	if h.length < 0 || h.length > maxMessageBytes {
		return fmt.Errorf("%w: rendezvous of length %d", errMalformed, h.length)
	}
	return nil
}

type ackHdr struct {
	send, recv handle
	from, to   int64 // what is still wanted of the message; both the same rejection if it never will be
}

// A rejection in an ACK says that nobody will receive the message.
const (
	freed     = -1 // the receiver has freed the communicator
	unmatched = -2 // all ranks are finalized, and no receive there matches it
)

func (h *ackHdr) rejects() bool {
	return h.from == h.to && (h.from == freed || h.from == unmatched)
}

func (h ackHdr) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(h.send))
	binary.LittleEndian.PutUint64(b[8:], 0) // and the sequence, when it is posted
	binary.LittleEndian.PutUint64(b[16:], uint64(h.recv))
	binary.LittleEndian.PutUint64(b[24:], uint64(h.from))
	binary.LittleEndian.PutUint64(b[32:], uint64(h.to))
}

func (h *ackHdr) decode(b []byte) error {
	if len(b) != ackBytes {
		return fmt.Errorf("%w: acknowledgement of %d bytes", errMalformed, len(b))
	}
	h.send = handle(binary.LittleEndian.Uint64(b))
	h.recv = handle(binary.LittleEndian.Uint64(b[16:]))
	h.from = int64(binary.LittleEndian.Uint64(b[24:]))
	h.to = int64(binary.LittleEndian.Uint64(b[32:]))
	if (h.from < 0 || h.to < h.from) && !h.rejects() {
		return fmt.Errorf("%w: acknowledgement from %d to %d", errMalformed, h.from, h.to)
	}
	return nil
}

// restartHdr is of a RNDVRESTARTNOTIFY or RNDVRESTARTNACK.
type restartHdr struct{ send, recv handle }

func (h restartHdr) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(h.send))
	binary.LittleEndian.PutUint64(b[8:], 0)
	binary.LittleEndian.PutUint64(b[16:], uint64(h.recv))
}

func (h *restartHdr) decode(b []byte) error {
	if len(b) != restartBytes {
		return fmt.Errorf("%w: restart of %d bytes", errMalformed, len(b))
	}
	h.send = handle(binary.LittleEndian.Uint64(b))
	h.recv = handle(binary.LittleEndian.Uint64(b[16:]))
	return nil
}

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
		return fmt.Errorf("%w: fragment of %d bytes", errMalformed, len(b))
	}
	h.recv = handle(binary.LittleEndian.Uint64(b))
	h.offset = int64(binary.LittleEndian.Uint64(b[8:]))
	if h.offset < 0 || h.offset > maxMessageBytes {
		return fmt.Errorf("%w: offset %d", errMalformed, h.offset)
	}
	return nil
}

// finHdr ends a transfer by remote access.
type finHdr struct {
	handle    handle
	ofReceive bool // the handle is of a receive, else of a send
}

func (h finHdr) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(h.handle))
	whose := uint64(0)
	if h.ofReceive {
		whose = 1
	}
	binary.LittleEndian.PutUint64(b[8:], whose) // and the sequence, when it is posted
}

func (h *finHdr) decode(b []byte) error {
	if len(b) != finBytes {
		return fmt.Errorf("%w: end of %d bytes", errMalformed, len(b))
	}
	h.handle = handle(binary.LittleEndian.Uint64(b))
	whose := binary.LittleEndian.Uint32(b[8:])
	if whose > 1 {
		return fmt.Errorf("%w: end of kind %d", errMalformed, whose)
	}
	h.ofReceive = whose == 1
	return nil
}

// creditHdr says how much there has been since the beginning.
type creditHdr struct{ taken, announceable int64 }

func (h creditHdr) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(h.taken))
	binary.LittleEndian.PutUint64(b[8:], uint64(h.announceable))
}

func (h *creditHdr) decode(b []byte) error {
	if len(b) != creditBytes {
		return fmt.Errorf("%w: credit of %d bytes", errMalformed, len(b))
	}
	h.taken = int64(binary.LittleEndian.Uint64(b))
	h.announceable = int64(binary.LittleEndian.Uint64(b[8:]))
	if h.taken < 0 || h.announceable < 0 {
		return fmt.Errorf("%w: credit %d, %d", errMalformed, h.taken, h.announceable)
	}
	return nil
}
