package pml

import (
	"encoding/binary"
	"fmt"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
)

// The wire format of the BML, independent of the code of package bml. Tests use it to encode and
// decode what ranks exchange.

const (
	railBytes        = 24
	remoteKeyBytes   = 48
	maxModules       = 8
	remotePieceBytes = 256 << 10 // the longest piece of remote access
	pipelineDepth    = 8         // pieces of a message that are under way on one rail
	// How often an operation may fail with ClassUsage before it is refused.
	maxMistakes = 3
)

// deliveryCounters are part of a railHeader.
type deliveryCounters struct{ epoch, delivered, taken uint32 }

// railHeader is the header of RAILDOWN, RAILDOWNACK, PROBE and PROBEACK.
type railHeader struct {
	rail     uint8 // the module at the sender
	other    uint8 // that at the receiver
	flags    uint8
	epoch    uint32
	counters deliveryCounters
	padding  uint32
}

func (h *railHeader) encode(b []byte) {
	b[0], b[1], b[2], b[3] = h.rail, Version, h.other, h.flags
	for i, v := range []uint32{h.epoch, h.counters.epoch, h.counters.delivered, h.counters.taken, h.padding} {
		binary.LittleEndian.PutUint32(b[4+4*i:], v)
	}
}

func (h *railHeader) decode(b []byte) error {
	if len(b) < railBytes || b[1] != Version {
		return fmt.Errorf("%w: not about a rail: %x", errMalformed, b)
	}
	var v [5]uint32
	for i := range v {
		v[i] = binary.LittleEndian.Uint32(b[4+4*i:])
	}
	*h = railHeader{b[0], b[2], b[3], v[0], deliveryCounters{v[1], v[2], v[3]}, v[4]}
	if uint64(len(b)) != railBytes+uint64(h.padding) {
		return fmt.Errorf("%w: padding", errMalformed)
	}
	return nil
}

// remoteKey is a remote key descriptor.
type remoteKey struct {
	rail   uint8
	offset uint64
	key    btl.Key
}

func (k *remoteKey) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(k.rail))
	binary.LittleEndian.PutUint64(b[8:], k.offset)
	copy(b[16:remoteKeyBytes], k.key[:])
}

// isBound reports whether operations with a tag are bound to one rail.
func isBound(tag btl.Tag) bool {
	return tag == tagFrag || tag == bml.TagGet || tag == bml.TagPut || tag == bml.TagProbe || tag == bml.TagProbeAck
}
