package tcp

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
)

// sink keeps the first fragment that arrives.
type sink struct {
	mate
	frag []byte
}

// Arrived implements btl.Events.
func (s *sink) Arrived(_ btl.Module, _ int, _ btl.Tag, frag []byte) {
	if s.frag == nil {
		s.frag = bytes.Clone(frag)
	}
}

// TestRebindOfHalfWrittenFragmentSendsCopy: the memory of a fragment that is longer than the
// sockets' buffers is taken back after a part was written. The rest comes from the copy.
func TestRebindOfHalfWrittenFragmentSendsCopy(t *testing.T) {
	const length = maxFragBytes - 64
	for name, end := range map[string]func(mem []byte) error{
		"overwritten": func(mem []byte) error { clear(mem); return nil },
		"unmapped":    func(mem []byte) error { return unix.Mprotect(mem, unix.PROT_NONE) },
	} {
		t.Run(name, func(t *testing.T) {
			got := &sink{}
			cfg := Config{Size: 2, Local: loopback4, Secret: secret, Wakeup: btltest.NewPipeWakeup(t), FragBytes: maxFragBytes, SendBuffer: 16 << 10, ReceiveBuffer: 16 << 10}
			a, b := newAt(t, cfg, 0, &mate{}), newAt(t, cfg, 1, got)
			mem, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			require.NoError(t, err)
			defer unix.Munmap(mem)
			for i := range mem {
				mem[i] = byte(i * 7 >> 3)
			}
			e := connectTo(t, a, 1, b.Address())
			until(t, "a connection", func() bool { return e.phase == phaseReady }, a, b)

			s := post(t, e, mem)
			until(t, "the socket to be full", func() bool { return e.current == &s.op && e.offset > 0 && e.blocked }, a)
			require.Less(t, e.offset, length)

			want := bytes.Clone(mem)
			require.True(t, e.Rebind(&s.op, bytes.Clone(mem)))
			require.NoError(t, end(mem))
			until(t, "the fragment", func() bool { return s.done && got.frag != nil }, a, b)
			require.True(t, bytes.Equal(want, got.frag), "the bytes as they were sent")
		})
	}
}
