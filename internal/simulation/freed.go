package simulation

import (
	"bytes"
	"slices"

	"github.com/mpigo/mpigo/pml"
)

// freeReceive frees a receive, which goes on if it is active (MPI 4.1, section 3.7.3). Only the
// matching says then which message it gets.
func (r *rank) freeReceive(choice int) {
	rc := at(r.recvs, choice)
	if rc == nil || !r.w.isExact() {
		return
	}
	r.must(rc.handle.Free())
	r.recvs = slices.DeleteFunc(r.recvs, func(o *receive) bool { return o == rc })
	if rc.active {
		r.freed = append(r.freed, rc)
	}
}

// finishFreed checks what freed receives have got. It cancels those that nothing has matched.
func (r *rank) finishFreed() {
	w := r.w
	for _, rc := range r.freed {
		m := rc.expected
		if m == nil {
			r.call(func(*pml.PML) { rc.r.Cancel() })
			r.matching.checkCancelled(rc, true)
			continue
		}
		fits := min(m.size, len(rc.buf))
		if !bytes.Equal(rc.buf[:fits], m.content()[:fits]) {
			w.fail("bytes", "rank %d: a freed receive has not got message %d of %d bytes", r.rank, m.id, m.size)
		}
		r.checkCanary(rc, fits, m)
		if m.got {
			w.fail("twice", "rank %d received message %d twice", r.rank, m.id)
		}
		m.got = true
		r.recordFinished(rc)
		w.result.Freed++
	}
	r.freed = nil
}

// checkCanary checks that nothing behind a message was written.
func (r *rank) checkCanary(rc *receive, fits int, m *message) {
	for i, b := range rc.whole[fits:] {
		if b != untouched {
			r.w.fail("canary", "rank %d: byte %d behind message %d was written", r.rank, i, m.id)
		}
	}
}

// checkWindow checks that a rank's PML has never held more unexpected bytes than the windows of all
// peers allow.
func (r *rank) checkWindow(st pml.Stats) {
	s := &r.w.plan.setup
	if most := s.window * int64(s.ranks); s.window > 0 && st.UnexpectedPeakBytes > most {
		r.w.fail("bounded", "rank %d held %d unexpected bytes, but its windows are %d", r.rank, st.UnexpectedPeakBytes, most)
	}
}
