package pml

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// mixed is messages from rank 0 to rank 1 over rails that call operations wrong, always or now and
// then, and fail with others. What a rail ends with an error may have been delivered.
type mixed struct {
	w        *wire
	c        []*Context
	rng      *rand.Rand
	messages []*mixedMessage
	always   map[btl.Tag]bool // kinds that are always wrong
	onlyBy   int              // by this rail; -1: by all
	wrong    float64          // how often others are
	fails    float64
	faults   int // so far, without those that are always wrong
}

type mixedMessage struct {
	s       *SendRequest
	r       *RecvRequest // nil: nobody receives it
	lent    *Detachment
	buf     []byte // that it is sent from
	in, out []byte
}

const mostFaults = 40

// mayBeWrong is what is withdrawn when it is wrong too often. The peer fails for other fragments.
var mayBeWrong = []btl.Tag{
	tagMatch, tagRndv, tagRget, tagAck, tagPut, tagFin, tagFrag, bml.TagGet, bml.TagPut,
	tagRestartNotify, tagRestartAck, tagRestartNack,
}

func newMixed(t *testing.T, seed uint64) *mixed {
	rng := rand.New(rand.NewPCG(seed, 0))
	x := &mixed{rng: rng, always: map[btl.Tag]bool{}, wrong: rng.Float64() * 0.2, fails: rng.Float64() * 0.15}
	rails := 1 + rng.IntN(3)
	x.onlyBy = rng.IntN(2*rails) - rails
	x.w, x.c = newWire(t, 2, func(w *wire) {
		withRails([]int64{1, 1, 1}[:rails]...)(w)
		w.async = true
		w.config.Protocol = Protocol(rng.IntN(4))
		if rng.IntN(2) == 0 {
			w.attrs.Caps &^= btl.CapInline
		}
	})
	for range rng.IntN(3) {
		x.always[mayBeWrong[rng.IntN(len(mayBeWrong))]] = true
	}
	for i := range 1 + rng.IntN(6) {
		n := []int{0, 20, 100, 500, 1000, 3000, 10000}[rng.IntN(7)]
		x.messages = append(x.messages, &mixedMessage{in: pattern(n, i), buf: pattern(n, i)})
	}
	return x
}

func (x *mixed) receive() {
	for i, m := range x.messages {
		if x.rng.IntN(4) > 0 {
			m.out = make([]byte, len(m.in))
			m.r = x.w.pmls[1].Irecv(x.c[1], m.out, 1, 0, i, "recv")
		}
	}
}

func (x *mixed) send() {
	for i, m := range x.messages {
		m.s = x.w.pmls[0].Isend(x.c[0], m.buf, 1, i, []Mode{Standard, Standard, Synchronous}[x.rng.IntN(3)], "send")
	}
}

// detach gives buffers back, now and then while their copies cannot be registered.
func (x *mixed) detach() {
	for _, m := range x.messages {
		if x.rng.IntN(60) == 0 && m.s.State() == request.Active && !m.s.detached {
			if x.rng.IntN(3) == 0 {
				x.w.unregistrable = func(*wireModule, btl.Access) error { return btl.ErrMemory }
			}
			m.lent = m.s.Detach()
			x.w.unregistrable = nil
		}
		if m.s.detached && (m.lent == nil || m.lent.State() == request.Complete) {
			clear(m.buf)
		}
	}
}

// step lets one of the operations that are under way through, or ends it with an error.
func (x *mixed) step() {
	w := x.w
	i := x.rng.IntN(min(len(w.flying), 4))
	f := w.flying[i]
	err := x.fault(&f)
	if err == nil {
		w.step(i)
		return
	}
	w.flying = append(w.flying[:i:i], w.flying[i+1:]...)
	switch delivered := x.rng.IntN(2) == 0; {
	case delivered && f.isRemote():
		_ = w.reach(&f)
	case delivered:
		w.pmls[f.to].Arrived(w.rails[f.rail][f.to], f.from, f.tag, f.frag)
	}
	f.op.Done(f.op, err)
}

// fault is what an operation ends with, nil if all is well.
func (x *mixed) fault(f *flight) error {
	if f.op == nil || f.tag == tagNack || f.tag == tagCredit {
		return nil
	}
	if x.always[f.tag] && (x.onlyBy < 0 || x.onlyBy == f.rail) {
		return usage("wrong")
	}
	if x.faults == mostFaults {
		return nil
	}
	switch p := x.rng.Float64(); {
	case p < x.wrong:
		x.faults++
		return usage("wrong")
	case p < x.wrong+x.fails:
		x.faults++
		return &btl.Error{Rail: x.w.rails[f.rail][0].attrs.Name, Peer: f.to, Class: btl.ClassPath, Err: btl.ErrInjected}
	}
	return nil
}

// run goes on until nothing is under way.
func (x *mixed) run(t *testing.T) {
	w := x.w
	for steps := 0; ; steps++ {
		require.Less(t, steps, 50_000, "it goes on for ever")
		moved := 0
		for _, p := range w.pmls {
			if x.rng.IntN(3) > 0 {
				moved += p.Progress()
			}
		}
		x.detach()
		if len(w.flying) > 0 {
			if x.rng.IntN(10) == 0 {
				w.refuse = x.rng.IntN(4)
			}
			x.step()
			continue
		}
		w.refuse = 0
		for _, p := range w.pmls {
			moved += p.Progress()
		}
		if moved == 0 && len(w.flying) == 0 && !anyBlocked(w) {
			return
		}
	}
}

// TestMistakesAndFailuresMixed: every request ends, in Finalize at the latest. A receive without an
// error has its message. Nothing is left over, and the peers stay reachable.
func TestMistakesAndFailuresMixed(t *testing.T) {
	for seed := range uint64(2000) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			x := newMixed(t, seed)
			w, late := x.w, x.rng.IntN(2) == 0
			if !late {
				x.receive()
			}
			x.send()
			if late {
				x.run(t)
				x.receive()
			}
			x.run(t)
			for _, m := range x.messages {
				if m.r != nil {
					require.Equal(t, request.Complete, m.s.State(), "send: %v", m.s.state)
				}
			}
			finalized(w)
			for _, p := range w.pmls {
				p.RejectUnmatched()
			}
			x.run(t)
			for rank, p := range w.pmls {
				require.Zero(t, p.Unfinished())
				require.Zero(t, p.Busy()-len(p.Unmatched()))
				require.True(t, p.peer(1-rank).IsAlive())
			}
			for _, m := range x.messages {
				if m.lent != nil {
					require.Equal(t, request.Complete, m.lent.State())
				}
				if m.r == nil {
					continue
				}
				require.Equal(t, request.Complete, m.r.State(), "recv: %v", m.r.state)
				if _, err := m.r.Take(); err == nil {
					require.Equal(t, m.in, m.out)
				}
			}
			for _, p := range w.pmls {
				require.NoError(t, p.Close(errAllFinalized))
			}
			for _, m := range x.messages {
				require.Equal(t, request.Complete, m.s.State())
				_, _ = m.s.Take()
			}
			require.Empty(t, w.regions)
		})
	}
}
