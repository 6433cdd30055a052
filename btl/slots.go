package btl

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/progress"
)

// SlotReceiver is a ShortReceiver whose short fragments lie in slots of a ring. A caller that
// expects several of them may take them there, without a call for each.
type SlotReceiver interface {
	ShortReceiver
	// Slots returns a view of the slots, from that of the next fragment which Module.Progress would
	// hand up from this peer. It reports false if there is none now. The view is valid until the
	// next call of any other method of the endpoint or its module.
	Slots() (Slots, bool)
	// TakeSlots says that n fragments were taken from the last view: they are handed up.
	TakeSlots(n int)
}

// Slots is a view of a ring of slots. A slot begins with a word:
//
//	bits  0–31  SlotSequence of the number of the fragment, which counts from 1
//	bits 32–39  tag
//	bits 40–51  length of the fragment, which follows the word; it is not in the slot if the length
//	            is above Longest
//	bits 52–63  the same in all words of a view
//
// The peer stores the word last.
type Slots struct {
	// Base is the first slot of the ring. Mask is the number of slots, a power of two, less one.
	// Stride is the distance of slots.
	Base         unsafe.Pointer
	Mask, Stride uint64
	// Taken counts the fragments before the next one.
	Taken uint64
	// Word is the upper bits of the words.
	Word uint64
	// Longest fragment in a slot.
	Longest uint64
	// Most is how many fragments may be taken before TakeSlots is called.
	Most int
}

// SlotSequence is what a slot's word has of the number of its fragment: never 0, which is the word
// of a slot without one.
func SlotSequence(number uint64) uint32 { return uint32(number) | 1<<31 }

const (
	shortHeader = 16
	lengthMask  = 1<<12 - 1
	lengthShift = 40
)

// Take takes the next fragment on the terms of ReceiveShort.
func (s *Slots) Take(polls int, tag Tag, first, second uint64, buf []byte) int {
	slot := unsafe.Add(s.Base, (s.Taken&s.Mask)*s.Stride)
	want := s.Word | uint64(tag)<<32 | uint64(SlotSequence(s.Taken+1))
	w := atomic.LoadUint64((*uint64)(slot))
	for uint32(w) != uint32(want) {
		if polls--; polls <= 0 {
			return -1
		}
		progress.Relax()
		w = atomic.LoadUint64((*uint64)(slot))
	}
	n := w >> lengthShift & lengthMask
	payload := n - shortHeader
	if (w^want)&^(lengthMask<<lengthShift) != 0 || n > s.Longest || payload > uint64(len(buf)) ||
		binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(slot, 8))[:]) != first ||
		binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(slot, 16))[:]) != second {
		return -1
	}
	if payload == 8 {
		*(*[8]byte)(buf) = *(*[8]byte)(unsafe.Add(slot, 24))
	} else {
		copy(buf, unsafe.Slice((*byte)(unsafe.Add(slot, 24)), payload))
	}
	s.Taken++
	return int(payload)
}
