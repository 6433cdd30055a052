package main

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	blockBytes = 64 << 10 // half of the shortest piece
	ahead      = 1 << 10  // blocks behind the last that was seen
	tick       = 250 * time.Microsecond
)

// gap is the longest time without an arriving block, and the part of it in which the watcher was
// not running.
type gap struct{ longest, stalled time.Duration }

func (g *gap) add(d, stalled time.Duration) {
	if d > g.longest {
		*g = gap{d, stalled}
	}
}

// watcher looks at the receive buffer, which begins as zeros, while the library fills it. A block
// has arrived when its last byte has.
type watcher struct {
	before, after gap // of the cut
	began, ended  time.Time
	last          time.Time // last arrival of a block
	cut           time.Time // when it was requested; zero: not yet
	cutBytes      int64     // that had arrived when it was made
	err           error     // of the cut

	over    chan struct{}
	running sync.WaitGroup
}

// watch begins to look at a buffer, and calls cut when from bytes have arrived.
func watch(buf []byte, from int, cut func() error) *watcher {
	w := &watcher{over: make(chan struct{})}
	w.running.Go(func() { w.run(buf, from, cut) })
	return w
}

func (w *watcher) stop() {
	w.ended = time.Now()
	close(w.over)
	w.running.Wait()
	w.gapTo(w.ended, 0)
}

func (w *watcher) run(buf []byte, from int, cut func() error) {
	runtime.LockOSThread()
	// Other work of the machine should not delay the watcher. Without the privilege it checks less
	// often.
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	var missing []int // blocks before next that are not there
	next, there := 0, 0
	var cutting sync.WaitGroup
	var bytes atomic.Int64
	defer cutting.Wait()
	sleep := unix.NsecToTimespec(int64(tick))
	var stalled time.Duration // since w.last
	looked := time.Now()
	for there*blockBytes < len(buf) {
		select {
		case <-w.over:
			return
		default:
		}
		_ = unix.Nanosleep(&sleep, nil)
		now := time.Now()
		if late := now.Sub(looked) - 2*tick; late > 0 {
			stalled += late
		}
		looked = now
		before := there
		has := func(block int) bool { return buf[(block+1)*blockBytes-1] != 0 }
		missing = slices.DeleteFunc(missing, func(b int) bool {
			if has(b) {
				there++
				return true
			}
			return false
		})
		for last := min(next+ahead, len(buf)/blockBytes) - 1; last >= next; last-- {
			if has(last) {
				for ; next < last; next++ {
					if has(next) {
						there++
					} else {
						missing = append(missing, next)
					}
				}
				next = last + 1
				there++
			}
		}
		if there == before {
			continue
		}
		if w.began.IsZero() {
			w.began, w.last = now, now
		}
		bytes.Store(int64(there * blockBytes))
		w.gapTo(now, stalled)
		w.last, stalled = now, 0
		if w.cut.IsZero() && there*blockBytes >= from {
			w.cut = now
			cutting.Go(func() {
				w.err = cut()
				w.cutBytes = bytes.Load()
			})
		}
	}
}

// gapTo records that no block arrived from w.last until now.
func (w *watcher) gapTo(now time.Time, stalled time.Duration) {
	if w.cut.IsZero() {
		w.before.add(now.Sub(w.last), stalled)
	} else {
		w.after.add(now.Sub(w.last), stalled)
	}
}
