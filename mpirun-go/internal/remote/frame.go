package remote

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// version is that of the protocol: of the frames, and of what is in them. Both ends have the same.
const version = 1

// ErrProtocol is in the error about a peer that does not keep to the protocol.
var ErrProtocol = errors.New("the protocol is broken")

// kind says what a frame is.
type kind uint8

// Down is from the launcher to a daemon, up the way back.
const (
	kindHello     kind = 1 + iota // down: who the daemon is, and the secret
	kindWelcome                   // up: the proof, and what the host has
	kindConnect                   // down: hosts that this daemon reaches on behalf of the launcher
	kindLost                      // up: the host of the frame cannot be reached any more, and why
	kindNotice                    // up: a line that the host's agent wrote
	kindOffer                     // down: a file that ranks will need
	kindAnswer                    // up: where it is, or that it is wanted
	kindStart                     // down: a rank
	kindStarted                   // up: its process
	kindFailed                    // up: why it could not be started
	kindExit                      // up: how it ended
	kindSignal                    // down: to a rank, or to all groups
	kindKill                      // down: all that is of the job, or the ranks' groups only
	kindCutOutput                 // down: end a rank's outputs with what is in them
	kindData                      // both: bytes of a stream
	kindEnd                       // both: no more of it
	kindCredit                    // both: so many bytes more may be sent
	kindPing                      // down
	kindPong                      // up
	kindBye                       // down: all is done
	kindsEnd
)

// stream says which bytes a kindData carries.
type stream uint8

// The streams of a rank, and of a file, whose number is in the place of the rank's.
const (
	streamPMI stream = iota // both ways
	streamStdin
	streamStdout
	streamStderr
	streamFile
	streamsEnd
)

// window is how much of a stream may be under way that its receiver has not asked for: the bound
// of what is stored for a slow reader.
func (s stream) windowBytes() int {
	switch s {
	case streamFile:
		return 1 << 20
	case streamPMI:
		return 64 << 10
	}
	return 128 << 10
}

// dataBytes is the most that one frame carries of a stream. What is urgent waits for no more than that.
const maxDataBytes = 32 << 10

// allRanks in a kindSignal means every rank's process group.
const allRanks = 1<<32 - 1

// maxPayload bounds a frame of each kind.
func (k kind) maxPayload() int {
	switch k {
	case kindData:
		return maxDataBytes
	case kindStart, kindConnect:
		return 8 << 20 // arguments and environment; names of hosts
	case kindWelcome:
		return 1 << 20
	case kindHello, kindLost, kindOffer, kindAnswer, kindFailed, kindExit, kindNotice:
		return 64 << 10
	case kindStarted, kindSignal, kindKill, kindCredit:
		return 16
	}
	return 0
}

// frame is what a channel carries. Frames for, or of, other hosts are passed on as they are.
type frame struct {
	kind    kind
	stream  stream
	host    uint16 // its number in the job
	rank    uint32
	payload []byte
}

// bulk frames let all others pass.
func (f frame) bulk() bool {
	return (f.kind == kindData || f.kind == kindEnd) && f.stream != streamPMI
}

const headerBytes = 12

func appendFrame(b []byte, f frame) []byte {
	b = append(b, byte(f.kind), byte(f.stream))
	b = binary.BigEndian.AppendUint16(b, f.host)
	b = binary.BigEndian.AppendUint32(b, f.rank)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.payload)))
	return append(b, f.payload...)
}

// readFrame reads one frame. io.EOF is the end between two frames. The payload's memory grows with what arrives,
// whatever the header says.
func readFrame(in *bufio.Reader) (frame, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return frame{}, err
	}
	f := frame{
		kind:   kind(header[0]),
		stream: stream(header[1]),
		host:   binary.BigEndian.Uint16(header[2:]),
		rank:   binary.BigEndian.Uint32(header[4:]),
	}
	size := int64(binary.BigEndian.Uint32(header[8:]))
	switch {
	case f.kind == 0 || f.kind >= kindsEnd:
		return frame{}, fmt.Errorf("%w: a frame of kind %d", ErrProtocol, header[0])
	case f.stream >= streamsEnd:
		return frame{}, fmt.Errorf("%w: stream %d", ErrProtocol, header[1])
	case size > int64(f.kind.maxPayload()):
		return frame{}, fmt.Errorf("%w: %d bytes in a frame of kind %d", ErrProtocol, size, header[0])
	}
	for int64(len(f.payload)) < size {
		have := len(f.payload)
		f.payload = append(f.payload, make([]byte, min(size-int64(have), max(maxDataBytes, int64(have))))...)
		if _, err := io.ReadFull(in, f.payload[have:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return frame{}, err
		}
	}
	return f, nil
}
