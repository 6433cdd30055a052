package ibverbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

var testSecret = []byte("0123456789abcdef0123456789abcdef")

func sampleMessage(k kind) message {
	return message{
		kind: k, from: 1, to: 2, fromNonce: nonce{1}, toNonce: nonce{2}, epoch: 7, address: sampleAddress(true),
		end:   qpEnd{qpn: 77, psn: 1<<24 - 1, mtu: verbs.MTU4096, rdAtomic: 16, recvDepth: 64, frag: 8256},
		toQPN: 78,
	}
}

func TestMessage(t *testing.T) {
	c := newCodec(testSecret)
	for k := msgREQ; k < kindEnd; k++ {
		want := sampleMessage(k)
		b := c.append(nil, &want)
		require.Len(t, b, messageBytes)
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
	for name, spoil := range map[string]func(*message){
		"kind 0":        func(m *message) { m.kind = 0 },
		"unknown kind":  func(m *message) { m.kind = kindEnd },
		"epoch 0":       func(m *message) { m.epoch = 0 },
		"no queue pair": func(m *message) { m.end.qpn = 0 },
		"QPN":           func(m *message) { m.end.qpn = 1 << 24 },
		"PSN":           func(m *message) { m.end.psn = 1 << 24 },
		"MTU":           func(m *message) { m.end.mtu = 6 },
		"depth":         func(m *message) { m.end.recvDepth = leastRecvDepth - 1 },
		"great depth":   func(m *message) { m.end.recvDepth = mostDepth + 1 },
		"their QPN":     func(m *message) { m.toQPN = 1 << 24 },
		"address":       func(m *message) { m.address.qpn = 0 },
	} {
		m := sampleMessage(msgREP)
		spoil(&m)
		_, ok := c.parse(c.append(nil, &m))
		require.False(t, ok, name)
	}
}

// FuzzMessage gives the parser bodies with a good seal, as only a member of the job could make them, and without.
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
		if len(b) != messageBytes {
			return
		}
		sealed := append([]byte(nil), b[:messageBytes-macBytes]...)
		sealed = append(sealed, c.seal(sealed)...)
		if m, ok := c.parse(sealed); ok {
			require.Equal(t, sealed, c.append(nil, &m), "one message has one encoding")
		}
	})
}
