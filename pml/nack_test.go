package pml

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// withdrawal is a message of which a rail calls one kind of fragment wrong, always.
type withdrawal struct {
	kind     btl.Tag
	from     int // that sends it; the message goes from 0 to 1
	bytes    int
	protocol Protocol
	mode     Mode
	// What the ends get: errors that contain this, "" for success.
	send, recv string
}

const (
	noRail = "no rail takes it: rail wire"
	byThem = "the other rank could not send it"
)

var withdrawals = []withdrawal{
	{kind: tagMatch, bytes: 90, send: noRail, recv: byThem},
	{kind: tagRndv, bytes: 1000, protocol: Copy, send: noRail, recv: byThem},
	{kind: tagRndv, bytes: 0, protocol: Copy, mode: Synchronous, send: noRail, recv: byThem},
	{kind: tagRget, bytes: 1000, protocol: Get, send: noRail, recv: byThem},
	{kind: tagAck, from: 1, bytes: 1000, protocol: Copy, send: byThem, recv: noRail},
	{kind: tagAck, from: 1, bytes: 0, protocol: Copy, mode: Synchronous, send: byThem},
	{kind: tagPut, from: 1, bytes: 1000, protocol: Put, send: byThem, recv: noRail},
	{kind: tagFin, bytes: 1000, protocol: Put, send: noRail, recv: byThem},
	{kind: tagFin, from: 1, bytes: 1000, protocol: Get, send: byThem},
	{kind: tagFrag, bytes: 1000, protocol: Copy, send: noRail, recv: byThem},
	// What is read or written goes in fragments then.
	{kind: bml.TagGet, from: 1, bytes: 1000, protocol: Get},
	{kind: bml.TagPut, bytes: 1000, protocol: Put},
}

// kindName is the name of a kind of fragments.
func kindName(tag btl.Tag) string {
	if int(tag) < bml.NumKinds {
		if k := new(PML).kinds()[tag]; k.Name != "" {
			return k.Name
		}
	}
	return fmt.Sprintf("kind %d", tag)
}

func (d *withdrawal) String() string {
	return fmt.Sprintf("%s of %d bytes by %v, mode %d", kindName(d.kind), d.bytes, d.protocol, d.mode)
}

// eachWithdrawal runs a test of each, with fragments that are refused when they are posted, and
// that fail later; and with receives that come first, and last.
func eachWithdrawal(t *testing.T, run func(t *testing.T, d *withdrawal, w *wire, c []*Context, expected bool)) {
	for _, later := range []bool{false, true} {
		for _, expected := range []bool{false, true} {
			for _, d := range withdrawals {
				t.Run(fmt.Sprintf("%v, later %v, expected %v", &d, later, expected), func(t *testing.T) {
					w, c := newWire(t, 2, func(w *wire) {
						withRemote(getPut)(w)
						w.async, w.later = true, later
						w.attrs.Caps &^= btl.CapInline
						w.config.Protocol = d.protocol
					})
					run(t, &d, w, c, expected)
				})
			}
		}
	}
}

// check is what a request has ended with.
func (d *withdrawal) check(t *testing.T, o ended, want string) {
	t.Helper()
	require.Equal(t, request.Complete, o.State())
	_, err := o.Take()
	if want == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, want)
	require.NotErrorIs(t, err, request.ErrUnreachable)
	require.NotErrorIs(t, err, request.ErrProcFailed)
}

// TestRefusedByEveryRail: what every rail calls wrong ends the one message that it belongs to, at
// both ends, and nothing else: those before and behind it arrive, in order, and the peer is as well
// as before.
func TestRefusedByEveryRail(t *testing.T) {
	eachWithdrawal(t, func(t *testing.T, d *withdrawal, w *wire, c []*Context, expected bool) {
		in := [3][]byte{pattern(50, 1), pattern(d.bytes, 2), pattern(50, 3)}
		var out [3][]byte
		var sends, recvs [3]ended
		post := func() {
			for i := range in {
				out[i] = make([]byte, len(in[i]))
				recvs[i] = w.pmls[1].Irecv(c[1], out[i], 1, 0, 1, "recv")
			}
		}
		if expected {
			post()
		}
		refused := 0
		w.wrong = func(f *flight) bool {
			if f.tag != d.kind || f.from != d.from || f.tag == tagMatch && len(f.frag) != matchBytes+d.bytes {
				return false
			}
			refused++
			return true
		}
		for i, b := range in {
			mode := Standard
			if i == 1 {
				mode = d.mode
			}
			sends[i] = w.pmls[0].Isend(c[0], b, 1, 1, mode, "send")
		}
		w.settle()
		if !expected {
			post()
			w.settle()
		}
		require.Positive(t, refused)
		for i := range in {
			if i == 1 {
				continue
			}
			d.check(t, sends[i], "")
			d.check(t, recvs[i], "")
			require.Equal(t, in[i], out[i])
		}
		d.check(t, sends[1], d.send)
		d.check(t, recvs[1], d.recv)
		if d.recv == "" {
			require.Equal(t, in[1], out[1])
		}
		for rank, p := range w.pmls {
			require.True(t, p.peer(1-rank).IsAlive())
			require.Zero(t, p.Stats().RailsFailed)
			require.Zero(t, p.Stats().Malformed)
			require.Empty(t, p.Leftovers())
		}
		require.Empty(t, w.regions)
		most := maxMistakes + 1
		if d.kind == tagFrag {
			most *= pipelineDepth // at a time
		}
		require.LessOrEqual(t, refused, most)
	})
}

// TestRefusedByOneRail: what one rail calls wrong goes by another one.
func TestRefusedByOneRail(t *testing.T) {
	eachWithdrawal(t, func(t *testing.T, d *withdrawal, like *wire, _ []*Context, expected bool) {
		for bad := range 3 {
			w, c := newWire(t, 2, func(w *wire) {
				withRails(1, 1, 1)(w)
				w.async, w.later = true, like.later
				w.config.Protocol = d.protocol
				w.attrs.Caps &^= btl.CapInline
			})
			refused := 0
			w.wrong = func(f *flight) bool {
				if f.tag != d.kind || f.rail != bad {
					return false
				}
				refused++
				return true
			}
			in, out := pattern(d.bytes, 2), make([]byte, d.bytes)
			var r *RecvRequest
			if expected {
				r = w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
			}
			s := w.pmls[0].Isend(c[0], in, 1, 1, d.mode, "send")
			w.settle()
			if !expected {
				r = w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
				w.settle()
			}
			d.check(t, s, "")
			d.check(t, r, "")
			require.Equal(t, in, out)
			if bad == 0 || isBound(d.kind) && d.bytes > 1000 {
				require.Positive(t, refused)
			}
			for _, p := range w.pmls {
				require.Zero(t, p.Stats().Refused)
				require.Empty(t, p.Leftovers())
			}
		}
	})
}

// TestRefusedThoughDelivered: what is called wrong had arrived all the same, so the NACK comes in
// vain. Nobody waits for ever.
func TestRefusedThoughDelivered(t *testing.T) {
	eachWithdrawal(t, func(t *testing.T, d *withdrawal, w *wire, c []*Context, expected bool) {
		w.later, w.delivered = true, true
		w.wrong = func(f *flight) bool { return f.tag == d.kind && f.from == d.from }
		in, out := pattern(d.bytes, 2), make([]byte, d.bytes)
		var r *RecvRequest
		if expected {
			r = w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
		}
		s := w.pmls[0].Isend(c[0], in, 1, 1, d.mode, "send")
		w.settle()
		if !expected {
			r = w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
			w.settle()
		}
		for _, o := range []ended{s, r} {
			require.Equal(t, request.Complete, o.State())
		}
		if _, err := r.Take(); err == nil {
			require.Equal(t, in, out)
		}
		for rank, p := range w.pmls {
			require.True(t, p.peer(1-rank).IsAlive())
			require.Empty(t, p.Leftovers())
		}
		require.Empty(t, w.regions)
	})
}

// TestRefusedThoughAnswered: what is called wrong, always, has arrived, and is answered before it
// is given up. The message is long enough that most of it is still to be sent then. It arrives.
func TestRefusedThoughAnswered(t *testing.T) {
	const n = 10_000
	for _, tc := range []struct {
		kind     btl.Tag
		from     int
		protocol Protocol
	}{
		{tagRndv, 0, Copy},
		{tagRndv, 0, Put},
		{tagPut, 1, Put},
		{tagRestartNotify, 0, Copy},
		{tagRestartNotify, 0, Put},
	} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %v, a rail fails with pieces %v", kindName(tc.kind), tc.protocol, fails), func(t *testing.T) {
				w, c := newWire(t, 2, func(w *wire) {
					withRemote(btl.CapPut)(w)
					w.async, w.later, w.delivered = true, true, true
					w.config.Protocol = tc.protocol
				})
				w.wrong = func(f *flight) bool { return f.tag == tc.kind && f.from == tc.from }
				s, r, in, out := oneWay(w, c, n)
				if fails || tc.kind == tagRestartNotify {
					for !isBound(w.flying[0].tag) {
						w.step(0)
					}
					w.failPieces()
					w.pmls[0].Progress() // the transfer is interrupted
					if tc.kind == tagPut {
						require.Equal(t, tagRestartNotify, w.flying[0].tag)
						w.step(0) // before PUT is posted again
					}
				}
				w.settle()
				d := withdrawal{}
				d.check(t, s, "")
				d.check(t, r, "")
				require.Equal(t, in, out)
				for rank, p := range w.pmls {
					require.True(t, p.peer(1-rank).IsAlive())
					require.Empty(t, p.Leftovers())
				}
				require.Empty(t, w.regions)
			})
		}
	}
}

// TestRestartThatNoRailTakes: the fragments of the dance are not taken, after a rail has failed
// with a piece.
func TestRestartThatNoRailTakes(t *testing.T) {
	for _, kind := range []btl.Tag{tagRestartNotify, tagRestartAck, tagRestartNack} {
		w, c := newWire(t, 2, func(w *wire) { w.async = true })
		refused := 0
		w.wrong = func(f *flight) bool {
			if f.tag == kind {
				refused++
			}
			return f.tag == kind
		}
		s, r, in, out := oneWay(w, c, 800)
		for !isBound(w.flying[0].tag) {
			w.step(0)
		}
		if kind == tagRestartNack { // all of it comes, and no acknowledgement does
			for _, f := range w.flying {
				w.pmls[1].Arrived(w.modules[1], 0, f.tag, f.frag)
			}
			require.Equal(t, request.Complete, r.State())
		}
		w.failPieces()
		w.settle()
		require.Positive(t, refused, "%s", kindName(kind))
		d := withdrawal{}
		wantSend, wantRecv := noRail, byThem
		switch kind {
		case tagRestartAck:
			wantSend, wantRecv = byThem, noRail
		case tagRestartNack:
			wantSend, wantRecv = byThem, ""
			require.Equal(t, in, out)
		}
		d.check(t, s, wantSend)
		d.check(t, r, wantRecv)
		for rank, p := range w.pmls {
			require.True(t, p.peer(1-rank).IsAlive())
			require.Empty(t, p.Leftovers())
		}
	}
}

// wrong has the modules of a rank call the next operation to the other one wrong, until it is given
// up.
func (w *pair) wrong(rank int) {
	rails := w.modules[rank]
	for _, m := range rails {
		m.(btl.Injector).Inject(btl.Fault{Kind: btl.FaultWrong, Peer: 1 - rank, Count: (maxMistakes + 1) / len(rails)})
	}
}

// TestRefusedOverLoop: of the first message no rail takes anything, whatever its length; those
// behind it arrive.
func TestRefusedOverLoop(t *testing.T) {
	for rails := 1; rails <= 2; rails++ {
		for _, n := range []int{0, 8, 500, 100_000} {
			for _, who := range []int{0, 1} {
				w := newPair(t, rails, 10*sec)
				in, out := pattern(n, 1), make([]byte, n)
				other, got := pattern(300, 2), make([]byte, 300)
				w.wrong(who)
				s := w.pmls[0].Isend(w.ctxs[0], in, 1, 1, Synchronous, "send")
				w.run(50_000_000, 0, 1)
				s2 := w.pmls[0].Isend(w.ctxs[0], other, 1, 1, Standard, "send")
				r := w.pmls[1].Irecv(w.ctxs[1], out, 1, 0, 1, "recv")
				r2 := w.pmls[1].Irecv(w.ctxs[1], got, 1, 0, 1, "recv")
				w.run(50_000_000, 0, 1)
				for _, o := range []ended{s, r, s2, r2} {
					require.Equal(t, request.Complete, o.State())
				}
				_, err := s.Take()
				_, rerr := r.Take()
				if who == 0 {
					require.ErrorContains(t, err, "no rail takes it: rail loop", "%d bytes", n)
					require.ErrorIs(t, err, btl.ErrTooLong)
					require.ErrorIs(t, rerr, errPeerRefused)
				} else if err != nil { // of the answer; what is read needs none before it is all here
					require.ErrorIs(t, err, errPeerRefused)
				}
				_, err = s2.Take()
				require.NoError(t, err)
				_, err = r2.Take()
				require.NoError(t, err)
				require.Equal(t, other, got)
				for rank, p := range w.pmls {
					require.True(t, p.peer(1-rank).IsAlive())
					require.Zero(t, p.Stats().RailsFailed)
					require.Empty(t, p.Leftovers())
				}
			}
		}
	}
}
