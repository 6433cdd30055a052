package base

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash"
	"os"
	"unsafe"
)

// NewMAC makes the code that authenticates the messages of a job. Its key is derived from the job's
// secret and a purpose, so that a code made for one purpose is not valid for another.
func NewMAC(secret []byte, purpose string) hash.Hash {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(purpose))
	return hmac.New(sha256.New, h.Sum(nil))
}

// HostID returns the same value in two processes exactly if one kernel runs both and they share the
// given namespace ("pid", "net": a name in /proc/self/ns).
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
