package sm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// card is what a rank publishes: where its segment is, and what is to be found there.
type card struct {
	host     [16]byte // names the kernel and the process number space
	nonce    [16]byte // names the segment
	rank     uint32
	size     uint32
	pid      uint32
	segment  uint32 // descriptor number in that process
	bell     uint32 // likewise, noBell if none
	bellNode uint64 // inode of the bell's pipe
	slots    uint32
	data     uint64
	longest  uint64
	fences   bool // its sleepers fence for those who publish, see idle.go
}

const (
	cardMagic   = 0x6d73_6f67_6970_6d01
	cardVersion = 1
	cardBytes   = 96
	noBell      = 1<<32 - 1
)

var errCard = errors.New("not a card of this kind")

func (c *card) encode() []byte {
	b := make([]byte, 0, cardBytes)
	le := binary.LittleEndian
	b = le.AppendUint64(b, cardMagic)
	b = le.AppendUint32(b, cardVersion)
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
	b = le.AppendUint32(b, c.bell)
	b = le.AppendUint32(b, c.slots)
	b = le.AppendUint64(b, c.bellNode)
	b = le.AppendUint64(b, c.data)
	return le.AppendUint64(b, c.longest)
}

func parseCard(b []byte) (card, error) {
	le := binary.LittleEndian
	if len(b) != cardBytes || le.Uint64(b) != cardMagic {
		return card{}, errCard
	}
	if v := le.Uint32(b[8:]); v != cardVersion {
		return card{}, fmt.Errorf("%w: version %d, not %d", errCard, v, cardVersion)
	}
	c := card{
		fences:   le.Uint32(b[12:])&1 != 0,
		rank:     le.Uint32(b[48:]),
		size:     le.Uint32(b[52:]),
		pid:      le.Uint32(b[56:]),
		segment:  le.Uint32(b[60:]),
		bell:     le.Uint32(b[64:]),
		slots:    le.Uint32(b[68:]),
		bellNode: le.Uint64(b[72:]),
		data:     le.Uint64(b[80:]),
		longest:  le.Uint64(b[88:]),
	}
	copy(c.host[:], b[16:])
	copy(c.nonce[:], b[32:])
	return c, nil
}
