package pml

import (
	"runtime"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/request"
)

// newQuiet makes two ranks on a transport that allocates nothing. It uses remote reads and writes
// for messages of 10,000 bytes and more.
func newQuiet(t wireT, protocol Protocol) (*wire, []*Context) {
	w, c := newWire(t, 2, func(w *wire) { w.config = Config{Protocol: protocol, RDMABytes: 10_000} })
	m := &quiet{}
	for r, p := range w.pmls {
		p.cfg.Resolve = func(peer int) ([]bml.Route, error) {
			return []bml.Route{{Module: m, Endpoint: &quietEndpoint{m: m, to: w.pmls[peer], from: r}}}, nil
		}
	}
	return w, c
}

func TestMessageAllocatesNothing(t *testing.T) {
	take := func(o ended) {
		if _, err := o.Take(); err != nil {
			t.Error(err)
		}
	}
	runs := 100
	if race.Enabled { // with one goroutine there is no race to find
		runs = 5
	}
	for _, protocol := range []Protocol{Copy, Get, Put} {
		w, c := newQuiet(t, protocol)
		for _, n := range []int{8, 100, 1000, 100_000, 4 * remotePieceBytes} {
			in, out := pattern(n, 1), make([]byte, n)
			message := func() {
				r := w.pmls[1].Irecv(c[1], out, 1, 0, 3, "recv")
				if s := w.pmls[0].Send(c[0], in, 1, 3, Standard, "send"); s != nil {
					take(s)
				}
				take(r)
			}
			unexpected := func() {
				s := w.pmls[0].Isend(c[0], in, 1, 3, Standard, "send")
				r := w.pmls[1].Irecv(c[1], out, 1, request.AnySource, 3, "recv")
				take(s)
				take(r)
			}
			again := w.pmls[0].SendInit(c[0], in, 1, 3, Standard, "send init")
			takes := w.pmls[1].RecvInit(c[1], out, 1, 0, 3, "recv init")
			persistent := func() {
				start(takes)
				start(again)
				take(again)
				take(takes)
			}
			check := func(what string, f func()) {
				clear(out)
				f()
				require.Equal(t, in, out)
				require.Zero(t, testing.AllocsPerRun(runs, f), "%v of %d bytes, %s", protocol, n, what)
				clear(out)
				f()
				require.Equal(t, in, out)
			}
			check("expected", message)
			check("unexpected", unexpected)
			check("persistent", persistent)
			again.Abandon()
			takes.Abandon()
			w.pmls[0].AddMemory(in)
			w.pmls[1].AddMemory(out)
			check("in added memory", message)
			w.pmls[0].RemoveMemory(in)
			w.pmls[1].RemoveMemory(out)
		}
		require.Equal(t, protocol == Get, w.pmls[1].Stats().ReceivedGet > 0)
		require.Equal(t, protocol == Put, w.pmls[0].Stats().SentPut > 0)
		require.Zero(t, w.pmls[1].Stats().Unread+w.pmls[0].Stats().Unwritten)
	}
}

// quiet is a transport that allocates nothing: a fragment arrives inside Send.
type quiet struct {
	wireModule
	regions []*quietRegion // by key
	spare   []*quietRegion
}

var quietAttrs = btl.Attrs{
	Name: "quiet", EagerBytes: 256, MaxSendBytes: 256, InlineBytes: 48,
	Caps: btl.CapInline | btl.CapGet | btl.CapPut,
}

func (*quiet) Attrs() *btl.Attrs { return &quietAttrs }

// quietRegion is a region of quiet. Released regions are reused.
type quietRegion struct {
	m   *quiet
	mem []byte
	key btl.Key
}

func (m *quiet) Register(mem []byte, _ btl.Access) (btl.Region, error) {
	if len(m.spare) == 0 {
		r := &quietRegion{m: m}
		r.key[0] = byte(len(m.regions))
		m.regions = append(m.regions, r)
		m.spare = append(m.spare, r)
	}
	r := m.spare[len(m.spare)-1]
	m.spare = m.spare[:len(m.spare)-1]
	r.mem = mem
	return r, nil
}

func (r *quietRegion) Key() btl.Key { return r.key }

func (r *quietRegion) Release() error {
	r.mem = nil
	r.m.spare = append(r.m.spare, r)
	return nil
}

type quietEndpoint struct {
	wireEndpoint
	m     *quiet
	to    *PML
	from  int
	frag  [256]byte
	depth int
	more  [8]quietFrag
}

type quietFrag struct {
	n    int
	data [256]byte
}

func (e *quietEndpoint) SendInline(tag btl.Tag, hdr, payload []byte) bool {
	n := copy(e.frag[:], hdr)
	n += copy(e.frag[n:], payload)
	e.to.Arrived(nil, e.from, tag, e.frag[:n])
	return true
}

func (e *quietEndpoint) Send(op *btl.Op) error {
	if e.depth == len(e.more) {
		return btl.ErrResource
	}
	f := &e.more[e.depth]
	e.depth++
	f.n = copy(f.data[:], op.Header())
	f.n += copy(f.data[f.n:], op.Payload)
	tag := op.Tag // the caller may reuse op from Done on
	op.Done(op, nil)
	e.to.Arrived(nil, e.from, tag, f.data[:f.n])
	e.depth--
	return nil
}

func (e *quietEndpoint) Get(op *btl.Op) error {
	copy(op.Payload, e.m.regions[op.Remote[0]].mem[op.RemoteOffset:])
	op.Done(op, nil)
	return nil
}

func (e *quietEndpoint) Put(op *btl.Op) error {
	copy(e.m.regions[op.Remote[0]].mem[op.RemoteOffset:], op.Payload)
	op.Done(op, nil)
	return nil
}

// TestPooledRequestsReleaseBuffers: requests in a pool do not keep the user's memory alive.
func TestPooledRequestsReleaseBuffers(t *testing.T) {
	for _, protocol := range []Protocol{Copy, Get, Put} {
		t.Run(protocol.String(), func(t *testing.T) { checkBuffersReleased(t, protocol) })
	}
}

func checkBuffersReleased(t *testing.T, protocol Protocol) {
	w, c := newWire(t, 2, withAsync(true), withRemote(getPut), withProtocol(protocol))
	var kept []weak.Pointer[[5000]byte]
	buffer := func() []byte {
		b := new([5000]byte)
		kept = append(kept, weak.Make(b))
		return b[:]
	}
	a, b := w.pmls[0], w.pmls[1]
	for _, n := range []int{8, 90, 5000} {
		for _, mode := range []Mode{Standard, Synchronous, Buffered} {
			for _, expected := range []bool{true, false} {
				w.refuse = 2
				s := a.Isend(c[0], buffer()[:n], 1, 1, mode, "send")
				if !expected {
					w.settle()
				}
				r := b.Irecv(c[1], buffer(), 1, request.AnySource, 1, "recv")
				w.settle()
				requireSuccess(t, s, r)
			}
		}
	}
	cancelled := b.Irecv(c[1], buffer(), 1, 0, 1, "recv")
	cancelled.Cancel()
	requireSuccess(t, cancelled)
	// The peer is lost while operations are queued and under way.
	sends := []ended{a.Isend(c[0], buffer(), 1, 1, Standard, "send")}
	w.refuse = 1
	sends = append(sends, a.Isend(c[0], buffer(), 1, 1, Standard, "send"), a.Isend(c[0], buffer()[:90], 1, 1, Standard, "send"))
	receive := a.Irecv(c[0], buffer(), 1, 1, 1, "recv")
	a.Failed(w.modules[0], btl.Path{Peer: 1}, gone)
	for _, f := range w.flying {
		f.op.Done(f.op, gone)
	}
	w.flying = nil
	w.modules[0].drain(1)
	requireFailure(t, request.ErrProcFailed, sends...)
	requireFailure(t, request.ErrProcFailed, receive)
	sends, receive = nil, nil

	runtime.GC()
	for i, p := range kept {
		require.Nil(t, p.Value(), "buffer %d of %d", i, len(kept))
	}
	require.Empty(t, w.regions)
	require.NotEmpty(t, a.freeSends.free)
	require.NotEmpty(t, b.freeRecvs.free)
}

// TestMessagePoolIsBoundedAfterBurst: the pool does not keep all memory of a burst of unexpected
// messages.
func TestMessagePoolIsBoundedAfterBurst(t *testing.T) {
	var pool messagePool
	var all []*message
	for range 100 {
		for _, n := range []int{0, 1, 64, 65, 8 << 10, 1 << 20, 3 << 20} {
			m := pool.get(n)
			require.Len(t, m.data, n)
			all = append(all, m)
		}
	}
	for range maxPoolMessages {
		all = append(all, pool.get(0))
	}
	for _, m := range all {
		pool.put(m)
	}
	pooled := 0
	for i, list := range pool.buffers {
		for _, b := range list {
			require.Equal(t, minBufferBytes<<i, cap(b))
			pooled += cap(b)
		}
	}
	require.Equal(t, pooled, pool.bytes)
	require.LessOrEqual(t, pooled, maxPoolBytes)
	require.LessOrEqual(t, len(pool.messages), maxPoolMessages)
	require.NotEmpty(t, pool.buffers[0])
	b := pool.get(3).data
	require.Equal(t, minBufferBytes, cap(b))
	require.Equal(t, pooled-minBufferBytes, pool.bytes)
}

// TestQueueTableShrinksAfterManyKeys: after many different tags the table is as small as before.
func TestQueueTableShrinksAfterManyKeys(t *testing.T) {
	var q queueTable[message]
	q.init()
	const n = 100_000
	messages := make([]message, n)
	for i := range messages {
		q.push(matchKey(i), &messages[i].nodes[0], &messages[i])
	}
	require.Equal(t, n, q.live)
	for i := range messages {
		require.Same(t, &messages[i], q.first(matchKey(i)))
		q.remove(&messages[i].nodes[0])
	}
	require.Zero(t, q.live)
	for i := range 1000 {
		q.push(matchKey(n+i), &messages[i].nodes[0], &messages[i])
		require.Same(t, &messages[i], q.first(matchKey(n+i)))
		q.remove(&messages[i].nodes[0])
		require.Nil(t, q.first(matchKey(n+i)))
	}
	require.Less(t, len(q.buckets), 100)
	require.Less(t, q.spares, 100)
	push := func() {
		for i := range 500 {
			q.push(matchKey(2*n+i), &messages[i].nodes[0], &messages[i])
			q.remove(&messages[i].nodes[0])
		}
	}
	push()
	require.Zero(t, testing.AllocsPerRun(10, push), "queues are not reused")
}
