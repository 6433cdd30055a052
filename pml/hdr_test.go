package pml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

func TestHeadersRoundTrip(t *testing.T) {
	var b [btl.MaxHeaderBytes]byte
	m := matchHdr{context: 1<<48 - 1, flags: 3, tag: 1<<31 - 1, seq: 1<<32 - 1}
	m.encode(b[:])
	var m2 matchHdr
	require.NoError(t, m2.decode(b[:matchBytes]))
	require.Equal(t, m, m2)

	r := rndvHdr{matchHdr: m, length: 1 << 40, send: 1<<63 | 5}
	r.encode(b[:])
	var r2 rndvHdr
	require.NoError(t, r2.decode(b[:rndvBytes]))
	require.Equal(t, r, r2)

	a := ackHdr{send: 1, recv: 2, from: 3, to: 1 << 50}
	a.encode(b[:])
	var a2 ackHdr
	require.NoError(t, a2.decode(b[:ackBytes]))
	require.Equal(t, a, a2)

	f := fragHdr{recv: 9, offset: 1 << 41}
	f.encode(b[:])
	var f2 fragHdr
	require.NoError(t, f2.decode(b[:fragBytes]))
	require.Equal(t, f, f2)

	for _, ofReceive := range []bool{false, true} {
		e := finHdr{handle: 1<<63 | 7, ofReceive: ofReceive}
		e.encode(b[:])
		var e2 finHdr
		require.NoError(t, e2.decode(b[:finBytes]))
		require.Equal(t, e, e2)
	}

	s := restartHdr{send: 1<<63 | 7, recv: 9}
	s.encode(b[:])
	var s2 restartHdr
	require.NoError(t, s2.decode(b[:restartBytes]))
	require.Equal(t, s, s2)

	c := creditHdr{taken: 1<<62 + 3, rtsLimit: 1<<61 + 5}
	c.encode(b[:])
	var c2 creditHdr
	require.NoError(t, c2.decode(b[:creditBytes]))
	require.Equal(t, c, c2)

	n := nackHdr{head: [nackHeadBytes]byte{0: 1, 23: 9}, kind: tagMatch, bytes: 1<<32 - 1}
	n.encode(b[:])
	var n2 nackHdr
	require.NoError(t, n2.decode(b[:nackBytes]))
	require.Equal(t, n, n2)
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
