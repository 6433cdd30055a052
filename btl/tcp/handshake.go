package tcp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/mpigo/mpigo/btl/base"
)

// nonce is a random value that one end has drawn for one handshake.
type nonce [32]byte

// hello is the connector's message. Its size is fixed, so nothing is parsed before the HMAC is
// checked.
type hello struct {
	from, to, size     uint32
	epoch              uint32 // the epoch that the connector asks for
	frag               uint32
	fromNonce, toNonce moduleNonce // of the two modules, as in their addresses
	nonce              nonce       // the connector's, which the answer covers
}

// result is the acceptor's answer.
type result uint8

const (
	resultAccept result = 1 + iota // there is a connection, of that epoch
	resultBusy                     // the acceptor's own attempt is used instead
	// resultStale: the epoch asked for is over. The answer's epoch is the first one that is not
	// over.
	resultStale
	resultClosed // the acceptor has closed its rail
	resultEnd
)

// answer to a hello.
type answer struct {
	result result
	epoch  uint32
}

const (
	protocol    = 1
	nonceBytes  = 32
	macBytes    = sha256.Size
	helloBody   = 1 + 5*4 + 2*16 + nonceBytes
	helloBytes  = helloBody + macBytes
	answerBody  = 1 + 4
	answerBytes = answerBody + macBytes
)

// codec encodes and decodes the handshakes of a job. Only one goroutine at a time may use it.
type codec struct {
	mac hash.Hash
	sum [sha256.Size]byte
}

// newCodec makes the codec of a job from the job's secret.
func newCodec(secret []byte) *codec {
	return &codec{mac: base.NewMAC(secret, "tcp connections")}
}

// Roles ensure that a message of one end is not accepted as one of the other end.
const (
	roleConnector = "connector"
	roleAcceptor  = "acceptor"
)

// seal covers both nonces: the acceptor's is the challenge, and the connector's is in its hello.
// Therefore a seal is valid for one handshake only.
func (c *codec) seal(role string, challenge *nonce, said ...[]byte) []byte {
	c.mac.Reset()
	c.mac.Write([]byte(role))
	c.mac.Write(challenge[:])
	for _, b := range said {
		c.mac.Write(b)
	}
	return c.mac.Sum(c.sum[:0])
}

// appendHello appends helloBytes.
func (c *codec) appendHello(b []byte, challenge *nonce, h *hello) []byte {
	start := len(b)
	b = append(b, protocol)
	for _, v := range [...]uint32{h.from, h.to, h.size, h.epoch, h.frag} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	b = append(b, h.fromNonce[:]...)
	b = append(b, h.toNonce[:]...)
	b = append(b, h.nonce[:]...)
	return append(b, c.seal(roleConnector, challenge, b[start:])...)
}

// parseHello checks the seal before anything else. ok is false if no module of this job would have
// sent these bytes in reply to this challenge.
func (c *codec) parseHello(b []byte, challenge *nonce) (h hello, ok bool) {
	if len(b) != helloBytes || !hmac.Equal(c.seal(roleConnector, challenge, b[:helloBody]), b[helloBody:]) || b[0] != protocol {
		return hello{}, false
	}
	b = b[1:]
	for _, v := range [...]*uint32{&h.from, &h.to, &h.size, &h.epoch, &h.frag} {
		*v = binary.LittleEndian.Uint32(b)
		b = b[4:]
	}
	copy(h.fromNonce[:], b)
	copy(h.toNonce[:], b[16:])
	copy(h.nonce[:], b[32:])
	return h, h.from < h.size && h.to < h.size && h.from != h.to && h.epoch != 0
}

// appendAnswer appends answerBytes: the answer to the hello, whose bytes are said.
func (c *codec) appendAnswer(b []byte, challenge *nonce, said []byte, a answer) []byte {
	start := len(b)
	b = append(b, byte(a.result))
	b = binary.LittleEndian.AppendUint32(b, a.epoch)
	return append(b, c.seal(roleAcceptor, challenge, said, b[start:])...)
}

// parseAnswer reads the answer to the hello, whose bytes are said.
func (c *codec) parseAnswer(b []byte, challenge *nonce, said []byte) (a answer, ok bool) {
	if len(b) != answerBytes || !hmac.Equal(c.seal(roleAcceptor, challenge, said, b[:answerBody]), b[answerBody:]) {
		return answer{}, false
	}
	a.result, a.epoch = result(b[0]), binary.LittleEndian.Uint32(b[1:])
	return a, a.result >= resultAccept && a.result < resultEnd && (a.result != resultAccept || a.epoch != 0)
}
