package pml

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// encoded returns a header of n bytes, and data behind it.
func encoded(n int, h interface{ encode([]byte) }, data ...byte) []byte {
	b := make([]byte, n)
	h.encode(b)
	return append(b, data...)
}

func matchOf(h matchHdr, data ...byte) []byte { return encoded(matchBytes, &h, data...) }
func rndvOf(h rndvHdr, data ...byte) []byte   { return encoded(rndvBytes, &h, data...) }
func ackOf(h ackHdr) []byte                   { return encoded(ackBytes, &h) }
func putOf(h ackHdr, list ...byte) []byte     { return encoded(ackBytes, &h, list...) }
func fragOf(h fragHdr, data ...byte) []byte   { return encoded(fragBytes, &h, data...) }
func finOf(h finHdr) []byte                   { return encoded(finBytes, &h) }
func restartOf(h restartHdr) []byte           { return encoded(restartBytes, &h) }
func nackOf(h nackHdr) []byte                 { return encoded(nackBytes, &h) }
func railOf(h railHeader) []byte              { return encoded(railBytes, &h) }

// nackFor encodes a NACK in place of a fragment.
func nackFor(kind btl.Tag, frag []byte, bytes uint32) []byte {
	h := nackHdr{kind: kind, bytes: bytes}
	copy(h.head[:], frag)
	return nackOf(h)
}

// inSequence returns a copy of a fragment with a sequence number.
func inSequence(frag []byte, seq uint32) []byte {
	frag = slices.Clone(frag)
	binary.LittleEndian.PutUint32(frag[12:], seq)
	return frag
}

func remoteKeysOf(all ...remoteKey) []byte {
	b := make([]byte, len(all)*remoteKeyBytes)
	for i := range all {
		all[i].encode(b[i*remoteKeyBytes:])
	}
	return b
}

// TestMalformedFragmentLosesPeer: a malformed fragment leaves a gap in the sequence or in a
// message. Operations must not wait for it, so the peer is lost.
func TestMalformedFragmentLosesPeer(t *testing.T) {
	wrongVersion := matchOf(matchHdr{})
	wrongVersion[7]++
	negativeLength := rndvOf(rndvHdr{length: 5})
	binary.LittleEndian.PutUint64(negativeLength[16:], 1<<63)
	for name, f := range map[string]struct {
		tag  btl.Tag
		frag func(send, recv handle) []byte
	}{
		"short match":         {tagMatch, func(_, _ handle) []byte { return []byte{1, 2} }},
		"wrong version":       {tagMatch, func(_, _ handle) []byte { return wrongVersion }},
		"negative tag":        {tagMatch, func(_, _ handle) []byte { return matchOf(matchHdr{tag: -1}) }},
		"more than announced": {tagRndv, func(_, _ handle) []byte { return rndvOf(rndvHdr{length: 1}, 1, 2) }},
		"negative length":     {tagRndv, func(_, _ handle) []byte { return negativeLength }},
		"short ack":           {tagAck, func(_, _ handle) []byte { return []byte{0} }},
		"long ack":            {tagAck, func(s, _ handle) []byte { return append(ackOf(ackHdr{send: s}), 0) }},
		"backwards ack":       {tagAck, func(s, _ handle) []byte { return ackOf(ackHdr{send: s, from: 2, to: 1}) }},
		"half a rejection":    {tagAck, func(s, _ handle) []byte { return ackOf(ackHdr{send: s, from: freed, to: 1}) }},
		"short rendezvous":    {tagRndv, func(_, _ handle) []byte { return rndvOf(rndvHdr{})[:rndvBytes-1] }},
		"short fragment":      {tagFrag, func(_, r handle) []byte { return fragOf(fragHdr{recv: r})[:fragBytes-1] }},
		"ack of too much":     {tagAck, func(s, _ handle) []byte { return ackOf(ackHdr{send: s, to: 1001}) }},
		"piece of too much":   {tagFrag, func(_, r handle) []byte { return fragOf(fragHdr{recv: r, offset: 999}, 1, 2) }},
		"piece of negative":   {tagFrag, func(_, r handle) []byte { return fragOf(fragHdr{recv: r, offset: -1}, 1) }},
		"half a remote key":   {tagRget, func(_, _ handle) []byte { return rndvOf(rndvHdr{length: 100}, make([]byte, remoteKeyBytes-1)...) }},
		"many remote keys": {tagRget, func(_, _ handle) []byte {
			return rndvOf(rndvHdr{length: 100}, make([]byte, (maxModules+1)*remoteKeyBytes)...)
		}},
		"short put":          {tagPut, func(s, _ handle) []byte { return putOf(ackHdr{send: s, to: 1})[:ackBytes-1] }},
		"backwards put":      {tagPut, func(s, _ handle) []byte { return putOf(ackHdr{send: s, from: 2, to: 1}) }},
		"put that refuses":   {tagPut, func(s, _ handle) []byte { return putOf(ackHdr{send: s, from: freed, to: freed}) }},
		"put that rejects":   {tagPut, func(s, _ handle) []byte { return putOf(ackHdr{send: s, from: unmatched, to: unmatched}) }},
		"put of too much":    {tagPut, func(s, _ handle) []byte { return putOf(ackHdr{send: s, to: 1001}, remoteKeysOf(remoteKey{})...) }},
		"put, half a key":    {tagPut, func(s, _ handle) []byte { return putOf(ackHdr{send: s, to: 1}, make([]byte, remoteKeyBytes-1)...) }},
		"short end":          {tagFin, func(s, _ handle) []byte { return finOf(finHdr{handle: s})[:finBytes-1] }},
		"long end":           {tagFin, func(s, _ handle) []byte { return append(finOf(finHdr{handle: s}), 0) }},
		"end of what":        {tagFin, func(s, _ handle) []byte { return append(finOf(finHdr{handle: s})[:8], 2, 0, 0, 0, 0, 0, 0, 0) }},
		"long credit":        {tagCredit, func(_, _ handle) []byte { return make([]byte, creditBytes+1) }},
		"negative credit":    {tagCredit, func(_, _ handle) []byte { return []byte{7: 0x80, 15: 0} }},
		"negative window":    {tagCredit, func(_, _ handle) []byte { return []byte{15: 0x80} }},
		"short finalized":    {tagFinalized, func(_, _ handle) []byte { return matchOf(matchHdr{})[:matchBytes-1] }},
		"long finalized":     {tagFinalized, func(_, _ handle) []byte { return matchOf(matchHdr{}, 0) }},
		"finalized as what":  {tagFinalized, func(_, _ handle) []byte { return matchOf(matchHdr{tag: numFinalizedTags}) }},
		"short waiting":      {tagWaiting, func(_, _ handle) []byte { return matchOf(matchHdr{})[:matchBytes-1] }},
		"long waiting":       {tagWaiting, func(_, _ handle) []byte { return matchOf(matchHdr{}, 0) }},
		"waiting for what":   {tagWaiting, func(_, _ handle) []byte { return matchOf(matchHdr{tag: 1}) }},
		"long restart":       {tagRestartNotify, func(s, r handle) []byte { return append(restartOf(restartHdr{s, r}), 0) }},
		"short restart nack": {tagRestartNack, func(s, r handle) []byte { return restartOf(restartHdr{s, r})[:restartBytes-1] }},
		"short restart ack":  {tagRestartAck, func(s, r handle) []byte { return ackOf(ackHdr{send: s, to: 1001})[:ackBytes-1] }},
		"short rail down":    {bml.TagRailDown, func(_, _ handle) []byte { return railOf(railHeader{})[:railBytes-1] }},
		"long probe":         {bml.TagProbe, func(_, _ handle) []byte { return append(railOf(railHeader{}), 0) }},
		"short probe":        {bml.TagProbe, func(_, _ handle) []byte { return append(railOf(railHeader{padding: 2}), 0) }},
		"probe of another":   {bml.TagProbeAck, func(_, _ handle) []byte { b := railOf(railHeader{}); b[1]++; return b }},
		"short nack":         {tagNack, func(s, _ handle) []byte { return nackFor(tagAck, ackOf(ackHdr{send: s}), 0)[:nackBytes-1] }},
		"nack of a nack":     {tagNack, func(_, _ handle) []byte { return nackFor(tagNack, nil, 0) }},
		"nack of a credit":   {tagNack, func(_, _ handle) []byte { return nackFor(tagCredit, nil, 0) }},
		"nack of much":       {tagNack, func(_, _ handle) []byte { return nackFor(tagMatch, matchOf(matchHdr{}), defaultWindowBytes+1) }},
		"nack of version 0":  {tagNack, func(_, _ handle) []byte { return nackFor(tagMatch, nil, 0) }},
		"long answer nacked": {tagNack, func(s, _ handle) []byte { return nackFor(tagAck, ackOf(ackHdr{send: s}), 1000) }},
		"finalized, nack":    {tagNack, func(_, _ handle) []byte { return nackFor(tagFinalized, matchOf(matchHdr{tag: numFinalizedTags}), 0) }},
		"unknown kind":       {99, func(_, _ handle) []byte { return nil }},
		"no kind":            {0, func(_, _ handle) []byte { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newWire(t, 3)
			p := w.pmls[0]
			w.pmls[1].Isend(c[1], pattern(1000, 1), 0, 9, Standard, "send").Abandon()
			w.settle()
			streaming := p.Irecv(c[0], make([]byte, 1000), 1, 1, 9, "recv")
			send := p.Isend(c[0], pattern(1000, 1), 1, 1, Standard, "send")
			waiting := p.Irecv(c[0], nil, 1, 1, 1, "recv")
			other := p.Irecv(c[0], nil, 1, 2, 1, "recv")
			// With the number that is next, so that only the content is wrong.
			frag := f.frag(send.name, streaming.name)
			if isNumbered(f.tag) {
				if len(frag) >= matchBytes {
					binary.LittleEndian.PutUint32(frag[12:], 1)
				}
			}
			p.Arrived(w.modules[0], 1, f.tag, frag)
			p.Progress()
			for _, r := range []ended{streaming, send, waiting} {
				require.Equal(t, request.Complete, r.State())
				err := requireFailure(t, request.ErrUnreachable, r)
				require.ErrorIs(t, err, errMalformed)
				require.ErrorContains(t, err, "rank 1 broke the protocol")
			}
			require.Equal(t, request.Active, other.State())
			require.EqualValues(t, 1, p.Stats().Malformed)
			require.Zero(t, p.Busy())
		})
	}
}

// TestFragmentsWithStaleHandlesAreIgnored: handles of requests that are over find no request.
func TestFragmentsWithStaleHandlesAreIgnored(t *testing.T) {
	w, c := newWire(t, 2)
	p := w.pmls[0]
	s := p.Isend(c[0], pattern(1000, 1), 1, 1, Standard, "send")
	r := w.pmls[1].Irecv(c[1], make([]byte, 1000), 1, 0, 1, "recv")
	var ack flight
	for r.State() != request.Complete {
		if w.flying[0].tag == tagAck {
			ack = w.flying[0]
		}
		w.step(0)
	}
	w.settle()
	require.Equal(t, request.Complete, s.State())
	p.Arrived(nil, 1, tagAck, ack.frag)
	require.EqualValues(t, 1, p.Stats().Duplicates)
	again := p.Isend(c[0], pattern(1000, 2), 1, 1, Standard, "send") // takes the same slot
	seq := uint32(0)
	next := func(frag []byte) []byte {
		seq++
		return inSequence(frag, seq)
	}
	p.Arrived(nil, 1, tagAck, next(ack.frag))
	p.Arrived(nil, 1, tagFrag, fragOf(fragHdr{recv: 0}))
	p.Arrived(nil, 1, tagFrag, fragOf(fragHdr{recv: 1<<63 | 1<<20}))
	require.EqualValues(t, 2, p.Stats().StaleFragments)
	p.Arrived(nil, 1, tagPut, next(ack.frag))
	for _, ofReceive := range []bool{false, true} {
		p.Arrived(nil, 1, tagFin, next(finOf(finHdr{handle: 0, ofReceive: ofReceive})))
		p.Arrived(nil, 1, tagFin, next(finOf(finHdr{handle: 1<<63 | 1<<20, ofReceive: ofReceive})))
	}
	p.Arrived(nil, 1, tagRestartAck, next(ackOf(ackHdr{send: again.name, recv: 1, to: 1000})))
	p.Arrived(nil, 1, tagRestartNack, next(restartOf(restartHdr{send: again.name})))
	require.EqualValues(t, 8, p.Stats().Malformed)
	require.Equal(t, request.Active, again.State())
	require.NoError(t, p.Lost(c[0], 1))
}

// TestFragmentsWithHandlesOfOtherPeerAreIgnored: rank 2 uses the handles of rank 1's messages.
func TestFragmentsWithHandlesOfOtherPeerAreIgnored(t *testing.T) {
	w, c := newWire(t, 3)
	p := w.pmls[0]
	w.pmls[1].Isend(c[1], pattern(1000, 1), 0, 9, Standard, "send").Abandon()
	w.settle()
	out := make([]byte, 1000)
	r := p.Irecv(c[0], out, 1, 1, 9, "recv")
	s := p.Isend(c[0], pattern(1000, 1), 1, 1, Standard, "send")
	p.Arrived(nil, 2, tagFrag, fragOf(fragHdr{recv: r.name}, 1, 2, 3))
	for i, f := range []struct {
		tag  btl.Tag
		frag []byte
	}{
		{tagAck, ackOf(ackHdr{send: s.name, recv: 1, to: 1000})},
		{tagPut, putOf(ackHdr{send: s.name, recv: 1, to: 1000}, remoteKeysOf(remoteKey{})...)},
		{tagFin, finOf(finHdr{handle: s.name})},
		{tagFin, finOf(finHdr{handle: r.name, ofReceive: true})},
		{tagRestartNotify, restartOf(restartHdr{send: r.send, recv: r.name})},
		{tagNack, nackFor(tagAck, ackOf(ackHdr{send: s.name}), 0)},
		{tagNack, nackFor(tagFrag, fragOf(fragHdr{recv: r.name}), 0)},
		{tagNack, nackFor(tagRestartNotify, restartOf(restartHdr{recv: r.name}), 0)},
		{tagNack, nackFor(tagFin, finOf(finHdr{handle: s.name}), 0)},
	} {
		p.Arrived(nil, 2, f.tag, inSequence(f.frag, uint32(i)))
	}
	require.EqualValues(t, 4, p.Stats().Malformed)
	require.EqualValues(t, 1, p.Stats().StaleFragments)
	require.False(t, r.restart)
	require.Equal(t, request.Active, r.State())
	require.Equal(t, make([]byte, 1000), out)
	require.Equal(t, sendRTS, s.state)
}

// TestForgedRemoteKeysMakeMessageGoInFragments: keys, rails and offsets that do not exist have no
// other effect.
func TestForgedRemoteKeysMakeMessageGoInFragments(t *testing.T) {
	for name, list := range map[string][]byte{
		"none":         nil,
		"unknown rail": remoteKeysOf(remoteKey{rail: 77}),
		"unknown key":  remoteKeysOf(remoteKey{key: btl.Key{1, 2, 3}}),
		"offset":       remoteKeysOf(remoteKey{key: btl.Key{1}, offset: 1<<64 - 500}),
		"the same rail many times": remoteKeysOf(remoteKey{}, remoteKey{key: btl.Key{1}}, remoteKey{key: btl.Key{9}}, remoteKey{},
			remoteKey{}, remoteKey{}, remoteKey{}, remoteKey{}),
		"all rails": remoteKeysOf(remoteKey{rail: 0}, remoteKey{rail: 1}, remoteKey{rail: 2}, remoteKey{rail: 255}),
	} {
		for _, async := range []bool{false, true} {
			w, c := newWire(t, 2, withRails(1, 1), withAsync(async), withProtocol(Put))
			// In a PUT. The first key of the wire is of memory that may not be written.
			secret := pattern(5000, 9)
			_, err := w.modules[1].Register(secret, btl.AccessRemoteRead)
			require.NoError(t, err)
			p, in, out := w.pmls[0], pattern(1000, 1), make([]byte, 1000)
			r := w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
			s := p.Isend(c[0], in, 1, 1, Standard, "send")
			w.step(0) // RNDV
			put := &w.flying[0]
			require.Equal(t, tagPut, put.tag)
			put.frag = append(put.frag[:ackBytes:ackBytes], list...)
			var frags int
			w.log = func(what string, f *flight) {
				if f.tag == tagFrag && what == "arrives" {
					frags++
				}
			}
			w.settle()
			requireSuccess(t, s, r)
			require.Positive(t, frags, name)
			require.Equal(t, in, out)
			require.Equal(t, pattern(5000, 9), secret)
			require.Zero(t, p.Busy())
			require.Len(t, w.regions, 1)

			// In a RGET.
			w, c = newWire(t, 2, withRails(1, 1), withAsync(async), withProtocol(Get))
			p = w.pmls[1]
			out = make([]byte, 900)
			r = p.Irecv(c[1], out, 1, 0, 7, "recv")
			p.Arrived(w.modules[1], 0, tagRget, rndvOf(rndvHdr{matchHdr: matchHdr{tag: 7}, length: 1 << 40, send: 5}, list...))
			w.settle()
			require.Equal(t, "receiving", r.state.String(), name)
			require.Equal(t, make([]byte, 900), out)
			p.Arrived(w.modules[1], 0, tagFrag, fragOf(fragHdr{recv: r.name}, pattern(900, 1)...))
			requireFailure(t, request.ErrTruncate, r)
			require.Equal(t, pattern(900, 1), out)
			require.Empty(t, w.regions)
		}
	}
}

// TestForgedFinEndsOnlyItsMessage: an early FIN ends its own message, and revokes the memory that
// was exposed for it.
func TestForgedFinEndsOnlyItsMessage(t *testing.T) {
	w, c := newWire(t, 2, withRemote(getPut), withAsync(true))
	p := w.pmls[0]
	s := p.Isend(c[0], pattern(1000, 1), 1, 1, Standard, "send")
	p.Arrived(w.modules[0], 1, tagFin, finOf(finHdr{handle: s.name})) // RGET is still under way
	require.Equal(t, request.Active, s.State())
	r := w.pmls[1].Irecv(c[1], make([]byte, 1000), 1, 0, 1, "recv")
	w.step(0)
	requireSuccess(t, s)
	require.Len(t, w.regions, 1, "the sender's memory is still registered")
	w.settle()
	require.Equal(t, request.Active, r.State(), "the receive ended without its message")
	require.Equal(t, "receiving", r.state.String())

	w, c = newWire(t, 2, withRemote(btl.CapPut), withAsync(true))
	out := make([]byte, 1000)
	r = w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
	s = w.pmls[0].Isend(c[0], pattern(1000, 1), 1, 1, Standard, "send")
	w.step(0)
	w.step(0)
	require.Equal(t, bml.TagPut, w.flying[0].tag)
	w.pmls[1].Arrived(w.modules[1], 0, tagFin, inSequence(finOf(finHdr{handle: r.name, ofReceive: true}), 1))
	w.pmls[0].peer(1).CountSent()
	require.Equal(t, request.Complete, r.State())
	w.settle()
	require.Equal(t, make([]byte, 1000), out, "the buffer was written after its receive was complete")
	requireSuccess(t, s)
	require.Empty(t, w.regions)

	// A FIN for a receive that expects none.
	w, c = newWire(t, 2)
	s, r, in, out := oneWay(w, c, 1000)
	w.step(0)
	w.pmls[1].Arrived(w.modules[1], 0, tagFin, inSequence(finOf(finHdr{handle: r.name, ofReceive: true}), 1))
	require.Equal(t, request.Active, r.State())
	arrived(t, w, s, r, in, out)
}

// TestMessageFromNonMemberLosesPeer: a rank that is not in a communicator sends in it, twice. The
// second message is ignored.
func TestMessageFromNonMemberLosesPeer(t *testing.T) {
	for name, kept := range map[string]bool{"known context": false, "unknown context": true} {
		t.Run(name, func(t *testing.T) {
			w, c := newWire(t, 3)
			p := w.pmls[0]
			id := p.NewContextID()
			frag := matchOf(matchHdr{context: id, tag: 1}, 7)
			if kept {
				p.Arrived(nil, 2, tagMatch, frag)
				p.Arrived(nil, 2, tagMatch, inSequence(frag, 1))
				require.EqualValues(t, 2, p.Stats().UnexpectedBytes)
			}
			pair := p.AddContext(id, NewGroup([]int{0, 1}), 0, testCaller{})
			out := make([]byte, 1)
			r := p.Irecv(pair, out, 1, request.AnySource, request.AnyTag, "recv")
			if !kept {
				p.Arrived(nil, 2, tagMatch, frag)
				p.Arrived(nil, 2, tagMatch, inSequence(frag, 1))
			}
			require.Equal(t, request.Active, r.State())
			require.Zero(t, out[0])
			p.Progress()
			require.ErrorIs(t, p.Lost(c[0], 2), errNotMember)
			require.NoError(t, p.Lost(c[0], 1))
			require.Zero(t, p.Stats().UnexpectedBytes)
			require.EqualValues(t, 1, p.Stats().Malformed)
		})
	}
}

// TestTooManyEarlyFragmentsLosePeer: fragments ahead of their turn are kept only up to the window.
func TestTooManyEarlyFragmentsLosePeer(t *testing.T) {
	w, c := newWire(t, 2)
	p := w.pmls[0]
	r := p.Irecv(c[0], nil, 1, 1, 1, "recv")
	h := matchHdr{tag: 1}
	frag := matchOf(h, 1, 2)
	most := int(p.peer(1).credit.window / (fragmentCostBytes + 2))
	for i := range most + 1 {
		require.Equal(t, request.Active, r.State())
		require.EqualValues(t, 2*i, p.Stats().UnexpectedBytes)
		h.seq = uint32(i) + 1
		h.encode(frag)
		p.Arrived(nil, 1, tagMatch, frag)
		p.Arrived(nil, 1, tagMatch, frag) // a duplicate
	}
	p.Progress()
	requireFailure(t, errWindow, r)
	require.Zero(t, p.Stats().UnexpectedBytes)
	require.EqualValues(t, most, p.Stats().Duplicates)
}

// TestEarlyFragmentsAreCopied: a fragment's memory belongs to the rail when Arrived returns.
func TestEarlyFragmentsAreCopied(t *testing.T) {
	w, c := newWire(t, 2)
	p := w.pmls[0]
	id := p.NewContextID()
	second := matchOf(matchHdr{context: id, tag: 1, seq: 1}, 22)
	p.Arrived(nil, 1, tagMatch, second)
	clear(second)
	first := matchOf(matchHdr{context: id, tag: 1, seq: 0}, 11)
	p.Arrived(nil, 1, tagMatch, first)
	clear(first)
	ctx := p.AddContext(id, c[0].group, 0, testCaller{})
	for _, want := range []byte{11, 22} {
		out := []byte{0}
		requireSuccess(t, p.Irecv(ctx, out, 1, 1, 1, "recv"))
		require.Equal(t, want, out[0])
	}
	require.Zero(t, p.Stats().UnexpectedBytes)
}

// TestArrivedFromUnknownRankIsIgnored: the same holds after Close.
func TestArrivedFromUnknownRankIsIgnored(t *testing.T) {
	w, _ := newWire(t, 2)
	p := w.pmls[0]
	p.Arrived(nil, -1, tagMatch, matchOf(matchHdr{}))
	p.Arrived(nil, 2, tagMatch, matchOf(matchHdr{}))
	require.NoError(t, p.Close(nil))
	p.Arrived(nil, 1, tagMatch, matchOf(matchHdr{}))
	require.EqualValues(t, 3, p.Stats().Malformed)
	require.Zero(t, p.Stats().UnexpectedBytes)
}
