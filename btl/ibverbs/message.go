package ibverbs

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// kind of a message about a connection.
type kind uint8

const (
	msgREQ  kind = 1 + iota // asks for a connection
	msgREP                  // answers with the other end of the connection
	msgNAK                  // that epoch is over: ask for a later one
	msgDOWN                 // the sender's end of that epoch has failed
	// msgBYE: the sender's end of that epoch is gone, because it has closed its rail.
	msgBYE
	// msgDOWNACK answers both: the sender's end has failed too, or there is none.
	msgDOWNACK
	msgREJ // answers REQ: the sender cannot make its end
	kindEnd
)

// bytes is the length of a message of that kind.
func (k kind) bytes() int {
	if k == msgREJ {
		return maxMessageBytes
	}
	return messageBytes
}

// message is a datagram between modules. Messages are repeated and may be replayed, so all are
// idempotent.
type message struct {
	kind     kind
	from, to uint32 // ranks
	// fromNonce and toNonce are the nonces in the addresses of the two modules. With the epoch they
	// make a message valid for this connection only, so a replayed message has no effect.
	fromNonce, toNonce nonce
	epoch              uint32
	// address is the current address of the sender's datagram queue pair. The published one may be
	// older.
	address address
	end     qpEnd     // of REQ and REP
	toQPN   uint32    // of REP and REJ: the queue pair that asked; otherwise 0
	why     rejection // of REJ
}

// qpEnd is one end of a connection.
type qpEnd struct {
	qpn, psn uint32 // 24 bits
	// mtu is the MTU of the sender's port in REQ, and the smaller MTU of both ports in REP.
	mtu       verbs.MTU
	rdAtomic  uint8  // maximum number of reads that it answers at a time
	recvDepth uint16 // receives for fragments
	rnrRetry  uint8  // how often the peer's device retries without a receive; 7: forever
	frag      uint32 // bytes of the longest fragment
}

const (
	endBytes     = 4 + 4 + 1 + 1 + 2 + 4 + 1
	macBytes     = 16
	messageBytes = 2 + 4 + 4 + 8 + 8 + 4 + addressBytes + endBytes + 4 + macBytes
	// maxMessageBytes is the length of REJ, the longest message.
	maxMessageBytes = messageBytes + rejectionBytes
	protocol        = 3
)

// codec encodes and decodes the messages of a job. Only one goroutine at a time may use it.
type codec struct {
	mac hash.Hash
	sum [sha256.Size]byte
}

// newCodec makes the codec of a job from the job's secret.
func newCodec(secret []byte) *codec {
	return &codec{mac: base.NewMAC(secret, "ibverbs connections")}
}

// seal returns the authentication code of a message.
func (c *codec) seal(body []byte) []byte {
	c.mac.Reset()
	c.mac.Write(body)
	return c.mac.Sum(c.sum[:0])[:macBytes]
}

// append appends a message, with its authentication code.
func (c *codec) append(b []byte, m *message) []byte {
	start := len(b)
	b = append(b, protocol, byte(m.kind))
	b = binary.LittleEndian.AppendUint32(b, m.from)
	b = binary.LittleEndian.AppendUint32(b, m.to)
	b = append(b, m.fromNonce[:]...)
	b = append(b, m.toNonce[:]...)
	b = binary.LittleEndian.AppendUint32(b, m.epoch)
	b = appendAddress(b, &m.address)
	e := &m.end
	b = binary.LittleEndian.AppendUint32(b, e.qpn)
	b = binary.LittleEndian.AppendUint32(b, e.psn)
	b = append(b, byte(e.mtu), e.rdAtomic)
	b = binary.LittleEndian.AppendUint16(b, e.recvDepth)
	b = binary.LittleEndian.AppendUint32(b, e.frag)
	b = append(b, e.rnrRetry)
	b = binary.LittleEndian.AppendUint32(b, m.toQPN)
	if m.kind == msgREJ {
		b = m.why.append(b)
	}
	return append(b, c.seal(b[start:])...)
}

// parse checks the authentication code of a message before its fields. ok is false for a message
// that no module of this job sends.
func (c *codec) parse(b []byte) (m message, ok bool) {
	if len(b) < messageBytes || b[0] != protocol || len(b) != kind(b[1]).bytes() {
		return message{}, false
	}
	body, mac := b[:len(b)-macBytes], b[len(b)-macBytes:]
	if !hmac.Equal(c.seal(body), mac) {
		return message{}, false
	}
	m.kind = kind(b[1])
	m.from = binary.LittleEndian.Uint32(b[2:])
	m.to = binary.LittleEndian.Uint32(b[6:])
	copy(m.fromNonce[:], b[10:])
	copy(m.toNonce[:], b[18:])
	m.epoch = binary.LittleEndian.Uint32(b[26:])
	if m.address, ok = readAddress(b[30:]); !ok {
		return message{}, false
	}
	b = b[30+addressBytes:]
	e := &m.end
	e.qpn = binary.LittleEndian.Uint32(b)
	e.psn = binary.LittleEndian.Uint32(b[4:])
	e.mtu = verbs.MTU(b[8])
	e.rdAtomic = b[9]
	e.recvDepth = binary.LittleEndian.Uint16(b[10:])
	e.frag = binary.LittleEndian.Uint32(b[12:])
	e.rnrRetry = b[16]
	m.toQPN = binary.LittleEndian.Uint32(b[17:])
	switch m.kind {
	case msgREQ, msgREP:
		ok = e.qpn > 0 && e.qpn < 1<<24 && e.psn < 1<<24 && e.mtu.Bytes() != 0 && e.recvDepth >= minRecvDepth && e.recvDepth <= maxDepth && e.rnrRetry <= rnrForever
	case msgNAK, msgDOWN, msgBYE, msgDOWNACK:
		ok = true
	case msgREJ:
		m.why, ok = parseRejection(b[endBytes+4:])
	default:
		ok = false
	}
	return m, ok && m.epoch != 0 && m.toQPN < 1<<24
}
