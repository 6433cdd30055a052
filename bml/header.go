package bml

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/btl"
)

// ErrMalformed says that a fragment breaks the wire format.
var ErrMalformed = errors.New("malformed fragment")

const (
	railBytes      = 24
	remoteKeyBytes = 48
)

// railHeader is the header of a message about a rail.
type railHeader struct {
	// The rail's modules at the message's sender and at its receiver.
	sender, receiver uint8
	version          uint8
	gaveUp           bool // in RAILDOWN: the sender has given the receiver up
	notNeeded        bool // in RAILDOWN: the rail is up, and is to be closed unless it is needed
	epoch            uint32
	// counters of an incarnation that is drained at the sender.
	counters deliveryCounters
	// padding is the number of bytes that follow: a PROBE is as long as the longest fragment.
	padding uint32
}

// deliveryCounters are the counts of one end for an incarnation that is drained there. The zero
// value: no counts.
type deliveryCounters struct {
	epoch            uint32
	delivered, taken uint32 // as btl.DeliveryCounter has them
}

func (h *railHeader) encode(p []byte) {
	binary.LittleEndian.PutUint64(p, uint64(h.sender)|uint64(h.version)<<8|uint64(h.receiver)<<16|uint64(h.epoch)<<32)
	if h.gaveUp {
		p[3] |= 1
	}
	if h.notNeeded {
		p[3] |= 2
	}
	binary.LittleEndian.PutUint64(p[8:], uint64(h.counters.epoch)|uint64(h.counters.delivered)<<32)
	binary.LittleEndian.PutUint64(p[16:], uint64(h.counters.taken)|uint64(h.padding)<<32)
}

func (h *railHeader) decode(p []byte, version uint8) error {
	if len(p) < railBytes {
		return fmt.Errorf("%w: %d bytes about a rail", ErrMalformed, len(p))
	}
	first := binary.LittleEndian.Uint64(p)
	h.sender, h.version, h.receiver, h.epoch = uint8(first), uint8(first>>8), uint8(first>>16), uint32(first>>32)
	h.gaveUp, h.notNeeded = p[3]&1 != 0, p[3]&2 != 0
	second := binary.LittleEndian.Uint64(p[8:])
	h.counters = deliveryCounters{epoch: uint32(second), delivered: uint32(second >> 32), taken: binary.LittleEndian.Uint32(p[16:])}
	h.padding = binary.LittleEndian.Uint32(p[20:])
	if h.version != version {
		return fmt.Errorf("%w: wire format version %d, not %d", ErrMalformed, h.version, version)
	}
	if uint64(len(p)) != railBytes+uint64(h.padding) {
		return fmt.Errorf("%w: %d bytes about a rail, with %d of padding", ErrMalformed, len(p), h.padding)
	}
	return nil
}

// remoteKey is a remote key descriptor: it says where a module finds memory for remote access.
type remoteKey struct {
	module uint8 // of the rank whose memory it is
	offset uint64
	key    btl.Key
}

func (k *remoteKey) encode(p []byte) {
	binary.LittleEndian.PutUint64(p, uint64(k.module))
	binary.LittleEndian.PutUint64(p[8:], k.offset)
	copy(p[16:remoteKeyBytes], k.key[:])
}

func (k *remoteKey) decode(p []byte) {
	k.module = p[0]
	k.offset = binary.LittleEndian.Uint64(p[8:])
	k.key = btl.Key(p[16:remoteKeyBytes])
}

// MaxRemoteKeysBytes is the longest list of remote key descriptors.
const MaxRemoteKeysBytes = maxModules * remoteKeyBytes

// CheckRemoteKeys checks the length of a list of remote key descriptors.
func CheckRemoteKeys(list []byte) error {
	if len(list)%remoteKeyBytes != 0 || len(list) > MaxRemoteKeysBytes {
		return fmt.Errorf("%w: %d bytes of remote key descriptors", ErrMalformed, len(list))
	}
	return nil
}

// RemoteKeysBytes is the length of a list for all modules that lead to a peer.
func (pr *Peer) RemoteKeysBytes() int { return pr.modules * remoteKeyBytes }
