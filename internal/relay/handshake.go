package relay

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
)

// errHandshake means that the other end does not belong to the job.
var errHandshake = errors.New("not a rank of this job")

const (
	nonceBytes = 32
	macBytes   = sha256.Size
	// maxHelloBytes bounds a hello.
	maxHelloBytes = 1 << 10
)

// hello is a rank's description of itself.
type hello struct {
	Rank int    `json:"rank"`
	Size int    `json:"size"`
	PID  int    `json:"pid"`
	Host string `json:"host"`
}

// seal returns the MAC of some bytes. It also covers the role of the end that makes it.
func seal(secret []byte, role string, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("mpigo relay " + role + " "))
	for _, p := range parts {
		mac.Write(p)
	}
	return mac.Sum(nil)
}

const (
	roleRank = "rank"
	roleHub  = "hub"
)

// introduce is the rank's side of the handshake.
func introduce(conn io.ReadWriter, secret []byte, me hello) error {
	var own, theirs [nonceBytes]byte
	_, _ = rand.Read(own[:]) // never fails
	if _, err := conn.Write(own[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, theirs[:]); err != nil {
		return err
	}
	text, err := json.Marshal(me)
	if err != nil {
		return err
	}
	message := binary.LittleEndian.AppendUint16(nil, uint16(len(text)))
	message = append(append(message, seal(secret, roleRank, own[:], theirs[:], text)...), text...)
	if _, err := conn.Write(message); err != nil {
		return err
	}
	var answer [macBytes]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	if !hmac.Equal(answer[:], seal(secret, roleHub, own[:], theirs[:], text)) {
		return errHandshake
	}
	return nil
}

// admit is the hub's side of the handshake. It returns the rank's hello.
func admit(conn io.ReadWriter, secret []byte, size int) (h hello, err error) {
	var own, theirs [nonceBytes]byte
	_, _ = rand.Read(own[:]) // never fails
	if _, err := io.ReadFull(conn, theirs[:]); err != nil {
		return h, err
	}
	if _, err := conn.Write(own[:]); err != nil {
		return h, err
	}
	var head [2 + macBytes]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return h, err
	}
	n := int(binary.LittleEndian.Uint16(head[:]))
	if n > maxHelloBytes {
		return h, errHandshake
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(conn, text); err != nil {
		return h, err
	}
	if !hmac.Equal(head[2:], seal(secret, roleRank, theirs[:], own[:], text)) {
		return h, errHandshake
	}
	if err := json.Unmarshal(text, &h); err != nil || h.Size != size || h.Rank < 1 || h.Rank >= size {
		return h, errHandshake
	}
	_, err = conn.Write(seal(secret, roleHub, theirs[:], own[:], text))
	return h, err
}
