package btltest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/mpigo/mpigo/btl"
)

// ledger records every fragment of one direction, in the order of acceptance. The harness's mu
// guards it.
type ledger struct {
	name    string
	entries []*entry
	cursor  int    // of the first entry that may still arrive in order
	arrived int    // since the last warmUp
	noise   []byte // every fragment is a piece of it; made by newHarness
}

// entry is one fragment.
type entry struct {
	index      int
	generation int // of the connection on which it was sent
	tag        btl.Tag
	hdr, size  int // bytes of the header, and of header and payload
	succeeded  bool
	failed     bool
	refused    bool
	arrived    bool
}

// add records a fragment that is about to be posted. Its content follows from its index.
func (l *ledger) add(generation, hdr, size int) *entry {
	i := len(l.entries)
	e := &entry{index: i, generation: generation, tag: btl.Tag(i*7 + 3), hdr: hdr, size: size}
	l.entries = append(l.entries, e)
	return e
}

// withdraw removes a refused fragment. Its successor gets the same index and content. If the
// fragment was sent nevertheless, its successor seems to arrive twice.
func (l *ledger) withdraw(e *entry) {
	if e.arrived || e.index != len(l.entries)-1 {
		e.refused = true
		return
	}
	l.entries = l.entries[:len(l.entries)-1]
}

// offsets is the number of different contents for one size.
const offsets = 1 << 16

// makeNoise makes the bytes that fragments of up to n bytes are pieces of.
func makeNoise(n int) []byte {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	b := make([]byte, 0, offsets+n+8)
	for len(b) < offsets+n {
		b = binary.LittleEndian.AppendUint64(b, rng.Uint64())
	}
	return b
}

// contentOf returns the content of the fragment. The caller must not change it.
func (l *ledger) contentOf(e *entry) []byte {
	at := int(uint32(e.index)*2654435761>>16) % offsets
	return l.noise[at : at+e.size]
}

// is reports whether frag is the fragment of an entry.
func (l *ledger) is(e *entry, tag btl.Tag, frag []byte) bool {
	return e.tag == tag && e.size == len(frag) && bytes.Equal(l.contentOf(e), frag)
}

// take records an arrival. drained is the last connection that the receiver has drained: no
// fragment of it, or of earlier ones, may arrive.
func (l *ledger) take(tag btl.Tag, frag []byte, drained int) error {
	for i := l.cursor; i < len(l.entries); i++ {
		e := l.entries[i]
		if e.arrived || !l.is(e, tag, frag) {
			continue
		}
		e.arrived = true
		l.arrived++
		l.cursor = i + 1
		if e.refused {
			return fmt.Errorf("%s: fragment %d arrives, which was refused", l.name, i)
		}
		if e.generation <= drained {
			return fmt.Errorf("%s: fragment %d of connection %d arrives after that was drained", l.name, i, e.generation)
		}
		return nil
	}
	for i, e := range l.entries[:l.cursor] {
		if l.is(e, tag, frag) {
			return fmt.Errorf("%s: fragment %d arrives twice or out of order, next is %d", l.name, i, l.cursor)
		}
	}
	return fmt.Errorf("%s: a fragment arrives that was not sent: tag %d, %d bytes; next is %d", l.name, tag, len(frag), l.cursor)
}

// missing returns the index of a fragment that was reported as delivered and has not arrived, or
// -1.
func (l *ledger) missing() int {
	for i, e := range l.entries {
		if e.succeeded && !e.arrived {
			return i
		}
	}
	return -1
}
