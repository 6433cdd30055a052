package ibverbs

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

var testSecret = []byte("0123456789abcdef0123456789abcdef")

func sampleMessage(k kind) message {
	return message{
		kind: k, from: 1, to: 2, fromNonce: nonce{1}, toNonce: nonce{2}, epoch: 7, address: sampleAddress(linkRoCE),
		end:   qpEnd{qpn: 77, psn: 1<<24 - 1, mtu: verbs.MTU4096, rdAtomic: 16, recvDepth: 64, frag: 8256},
		toQPN: 78,
	}
}

func sampleRejection() message {
	m := sampleMessage(msgREJ)
	m.why = rejection{retry: true, errno: 12, text: "ibv_reg_mr: cannot allocate memory"}
	return m
}

func TestMessage(t *testing.T) {
	c := newCodec(testSecret)
	for k := msgREQ; k < kindEnd; k++ {
		want := sampleMessage(k)
		if k == msgREJ {
			want = sampleRejection()
		}
		b := c.append(nil, &want)
		require.Len(t, b, k.bytes())
		got, ok := c.parse(b)
		require.True(t, ok, k)
		require.Equal(t, want, got)
	}
}

// TestMessageOfStrangers: without the secret, or with a bit changed, nothing is a message.
func TestMessageOfStrangers(t *testing.T) {
	c := newCodec(testSecret)
	m := sampleMessage(msgREQ)
	b := c.append(nil, &m)
	_, ok := newCodec([]byte("another secret")).parse(b)
	require.False(t, ok)
	for i := range b {
		bad := append([]byte(nil), b...)
		bad[i] ^= 1
		_, ok := c.parse(bad)
		require.False(t, ok, "byte %d damaged", i)
		_, ok = c.parse(b[:i])
		require.False(t, ok, "cut at %d", i)
	}
	_, ok = c.parse(append(b, 0))
	require.False(t, ok, "longer")
}

// TestMessageThatNobodySends: the seal is right, what it says is not.
func TestMessageThatNobodySends(t *testing.T) {
	c := newCodec(testSecret)
	for name, damage := range map[string]func(*message){
		"kind 0":        func(m *message) { m.kind = 0 },
		"unknown kind":  func(m *message) { m.kind = kindEnd },
		"epoch 0":       func(m *message) { m.epoch = 0 },
		"no queue pair": func(m *message) { m.end.qpn = 0 },
		"QPN":           func(m *message) { m.end.qpn = 1 << 24 },
		"PSN":           func(m *message) { m.end.psn = 1 << 24 },
		"MTU":           func(m *message) { m.end.mtu = 6 },
		"depth":         func(m *message) { m.end.recvDepth = minRecvDepth - 1 },
		"great depth":   func(m *message) { m.end.recvDepth = maxDepth + 1 },
		"their QPN":     func(m *message) { m.toQPN = 1 << 24 },
		"address":       func(m *message) { m.address.qpn = 0 },
	} {
		m := sampleMessage(msgREP)
		damage(&m)
		_, ok := c.parse(c.append(nil, &m))
		require.False(t, ok, name)
	}
	for name, damage := range map[string]func(*rejection){
		"text of control bytes": func(r *rejection) { r.text = "a\x1b[2J" },
		"a hole in the text":    func(r *rejection) { r.text = "a\x00b" },
	} {
		m := sampleRejection()
		damage(&m.why)
		_, ok := c.parse(c.append(nil, &m))
		require.False(t, ok, name)
	}
}

// TestRejectionOfAnyError: whatever an error says, the peer can read it, and it fits a datagram.
func TestRejectionOfAnyError(t *testing.T) {
	require.LessOrEqual(t, maxMessageBytes, verbs.MTU256.Bytes())
	c := newCodec(testSecret)
	for _, err := range []error{
		errors.New(""), errors.New(strings.Repeat("long ", 100)), errors.New("µs, \x00\x1b and\nlines"), errors.Join(errStuck, errStuck),
		verbs.NewCallError("ibv_create_qp", syscall.ENOMEM, "no room"), fmt.Errorf("receive buffers: %w", syscall.EAGAIN),
	} {
		m := sampleMessage(msgREJ)
		m.why = rejectionFor(err)
		got, ok := c.parse(c.append(nil, &m))
		require.True(t, ok, "%q", err)
		require.Equal(t, m, got)
	}
	require.Equal(t, rejection{true, uint16(syscall.ENOMEM), "ibv_create_qp: cannot allocate memory: no room"},
		rejectionFor(verbs.NewCallError("ibv_create_qp", syscall.ENOMEM, "no room")))
	require.False(t, rejectionFor(verbs.NewCallError("ibv_create_qp", syscall.EINVAL, "")).retry)
}

// FuzzMessage gives the parser bodies with a good seal, as only a member of the job could make
// them, and without.
func FuzzMessage(f *testing.F) {
	c := newCodec(testSecret)
	for k := msgREQ; k < kindEnd; k++ {
		m := sampleMessage(k)
		f.Add(c.append(nil, &m))
	}
	m := sampleRejection()
	f.Add(c.append(nil, &m))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, ok := c.parse(b); ok {
			require.Equal(t, b, c.append(nil, &m))
		}
		if len(b) < macBytes {
			return
		}
		sealed := append([]byte(nil), b[:len(b)-macBytes]...)
		sealed = append(sealed, c.seal(sealed)...)
		if m, ok := c.parse(sealed); ok {
			require.Equal(t, sealed, c.append(nil, &m), "one message has one encoding")
		}
	})
}
