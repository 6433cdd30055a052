package audit

import "encoding/binary"

// Mismatch is a part whose length or kind of elements differs between its sender and its receiver.
type Mismatch struct {
	Found       bool
	Sender      int
	Receiver    int
	Sent, Due   int  // in bytes
	ElemBytes   int  // size of an element at the receiver
	IsAgreement bool // the ranks have to agree on both lengths, as in ReduceScatter
	IsType      bool // Sent and Due are kinds of elements, not lengths
}

// MismatchBytes is the length of an encoded Mismatch.
const MismatchBytes = 48

// Encode returns the record of a mismatch:
//
//	flags 8, sender 8, receiver 8, sent 8, due 8, size of an element 8
func (m *Mismatch) Encode() []byte {
	flags := uint64(0)
	if m.Found {
		flags |= 1
	}
	if m.IsAgreement {
		flags |= 2
	}
	if m.IsType {
		flags |= 4
	}
	b := make([]byte, 0, MismatchBytes)
	for _, v := range [...]uint64{flags, uint64(m.Sender), uint64(m.Receiver), uint64(m.Sent), uint64(m.Due), uint64(m.ElemBytes)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// Decode is the inverse of Encode. ok is false for bytes that Encode does not write.
func (m *Mismatch) Decode(b []byte) (ok bool) {
	if len(b) != MismatchBytes {
		return false
	}
	number := func(i int) int { return int(binary.LittleEndian.Uint64(b[8*i:])) }
	flags := number(0)
	*m = Mismatch{
		Found: flags&1 != 0, IsAgreement: flags&2 != 0, IsType: flags&4 != 0,
		Sender: number(1), Receiver: number(2), Sent: number(3), Due: number(4), ElemBytes: number(5),
	}
	return flags&^7 == 0 && (!m.IsType || max(m.Sent, m.Due) <= MaxKind) && m.Sender >= 0 && m.Receiver >= 0 && m.Sent >= 0 && m.Due >= 0 && m.ElemBytes >= 0
}

// Part describes a part on the wire: its length in bytes, and the kind of its elements if it has
// any.
func Part(bytes int, kind Kind) uint64 {
	if bytes == 0 {
		return 0
	}
	return uint64(bytes) | uint64(kind)<<kindAt
}

// Compare fills in how the part that a sender describes differs from the one that the receiver
// expects.
func (m *Mismatch) Compare(sender int, told uint64, bytes int, kind Kind) {
	sent, sentKind := int(told&(1<<kindAt-1)), Kind(told>>kindAt)
	switch {
	case sent > 0 && bytes > 0 && !sentKind.Fits(kind):
		m.Found, m.IsType, m.Sender, m.Sent, m.Due = true, true, sender, int(sentKind), int(kind)
	case sent != bytes:
		m.Found, m.Sender, m.Sent, m.Due = true, sender, sent, bytes
	}
}

// kindAt is the place of the kind in a Part.
const kindAt = 56

// CompareMismatches returns the error of the first rank, in all ranks' records, that has found a
// mismatch. So it is the same at all ranks.
func CompareMismatches(call string, records []byte) error {
	for rank := 0; len(records) >= MismatchBytes; rank++ {
		var m Mismatch
		if !m.Decode(records[:MismatchBytes]) {
			return differ(ErrCall, "rank %d describes its call wrongly", rank)
		}
		if m.Found {
			return m.difference(call)
		}
		records = records[MismatchBytes:]
	}
	return nil
}

func (m *Mismatch) difference(call string) error {
	if m.IsType {
		return differ(ErrType, "in %s, rank %d sends %v to rank %d, which expects %v", call, m.Sender, Kind(m.Sent), m.Receiver, Kind(m.Due))
	}
	sent, due, unit := m.Sent, m.Due, "bytes"
	if size := m.ElemBytes; size > 0 && sent%size == 0 && due%size == 0 {
		sent, due, unit = sent/size, due/size, "elements"
	}
	if m.IsAgreement {
		return differ(ErrCount, "in %s, rank %d counts %d %s for rank %d, which counts %d", call, m.Sender, sent, unit, m.Receiver, due)
	}
	return differ(ErrCount, "in %s, rank %d sends %d %s to rank %d, which expects %d", call, m.Sender, sent, unit, m.Receiver, due)
}
