package mpitest

import (
	"fmt"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/observe"
)

// reportLeaks fails the test for requests, communicators and memory that a body has leaked.
func (t *rankTB) reportLeaks(l observe.Leaks) {
	if len(l.Requests) > 0 {
		t.report("leak: %s active after the body:\n    %s", count(len(l.Requests), "request is", "requests are"),
			strings.Join(l.Requests, "\n    "))
	}
	if len(l.Comms) > 0 {
		t.report("leak: %s not freed: %s", count(len(l.Comms), "communicator was", "communicators were"), strings.Join(l.Comms, ", "))
	}
	if len(l.Blocks) > 0 {
		sum := int64(0)
		for _, n := range l.Blocks {
			sum += n
		}
		t.report("leak: %s of comm.Alloc, of %d bytes in all, not given back with comm.FreeAlloc",
			count(len(l.Blocks), "block", "blocks"), sum)
	}
}

// maxListed is the largest number of unreceived messages that are listed for a rank.
const maxListed = 10

// reportUnreceived fails the test for messages that were not received. It runs when all ranks have
// ended without an error. The senders have no error, because a short message is sent before it is
// received.
func (r *run) reportUnreceived() {
	r.t.Helper()
	for i, rank := range r.ranks {
		list := rank.Unreceived()
		if len(list) == 0 {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "rank %d: leak: %s sent here and not received:", i, count(len(list), "message was", "messages were"))
		for _, m := range list[:min(len(list), maxListed)] {
			fmt.Fprintf(&b, "\n    from rank %d, tag %d, %d bytes", m.Source, m.Tag, m.Bytes)
			if m.Comm != "world" {
				fmt.Fprintf(&b, ", in %s", m.Comm)
			}
		}
		if more := len(list) - maxListed; more > 0 {
			fmt.Fprintf(&b, "\n    and %d more", more)
		}
		r.t.Error(b.String())
	}
}

// reportGoroutines fails the test for goroutines that are in the library although all ranks have
// ended. They have exitGrace to return.
func (r *run) reportGoroutines() {
	r.t.Helper()
	deadline := time.Now().Add(exitGrace)
	for pause := time.Millisecond; ; pause *= 2 {
		var left []string
		n := 0
		for _, s := range goroutines(r.id) {
			if s.inLibrary() {
				n += s.count
				left = append(left, s.String())
			}
		}
		switch {
		case n == 0:
			return
		case time.Now().After(deadline):
			r.t.Errorf("leak: %s in the library after all ranks have ended:\n%s",
				count(n, "goroutine is", "goroutines are"), strings.Join(left, "\n"))
			return
		}
		time.Sleep(pause)
	}
}
