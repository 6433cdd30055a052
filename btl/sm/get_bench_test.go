package sm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/progress"
)

// The benchmark moves messages to another process in two ways: through the ring, in the longest
// fragments, each copied to its place; and by a Get, after a fragment with the key. A small
// fragment then answers that the message has arrived. Each message is timed separately, because
// other programs delay many of them.

const (
	tagPart btl.Tag = iota
	tagAsk
	tagAnswer
)

// pullPlan says what a puller does.
type pullPlan struct {
	CPU     int
	Address []byte
	Bytes   int // of a message
	Places  int // places for messages, used in turn
	Rounds  int // messages in all
}

// puller is Events of the process that gets messages.
type puller struct {
	counter
	ep   *endpoint
	op   btl.Op
	mem  []byte
	into []byte // the place of the next message
	got  int
	done int // messages
	err  error
}

func (p *puller) Arrived(_ btl.Module, _ int, tag btl.Tag, frag []byte) {
	switch tag {
	case tagPart:
		p.got += copy(p.into[p.got:], frag[16:])
		if p.got == len(p.into) {
			p.answer()
		}
	case tagAsk:
		p.op.RemoteOffset = binary.LittleEndian.Uint64(frag[copy(p.op.Remote[:], frag):])
		p.op.Payload = p.into
		p.err = errors.Join(p.err, p.ep.Get(&p.op))
	}
}

func (p *puller) answer() {
	first := p.into[:8]
	p.got = 0
	p.done++
	n := len(p.into)
	p.into = p.mem[p.done*n%len(p.mem):][:n]
	if !p.ep.SendInline(tagAnswer, nil, first) {
		p.err = errors.Join(p.err, errors.New("no room for the answer"))
	}
}

func pullRole(t testing.TB, parent *btltest.Process) {
	plan := btltest.Ask[pullPlan](parent)
	require.NoError(t, pin(plan.CPU))
	p := &puller{mem: make([]byte, plan.Bytes*plan.Places)}
	m, err := New(Config{Rank: 1, Size: 2, Events: p})
	require.NoError(t, err)
	p.into = p.mem[:plan.Bytes]
	p.op.Local = register(t, m.(*module), p.mem, btl.AccessLocal)
	p.op.Done = func(_ *btl.Op, err error) {
		p.err = errors.Join(p.err, err)
		p.answer()
	}
	p.ep = connect(t, m.(*module), 0, plan.Address)
	parent.Tell(m.Address())
	for p.done < plan.Rounds && p.err == nil {
		m.Progress()
		progress.Relax()
	}
	require.NoError(t, p.err)
	btltest.Ask[bool](parent)
	require.NoError(t, m.Close())
}

// The location of a message when it is sent.
const (
	unchanged = "unchanged" // in the caches of both processors
	rewritten = "rewritten" // in the sender's cache
	cold      = "cold"      // in no cache; its destination is in no cache either
)

func BenchmarkMessage(b *testing.B) {
	for _, bytes := range []int{4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20} {
		for _, where := range []string{unchanged, rewritten, cold} {
			b.Run(fmt.Sprint(bytes, "/", where), func(b *testing.B) { benchMessage(b, bytes, where) })
		}
	}
}

// benchMessage measures messages one at a time, in nanoseconds from the first fragment to the
// answer.
func benchMessage(b *testing.B, bytes int, where string) {
	const bursts = 20
	rounds := max(4, (1<<20)/bytes)
	places := 1
	if where == cold {
		places = (64 << 20) / bytes
	}
	ev := &counter{}
	mod, err := New(Config{Rank: 0, Size: 2, Events: ev})
	require.NoError(b, err)
	m := mod.(*module)
	all, err := m.Alloc(bytes * places)
	require.NoError(b, err)
	region := register(b, m, all, btl.AccessRemoteRead)
	for i := range all {
		all[i] = byte(i)
	}
	touch := (places + rounds - 1) / rounds // unmeasured bursts, to map all pages
	c := btltest.Start(b, "pull")
	c.Tell(pullPlan{CPU: 1, Address: m.Address(), Bytes: bytes, Places: places, Rounds: (touch + 2*bursts) * rounds})
	require.NoError(b, pin(0))
	ep := connect(b, m, 1, btltest.Ask[[]byte](c))

	key := region.Key()
	op := &btl.Op{Tag: tagPart, HdrLen: 16, Done: func(*btl.Op, error) {}}
	ring := func(at int) {
		for rest := all[at : at+bytes]; len(rest) > 0; {
			op.Payload = rest[:min(len(rest), m.Attrs().MaxSendBytes-16)]
			if ep.Send(op) == nil {
				rest = rest[len(op.Payload):]
			} else {
				m.Progress()
			}
		}
	}
	ask := make([]byte, 40)
	get := func(at int) {
		binary.LittleEndian.PutUint64(ask[copy(ask, key[:]):], uint64(at))
		for !ep.SendInline(tagAsk, ask, nil) {
			m.Progress()
		}
	}
	sent := 0
	measure := func(to []float64, move func(at int)) []float64 {
		for i := range rounds {
			at := sent % places * bytes
			sent++
			if where == rewritten {
				for j := range all[:bytes] {
					all[j] = byte(i + j)
				}
			}
			want := ev.arrived + 1
			began := time.Now()
			move(at)
			for ev.arrived < want {
				m.Progress()
				progress.Relax()
			}
			to = append(to, float64(time.Since(began)))
		}
		return to
	}
	for range touch {
		measure(nil, get)
	}
	var byRing, byGet []float64
	for range bursts {
		byRing = measure(byRing, ring)
		byGet = measure(byGet, get)
	}
	for range b.N {
	}
	b.ReportMetric(0, "ns/op")
	summary(b, byRing, 1, "ns-ring")
	summary(b, byGet, 1, "ns-get")
	c.Tell(true)
	require.NoError(b, region.Release())
	require.NoError(b, m.Free(all))
	require.NoError(b, m.Close())
	require.Nil(b, ev.failed)
}
