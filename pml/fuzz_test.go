package pml

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// FuzzHeaders decodes and encodes: the result must equal the input, so a decoder that accepts a
// header reads all of it.
func FuzzHeaders(f *testing.F) {
	var b [btl.MaxHeaderBytes]byte
	(&rndvHdr{matchHdr: matchHdr{context: 1<<48 - 1, flags: 1, tag: 1<<31 - 1, seq: 1}, length: 1 << 50, send: 1}).encode(b[:])
	f.Add(uint8(tagMatch), b[:matchBytes])
	f.Add(uint8(tagRndv), b[:rndvBytes])
	f.Add(uint8(tagAck), ackOf(ackHdr{send: 1, recv: 2, from: 3, to: 4}))
	f.Add(uint8(tagAck), ackOf(ackHdr{send: 1, from: freed, to: freed}))
	f.Add(uint8(tagAck), ackOf(ackHdr{send: 1, from: unmatched, to: unmatched}))
	f.Add(uint8(tagFrag), fragOf(fragHdr{recv: 1, offset: 1 << 40}))
	f.Add(uint8(tagFin), finOf(finHdr{handle: 1, ofReceive: true}))
	f.Add(uint8(tagFin), append(finOf(finHdr{handle: 1, ofReceive: true, fragments: 1 << 40}), 1, 0, 0, 0, 1, 0, 0, 0))
	f.Add(uint8(tagFin), append(finOf(finHdr{handle: 1, fragments: 5}), 1, 0, 0, 0, 1, 0, 0))
	f.Add(uint8(tagCredit), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(uint8(tagRestartNotify), restartOf(restartHdr{send: 1, recv: 2}))
	f.Add(uint8(bml.TagProbe), railOf(railHeader{rail: 3, other: 2, epoch: 7, counters: deliveryCounters{epoch: 6, delivered: 1, taken: 1<<32 - 1}}))
	f.Add(uint8(bml.TagProbeAck), append(railOf(railHeader{rail: 3, epoch: 7, padding: 2}), 0, 0))
	f.Add(uint8(tagNack), nackOf(nackHdr{head: [nackHeadBytes]byte{1, 2, 3}, kind: tagRget, bytes: 1 << 20}))
	f.Add(uint8(tagMatch), b[:matchBytes-1])
	f.Fuzz(func(t *testing.T, tag uint8, frag []byte) {
		var h interface {
			decode([]byte) error
			encode([]byte)
		}
		length := 0
		// Reserved bytes, and those of the number, which is decoded elsewhere.
		var unread [][2]int
		switch btl.Tag(tag) {
		case tagMatch, tagFinalized, tagWaiting:
			h, length = new(matchHdr), matchBytes
		case tagRndv, tagRget:
			h, length = new(rndvHdr), rndvBytes
		case tagAck, tagPut, tagRestartAck:
			h, length, unread = new(ackHdr), ackBytes, [][2]int{{8, 16}}
		case tagRestartNotify, tagRestartNack:
			h, length, unread = new(restartHdr), restartBytes, [][2]int{{8, 16}}
		case bml.TagRailDown, bml.TagRailDownAck, bml.TagProbe, bml.TagProbeAck:
			h, length = new(railHeader), railBytes
		case tagFrag:
			h, length = new(fragHdr), fragBytes
		case tagFin:
			h, length, unread = new(finHdr), finBytes, [][2]int{{12, 16}}
		case tagCredit:
			h, length = new(creditHdr), creditBytes
		case tagNack:
			h, length = new(nackHdr), nackBytes
		default:
			return
		}
		if h.decode(frag) != nil {
			return
		}
		var back [btl.MaxHeaderBytes]byte
		h.encode(back[:])
		frag = slices.Clone(frag[:length])
		for _, r := range unread {
			clear(frag[r[0]:r[1]])
		}
		require.Equal(t, frag, back[:length])
	})
}

// fuzzed is two ranks with traffic of every kind.
type fuzzed struct {
	w       *wire
	c       []*Context
	guarded []byte // its middle third is the buffer of a receive of rank 0
	of0     []ended
}

func newFuzzed(t wireT, protocol Protocol) *fuzzed {
	w, c := newWire(t, 2, func(w *wire) {
		withRails(2, 1)(w)
		w.async = true
		w.config = Config{Protocol: protocol, WindowBytes: 1000}
	})
	z := &fuzzed{w: w, c: c, guarded: make([]byte, 3000)}
	mine, theirs := w.pmls[0], w.pmls[1]
	z.of0 = append(z.of0,
		mine.Irecv(c[0], z.guarded[1000:2000:2000], 1, 1, 1, "recv"),
		mine.Isend(c[0], pattern(1000, 0), 1, 2, Standard, "send"),
		mine.Isend(c[0], pattern(90, 0), 1, 3, Synchronous, "send"),
		mine.Isend(c[0], pattern(90, 0), 1, 4, Standard, "send"),
		mine.Irecv(c[0], make([]byte, 8), 1, request.AnySource, 5, "recv"),
		mine.Isend(c[0], pattern(1000, 0), 1, 9, Standard, "send"), // without a receive
	)
	theirs.Isend(c[1], pattern(1000, 0), 0, 1, Standard, "send")
	theirs.Isend(c[1], pattern(1000, 0), 0, 9, Standard, "send")
	theirs.Isend(c[1], pattern(90, 0), 0, 9, Standard, "send")
	for tag := 2; tag <= 4; tag++ {
		theirs.Irecv(c[1], make([]byte, 1000), 1, 0, tag, "recv")
	}
	return z
}

// run makes a number of steps.
func (z *fuzzed) run(steps int) {
	for range steps {
		for _, p := range z.w.pmls {
			p.Progress()
		}
		if len(z.w.flying) > 0 {
			z.w.step(0)
		}
	}
}

// FuzzArrived gives a rank with traffic of every kind any fragment, at any moment. The rank must
// not panic, and must not write outside its buffers. When the peer is lost, every operation ends
// and no memory stays registered.
func FuzzArrived(f *testing.F) {
	for protocol := range uint8(4) {
		z := newFuzzed(f, Protocol(protocol))
		for step := uint8(0); len(z.w.flying) > 0; step++ {
			if fl := z.w.flying[0]; fl.to == 0 && !fl.isRemote() {
				f.Add(protocol, step, uint8(fl.tag), fl.frag)
				f.Add(protocol, step/2, uint8(fl.tag), fl.frag)
			}
			z.run(1)
		}
	}
	for tag := bml.TagRailDown; tag <= bml.TagProbeAck; tag++ {
		f.Add(uint8(0), uint8(7), uint8(tag), railOf(railHeader{rail: 1, other: 1, epoch: 1}))
	}
	for step := range uint8(24) { // a FIN to the receive that is written, with fences
		fin := finOf(finHdr{handle: 1 << 32, ofReceive: true, fragments: 10})
		f.Add(uint8(Put), step, uint8(tagFin), append(inSequence(fin, uint32(step%4)), 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 9, 0, 0, 0))
	}
	f.Add(uint8(0), uint8(9), uint8(tagRestartNotify), inSequence(restartOf(restartHdr{send: 1 << 32, recv: 1 << 32}), 4))
	f.Fuzz(func(t *testing.T, protocol, steps, tag uint8, frag []byte) {
		z := newFuzzed(t, Protocol(protocol%4))
		p := z.w.pmls[0]
		z.run(int(steps % 64))
		p.Arrived(z.w.modules[0], 1, btl.Tag(tag), frag)
		p.Arrived(z.w.modules[0], 1, btl.Tag(tag), frag)
		p.Arrived(z.w.modules[0], -1, btl.Tag(tag), frag)
		p.Arrived(z.w.modules[0], 2, btl.Tag(tag), frag)
		z.run(200)
		p.Failed(z.w.modules[0], btl.Path{Peer: 1}, gone)
		for _, fl := range z.w.flying {
			if fl.from == 0 && fl.op != nil {
				fl.op.Done(fl.op, &btl.Error{Rail: "wire", Peer: 1, Class: btl.ClassFlushed})
			}
		}
		for _, rail := range z.w.rails {
			rail[0].drain(1)
		}
		for i, r := range z.of0 {
			require.Equal(t, request.Complete, r.State(), "request %d", i)
		}
		require.Zero(t, p.Busy())
		for _, region := range z.w.regions {
			require.NotZero(t, region.m.rank, "%d bytes are left", len(region.mem))
		}
		if !bytes.Equal(z.guarded[:1000], make([]byte, 1000)) || !bytes.Equal(z.guarded[2000:], make([]byte, 1000)) {
			t.Fatal("bytes outside the buffer were written")
		}
	})
}
