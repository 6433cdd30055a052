package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Program is a file that the launcher or a daemon can send to other hosts.
type Program struct {
	Path string
	hash string // SHA-256 in hex
	size int64  // in bytes
}

// NewProgram reads the file at path.
func NewProgram(path string) (Program, error) {
	hash, size, err := hashFile(path)
	if err != nil {
		return Program{}, err
	}
	return Program{Path: path, hash: hash, size: size}, nil
}

// thisProgram returns the file that this process executes.
func thisProgram() (Program, error) {
	self, err := NewProgram("/proc/self/exe")
	if err != nil {
		return Program{}, fmt.Errorf("mpirun-go's own file: %w", err)
	}
	return self, nil
}

// send writes the file to w.
func (p Program) send(w io.Writer) error {
	file, err := os.Open(p.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.CopyN(w, file, p.size); err != nil {
		return fmt.Errorf("%s: %w", p.Path, err)
	}
	return nil
}

func hashFile(path string) (hash string, size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer file.Close()
	return hashOf(file)
}

func hashOf(file io.Reader) (hash string, size int64, err error) {
	sum := sha256.New()
	if size, err = io.Copy(sum, file); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(sum.Sum(nil)), size, nil
}

// fileTransfer is the transfer of one file to a host.
type fileTransfer struct {
	out      *outbox
	answers  chan answer // has room for the at most two answers
	answered int         // number of answers
}

// EnsureProgram copies the program to the host unless the host has it, and returns its path there.
// number identifies the program within the job.
func (h *Host) EnsureProgram(number int, program Program) (string, error) {
	file := uint32(number)
	s := &fileTransfer{out: openOutbox(h.post, streamFile, file), answers: make(chan answer, 2)}
	h.mu.Lock()
	if h.lost != nil {
		h.mu.Unlock()
		return "", &HostError{Host: h.name, Lost: h.lost}
	}
	h.files[file] = s
	h.mu.Unlock()
	h.post(kindOffer, 0, file, offer{path: program.Path, hash: program.hash, size: int(program.size)}.encode())
	a, err := h.awaitAnswer(s)
	if err == nil && a.wanted {
		if err := program.send(s.out); err != nil && !errors.Is(err, syscall.EPIPE) {
			return "", err
		}
		_ = s.out.Close()
		a, err = h.awaitAnswer(s)
	}
	switch {
	case err != nil:
		return "", err
	case a.problem != "":
		return "", &HostError{Host: h.name, Problem: fmt.Sprintf("cannot store a copy of %s: %s", program.Path, printable([]byte(a.problem)))}
	case a.wanted || a.path == "":
		return "", &HostError{Host: h.name, Problem: "requested a program twice"}
	}
	return a.path, nil
}

func (h *Host) awaitAnswer(s *fileTransfer) (answer, error) {
	select {
	case a := <-s.answers:
		return a, nil
	case <-h.lostChan:
		return answer{}, &HostError{Host: h.name, Lost: h.lost}
	}
}

func (h *Host) handleFile(f frame) error {
	s := h.files[f.rank]
	switch {
	case s == nil:
		return fmt.Errorf("%w: a frame of a file that was not offered", ErrProtocol)
	case f.kind == kindCredit:
		n, err := decodeNumber(f.payload, maxInt)
		if err != nil {
			return err
		}
		return s.out.addCredits(n)
	case f.kind != kindAnswer || s.answered == cap(s.answers):
		return fmt.Errorf("%w: unexpected answer about a file", ErrProtocol)
	}
	a, err := decodeAnswer(f.payload)
	if err != nil {
		return err
	}
	s.answered++
	s.answers <- a
	return nil
}
