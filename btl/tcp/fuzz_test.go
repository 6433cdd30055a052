package tcp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

func someAddresses() []railAddress {
	return []railAddress{
		{rank: 0, size: 1, addresses: []netAddress{{netip.MustParseAddrPort("127.0.0.1:1"), 8}}, frag: 64},
		{rank: 7, size: 9, nonce: moduleNonce{1, 2}, host: [16]byte{3}, addresses: []netAddress{{netip.MustParseAddrPort("192.0.2.1:65535"), 8}}, frag: maxFragBytes},
		{rank: 2, size: 3, nonce: moduleNonce{4}, host: [16]byte{5}, frag: 64, word: 6},
		{rank: 1, size: 2, addresses: []netAddress{
			{netip.MustParseAddrPort("10.0.0.1:3"), 24}, {netip.MustParseAddrPort("[fd00::1]:3"), 64}, {netip.MustParseAddrPort("10.1.0.1:4"), 0},
		}, frag: 64},
		{rank: 1, size: base.MaxRanks, addresses: []netAddress{{netip.MustParseAddrPort("[2001:db8::1]:4000"), 8}}, frag: 70000},
	}
}

// FuzzRailAddress: what is parsed is an address, and no other bytes mean the same. The checksum is
// right, so that every content gets as far as the checks of its fields.
func FuzzRailAddress(f *testing.F) {
	content := func(c railAddress) []byte {
		b := c.encode()
		return b[1 : len(b)-4]
	}
	for _, c := range someAddresses() {
		f.Add(content(c))
	}
	f.Add(make([]byte, len(content(someAddresses()[0]))))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = addressForm.Seal(b)
		c, ok := parseRailAddress(b)
		if !ok {
			return
		}
		require.Equal(t, b, c.encode())
		require.Less(t, c.rank, c.size)
		require.True(t, len(c.addresses) > 0 || c.word != 0)
	})
}

func TestParseRailAddress(t *testing.T) {
	for _, c := range someAddresses() {
		got, ok := parseRailAddress(c.encode())
		require.True(t, ok)
		require.Equal(t, c, got)
	}
	add := func(list []netAddress, address string, bits uint8) []netAddress {
		return append(slices.Clone(list), netAddress{netip.MustParseAddrPort(address), bits})
	}
	for what, damage := range map[string]func(c *railAddress){
		"unspecified": func(c *railAddress) { c.addresses = add(c.addresses, "0.0.0.0:1", 8) },
		"multicast":   func(c *railAddress) { c.addresses = add(c.addresses, "[ff02::1]:1", 8) },
		"port":        func(c *railAddress) { c.addresses = add(c.addresses, "192.0.2.9:0", 8) },
		"prefix":      func(c *railAddress) { c.addresses = add(c.addresses, "192.0.2.9:1", 33) },
		"twice":       func(c *railAddress) { c.addresses = add(add(c.addresses, "192.0.2.9:1", 8), "192.0.2.9:2", 8) },
		"nothing":     func(c *railAddress) { c.addresses, c.word = nil, 0 },
		"too many": func(c *railAddress) {
			for n := range maxAddresses + 1 {
				c.addresses = add(c.addresses, fmt.Sprintf("10.0.0.%d:1", n), 32)
			}
		},
		"rank":     func(c *railAddress) { c.rank = c.size },
		"ranks":    func(c *railAddress) { c.size = base.MaxRanks + 1 },
		"fragment": func(c *railAddress) { c.frag = maxFragBytes + 1 },
	} {
		for _, c := range someAddresses() {
			damage(&c)
			_, ok := parseRailAddress(c.encode())
			require.False(t, ok, "%s: %+v", what, c)
		}
	}
}

var someHello = hello{from: 1, to: 2, size: 3, epoch: 4, frag: 5, fromNonce: moduleNonce{6}, toNonce: moduleNonce{7}, nonce: nonce{8}}

// FuzzHello: only the peer's reply to this challenge is accepted.
func FuzzHello(f *testing.F) {
	c := newCodec(secret)
	challenge := nonce{1, 2, 3}
	said := c.appendHello(nil, &challenge, &someHello)
	f.Add(said, byte(1))
	f.Add(said[:helloBytes-1], byte(1))
	f.Add(append(said[:helloBytes:helloBytes], 0), byte(1))
	f.Add(newCodec([]byte("another")).appendHello(nil, &challenge, &someHello), byte(1))
	f.Add(make([]byte, helloBytes), byte(0))
	f.Fuzz(func(t *testing.T, b []byte, first byte) {
		h, ok := c.parseHello(b, &nonce{first, 2, 3})
		if string(b) == string(said) && first == 1 {
			require.True(t, ok)
			require.Equal(t, someHello, h)
			return
		}
		require.False(t, ok)
	})
}

// FuzzAnswer: only the acceptor's answer to this hello is accepted.
func FuzzAnswer(f *testing.F) {
	c := newCodec(secret)
	challenge := nonce{1, 2, 3}
	hi := c.appendHello(nil, &challenge, &someHello)
	said := c.appendAnswer(nil, &challenge, hi, answer{resultAccept, 9})
	f.Add(said)
	f.Add(c.appendAnswer(nil, &challenge, hi[1:], answer{resultAccept, 9}))
	f.Add(hi[helloBytes-answerBytes:])
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := c.parseAnswer(b, &challenge, hi)
		require.Equal(t, string(b) == string(said), ok)
		if ok {
			require.Equal(t, answer{resultAccept, 9}, a)
		}
	})
}

// TestRoles: a message of one end is not accepted from the other end.
func TestHandshakeOfOtherRoleIsRejected(t *testing.T) {
	c := newCodec(secret)
	challenge := nonce{1}
	require.NotEqual(t, append([]byte(nil), c.seal(roleConnector, &challenge, []byte("x"))...), c.seal(roleAcceptor, &challenge, []byte("x")))
	for _, a := range []answer{{0, 1}, {resultEnd, 1}, {resultAccept, 0}} {
		_, ok := c.parseAnswer(c.appendAnswer(nil, &challenge, nil, a), &challenge, nil)
		require.False(t, ok, "%+v", a)
	}
	for _, change := range []func(*hello){
		func(h *hello) { h.from = h.to }, func(h *hello) { h.from = h.size }, func(h *hello) { h.to = h.size }, func(h *hello) { h.epoch = 0 },
	} {
		h := someHello
		change(&h)
		_, ok := c.parseHello(c.appendHello(nil, &challenge, &h), &challenge)
		require.False(t, ok, "%+v", h)
	}
}

// FuzzHead: bytes that parse are a valid head, and each head has one encoding.
func FuzzHead(f *testing.F) {
	for _, h := range []head{
		{length: 100, ack: 1, epoch: 2, kind: frameFrag, tag: 3},
		{length: 1000, ack: 1<<32 - 1, epoch: 1, kind: frameFrag},
		{ack: 7, epoch: 8, kind: frameAck},
		{epoch: 8, kind: frameBye},
		{length: 1001, epoch: 1, kind: frameFrag},
		{length: 1, epoch: 1, kind: frameAck},
		{epoch: 1, kind: kindEnd},
	} {
		var b [headBytes]byte
		h.put(b[:])
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headBytes {
			return
		}
		h, ok := parseHead(b, 1000)
		if !ok {
			return
		}
		require.LessOrEqual(t, h.length, uint32(1000))
		var again [headBytes]byte
		h.put(again[:])
		require.Equal(t, b[:headBytes], again[:])
	})
}

// recorder is Events that keep arriving fragments.
type recorder struct {
	mate
	frags []string
}

func (r *recorder) Arrived(m btl.Module, peer int, tag btl.Tag, frag []byte) {
	r.mate.Arrived(m, peer, tag, frag)
	r.frags = append(r.frags, string(frag))
}

// FuzzStream: whatever a peer sends, in whatever pieces, either its frames are handed up once and
// in order, or the endpoint fails with the right class.
func FuzzStream(f *testing.F) {
	frame := func(h head, body string) []byte {
		b := make([]byte, headBytes)
		h.length = uint32(len(body))
		h.put(b)
		return append(b, body...)
	}
	one := frame(head{epoch: 1, kind: frameFrag, tag: 1}, "one")
	f.Add(append(one, frame(head{epoch: 1, kind: frameFrag}, "")...), byte(3))
	f.Add(append(one, frame(head{epoch: 1, kind: frameBye}, "")...), byte(1))
	f.Add(append(one, frame(head{epoch: 1, kind: frameAck, ack: 1}, "")...), byte(255))
	f.Add(append(one, frame(head{epoch: 2, kind: frameFrag}, "from the future")...), byte(16))
	m := newAt(f, Config{Size: 2, Local: loopback4, Secret: secret, FragBytes: 64, BufferBytes: 128}, 0, &mate{})
	f.Fuzz(func(t *testing.T, b []byte, step byte) {
		ev := &recorder{}
		m.Events = ev
		e := m.newEndpoint(&peer{rank: 1}, 1)
		e.Return(btl.Path{Peer: 1})
		e.phase, e.buf = phaseReady, make([]byte, m.cfg.BufferBytes)
		fed := 0
		for e.State() == btl.Up && fed < len(b) {
			n := copy(e.buf[e.w:], b[fed:min(len(b), fed+int(step)+1)])
			require.Positive(t, n, "no room to read into")
			fed += n
			e.w += n
			for e.parse(); e.moreFrames; e.parse() {
			}
		}
		// The same with a simple reader.
		var want []string
		failed := false
		for rest := b[:fed]; !failed && len(rest) >= headBytes; {
			h, ok := parseHead(rest, 64)
			if failed = !ok || h.ack != 0 || h.epoch > 1; failed || len(rest) < headBytes+int(h.length) {
				break
			}
			if h.kind == frameFrag {
				want = append(want, string(rest[headBytes:headBytes+int(h.length)]))
			}
			failed = h.kind == frameBye
			rest = rest[headBytes+int(h.length):]
		}
		require.Equal(t, want, ev.frags)
		if e.State() != btl.Up {
			require.True(t, ev.failed.Class == btl.ClassProtocol || ev.failed.Class == btl.ClassClosed)
		}
		m.unparsed, m.pendingAcks, m.toFlush = nil, nil, nil
		m.Forget()
	})
}
