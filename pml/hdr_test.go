package pml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// header is a pointer to a header of type T.
type header[T any] interface {
	*T
	decode(b []byte) error
}

// checkRoundTrip encodes and decodes a header of n bytes. A byte less is an error.
func checkRoundTrip[T any, P header[T]](t *testing.T, h T, encode func(b []byte), n int) {
	t.Helper()
	var b [btl.MaxHeaderBytes]byte
	encode(b[:])
	var decoded T
	require.NoError(t, P(&decoded).decode(b[:n]))
	require.Equal(t, h, decoded)
	require.ErrorIs(t, P(&decoded).decode(b[:n-1]), errMalformed)
}

func TestHeadersRoundTrip(t *testing.T) {
	m := matchHdr{context: 1<<48 - 1, flags: 3, tag: 1<<31 - 1, seq: 1<<32 - 1}
	checkRoundTrip(t, m, m.encode, matchBytes)
	r := rndvHdr{matchHdr: m, length: 1 << 40, send: 1<<63 | 5}
	checkRoundTrip(t, r, r.encode, rndvBytes)
	a := ackHdr{send: 1, recv: 2, from: 3, to: 1 << 50}
	checkRoundTrip(t, a, a.encode, ackBytes)
	f := fragHdr{recv: 9, offset: 1 << 41}
	checkRoundTrip(t, f, f.encode, fragBytes)
	for _, ofReceive := range []bool{false, true} {
		e := finHdr{handle: 1<<63 | 7, ofReceive: ofReceive, fragments: 1 << 40, fences: []byte{}}
		checkRoundTrip(t, e, e.encode, finBytes)
	}
	s := restartHdr{send: 1<<63 | 7, recv: 9}
	checkRoundTrip(t, s, s.encode, restartBytes)
	c := creditHdr{taken: 1<<62 + 3, rtsLimit: 1<<61 + 5}
	checkRoundTrip(t, c, c.encode, creditBytes)
	n := nackHdr{head: [nackHeadBytes]byte{0: 1, 23: 9}, kind: tagMatch, bytes: 1<<32 - 1}
	checkRoundTrip(t, n, n.encode, nackBytes)
}
