package pml

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

const getPut = btl.CapGet | btl.CapPut

// oneWay posts a receive at rank 1, and sends n bytes to it from rank 0.
func oneWay(w *wire, c []*Context, n int) (s *SendRequest, r *RecvRequest, in, out []byte) {
	in, out = pattern(n, n), make([]byte, n)
	r = w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
	s = w.pmls[0].Isend(c[0], in, 1, 1, Standard, "send")
	return s, r, in, out
}

// arrived checks that both requests of oneWay succeed.
func arrived(t *testing.T, w *wire, s *SendRequest, r *RecvRequest, in, out []byte) {
	t.Helper()
	w.settle()
	requireSuccess(t, s, r)
	require.Equal(t, in, out)
	for _, p := range w.pmls {
		require.Zero(t, p.Busy())
		require.Empty(t, p.Pending())
		require.Zero(t, p.Stats().Malformed)
	}
}

// TestMessagesOfEveryProtocolArrive sends messages of all lengths and modes by every protocol, over
// one rail and over several. Afterwards nothing is registered.
func TestMessagesOfEveryProtocolArrive(t *testing.T) {
	for _, protocol := range []Protocol{Auto, Copy, Get, Put} {
		for rails := 1; rails <= 3; rails++ {
			for _, async := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v over %d rails, async %v", protocol, rails, async), func(t *testing.T) {
					w, c := newWire(t, 2, func(w *wire) {
						w.attrs.MaxSendBytes = 4096
						withRails([]int64{300, 100, 1}[:rails]...)(w)
						w.async = async
						w.config = Config{Protocol: protocol, RDMABytes: 200}
					})
					for _, n := range []int{remotePieceBytes - 1, remotePieceBytes, 5*remotePieceBytes + 1} {
						exchange(t, w, c, n, n, Standard, true)
						exchange(t, w, c, n, n-1, Standard, false)
					}
					for _, n := range []int{0, 1, 96, 97, 199, 200, 1000} {
						for _, room := range []int{0, n / 2, max(n-1, 0), n, n + 1} {
							for _, mode := range []Mode{Standard, Synchronous, Buffered} {
								exchange(t, w, c, n, room, mode, true)
								exchange(t, w, c, n, room, mode, false)
							}
						}
					}
					require.Empty(t, w.regions)
					sent, got := w.pmls[0].Stats(), w.pmls[1].Stats()
					require.Equal(t, protocol == Auto || protocol == Get, sent.SentGet > 0)
					require.Equal(t, protocol == Auto || protocol == Get, got.ReceivedGet > 0)
					require.Equal(t, protocol == Put, sent.SentPut > 0)
					require.Equal(t, sent.SentPut, got.ReceivedPut)
					require.Zero(t, got.Unread)
				})
			}
		}
	}
}

// TestRefusedWriteGoesOnInFragments: the message arrives, whichever of its writes is the first to
// be refused.
func TestRefusedWriteGoesOnInFragments(t *testing.T) {
	for _, async := range []bool{false, true} {
		for nth := range 6 {
			w, c := newWire(t, 2, withRails(2, 1), withTwoKeys, withAsync(async), withProtocol(Put))
			puts := 0
			w.mishap = func(f *flight) error {
				puts++
				if puts > nth {
					return usage("no")
				}
				return nil
			}
			s, r, in, out := oneWay(w, c, 6*remotePieceBytes)
			arrived(t, w, s, r, in, out)
			require.Empty(t, w.regions)
			require.Greater(t, puts, nth)
			require.EqualValues(t, 1, w.pmls[0].Stats().Unwritten)
		}
	}
}

// TestRefusedAccessToLostPeerFails: the error says that the peer is lost, not that the access was
// refused.
func TestRefusedAccessToLostPeerFails(t *testing.T) {
	for _, protocol := range []Protocol{Get, Put} {
		w, c := newWire(t, 2, withRails(1, 1), withTwoKeys, withAsync(true), withProtocol(protocol))
		w.mishap = func(*flight) error { return usage("no") }
		s, r, _, _ := oneWay(w, c, 2*remotePieceBytes)
		for len(w.flying) < 2 {
			w.step(0)
		}
		from, o := 0, ended(s)
		if protocol == Get {
			from, o = 1, r
		}
		w.step(0) // one of two accesses is refused
		w.pmls[from].Failed(w.modules[from], btl.Path{Peer: 1 - from}, gone)
		require.Equal(t, request.Active, o.State())
		for _, f := range w.take((*flight).isRemote) {
			f.op.Done(f.op, &btl.Error{Rail: "wire", Peer: 1 - from, Class: btl.ClassFlushed})
		}
		w.modules[from].drain(1 - from)
		_, err := o.Take()
		require.ErrorIs(t, err, request.ErrProcFailed, "%v", protocol)
		require.Zero(t, w.pmls[from].Busy())
	}
}

// TestDetachInAddedMemoryRevokesAccess: the peer does not read a detached buffer any more, although
// its memory stays registered for other messages.
func TestDetachInAddedMemoryRevokesAccess(t *testing.T) {
	for _, protocol := range []Protocol{Get, Put} {
		for steps := range 3 {
			w, c := newWire(t, 2, withRemote(getPut), withAsync(true), withProtocol(protocol))
			mem := make([]byte, 5000)
			w.pmls[0].AddMemory(mem)
			again := w.pmls[0].SendInit(c[0], mem[3000:], 1, 2, Standard, "again")
			for range 2 {
				buf, out, more := mem[1000:3000], make([]byte, 2000), make([]byte, 2000)
				copy(buf, pattern(2000, 1))
				copy(mem[3000:], pattern(2000, 2))
				r := w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
				s := w.pmls[0].Isend(c[0], buf, 1, 1, Standard, "send")
				for range steps {
					w.step(0)
				}
				s.Detach()
				if protocol == Get || steps < 2 {
					clear(buf) // otherwise a rail reads it for a write
				}
				start(again)
				r2 := w.pmls[1].Irecv(c[1], more, 1, 0, 2, "recv")
				arrived(t, w, s, r, pattern(2000, 1), out)
				arrived(t, w, again, r2, pattern(2000, 2), more)
			}
			again.Abandon()
			if protocol == Get {
				unread := 2
				if steps == 2 { // the read came before Detach
					unread = 0
				}
				require.EqualValues(t, unread, w.pmls[1].Stats().Unread)
				require.EqualValues(t, 4, w.pmls[1].Stats().ReceivedGet)
			}
			w.pmls[0].RemoveMemory(mem)
			require.Empty(t, w.regions)
		}
	}
}

// TestFinByFailedRailKeepsReceive: posting FIN finds the rail failed, which ends all operations
// with the peer. The receive that sends FIN has ended already.
func TestFinByFailedRailKeepsReceive(t *testing.T) {
	w, c := newWire(t, 2, withRemote(btl.CapGet), withAsync(true))
	data, room := pattern(1000, 1), make([]byte, 1000)
	w.pmls[0].Isend(c[0], data, 1, 1, Standard, "send")
	r := w.pmls[1].Irecv(c[1], room, 1, 0, 1, "recv")
	w.step(0)
	w.modules[1].down[0] = btl.ErrFailed
	for len(w.flying) > 0 {
		w.step(0)
	}
	requireSuccess(t, r)
	require.Equal(t, data, room)
}
