package simhca

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

const (
	modelSlot  = 12 << 10 // bytes of memory for each message
	modelCount = 40       // largest number of messages and of receives
)

// model is a connection and a naive model of it: each message arrives once and in order, and reads
// and atomics find the results of earlier writes.
type model struct {
	t        *rapid.T
	a, b     *end
	sent     [][]byte // messages of sends, in order
	received int      // number of received messages
	wrs      int      // posted send requests
	done     int      // completed send requests
	recvs    int      // posted receives
	checks   map[uint64]func()
	counter  uint64 // sum of the atomics
	failed   bool
	canFail  bool
	lossy    bool // UC: messages may be lost
	atomics  bool
}

func (m *model) bytes(n int, seed int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(seed*31 + i*7 + i>>8)
	}
	return data
}

// postSend posts a random request.
func (m *model) postSend() {
	if m.wrs == modelCount || m.wrs-m.done >= 60 {
		return
	}
	i := m.wrs
	off := i * modelSlot
	n := rapid.OneOf(rapid.IntRange(0, 64), rapid.IntRange(0, modelSlot)).Draw(m.t, "length")
	ops := []verbs.Opcode{verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWrite}
	if m.atomics {
		ops = append(ops, verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd)
	}
	op := rapid.SampledFrom(ops).Draw(m.t, "operation")
	if op == verbs.WRAtomicFetchAndAdd {
		n = 8
	}
	data := m.bytes(n, i)
	copy(m.a.mem[off:], data)
	wr := m.a.wr(uint64(i), op, m.b, off, n)
	if rapid.Bool().Draw(m.t, "fence") {
		wr.Flags |= verbs.SendFence
	}
	// Of b's memory: receives use the first half, writes and reads the second.
	half := modelCount * modelSlot
	wr.RemoteAddr += uint64(half)
	m.wrs++
	switch op {
	case verbs.WRSend, verbs.WRSendWithImm:
		m.sent = append(m.sent, data)
	case verbs.WRRDMAWrite:
		if !m.lossy {
			m.checks[uint64(i)] = func() { m.same(data, m.b.mem[half+off:half+off+n], "write", i) }
		}
	case verbs.WRRDMARead:
		want := m.bytes(n, 1000+i)
		copy(m.b.mem[half+off:], want)
		m.checks[uint64(i)] = func() { m.same(want, m.a.mem[off:off+n], "read", i) }
	case verbs.WRAtomicFetchAndAdd:
		want := m.counter
		wr.RemoteAddr = m.b.mr.Addr() + uint64(2*half)
		wr.CompareAdd = uint64(i) + 1
		m.counter += wr.CompareAdd
		m.checks[uint64(i)] = func() {
			require.Equal(m.t, want, binary.NativeEndian.Uint64(m.a.mem[off:]), "result of atomic %d", i)
		}
	}
	_, err := m.a.qp.PostSend([]verbs.SendWR{wr})
	require.NoError(m.t, err)
}

func (m *model) same(want, got []byte, what string, number int) {
	require.True(m.t, bytes.Equal(want, got), "wrong bytes of %s %d", what, number)
}

func (m *model) postRecv() {
	if m.recvs == modelCount || m.recvs-m.received >= 60 {
		return
	}
	wr := verbs.RecvWR{ID: uint64(m.recvs), NumSGE: 1}
	wr.SGE[0] = m.b.sge(m.recvs*modelSlot, modelSlot)
	m.recvs++
	_, err := m.b.qp.PostRecv([]verbs.RecvWR{wr})
	require.NoError(m.t, err)
}

// poll takes the completions of both ends and compares them with the model.
func (m *model) poll() {
	for _, wc := range m.a.poll() {
		require.EqualValues(m.t, m.done, wc.ID, "completed request")
		m.done++
		if wc.Status != verbs.StatusSuccess {
			cause := wc.Status == verbs.StatusRetryExcErr || wc.Status == verbs.StatusGeneralErr
			known := cause != m.failed && (cause || wc.Status == verbs.StatusWRFlushErr)
			require.True(m.t, m.canFail && known, "request %d: %v", wc.ID, wc.Status)
			m.failed = true
			continue
		}
		require.False(m.t, m.failed, "request %d succeeded after a failure", wc.ID)
		if check := m.checks[wc.ID]; check != nil {
			check()
		}
	}
	for _, wc := range m.b.poll() {
		require.Equal(m.t, verbs.StatusSuccess, wc.Status, "receive %d", wc.ID)
		off := int(wc.ID) * modelSlot
		got := m.b.mem[off : off+int(wc.ByteLen)]
		for m.lossy && m.received < len(m.sent) && !bytes.Equal(m.sent[m.received], got) {
			m.received++
		}
		require.Less(m.t, m.received, len(m.sent), "a message arrived that was not sent, or out of order")
		m.same(m.sent[m.received], got, "message", m.received)
		m.received++
	}
}

// Despite losses, flapping links and slow receivers, each message of RC arrives once and in order.
// If the retries are exhausted, a prefix of the messages arrived, which contains all successful
// ones.
func TestRCDeliversInOrderUnderRandomFaults(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		canFail := rapid.Bool().Draw(rt, "can fail")
		m := newModel(t, rt, verbs.ServiceRC, canFail)
		actions := m.actions()
		maps.Copy(actions, map[string]func(*rapid.T){
			"link": func(rt *rapid.T) {
				h := rapid.SampledFrom([]*HCA{m.a.hca, m.b.hca}).Draw(rt, "device")
				h.SetLink(1, false)
				m.a.runFor(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "µs")) * time.Microsecond)
				h.SetLink(1, true)
			},
			"drain": func(*rapid.T) {
				if m.a.state() != verbs.StateRTS {
					return
				}
				m.a.modify(verbs.StateSQD)
				for m.a.state() == verbs.StateSQD && m.a.qp.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState) != nil {
					require.True(rt, m.a.f.Advance(), "the send queue does not drain")
					if m.recvs < modelCount {
						m.postRecv()
					}
				}
			},
			"fault": func(rt *rapid.T) {
				if !canFail {
					return
				}
				m.a.hca.Inject(Fault{
					Kind: rapid.SampledFrom([]FaultKind{
						FaultAckLost, FaultPacketLost, FaultSendStatus, FaultSendStatusExecuted, FaultLateCompletion,
					}).Draw(rt, "fault"),
					Count:  rapid.IntRange(1, 9).Draw(rt, "count"),
					Status: verbs.StatusGeneralErr, Delay: time.Millisecond,
				})
			},
		})
		rt.Repeat(actions)
		m.a.f.cfg.Loss = 0
		for m.recvs < modelCount {
			m.postRecv()
			m.a.runFor(time.Millisecond) // a message without a receive is retried forever
			m.poll()
		}
		m.finish()
		if !m.failed {
			require.Len(rt, m.sent, m.received, "messages that arrived")
			require.Equal(rt, m.counter, binary.NativeEndian.Uint64(m.b.mem[2*modelCount*modelSlot:]), "sum of the atomics")
		}
		require.Empty(rt, m.a.f.events.heap)
	})
}

// actions returns the actions of every model. The test calls "" after each of them.
func (m *model) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"send":    func(*rapid.T) { m.postSend() },
		"receive": func(*rapid.T) { m.postRecv() },
		"time":    func(rt *rapid.T) { m.a.advance(rapid.IntRange(1, 200).Draw(rt, "steps")) },
		"":        func(*rapid.T) { m.poll() },
	}
}

// finish waits for the completions of all requests.
func (m *model) finish() {
	m.a.run()
	m.poll()
	require.Equal(m.t, m.wrs, m.done, "requests that completed")
}

func newModel(t *testing.T, rt *rapid.T, service verbs.Services, canFail bool) *model {
	cfg := Config{
		Seed:    rapid.Uint64().Draw(rt, "seed"),
		Latency: time.Duration(rapid.IntRange(1, 5000).Draw(rt, "latency")),
		Jitter:  time.Duration(rapid.SampledFrom([]int{0, 10, 3000}).Draw(rt, "jitter")),
		Loss:    rapid.SampledFrom([]float64{0, 0.01, 0.1}).Draw(rt, "loss"),
	}
	mtu := rapid.SampledFrom([]verbs.MTU{verbs.MTU256, verbs.MTU1024, verbs.MTU4096}).Draw(rt, "mtu")
	// The shortest timeouts expire before a response can arrive, so all packets are repeated.
	timeout := rapid.SampledFrom([]uint8{1, 2, 3, 8}).Draw(rt, "timeout")
	atomics := uint8(rapid.IntRange(1, 4).Draw(rt, "outstanding reads"))
	a, b := pair(t, setup{service: service, cfg: cfg, memory: 2*modelCount*modelSlot + 8, change: func(e *end) {
		e.mtu, e.initRdAtomic, e.destRdAtomic, e.rnr = mtu, atomics, atomics, 7
		e.retries, e.timeout = 7, timeout
		if !canFail {
			// 8 tries outlast every link failure; fewer would not survive random losses.
			e.timeout = 13
		}
	}})
	if !canFail && cfg.Loss > 0.01 {
		a.f.cfg.Loss = 0.01
	}
	return &model{t: rt, a: a, b: b, checks: map[uint64]func(){}, canFail: canFail, lossy: service == verbs.ServiceUC, atomics: service == verbs.ServiceRC}
}

// Messages of UC arrive complete and in order, or not at all.
func TestUCDeliversWholeMessagesUnderLoss(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(t, rt, verbs.ServiceUC, false)
		rt.Repeat(m.actions())
		m.finish()
	})
}

// The same seed and calls give the same trace; another seed gives another trace.
func TestSameSeedGivesSameTrace(t *testing.T) {
	run := func(seed uint64) string {
		var trace bytes.Buffer
		a, b := pair(t, setup{srq: true, cfg: Config{Seed: seed, Jitter: time.Microsecond, Loss: 0.05, Trace: &trace}})
		c, d := newEnd(t, a.f, setup{service: verbs.ServiceUC}), newEnd(t, a.f, setup{service: verbs.ServiceUC})
		connect(t, c, d)
		a.hca.Inject(Fault{Kind: FaultLateCompletion, After: 3, Delay: time.Millisecond})
		for i := range 30 {
			b.recv(uint64(i), 0, 9000)
			d.recv(uint64(i), 0, 9000)
			a.post(a.wr(uint64(i), verbs.WRSend, b, 0, 300*i))
			c.post(c.wr(uint64(i), verbs.WRSend, d, 0, 300*i))
			b.post(b.wr(uint64(i), verbs.WRRDMARead, a, 0, 100*i))
			a.advance(i)
		}
		a.hca.SetLink(1, false)
		a.run()
		fmt.Fprint(&trace, a.poll(), b.poll(), d.poll())
		return trace.String()
	}
	one := run(1)
	require.Greater(t, len(one), 10_000)
	require.Equal(t, one, run(1))
	require.NotEqual(t, one, run(2))
}
