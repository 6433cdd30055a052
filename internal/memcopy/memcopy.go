// Package memcopy copies the bytes of messages into memory that another processor will read.
//
// The speed of a copy depends on the location and the model of both processors. Go's copy fetches
// each line that it overwrites from the cache of the processor that read it last. If the two
// processors share a cache, the fetch is cheap, and the reader finds the bytes in that cache.
// Otherwise the fetch can take four times as long as the rest of the copy. Then it is better to
// write past the caches into memory, although the reader has to fetch the bytes from there. On some
// processors the string instruction writes whole lines into the cache without fetching them first.
//
// The placement may change while a program runs, in a virtual machine or without binding. So a
// Writer measures each way periodically, and uses the fastest.
package memcopy

import "sync/atomic"

// way is a way to copy.
type way uint8

const (
	plain  way = iota // Go's copy: vector stores
	str               // the string instruction, rep movsb
	stream            // non-temporal stores, past the caches
	ways
)

const (
	// minBytes is the length of the shortest long copy. Shorter ones are always plain: in exchanges
	// of short messages the time to reach memory counts more than the rate.
	minBytes = 8 << 10
	// timedEvery: one in timedEvery long copies is measured.
	timedEvery = 4
	// A trial is trialSpans long, because the way used before it determines in which cache its
	// first lines are. It takes up to four times as long as other copies. The first trials are
	// trialSpans apart, all others betweenSpans.
	trialSpans   = 2
	betweenSpans = 64
	firstTrials  = 5 // the first one is of plain
	// percentToSwitch: the Writer changes to another way if the current one costs more than this
	// percentage of the other's cost. The margin keeps the choice from oscillating.
	percentToSwitch = 115
	// unitBytes: costs are in processor ticks for unitBytes bytes.
	unitBytes = 64 << 10
	// maxTicks bounds a measurement, so that costs do not overflow.
	maxTicks = 1<<40 - 1
	// serialShift: an answer is the serial number of the copy, above the ticks of the reader.
	serialShift = 48
	// forgetAfter is the number of long copies after which an answer is no longer awaited.
	forgetAfter = 256
)

// Writer copies to one reader, into a buffer that is reused cyclically. One goroutine at a time may
// use it.
type Writer struct {
	// Span is the number of bytes that are written before the same place is written again.
	Span uint64

	best    way
	now     way // the best, or the one on trial
	onTrial bool
	last    way    // of the last trial
	trials  uint8  // made, up to firstTrials
	left    int64  // bytes until a trial begins or ends
	copies  uint32 // long ones
	// The copy that the reader measures, if waits is set.
	waits  bool
	serial uint16
	by     way
	asked  uint32 // copies when it was made
	spent  uint64 // by the writer, in ticks
	bytes  uint64

	costs [ways][3]uint64 // the last three, of writer and reader together
}

// Copy copies src to the beginning of dst, which must have room for it and not overlap it. Stores
// that follow in the program are seen after the bytes, as with copy.
//
// If it returns a serial number that is not 0, the reader has to measure how long it takes to read
// these bytes, and to store an Answer for this number in answer. A number without an answer is
// forgotten after some time.
func (w *Writer) Copy(dst, src []byte, answer *uint64) (serial uint16) {
	if len(src) < minBytes || !Measures {
		copy(dst, src)
		return 0
	}
	if w.left -= int64(len(src)); w.left < 0 {
		w.change()
	}
	w.copies++
	if w.copies%timedEvery != 0 || w.waits && !w.hear(atomic.LoadUint64(answer)) {
		copyBy(w.now, dst, src)
		return 0
	}
	begin := Ticks()
	copyBy(w.now, dst, src)
	return w.ask(Ticks()-begin, len(src))
}

// ask begins to wait for the reader's answer about a copy. ticks is the writer's own time; it is
// huge if the time stamp went back meanwhile.
func (w *Writer) ask(ticks uint64, bytes int) (serial uint16) {
	w.spent, w.bytes, w.by, w.asked, w.waits = min(ticks, maxTicks), uint64(bytes), w.now, w.copies, true
	w.serial = max(w.serial+1, 1)
	return w.serial
}

// change begins or ends a trial.
func (w *Writer) change() {
	begins := !w.onTrial && w.trials > 0
	if begins {
		w.last = (w.last + 1) % ways
		if w.last == w.best {
			w.last = (w.last + 1) % ways
		}
		w.now = w.last
	} else {
		if cost := w.cost(w.now); cost != 0 && cost*percentToSwitch < w.cost(w.best)*100 {
			w.best = w.now
		}
		w.now = w.best
		w.trials = min(w.trials+1, firstTrials)
	}
	w.onTrial = begins
	spans := int64(trialSpans)
	if !begins && w.trials == firstTrials {
		spans = betweenSpans
	}
	w.left = spans * int64(w.Span)
}

// Answer returns the word that a reader stores after it has spent ticks on the copy with this
// serial number.
func Answer(serial uint16, ticks uint64) uint64 {
	return uint64(serial)<<serialShift | min(ticks, maxTicks)
}

// hear reports whether the reader's answer has come, or is no longer waited for.
func (w *Writer) hear(answer uint64) bool {
	if uint16(answer>>serialShift) != w.serial {
		return w.copies-w.asked >= forgetAfter
	}
	c := &w.costs[w.by]
	c[0], c[1], c[2] = c[1], c[2], (w.spent+answer&maxTicks+1)*unitBytes/w.bytes
	w.waits = false
	return true
}

// cost returns the median of the last three costs, because some copies are interrupted. It is 0 if
// there are fewer than three.
func (w *Writer) cost(by way) uint64 {
	a, b, c := w.costs[by][0], w.costs[by][1], w.costs[by][2]
	if a == 0 {
		return 0
	}
	return max(min(a, b), min(max(a, b), c))
}
