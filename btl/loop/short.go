package loop

import (
	"encoding/binary"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

var (
	_ btl.ShortSender   = (*endpoint)(nil)
	_ btl.ShortReceiver = (*endpoint)(nil)
)

// shortHeader is the length of the header that SendShort and ReceiveShort take in two words.
const shortHeader = 16

// SendShort implements btl.ShortSender. If it does not send, SendInline finds out why.
func (e *endpoint) SendShort(tag btl.Tag, first, second uint64, payload []byte) bool {
	n := shortHeader + len(payload)
	if e.State() != btl.Up || n > e.m.Attrs().InlineBytes || !e.isPlain() || e.out.next().word.Load() != slotEmpty {
		return false
	}
	to := e.out.place(&e.m.bufs, n)
	binary.LittleEndian.PutUint64(to, first)
	binary.LittleEndian.PutUint64(to[8:], second)
	copy(to[shortHeader:], payload)
	return e.out.commit(e.Epoch(), tag, n) == published
}

// ReceiveShort implements btl.ShortReceiver.
func (e *endpoint) ReceiveShort(polls int, tag btl.Tag, first, second uint64, buf []byte) int {
	l := e.peer.in
	if l == nil || l.inc != e.inc || l.slots == nil || !e.Accepts() {
		return -1
	}
	word := &l.slots[l.head&l.mask].word
	for word.Load()&slotFull == 0 {
		if polls--; polls <= 0 {
			return -1
		}
		progress.Relax()
	}
	s, fragTag, frag := l.fragment()
	if fragTag != tag || s.epoch != l.inc.epoch || len(frag) < shortHeader || len(frag)-shortHeader > len(buf) ||
		binary.LittleEndian.Uint64(frag) != first || binary.LittleEndian.Uint64(frag[8:]) != second {
		return -1
	}
	n := copy(buf, frag[shortHeader:])
	l.idle = 0
	l.pass(s, slotEmpty)
	return n
}
