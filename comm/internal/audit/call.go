package audit

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Call describes a rank's collective call.
type Call struct {
	Name string // in Go: "Allreduce"
	Type Type   // of the elements; the zero Type if the call has none
	Op   Op     // of a reduction
	Root int    // NoRoot if the call has none
	// Bytes is a length that has to be the same at all ranks, or NoLength.
	Bytes   int
	InOrder bool // a reduction in the order of ranks
	InPlace bool // in place; all ranks have to agree on that
}

const (
	// NoRoot is the root of a call that has none.
	NoRoot = -1 << 63
	// NoLength is the length of a call whose lengths may differ.
	NoLength = -1
)

// Ways in which calls differ.
var (
	ErrCall  = errors.New("other calls")
	ErrType  = errors.New("other types")
	ErrRoot  = errors.New("other roots")
	ErrOp    = errors.New("other operations")
	ErrCount = errors.New("other lengths")
)

// Difference is how the calls of two ranks differ. It Is one of the errors above.
type Difference struct {
	What error
	Text string
}

func (d *Difference) Error() string        { return d.Text }
func (d *Difference) Is(target error) bool { return target == d.What }

func differ(what error, format string, args ...any) error {
	return &Difference{what, fmt.Sprintf(format, args...)}
}

// RecordBytes is the length of an encoded call.
const RecordBytes = 256

// Lengths of the names in a record, the byte for their own length included. Longer names are cut.
const (
	nameBytes = 32
	typeBytes = 80
	opBytes   = 96
)

// Flags of a record.
const (
	flagInOrder = 1 << iota
	flagInPlace
	flagAnyOp
	flagsKnown = flagInOrder | flagInPlace | flagAnyOp
)

// Encode returns the record of a call. Numbers are little-endian:
//
//	name 32, type 80, operation 96, layout 8, digest of the operation 8, root 8, bytes 8,
//	size of an element 8, kind 1, flags 1, zero 6
//
// A name is its length, 1, and its bytes.
func (c *Call) Encode() []byte {
	b := make([]byte, 0, RecordBytes)
	b = appendName(b, c.Name, nameBytes)
	b = appendName(b, c.Type.Name, typeBytes)
	b = appendName(b, c.Op.Name, opBytes)
	b = binary.LittleEndian.AppendUint64(b, c.Type.Layout)
	b = binary.LittleEndian.AppendUint64(b, c.Op.Digest)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Root))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Bytes))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Type.Size))
	flags := byte(0)
	for i, is := range [...]bool{c.InOrder, c.InPlace, c.Op.MayBeAny} {
		if is {
			flags |= 1 << i
		}
	}
	return append(b, byte(c.Type.Kind), flags, 0, 0, 0, 0, 0, 0)
}

func appendName(b []byte, name string, room int) []byte {
	name = name[:min(len(name), room-1)]
	b = append(append(b, byte(len(name))), name...)
	return append(b, make([]byte, room-1-len(name))...)
}

// Decode is the inverse of Encode. ok is false for bytes that Encode does not write.
func (c *Call) Decode(b []byte) (ok bool) {
	if len(b) != RecordBytes {
		return false
	}
	ok = true
	name := func(room int) string {
		n := int(b[0])
		ok = ok && n < room
		text := string(b[1 : 1+min(n, room-1)])
		b = b[room:]
		return text
	}
	number := func() uint64 {
		v := binary.LittleEndian.Uint64(b)
		b = b[8:]
		return v
	}
	*c = Call{Name: name(nameBytes), Type: Type{Name: name(typeBytes)}, Op: Op{Name: name(opBytes)}}
	c.Type.Layout, c.Op.Digest = number(), number()
	c.Root, c.Bytes, c.Type.Size = int(number()), int(number()), int(number())
	flags := b[1]
	c.Type.Kind = Kind(b[0])
	c.InOrder, c.InPlace, c.Op.MayBeAny = flags&flagInOrder != 0, flags&flagInPlace != 0, flags&flagAnyOp != 0
	return ok && c.Type.Kind <= MaxKind && flags&^flagsKnown == 0 && c.Type.Size >= 0 && c.Bytes >= NoLength
}

// Compare compares the records of all ranks, one after the other. The error is about the first rank
// whose call differs from those before it, so it is the same at all ranks. Bytes fit every type,
// and so does a slice without elements. So types are compared with that of the first rank that has
// elements other than bytes.
func Compare(records []byte) error {
	var first, other Call
	typed, typedRank := Type{}, 0
	for rank := 0; len(records) >= RecordBytes; rank++ {
		if !other.Decode(records[:RecordBytes]) {
			return differ(ErrCall, "rank %d describes its call wrongly", rank)
		}
		records = records[RecordBytes:]
		if rank == 0 {
			first, typed = other, other.Type
			continue
		}
		if err := other.differenceFrom(rank, &first, typedRank, typed); err != nil {
			return err
		}
		if typed.Kind <= Bytes && other.Type.Kind > typed.Kind {
			typed, typedRank = other.Type, rank
		}
	}
	return nil
}

// differenceFrom is how the call of a rank differs from that of rank 0, or its type from that of
// typedRank; nil if it does not.
func (c *Call) differenceFrom(rank int, first *Call, typedRank int, typed Type) error {
	switch {
	case c.Name != first.Name:
		return differ(ErrCall, "rank %d calls %s, rank 0 %s", rank, c.Name, first.Name)
	case c.Root != first.Root:
		return differ(ErrRoot, "rank %d calls %s with root %d, rank 0 with root %d", rank, c.Name, c.Root, first.Root)
	case !c.Type.fits(typed, c.Op.Name != "" || first.Op.Name != ""):
		if c.Type.Name == typed.Name {
			return differ(ErrType, "rank %d calls %s of %v with another layout than that of rank %d", rank, c.Name, c.Type, typedRank)
		}
		return differ(ErrType, "rank %d calls %s of %v, rank %d of %v", rank, c.Name, c.Type, typedRank, typed)
	case !c.Op.fits(first.Op):
		if c.Op.Name == first.Op.Name {
			return differ(ErrOp, "rank %d calls %s with another %s than rank 0", rank, c.Name, c.Op.Name)
		}
		return differ(ErrOp, "rank %d calls %s with %s, rank 0 with %s", rank, c.Name, c.Op.Name, first.Op.Name)
	case c.InOrder != first.InOrder:
		return differ(ErrOp, "rank %d calls %s %s InRankOrder, rank 0 %s", rank, c.Name, with(c.InOrder), with(first.InOrder))
	case c.InPlace != first.InPlace:
		return differ(ErrCount, "rank %d calls %s %s, rank 0 %s", rank, c.Name, place(c.InPlace), place(first.InPlace))
	case c.Bytes != first.Bytes && c.Type.Size == first.Type.Size && c.Type.Size > 0:
		size := c.Type.Size
		return differ(ErrCount, "rank %d calls %s of %d elements, rank 0 of %d", rank, c.Name, c.Bytes/size, first.Bytes/size)
	case c.Bytes != first.Bytes:
		return differ(ErrCount, "rank %d calls %s of %d bytes, rank 0 of %d", rank, c.Name, c.Bytes, first.Bytes)
	}
	return nil
}

func with(is bool) string {
	if is {
		return "with"
	}
	return "without"
}

func place(is bool) string {
	if is {
		return "in place"
	}
	return "with two slices"
}
