package base

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/mpigo/mpigo/btl"
)

// MaxRanks is how many ranks a job may have.
const MaxRanks = 1 << 20

// AddressForm is the form of the addresses that the modules of a transport publish. An address is a
// version, its owner, fields of the transport, and a checksum.
type AddressForm struct {
	// Transport is not part of an address, but of its checksum: an address of one transport is
	// none of another.
	Transport string
	Version   byte
}

// AddressOwner is the rank that publishes an address, and the size of its job.
type AddressOwner struct{ Rank, Size uint32 }

// The parts of an address that all transports have.
const (
	ownerBytes    = 4 + 4
	checksumBytes = 4
)

// Encode makes an address. Fields are structs, to which pointers point, and slices of structs: with
// exported fields of a fixed size.
func (f AddressForm) Encode(owner AddressOwner, fields ...any) []byte {
	var b []byte
	for _, part := range append([]any{&owner}, fields...) {
		var err error
		if b, err = binary.Append(b, binary.LittleEndian, part); err != nil {
			panic(err) // its size is not fixed
		}
	}
	return f.Seal(b)
}

// Seal makes an address of what is between version and checksum. Tests use it to get any content
// past the checksum.
func (f AddressForm) Seal(content []byte) []byte {
	b := append([]byte{f.Version}, content...)
	return binary.LittleEndian.AppendUint32(b, f.checksum(b))
}

func (f AddressForm) checksum(b []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE([]byte(f.Transport)), crc32.IEEETable, b)
}

// Bytes is the length of an address with such fields.
func (f AddressForm) Bytes(fields ...any) int {
	n := 1 + ownerBytes + checksumBytes
	for _, part := range fields {
		n += binary.Size(part)
	}
	return n
}

// Decode is the inverse of Encode. It fills slices as long as they are. ok is false for an address
// of another transport, version or length, for one that was damaged on its way, and for one whose
// owner can be no rank. CheckOwner says whether the owner is the expected one.
func (f AddressForm) Decode(b []byte, fields ...any) (owner AddressOwner, ok bool) {
	n := len(b) - checksumBytes
	if len(b) != f.Bytes(fields...) || b[0] != f.Version || f.checksum(b[:n]) != binary.LittleEndian.Uint32(b[n:]) {
		return AddressOwner{}, false
	}
	at := 1
	for _, part := range append([]any{&owner}, fields...) {
		read, err := binary.Decode(b[at:n], binary.LittleEndian, part)
		if err != nil {
			return AddressOwner{}, false
		}
		at += read
	}
	return owner, owner.Rank < owner.Size && owner.Size <= MaxRanks
}

// CheckOwner checks whether an address belongs to a rank of this job. ok says whether it could be
// decoded, and theirs is its owner then. ours is the owner of this module.
func (r *Module[E]) CheckOwner(peer int, theirs AddressOwner, ok bool, ours AddressOwner) error {
	switch {
	case !ok:
		return fmt.Errorf("rail %s: %w: not an address of this kind of rail, or of another version of it", r.attrs.Name, btl.ErrUnreachable)
	case peer < 0 || peer >= int(ours.Size) || theirs.Rank != uint32(peer):
		return fmt.Errorf("rail %s: %w: address of rank %d for rank %d", r.attrs.Name, btl.ErrUnreachable, theirs.Rank, peer)
	case theirs.Size != ours.Size:
		return r.NewError(peer, btl.ClassUsage, btl.SideBoth, "", fmt.Errorf("a job of %d ranks there, of %d here", theirs.Size, ours.Size))
	}
	return nil
}
