package sm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// address is the address that a rank publishes: where its segment is, and the segment's layout.
type address struct {
	host       [16]byte // identifies the kernel and the namespace of process numbers
	nonce      [16]byte // identifies the segment
	rank       uint32
	size       uint32
	pid        uint32
	segment    uint32 // descriptor number in that process
	wakeup     uint32 // descriptor number in that process, noWakeup if there is none
	wakeupNode uint64 // inode of the wakeup pipe
	slots      uint32
	data       uint64
	longest    uint64
	// fences: the rank issues the fence for its senders when it falls asleep, see idle.go.
	fences bool
}

const (
	addressMagic   = 0x6d73_6f67_6970_6d01
	addressVersion = 3 // also covers the ring's layout
	addressBytes   = 96
	noWakeup       = 1<<32 - 1
)

var errAddress = errors.New("not an address of this kind")

func (c *address) encode() []byte {
	b := make([]byte, 0, addressBytes)
	le := binary.LittleEndian
	b = le.AppendUint64(b, addressMagic)
	b = le.AppendUint32(b, addressVersion)
	var flags uint32
	if c.fences {
		flags = 1
	}
	b = le.AppendUint32(b, flags)
	b = append(b, c.host[:]...)
	b = append(b, c.nonce[:]...)
	b = le.AppendUint32(b, c.rank)
	b = le.AppendUint32(b, c.size)
	b = le.AppendUint32(b, c.pid)
	b = le.AppendUint32(b, c.segment)
	b = le.AppendUint32(b, c.wakeup)
	b = le.AppendUint32(b, c.slots)
	b = le.AppendUint64(b, c.wakeupNode)
	b = le.AppendUint64(b, c.data)
	return le.AppendUint64(b, c.longest)
}

func parseAddress(b []byte) (address, error) {
	le := binary.LittleEndian
	if len(b) != addressBytes || le.Uint64(b) != addressMagic {
		return address{}, errAddress
	}
	if v := le.Uint32(b[8:]); v != addressVersion {
		return address{}, fmt.Errorf("%w: version %d, not %d", errAddress, v, addressVersion)
	}
	c := address{
		fences:     le.Uint32(b[12:])&1 != 0,
		rank:       le.Uint32(b[48:]),
		size:       le.Uint32(b[52:]),
		pid:        le.Uint32(b[56:]),
		segment:    le.Uint32(b[60:]),
		wakeup:     le.Uint32(b[64:]),
		slots:      le.Uint32(b[68:]),
		wakeupNode: le.Uint64(b[72:]),
		data:       le.Uint64(b[80:]),
		longest:    le.Uint64(b[88:]),
	}
	copy(c.host[:], b[16:])
	copy(c.nonce[:], b[32:])
	return c, nil
}
