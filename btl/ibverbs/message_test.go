package ibverbs

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

func sampleAddress(link linkKind) address {
	gid := verbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: 10, 15: 1}
	return address{gid: gid, lid: 7, qpn: 0xfffffe, qkey: 0x7fffffff, link: link}
}

func sampleMessage(k kind) message {
	m := message{
		kind: k, from: 1, to: 2, fromNonce: nonce{1}, toNonce: nonce{2}, epoch: 7, address: sampleAddress(linkRoCE),
		end:   qpEnd{qpn: 77, psn: 1<<24 - 1, mtu: verbs.MTU4096, rdAtomic: 16, recvDepth: 64, frag: 8256},
		toQPN: 78,
	}
	if k == msgREJ {
		m.why = rejection{retry: true, errno: 12, text: "ibv_reg_mr: cannot allocate memory"}
	}
	return m
}

func TestMessage(t *testing.T) {
	c := newCodec(testSecret)
	for k := msgREQ; k < kindEnd; k++ {
		want := sampleMessage(k)
		b := c.append(nil, &want)
		require.Len(t, b, k.bytes())
		got, ok := c.parse(b)
		require.True(t, ok, k)
		require.Equal(t, want, got)
	}
}

// TestParseForgedMessageFails: a message with another secret, or with a changed bit, is refused.
func TestParseForgedMessageFails(t *testing.T) {
	c := newCodec(testSecret)
	m := sampleMessage(msgREQ)
	b := c.append(nil, &m)
	_, ok := newCodec([]byte("another secret")).parse(b)
	require.False(t, ok)
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		_, ok := c.parse(bad)
		require.False(t, ok, "byte %d damaged", i)
		_, ok = c.parse(b[:i])
		require.False(t, ok, "cut at %d", i)
	}
	_, ok = c.parse(append(b, 0))
	require.False(t, ok, "longer")
}

// TestParseInvalidMessageFails: the authentication code is right, but a field is invalid.
func TestParseInvalidMessageFails(t *testing.T) {
	c := newCodec(testSecret)
	for name, damage := range map[string]func(*message){
		"kind 0":                  func(m *message) { m.kind = 0 },
		"unknown kind":            func(m *message) { m.kind = kindEnd },
		"epoch 0":                 func(m *message) { m.epoch = 0 },
		"no queue pair":           func(m *message) { m.end.qpn = 0 },
		"QPN":                     func(m *message) { m.end.qpn = 1 << 24 },
		"PSN":                     func(m *message) { m.end.psn = 1 << 24 },
		"MTU":                     func(m *message) { m.end.mtu = 6 },
		"small depth":             func(m *message) { m.end.recvDepth = minRecvDepth - 1 },
		"great depth":             func(m *message) { m.end.recvDepth = maxDepth + 1 },
		"their QPN":               func(m *message) { m.toQPN = 1 << 24 },
		"address":                 func(m *message) { m.address.qpn = 0 },
		"control bytes in a text": func(m *message) { *m = sampleMessage(msgREJ); m.why.text = "a\x1b[2J" },
		"zero byte in a text":     func(m *message) { *m = sampleMessage(msgREJ); m.why.text = "a\x00b" },
	} {
		m := sampleMessage(msgREP)
		damage(&m)
		_, ok := c.parse(c.append(nil, &m))
		require.False(t, ok, name)
	}
}

// TestRejectionForAnyError: the rejection for any error can be parsed, and fits a datagram.
func TestRejectionForAnyError(t *testing.T) {
	require.LessOrEqual(t, maxMessageBytes, verbs.MTU256.Bytes())
	c := newCodec(testSecret)
	noMemory := verbs.NewCallError("ibv_create_qp", syscall.ENOMEM, "no room")
	for _, err := range []error{
		errors.New(""), errors.New(strings.Repeat("long ", 100)), errors.New("µs, \x00\x1b and\nlines"),
		errors.Join(errStuck, errStuck), noMemory, fmt.Errorf("receive buffers: %w", syscall.EAGAIN),
	} {
		m := sampleMessage(msgREJ)
		m.why = rejectionFor(err)
		got, ok := c.parse(c.append(nil, &m))
		require.True(t, ok, "%q", err)
		require.Equal(t, m, got)
	}
	want := rejection{true, uint16(syscall.ENOMEM), "ibv_create_qp: cannot allocate memory: no room"}
	require.Equal(t, want, rejectionFor(noMemory))
	require.False(t, rejectionFor(verbs.NewCallError("ibv_create_qp", syscall.EINVAL, "")).retry)
}

// FuzzMessage parses bodies without and with a valid authentication code. Only members of the job
// can make one.
func FuzzMessage(f *testing.F) {
	c := newCodec(testSecret)
	for k := msgREQ; k < kindEnd; k++ {
		m := sampleMessage(k)
		f.Add(c.append(nil, &m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, ok := c.parse(b); ok {
			require.Equal(t, b, c.append(nil, &m))
		}
		if len(b) < macBytes {
			return
		}
		sealed := bytes.Clone(b[:len(b)-macBytes])
		sealed = append(sealed, c.seal(sealed)...)
		if m, ok := c.parse(sealed); ok {
			require.Equal(t, sealed, c.append(nil, &m), "a message has one encoding")
		}
	})
}

func TestRailAddress(t *testing.T) {
	for link := range linkEnd {
		want := railAddress{rank: 3, size: 9, nonce: nonce{1, 2, 8}, address: sampleAddress(link), pkey: 0xffff, frag: 8256}
		b := want.encode()
		got, ok := parseRailAddress(b)
		require.True(t, ok)
		require.Equal(t, want, got)
		for i := range b {
			bad := bytes.Clone(b)
			bad[i] ^= 0x10
			_, ok := parseRailAddress(bad)
			require.False(t, ok, "byte %d damaged", i)
		}
	}
}

// TestParseInvalidRailAddressFails: the checksum is right, but a field is invalid.
func TestParseInvalidRailAddressFails(t *testing.T) {
	for name, damage := range map[string]func(*railAddress){
		"rank":            func(c *railAddress) { c.rank = 9 },
		"size":            func(c *railAddress) { c.size = base.MaxRanks + 1 },
		"no queue pair":   func(c *railAddress) { c.address.qpn = 0 },
		"25 bits":         func(c *railAddress) { c.address.qpn = 1 << 24 },
		"no GID":          func(c *railAddress) { c.address.gid = verbs.GID{} },
		"no LID":          func(c *railAddress) { c.address.link, c.address.lid = linkInfiniBand, 0 },
		"no global GID":   func(c *railAddress) { c.address.link, c.address.gid = linkGlobal, verbs.GID{} },
		"unknown link":    func(c *railAddress) { c.address.link = linkEnd },
		"no partition":    func(c *railAddress) { c.pkey = fullMember },
		"fragment length": func(c *railAddress) { c.frag = maxFragBytes + 1 },
	} {
		c := railAddress{rank: 3, size: 9, address: sampleAddress(linkRoCE), pkey: 0xffff, frag: 8256}
		damage(&c)
		_, ok := parseRailAddress(c.encode())
		require.False(t, ok, name)
	}
}

func FuzzRailAddress(f *testing.F) {
	c := railAddress{rank: 3, size: 9, address: sampleAddress(linkRoCE), pkey: 0xffff, frag: 8256}
	f.Add(c.encode()[1 : len(c.encode())-4])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		b = addressForm.Seal(b) // so that every content gets as far as the checks of its fields
		if c, ok := parseRailAddress(b); ok {
			require.Equal(t, b, c.encode(), "an address has one encoding")
		}
	})
}

// A rail leads to rails of the same kind. InfiniBand ports prefer ports of the same subnet. Connect
// reports malformed addresses.
func TestLeads(t *testing.T) {
	at := func(link linkKind, subnet byte) []byte {
		c := railAddress{rank: 3, size: 9, address: sampleAddress(link), pkey: 0xffff, frag: 8256}
		c.address.gid[0] = subnet
		return c.encode()
	}
	ours := [][]byte{at(linkRoCE, 1), at(linkGlobal, 1), {1}}
	theirs := [][]byte{at(linkRoCE, 2), at(linkGlobal, 1), at(linkGlobal, 2), nil}
	how := leads(ours, theirs)
	want := [][]int{{1, 0, 0, 1}, {0, 2, 1, 1}, {1, 1, 1, 1}}
	for i := range ours {
		for j := range theirs {
			require.Equal(t, want[i][j], how(i, j), "%d to %d", i, j)
		}
	}
}
