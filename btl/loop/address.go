package loop

import (
	"encoding/binary"

	"github.com/mpigo/mpigo/btl"
)

// An address names a port. The key of a region begins with the address of its port:
//
//	0   magic, 4 bytes
//	4   fabric, 8 bytes
//	12  rank, 4 bytes
//	16  rail, 4 bytes
//
// A key continues:
//
//	20  slot, 4 bytes
//	24  generation, 4 bytes
//	28  zero, 4 bytes
const (
	addressBytes = 20
	magic        = "LOOP"
)

type address struct {
	fabric     uint64
	rank, rail uint32
}

func (a address) append(b []byte) []byte {
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint64(b, a.fabric)
	b = binary.LittleEndian.AppendUint32(b, a.rank)
	return binary.LittleEndian.AppendUint32(b, a.rail)
}

// parseAddress decodes an address. The fabric, rank and rail that it names need not exist.
func parseAddress(b []byte) (a address, ok bool) {
	if len(b) != addressBytes || string(b[:4]) != magic {
		return address{}, false
	}
	return address{
		fabric: binary.LittleEndian.Uint64(b[4:]),
		rank:   binary.LittleEndian.Uint32(b[12:]),
		rail:   binary.LittleEndian.Uint32(b[16:]),
	}, true
}

// handle names a region within its port.
type handle struct{ slot, generation uint32 }

func makeKey(a address, h handle) (k btl.Key) {
	b := a.append(k[:0])
	b = binary.LittleEndian.AppendUint32(b, h.slot)
	binary.LittleEndian.AppendUint32(b, h.generation)
	return k
}

// parseKey decodes a key. The port and region that it names need not exist.
func parseKey(k btl.Key) (a address, h handle, ok bool) {
	a, ok = parseAddress(k[:addressBytes])
	if !ok || binary.LittleEndian.Uint32(k[28:]) != 0 {
		return address{}, handle{}, false
	}
	h.slot = binary.LittleEndian.Uint32(k[20:])
	h.generation = binary.LittleEndian.Uint32(k[24:])
	return a, h, true
}
