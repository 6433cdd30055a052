package ibverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// An end that cannot make its side of a connection answers each REQ with a REJ, which says why.
// REQs are repeated until they are answered, so REJs are repeated too, and a lost one does no harm.

// rejection says why a module cannot make its end of a connection.
type rejection struct {
	retry bool   // the cause may pass: ask again
	errno uint16 // the system's error number, 0 if there is none
	text  string // printable ASCII, at most rejectTextBytes
}

const (
	// rejectTextBytes is chosen so that the whole datagram fits the smallest MTU, 256 bytes.
	rejectTextBytes = 159
	// rejectionBytes: retry 1, errno 2, text
	rejectionBytes = 1 + 2 + rejectTextBytes
	// rejectNanos is how long REQ is repeated after a rejection whose cause may pass.
	rejectNanos = 1e9
)

var errRejected = errors.New("the peer cannot make the connection")

// rejectionFor makes the rejection for an error. Lack of memory, or of room on the device, may
// pass.
func rejectionFor(err error) rejection {
	r := rejection{retry: errors.Is(err, verbs.ErrNoMemory)}
	var errno syscall.Errno
	if errors.As(err, &errno) && errno < 1<<16 {
		r.errno = uint16(errno)
		r.retry = r.retry || errno == unix.ENOMEM || errno == unix.EAGAIN || errno == unix.EBUSY
	}
	r.text = strings.Map(func(c rune) rune {
		switch {
		case c == '\n':
			return ';'
		case c < ' ' || c > '~':
			return '?'
		}
		return c
	}, err.Error())
	r.text = r.text[:min(len(r.text), rejectTextBytes)]
	return r
}

// append appends rejectionBytes.
func (r *rejection) append(b []byte) []byte {
	b = append(b, 0)
	if r.retry {
		b[len(b)-1] = 1
	}
	b = binary.LittleEndian.AppendUint16(b, r.errno)
	var text [rejectTextBytes]byte
	copy(text[:], r.text)
	return append(b, text[:]...)
}

// parseRejection reads rejectionBytes.
func parseRejection(b []byte) (r rejection, ok bool) {
	r = rejection{retry: b[0] == 1, errno: binary.LittleEndian.Uint16(b[1:])}
	text := strings.TrimRight(string(b[3:rejectionBytes]), "\x00")
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' {
			return rejection{}, false
		}
	}
	r.text = text
	return r, b[0] <= 1
}

// reject answers a request for a connection that cannot be made.
func (m *module) reject(p *peer, req *message, why rejection) {
	m.tell(p, &message{kind: msgREJ, epoch: req.epoch, toQPN: req.end.qpn, why: why})
}

// rejected handles a REJ of the peer. If the cause may pass, REQ is repeated for a while. The peer
// answers each repeated REQ.
func (e *endpoint) rejected(why *rejection) {
	m := e.m
	native := ""
	if why.errno != 0 {
		native = unix.ErrnoName(syscall.Errno(why.errno))
	}
	e.rejection = m.NewError(e.p.rank, btl.ClassDevice, btl.SideRemote, native, fmt.Errorf("%w: %s", errRejected, why.text))
	switch {
	case !why.retry:
		e.fail(e.rejection)
	case e.rejectUntil == 0:
		e.rejectUntil = m.cfg.Clock.Now() + rejectNanos
	}
}
