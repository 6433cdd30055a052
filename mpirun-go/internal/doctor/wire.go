package doctor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
)

// The messages between the doctor's ranks. A question proves that the sender knows the job's
// secret. An answer proves the same, and which rank sent it.
//
//	question: kind (1 byte), nonce (16), MAC of both (32); bulkBytes more if it is kindBulk
//	answer:   rank (4), time in Unix nanoseconds (8), MAC of the question's MAC, rank and time (32)
const (
	kindTime byte = 1 // what time is it?
	kindBulk byte = 2 // the same, after all bytes have arrived

	nonceBytes    = 16
	macBytes      = sha256.Size
	questionBytes = 1 + nonceBytes + macBytes
	answerBytes   = 4 + 8 + macBytes

	// bulkBytes is larger than any packet, and larger than TCP's initial window.
	bulkBytes = 256 << 10
	// timeQuestions is the number of questions for the time. The answer with the shortest round
	// trip counts.
	timeQuestions = 8
)

var errNotOurs = errors.New("the answer is not that of the expected host")

func mac(secret []byte, label string, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("mpigo doctor " + label))
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(nil)
}

func encodeQuestion(secret []byte, kind byte, nonce [nonceBytes]byte) []byte {
	b := append([]byte{kind}, nonce[:]...)
	return append(b, mac(secret, "question", b)...)
}

// readQuestion reads a question, and drops the bytes of a bulk. It returns the question's MAC.
func readQuestion(r io.Reader, secret []byte) ([]byte, error) {
	b := make([]byte, questionBytes)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	proof := b[1+nonceBytes:]
	if !hmac.Equal(proof, mac(secret, "question", b[:1+nonceBytes])) {
		return nil, errNotOurs
	}
	if b[0] == kindBulk {
		if _, err := io.CopyN(io.Discard, r, bulkBytes); err != nil {
			return nil, err
		}
	}
	return proof, nil
}

func encodeAnswer(secret, question []byte, rank int, nanos int64) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(rank))
	b = binary.BigEndian.AppendUint64(b, uint64(nanos))
	return append(b, mac(secret, "answer", question, b)...)
}

// readAnswer reads a rank's answer to the question with the given MAC.
func readAnswer(r io.Reader, secret, question []byte, rank int) (nanos int64, err error) {
	b := make([]byte, answerBytes)
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, err
	}
	if !hmac.Equal(b[12:], mac(secret, "answer", question, b[:12])) || binary.BigEndian.Uint32(b) != uint32(rank) {
		return 0, errNotOurs
	}
	return int64(binary.BigEndian.Uint64(b[4:])), nil
}
