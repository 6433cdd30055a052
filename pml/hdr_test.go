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

// checkRoundTrip encodes and decodes a header of n bytes.
func checkRoundTrip[T any, P header[T]](t *testing.T, h T, encode func(b []byte), n int) {
	t.Helper()
	var b [btl.MaxHeaderBytes]byte
	encode(b[:])
	var decoded T
	require.NoError(t, P(&decoded).decode(b[:n]))
	require.Equal(t, h, decoded)
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
		e := finHdr{handle: 1<<63 | 7, ofReceive: ofReceive}
		checkRoundTrip(t, e, e.encode, finBytes)
	}
	s := restartHdr{send: 1<<63 | 7, recv: 9}
	checkRoundTrip(t, s, s.encode, restartBytes)
	c := creditHdr{taken: 1<<62 + 3, rtsLimit: 1<<61 + 5}
	checkRoundTrip(t, c, c.encode, creditBytes)
	n := nackHdr{head: [nackHeadBytes]byte{0: 1, 23: 9}, kind: tagMatch, bytes: 1<<32 - 1}
	checkRoundTrip(t, n, n.encode, nackBytes)
}

func TestDecodeMalformedHeaderFails(t *testing.T) {
	var b [btl.MaxHeaderBytes]byte
	(&matchHdr{}).encode(b[:])
	wrongVersion, negativeTag := b, b
	wrongVersion[7]++
	negativeTag[11] = 0x80
	longer := b // length 0, but bytes follow
	backwards := b
	(&ackHdr{from: 2, to: 1}).encode(backwards[:])
	half := b
	(&ackHdr{from: freed, to: 1}).encode(half[:])
	for name, err := range map[string]error{
		"short match":         (&matchHdr{}).decode(b[:matchBytes-1]),
		"wrong version":       (&matchHdr{}).decode(wrongVersion[:matchBytes]),
		"negative tag":        (&matchHdr{}).decode(negativeTag[:matchBytes]),
		"short rendezvous":    (&rndvHdr{}).decode(b[:rndvBytes-1]),
		"more than announced": decodeIncoming(tagRndv, longer[:rndvBytes+1]),
		"half a remote key":   decodeIncoming(tagRget, longer[:rndvBytes+1]),
		"short end":           (&finHdr{}).decode(b[:finBytes-1]),
		"end of what":         (&finHdr{}).decode(append(b[:8:8], 2, 0, 0, 0, 0, 0, 0, 0)),
		"long credit":         (&creditHdr{}).decode(b[:creditBytes+1]),
		"negative credit":     (&creditHdr{}).decode([]byte{7: 0x80, 15: 0}),
		"negative window":     (&creditHdr{}).decode([]byte{15: 0x80}),
		"short ack":           (&ackHdr{}).decode(b[:ackBytes-1]),
		"long ack":            (&ackHdr{}).decode(b[:ackBytes+1]),
		"backwards ack":       (&ackHdr{}).decode(backwards[:ackBytes]),
		"half a rejection":    (&ackHdr{}).decode(half[:ackBytes]),
		"short fragment":      (&fragHdr{}).decode(b[:fragBytes-1]),
	} {
		require.ErrorIs(t, err, errMalformed, name)
	}
}

func decodeIncoming(tag btl.Tag, frag []byte) error {
	_, err := new(incoming).decode(tag, frag)
	return err
}
