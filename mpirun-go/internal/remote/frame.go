package remote

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// version is the version of the protocol: of the frames and their payloads. It must be the same on
// both ends.
const version = 4

// ErrProtocol means that a peer violates the protocol.
var ErrProtocol = errors.New("protocol error")

// kind is the type of a frame.
type kind uint8

// The kinds of frames. Down means from the launcher to a daemon, up means the opposite.
const (
	kindHello      kind = 1 + iota // down: the daemon's name and job, and the job's secret
	kindWelcome                    // up: the proof of the secret, and the host's processors
	kindConnect                    // down: hosts that this daemon is to connect to
	kindLost                       // up: the frame's host is lost, and why
	kindNotice                     // up: a line of the standard error of the host's agent
	kindOffer                      // down: a file that ranks will need
	kindAnswer                     // up: the path of an offered file, or a request for it
	kindStart                      // down: the process of a rank to start
	kindStarted                    // up: the process of a started rank
	kindFailed                     // up: why a rank cannot be started
	kindExit                       // up: how a rank exited
	kindAskState                   // down: a question for the state of a rank's process
	kindState                      // up: that state
	kindSignal                     // down: a signal to a rank, or to all process groups
	kindKill                       // down: kill all processes of the job, or the process groups
	kindRecordDirs                 // down: directories of records
	kindOwnDirs                    // up: those that are the host's own
	kindFetch                      // down: a request for one
	kindFetched                    // up: whether there is that record
	kindCutOutput                  // down: end a rank's outputs after the data in the pipes
	kindData                       // both: bytes of a stream
	kindEnd                        // both: the end of a stream
	kindCredit                     // both: the number of bytes that may be sent in addition
	kindPing                       // down
	kindPong                       // up
	kindBye                        // down: the job is over
	kindsEnd
)

// stream is the stream that a frame of kindData, kindEnd or kindCredit belongs to.
type stream uint8

// The streams of a rank, and those of a program that is sent to a host and of a record that is
// fetched from it. A frame of the last two has the transfer's number in the field rank.
const (
	streamPMI stream = iota // both ways
	streamStdin
	streamStdout
	streamStderr
	streamIntrospect // both ways
	streamFile
	streamRecord
	streamsEnd
)

// connStreams are the streams of a rank that go both ways.
var connStreams = [...]stream{streamPMI, streamIntrospect}

// windowBytes is the number of bytes that may be sent without a credit. It bounds the memory for a
// slow reader.
func (s stream) windowBytes() int {
	switch s {
	case streamFile, streamRecord:
		return 1 << 20
	case streamPMI, streamIntrospect:
		return 64 << 10
	}
	return 128 << 10
}

// maxDataBytes is the largest payload of kindData. It bounds the time for which a bulk frame delays
// an urgent one.
const maxDataBytes = 32 << 10

// allRanks in place of a rank means all process groups in kindSignal, and all processes of the job
// in kindKill.
const allRanks = 1<<32 - 1

// maxPayload returns the largest payload of a kind of frame, in bytes.
func (k kind) maxPayload() int {
	switch k {
	case kindData:
		return maxDataBytes
	case kindStart, kindConnect:
		return 8 << 20 // arguments and environment; names of hosts
	case kindWelcome:
		return 1 << 20
	case kindHello, kindLost, kindOffer, kindAnswer, kindStarted, kindFailed, kindExit, kindNotice,
		kindRecordDirs, kindOwnDirs, kindFetch, kindFetched:
		return 64 << 10
	case kindState, kindSignal, kindKill, kindCredit:
		return 16
	}
	return 0
}

// frame is the unit of data on a channel. A daemon forwards frames for and from other hosts
// unchanged.
type frame struct {
	kind    kind
	stream  stream
	host    uint16 // index of the host in the job
	rank    uint32
	payload []byte
}

// bulk reports whether other frames may overtake the frame.
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

// readFrame reads one frame. It returns io.EOF at an end between two frames. The memory for a
// payload grows as data arrive, whatever the header claims.
func readFrame(in *bufio.Reader) (frame, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return frame{}, err
	}
	f := frame{
		kind: kind(header[0]), stream: stream(header[1]), host: binary.BigEndian.Uint16(header[2:]),
		rank: binary.BigEndian.Uint32(header[4:]),
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
