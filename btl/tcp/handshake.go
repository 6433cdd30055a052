package tcp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// nonce is what one end has drawn for one handshake.
type nonce [32]byte

// hello is what the connector says. Its sizes are fixed, so there is nothing to be parsed of a stranger but whether the seal holds.
type hello struct {
	from, to, size     uint32
	epoch              uint32 // that the connector would like
	frag               uint32
	fromNonce, toNonce lifeNonce // of the two modules' cards
	nonce              nonce     // the connector's, for the answer
}

// verdict is what the acceptor answers.
type verdict uint8

const (
	verdictAccept verdict = 1 + iota // there is a connection, of that epoch
	verdictBusy                      // the acceptor's own attempt counts
	verdictStale                     // the epoch asked for is over; the answer's is the first that is not
	verdictClosed                    // the acceptor has left
	verdictEnd
)

// answer to a hello.
type answer struct {
	verdict verdict
	epoch   uint32
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

// codec encodes and decodes the handshakes of a job. It is not for several goroutines.
type codec struct {
	mac hash.Hash
	sum [sha256.Size]byte
}

// newCodec takes the job's secret. The key is derived, so that the same secret can be used elsewhere.
func newCodec(secret []byte) *codec {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("tcp connections"))
	return &codec{mac: hmac.New(sha256.New, h.Sum(nil))}
}

// Roles keep what one end has said from being taken for what the other says.
const (
	roleConnector = "connector"
	roleAcceptor  = "acceptor"
)

// seal is over both nonces: the acceptor's is given, the connector's is in its hello. So a seal is good for one handshake only.
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

// parseHello looks at the seal first of all. ok is false for whatever this job's modules would not say in answer to this challenge.
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

// appendAnswer appends answerBytes, in answer to the hello as it was said.
func (c *codec) appendAnswer(b []byte, challenge *nonce, said []byte, a answer) []byte {
	start := len(b)
	b = append(b, byte(a.verdict))
	b = binary.LittleEndian.AppendUint32(b, a.epoch)
	return append(b, c.seal(roleAcceptor, challenge, said, b[start:])...)
}

// parseAnswer reads the answer to the hello that was said.
func (c *codec) parseAnswer(b []byte, challenge *nonce, said []byte) (a answer, ok bool) {
	if len(b) != answerBytes || !hmac.Equal(c.seal(roleAcceptor, challenge, said, b[:answerBody]), b[answerBody:]) {
		return answer{}, false
	}
	a.verdict, a.epoch = verdict(b[0]), binary.LittleEndian.Uint32(b[1:])
	return a, a.verdict >= verdictAccept && a.verdict < verdictEnd && (a.verdict != verdictAccept || a.epoch != 0)
}
