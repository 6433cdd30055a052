package sm

import (
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// The benchmark moves messages to another process in either way: through the ring, in the longest
// fragments, each copied to its place; and by a Get, which a fragment with the key asks for. In
// both a small fragment then says that the message is there. Each message is timed, because other
// programs make many of them late.

const (
	tagPart btl.Tag = iota
	tagAsk
	tagAnswer
)

// pullPlan says what a puller is to do.
type pullPlan struct {
	CPU     int
	Address []byte
	Bytes   int // of a message
	Places  int // for messages, which are used in turn
	Rounds  int // messages in all
}

// puller is Events of the process that gets messages.
type puller struct {
	counter
	ep   btl.Endpoint
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
		p.err = errors.Join(p.err, p.ep.(btl.Getter).Get(&p.op))
	}
}

func (p *puller) answer() {
	first := p.into[:8]
	p.got = 0
	p.done++
	p.place()
	if !p.ep.(btl.Inliner).SendInline(tagAnswer, nil, first) {
		p.err = errors.Join(p.err, errors.New("no room for the answer"))
	}
}

// place finds the place of the next message.
func (p *puller) place() {
	n := len(p.into)
	p.into = p.mem[p.done*n%len(p.mem):][:n]
}

func pullRole(conn *net.UnixConn) error {
	dec, enc := gob.NewDecoder(conn), gob.NewEncoder(conn)
	var plan pullPlan
	if err := dec.Decode(&plan); err != nil {
		return err
	}
	if err := pin(plan.CPU); err != nil {
		return err
	}
	p := &puller{}
	m, err := New(Config{Rank: 1, Size: 2, Events: p})
	if err != nil {
		return err
	}
	p.mem = make([]byte, plan.Bytes*plan.Places)
	p.into = p.mem[:plan.Bytes]
	if p.op.Local, err = m.(btl.Registrar).Register(p.mem, btl.AccessLocal); err != nil {
		return err
	}
	p.op.Done = func(_ *btl.Op, err error) {
		p.err = errors.Join(p.err, err)
		p.answer()
	}
	if p.ep, err = m.Connect(0, plan.Address); err != nil {
		return err
	}
	if err := enc.Encode(m.Address()); err != nil {
		return err
	}
	for p.done < plan.Rounds && p.err == nil {
		m.Progress()
		pause()
	}
	var over bool
	return errors.Join(p.err, dec.Decode(&over), m.Close())
}

// Where a message is when it is sent.
const (
	unchanged = "unchanged" // in the caches of both
	rewritten = "rewritten" // in the sender's cache
	cold      = "cold"      // in no cache, and neither is the place where it goes
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
	m, err := New(Config{Rank: 0, Size: 2, Events: ev})
	require.NoError(b, err)
	all, err := m.(btl.Allocator).Alloc(bytes * places)
	require.NoError(b, err)
	region, err := m.(btl.Registrar).Register(all, btl.AccessRemoteRead)
	require.NoError(b, err)
	for i := range all {
		all[i] = byte(i)
	}
	touch := (places + rounds - 1) / rounds // bursts that are not measured, to map all pages
	c := start(b, "pull")
	c.tell(b, pullPlan{CPU: 1, Address: m.Address(), Bytes: bytes, Places: places, Rounds: (touch + 2*bursts) * rounds})
	require.NoError(b, pin(0))
	var addr []byte
	c.ask(b, &addr)
	ep, err := m.Connect(1, addr)
	require.NoError(b, err)

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
		for !ep.(btl.Inliner).SendInline(tagAsk, ask, nil) {
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
				pause()
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
	c.tell(b, true)
	require.NoError(b, region.Release())
	require.NoError(b, m.(btl.Allocator).Free(all))
	require.NoError(b, m.Close())
	require.Nil(b, ev.failed)
}
