package sm

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// FuzzAddress: what is parsed has one encoding. The checksum is right, so that every content gets
// as far as the checks of its fields.
func FuzzAddress(f *testing.F) {
	c := address{rank: 1, size: 2, pid: 3, segment: 4, wakeup: 5, wakeupNode: 6, slots: 7, data: 8, longest: 9, fences: true}
	require.Len(f, c.encode(), addressBytes)
	content := c.encode()[1 : addressBytes-4]
	f.Add(content)
	f.Add(append(content[:len(content)-1:len(content)-1], 2))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		b = addressForm.Seal(b)
		if c, ok := parseAddress(b); ok {
			require.Equal(t, b, c.encode())
		}
	})
}

// strictEvents checks the events, and reads all bytes of each fragment.
type strictEvents struct {
	t       testing.TB
	longest int
	failed  bool
	sum     byte
}

func (e *strictEvents) Arrived(_ btl.Module, _ int, _ btl.Tag, frag []byte) {
	require.LessOrEqual(e.t, len(frag), e.longest)
	for _, b := range frag {
		e.sum += b
	}
}
func (e *strictEvents) Failed(btl.Module, btl.Path, *btl.Error) {
	require.False(e.t, e.failed)
	e.failed = true
}
func (e *strictEvents) Drained(btl.Module, btl.Path) {
	require.True(e.t, e.failed)
	e.failed = false
}

// FuzzPeer: a peer writes anything, at any time, into its own segment and into the parts of a
// rank's segment that it can reach. The rank does not panic, hang, or break rule C4 of package btl.
func FuzzPeer(f *testing.F) {
	step := func(where uint16, value uint64) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint16(nil, where), value)
	}
	f.Add([]byte{})
	f.Add(step(0, uint64(sessionOf(2, open))))
	f.Add(append(step(0, uint64(sessionOf(1, failed))), step(1, 1)...))
	f.Add(append(step(0, uint64(sessionOf(7, closed))), step(0, uint64(sessionOf(8, 99)))...))
	f.Add(append(step(1, uint64(sessionOf(1, done))), step(4, 1)...))
	f.Add(append(step(3, 1<<40), step(5, 1<<40)...))
	f.Add(append(step(6, 1<<40|1<<epochShift|firstWord), step(7, inData<<40|1<<epochShift|(firstWord+1))...))
	f.Fuzz(func(t *testing.T, script []byte) {
		ja, jb := &strictEvents{t: t, longest: 1000}, &strictEvents{t: t, longest: 1000}
		cfg := Config{Size: 2, RingSlots: 4, RingBytes: 4096, FragBytes: 1000, Events: ja}
		ma, err := New(cfg)
		require.NoError(t, err)
		defer ma.Close()
		cfg.Rank, cfg.Events = 1, jb
		mb, err := New(cfg)
		require.NoError(t, err)
		defer mb.Close()
		a, b := ma.(*module), mb.(*module)
		ea, eb := connect(t, a, 1, b.Address()), connect(t, b, 0, a.Address())
		op := &btl.Op{Done: func(*btl.Op, error) {}}
		turn := func() {
			for range 3 {
				a.Progress()
			}
			if ea.State() == btl.Drained {
				if e, err := a.Connect(btl.Path{Peer: 1}, b.Address()); err == nil {
					ea = e.(*endpoint)
				}
			}
			if ea.State() == btl.Up {
				ea.SendInline(1, nil, make([]byte, 20))
				op.Payload = make([]byte, 900)
				_ = ea.Send(op)
			}
		}
		turn()
		b.Progress()
		eb.SendInline(1, nil, make([]byte, 500))
		toA := eb.remote // the part of A's segment that B can write
		for len(script) >= 10 && eb.remote != nil {
			where, value := binary.LittleEndian.Uint16(script), binary.LittleEndian.Uint64(script[2:])
			script = script[10:]
			words := [...]*uint64{
				toA.out.session,
				toA.out.reader,
				(*uint64)(unsafe.Pointer(&toA.out.mem[ctlReadSlots])),
				// In B's segment:
				(*uint64)(unsafe.Pointer(&a.peers[1].remote.out.mem[ctlReadSlots])),
				a.peers[1].remote.out.reader,
				(*uint64)(unsafe.Pointer(&a.peers[1].remote.out.mem[ctlReadData])),
			}
			switch at := int(where) >> 3; {
			case where < 6:
				*words[where] = value
			case where < 64:
				slot := (uint64(where) - 6) % 4
				*(*uint64)(unsafe.Pointer(&toA.out.mem[a.own.page+slot*slotBytes])) = value
			case where < 128:
				slot := uint64(where) % 4
				*(*uint64)(unsafe.Pointer(&toA.out.mem[a.own.page+slot*slotBytes+8*(value>>62%3+1)])) = value << 2 >> 2
			case where < 0x4000: // words in the header of A's segment that B may write, too
				at = hdrAttention + at*8%(512+8-hdrAttention)&^7
				*(*uint64)(unsafe.Pointer(&toA.mem[at])) = value
			default:
				at = at * 8 % len(toA.out.mem) &^ 7
				*(*uint64)(unsafe.Pointer(&toA.out.mem[at])) = value
			}
			toA.notify(1)
			turn()
			if where&0x1000 != 0 {
				b.Progress()
			}
		}
		// A's end can still be drained.
		ea.Fail(nil)
		for range 50 {
			a.Progress()
		}
		require.False(t, ja.failed, "not drained")
	})
}

// FuzzKey: a Get with an arbitrary key reads only memory that the peer has exposed under exactly
// that key.
func FuzzKey(f *testing.F) {
	f.Add([]byte{}, uint64(0), uint16(1))
	f.Add(make([]byte, 32), uint64(0), uint16(0))
	f.Add([]byte{28: 1, 30: 0x73, 31: 0x6d}, uint64(1)<<63, uint16(100))
	f.Add([]byte{16: 1, 24: 1, 28: 1, 30: 0x73, 31: 0x6d}, uint64(90), uint16(10))
	a, b, _, _ := twoTest(f)
	g := newGetter(f, a, b)
	mem := alloc(f, b, 100)
	number(mem, 0)
	r := register(f, b, mem[:100], btl.AccessRemoteRead)
	f.Fuzz(func(t *testing.T, change []byte, offset uint64, n uint16) {
		g.t = t
		raw := r.Key()
		for i := range min(len(change), len(raw)) {
			raw[i] ^= change[i]
		}
		k, ok := parseKey(&raw)
		if ok {
			require.Equal(t, raw, k.encode())
		}
		err := g.get(raw, offset, int(n))
		if raw == r.Key() && offset <= 100 && uint64(n) <= 100-offset {
			require.NoError(t, err)
			require.Equal(t, mem[offset:offset+uint64(n)], g.into[:n])
		} else {
			g.usage(err)
		}
	})
}
