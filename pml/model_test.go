package pml

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// model is matching as the standard words it (MPI 4.1, sections 3.5 and 3.8), with lists and
// loops and nothing else: one a receiver.
type model struct {
	posted   []modelRecv
	probes   []modelRecv
	arrived  []modelMsg
	expected map[int]int        // number of a sender's next message or answer
	early    map[int][]modelMsg // of a sender, not in order
	matched  map[int]int        // receive or probe → message
}

func newModel() *model {
	return &model{expected: map[int]int{}, early: map[int][]modelMsg{}, matched: map[int]int{}}
}

// modelMsg is a message; or an answer, which matches nothing, but what its sender sent after it waits for it.
type modelMsg struct {
	id, source, number, context, tag int
	isAnswer                         bool
}

// modelRecv is a receive, or a probe; taking says that it takes the message out of matching.
type modelRecv struct {
	id, source, context, tag int
	taking                   bool
}

func (r modelRecv) takes(m modelMsg) bool {
	return r.context == m.context && (r.source == request.AnySource || r.source == m.source) &&
		(r.tag == request.AnyTag || r.tag == m.tag)
}

// oldest is the index of the message that r gets, or −1.
func (mo *model) oldest(r modelRecv) int { return slices.IndexFunc(mo.arrived, r.takes) }

func (mo *model) post(r modelRecv) {
	if i := mo.oldest(r); i >= 0 {
		mo.matched[r.id] = mo.arrived[i].id
		mo.arrived = slices.Delete(mo.arrived, i, i+1)
		return
	}
	mo.posted = append(mo.posted, r)
}

// wait is a probe that waits.
func (mo *model) wait(r modelRecv) {
	i := mo.oldest(r)
	if i < 0 {
		mo.probes = append(mo.probes, r)
		return
	}
	mo.matched[r.id] = mo.arrived[i].id
	if r.taking {
		mo.arrived = slices.Delete(mo.arrived, i, i+1)
	}
}

// hear takes a fragment, if it is one that has to wait for its turn. message finds the one that has a number.
func (mo *model) hear(source int, tag btl.Tag, frag []byte, message func(number uint32) modelMsg) error {
	if !isNumbered(tag) {
		return nil
	}
	seq := sequenceOf(frag)
	m := modelMsg{source: source, isAnswer: true}
	if isMessage(tag) {
		m = message(seq)
	}
	m.number = int(seq)
	mo.arrive(m)
	return nil
}

func (mo *model) arrive(m modelMsg) {
	mo.early[m.source] = append(mo.early[m.source], m)
	for again := true; again; {
		again = false
		for i, e := range mo.early[m.source] {
			if e.number == mo.expected[m.source] {
				mo.expected[m.source]++
				mo.early[m.source] = slices.Delete(mo.early[m.source], i, i+1)
				if !e.isAnswer {
					mo.inOrder(e)
				}
				again = true
				break
			}
		}
	}
}

func (mo *model) inOrder(m modelMsg) {
	for i, r := range mo.posted {
		if r.takes(m) {
			mo.matched[r.id] = m.id
			mo.posted = slices.Delete(mo.posted, i, i+1)
			return
		}
	}
	for i := 0; i < len(mo.probes); i++ {
		r := mo.probes[i]
		if !r.takes(m) {
			continue
		}
		mo.matched[r.id] = m.id
		mo.probes = slices.Delete(mo.probes, i, i+1)
		if r.taking {
			return
		}
		i--
	}
	mo.arrived = append(mo.arrived, m)
}

// cancel withdraws a receive or probe, if it has not matched.
func (mo *model) cancel(id int) bool {
	is := func(r modelRecv) bool { return r.id == id }
	before := len(mo.posted) + len(mo.probes)
	mo.posted, mo.probes = slices.DeleteFunc(mo.posted, is), slices.DeleteFunc(mo.probes, is)
	return len(mo.posted)+len(mo.probes) < before
}

// probe looks for a message, and takes it if r does.
func (mo *model) probe(r modelRecv) (modelMsg, bool) {
	i := mo.oldest(r)
	if i < 0 {
		return modelMsg{}, false
	}
	m := mo.arrived[i]
	if r.taking {
		mo.arrived = slices.Delete(mo.arrived, i, i+1)
	}
	return m, true
}

// TestMatchingAgainstModel runs random programs, with fragments arriving in any order, as they
// do over several rails, and holds who received what to the model.
func TestMatchingAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ranks, contexts = 3, 2
		inOrder := rapid.Bool().Draw(t, "in order")
		w, world := newWire(t, ranks, func(w *wire) {
			w.async = rapid.Bool().Draw(t, "async")
			if rapid.Bool().Draw(t, "remote") {
				withRails([]int64{3, 1, 1}[:rapid.IntRange(1, 3).Draw(t, "rails")]...)(w)
			}
			w.config.Protocol = Protocol(rapid.IntRange(0, 3).Draw(t, "protocol"))
			w.config.WindowBytes = rapid.SampledFrom([]int64{0, 100, 500}).Draw(t, "window")
		})
		group := world[0].group
		ctxs := [contexts][]*Context{world, nil}
		for r := range ranks {
			ctxs[1] = append(ctxs[1], w.pmls[r].AddContext(2, group, r, testCaller{}))
		}
		models := make([]*model, ranks)
		for i := range models {
			models[i] = newModel()
		}
		type recv struct {
			r         *RecvRequest
			rank      int
			buf       []byte
			cancelled bool
		}
		recvs := map[int]*recv{}
		sent := map[[2]int][]modelMsg{} // by pair, in order of posting

		sizes := map[int]int{}
		nextID := 1
		tagGen, sizeGen := rapid.IntRange(0, 3), rapid.SampledFrom([]int{8, 16, 40, 100, 130, 700})

		// deliver lets one fragment through, and tells the receiver's model.
		deliver := func(t *rapid.T, i int) {
			f := w.flying[i]
			require.NoError(t, models[f.to].hear(f.from, f.tag, f.frag, func(number uint32) modelMsg {
				return sent[[2]int{f.from, f.to}][w.order.of(f.from, f.to, number)]
			}))
			w.step(i)
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				from, to := rapid.IntRange(0, ranks-1).Draw(t, "from"), rapid.IntRange(0, ranks-1).Draw(t, "to")
				c, tag, size := rapid.IntRange(0, contexts-1).Draw(t, "context"), tagGen.Draw(t, "tag"), sizeGen.Draw(t, "size")
				id := nextID
				nextID++
				buf := pattern(size, id)
				binary.LittleEndian.PutUint64(buf, uint64(id))
				pair := [2]int{from, to}
				sent[pair] = append(sent[pair], modelMsg{id: id, source: from, context: c, tag: tag})

				sizes[id] = size
				mode := rapid.SampledFrom([]Mode{Standard, Standard, Synchronous, Buffered}).Draw(t, "mode")
				w.pmls[from].Isend(ctxs[c][from], buf, to, tag, mode, "send").Abandon()
			},
			"receive": func(t *rapid.T) {
				rank, c := rapid.IntRange(0, ranks-1).Draw(t, "rank"), rapid.IntRange(0, contexts-1).Draw(t, "context")
				source, tag := rapid.IntRange(-1, ranks-1).Draw(t, "source"), rapid.IntRange(-1, 3).Draw(t, "tag")
				id := nextID
				nextID++
				r := &recv{rank: rank, buf: make([]byte, 1000)}
				recvs[id] = r
				models[rank].post(modelRecv{id: id, source: source, context: c, tag: tag})
				r.r = w.pmls[rank].Irecv(ctxs[c][rank], r.buf, 1, source, tag, "recv")
			},
			"cancel": func(t *rapid.T) {
				if len(recvs) == 0 {
					return
				}
				ids := make([]int, 0, len(recvs))
				for id := range recvs {
					ids = append(ids, id)
				}
				slices.Sort(ids)
				id := rapid.SampledFrom(ids).Draw(t, "request")
				r := recvs[id]
				if r.cancelled || r.r.State() != request.Active {
					return
				}
				r.r.Cancel()
				r.cancelled = models[r.rank].cancel(id)
				require.Equal(t, r.cancelled, r.r.State() == request.Complete)
			},
			"probe": func(t *rapid.T) {
				rank, c := rapid.IntRange(0, ranks-1).Draw(t, "rank"), rapid.IntRange(0, contexts-1).Draw(t, "context")
				source, tag := rapid.IntRange(-1, ranks-1).Draw(t, "source"), rapid.IntRange(-1, 3).Draw(t, "tag")
				m, want := models[rank].probe(modelRecv{source: source, context: c, tag: tag})
				env, found := w.pmls[rank].Iprobe(ctxs[c][rank], source, tag)
				require.Equal(t, want, found)
				if found {
					require.EqualValues(t, sizes[m.id], env.Bytes)
				}
			},
			"arrive": func(t *rapid.T) {
				if len(w.flying) == 0 {
					return
				}
				i := 0
				if !inOrder {
					i = rapid.IntRange(0, len(w.flying)-1).Draw(t, "which")
				}
				deliver(t, i)
			},
			"refuse": func(t *rapid.T) { w.refuse = rapid.IntRange(0, 3).Draw(t, "posts") },
			"progress": func(*rapid.T) {
				for _, p := range w.pmls {
					p.Progress()
				}
			},
			"": func(t *rapid.T) {
				for _, p := range w.pmls {
					require.LessOrEqual(t, p.Stats().UnexpectedPeakBytes, ranks*p.peer(0).credit.window)
				}
				for id, r := range recvs {
					if r.cancelled {
						continue
					}
					msg, matched := models[r.rank].matched[id]
					if !matched {
						require.Equal(t, request.Active, r.r.State(), "receive %d must not have matched", id)
					} else if r.r.State() == request.Complete {
						require.Equal(t, uint64(msg), binary.LittleEndian.Uint64(r.buf), "receive %d", id)
					}
				}
			},
		})
		w.refuse = 0
		for len(w.flying) > 0 || anyBlocked(w) {
			for _, p := range w.pmls {
				p.Progress()
			}
			if len(w.flying) > 0 {
				deliver(t, 0)
			}
		}
		for _, region := range w.regions {
			require.Contains(t, active(w), region.m.rank, "%d bytes are left registered", len(region.mem))
		}
		for id, r := range recvs {
			msg, matched := models[r.rank].matched[id]
			require.Equal(t, matched || r.cancelled, r.r.State() == request.Complete, "receive %d", id)
			if !matched {
				continue
			}
			st, err := r.r.Take()
			require.NoError(t, err)
			want := pattern(sizes[msg], msg)
			binary.LittleEndian.PutUint64(want, uint64(msg))
			require.Equal(t, want, r.buf[:st.Bytes], fmt.Sprintf("receive %d", id))
		}
	})
}

// active lists the ranks that have sends under way: such as nobody receives.
func active(w *wire) []int {
	var ranks []int
	for rank, p := range w.pmls {
		if p.Busy() > 0 {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

func anyBlocked(w *wire) bool {
	return slices.ContainsFunc(w.pmls, func(p *PML) bool { return p.bml.Deferred() > 0 })
}
