package base

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"os"
	"unsafe"
)

// ChecksumBytes is the length of what AppendChecksum appends.
const ChecksumBytes = 4

// AppendChecksum ends an address with a checksum: the receiver can tell an address that was damaged
// on its way from one that leads nowhere.
func AppendChecksum(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// HasChecksum reports whether b ends with the checksum of what is before it.
func HasChecksum(b []byte) bool {
	n := len(b) - ChecksumBytes
	return n >= 0 && crc32.ChecksumIEEE(b[:n]) == binary.LittleEndian.Uint32(b[n:])
}

// NewMAC makes the code that authenticates the messages of a job. Its key is derived from the job's
// secret and a purpose, so that a message made for one purpose is worth nothing for another.
func NewMAC(secret []byte, purpose string) hash.Hash {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(purpose))
	return hmac.New(sha256.New, h.Sum(nil))
}

// HostID is equal for two processes exactly if one kernel runs both and they share the namespace
// of that kind ("pid", "net": a name in /proc/self/ns).
func HostID(namespace string) (id [16]byte, err error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, fmt.Errorf("identify this machine: %w", err)
	}
	space, err := os.Readlink("/proc/self/ns/" + namespace)
	if err != nil {
		return id, fmt.Errorf("identify the %s namespace of this process: %w", namespace, err)
	}
	sum := sha256.Sum256(append(boot, space...))
	copy(id[:], sum[:])
	return id, nil
}

// Contains reports whether inner lies within outer. An empty slice lies within any.
func Contains(outer, inner []byte) bool {
	if len(inner) == 0 {
		return true
	}
	// The difference is huge if inner begins before outer.
	at := uintptr(unsafe.Pointer(unsafe.SliceData(inner))) - uintptr(unsafe.Pointer(unsafe.SliceData(outer)))
	return at <= uintptr(len(outer)) && uintptr(len(inner)) <= uintptr(len(outer))-at
}
