package remote

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/leaks"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
	"github.com/mpigo/mpigo/mpirun-go/internal/records"
)

// The tests start this binary as a daemon through the script, and as a receiver of a file that they
// kill.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 4 && os.Args[1] == InstallArg:
		os.Exit(Install(os.Args[2], os.Args[3]))
	case len(os.Args) == 2 && os.Args[1] == DaemonArg:
		fmt.Println("runs", os.Args[1])
	case len(os.Args) == 3 && os.Args[1] == receiverArg:
		receiveForever(os.Args[2])
	default:
		leaks.Main(m)
	}
}

func appendFrames(frames ...frame) (b []byte) {
	for _, f := range frames {
		b = appendFrame(b, f)
	}
	return b
}

func TestFramesRoundTrip(t *testing.T) {
	frames := []frame{
		{kind: kindPing},
		{kind: kindData, stream: streamStderr, host: 65535, rank: 1<<32 - 1, payload: []byte("text")},
		{kind: kindStart, payload: make([]byte, 300_000)},
	}
	b := appendFrames(frames...)
	in := bufio.NewReader(bytes.NewReader(b))
	for _, want := range frames {
		f, err := readFrame(in)
		require.NoError(t, err)
		assert.Equal(t, want, f)
	}
	_, err := readFrame(in)
	assert.Equal(t, io.EOF, err)
	_, err = readFrame(bufio.NewReader(bytes.NewReader(b[:len(b)-1])))
	require.NoError(t, err)
}

func TestReadFrameRejectsInvalid(t *testing.T) {
	for name, b := range map[string][]byte{
		"kind 0":       make([]byte, headerBytes),
		"unknown kind": appendFrame(nil, frame{kind: kindsEnd}),
		"stream":       appendFrame(nil, frame{kind: kindData, stream: streamsEnd}),
		"too long":     appendFrame(nil, frame{kind: kindData, payload: make([]byte, maxDataBytes+1)}),
		"not empty":    appendFrame(nil, frame{kind: kindPing, payload: []byte{0}}),
	} {
		_, err := readFrame(bufio.NewReader(bytes.NewReader(b)))
		assert.ErrorIs(t, err, ErrProtocol, name)
	}
	b := appendFrame(nil, frame{kind: kindData, payload: []byte("cut")})
	_, err := readFrame(bufio.NewReader(bytes.NewReader(b[:len(b)-1])))
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// A length in a header does not allocate memory by itself.
func TestReadFrameAllocatesOnlyReceivedBytes(t *testing.T) {
	b := appendFrame(nil, frame{kind: kindStart, payload: make([]byte, 8<<20)})[:headerBytes]
	allocated := testing.AllocsPerRun(1, func() {
		_, err := readFrame(bufio.NewReader(bytes.NewReader(b)))
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
	assert.Less(t, allocated, 20.0)
}

func messages() map[kind][]byte {
	return map[kind][]byte{
		kindHello:   hello{secret: "s", nonce: "n", job: "j", name: "host"}.encode(),
		kindWelcome: welcome{proof: []byte("p"), cores: [][]int{{0, 4}, {1}}}.encode(),
		kindConnect: connectRequest{agent: Agent{Words: []string{"ssh", "-q"}, Form: FormShell}, timeout: 30000,
			children: []child{{host: 3, name: "n3", descendants: []int{4, 5}}, {host: 6, name: "n6"}}}.encode(),
		kindOffer:  offer{path: "/bin/x", hash: string(bytes.Repeat([]byte("a0"), 32)), size: 9}.encode(),
		kindAnswer: answer{wanted: true, path: "/p", problem: "no"}.encode(),
		kindStart: encodeSpec(procs.Spec{Path: "/p", Args: []string{"a", "\xff"}, Env: []string{"A=\x01"}, Dir: "/",
			Stdin: procs.StdinPipe, CPUs: []int{1, 5}, TimerSlack: time.Millisecond}),
		kindFailed:     failure{path: "/p", text: "t", errno: syscall.ENOENT}.encode(),
		kindRecordDirs: recordDirs{marker: ".m", dirs: []recordDir{{records.Trace, "/out"}, {records.Profile, "/"}}}.encode(),
		kindOwnDirs:    ownDirs{own: []int{0, 7}, problem: "no"}.encode(),
		kindFetch:      fetchRequest{recordDir{records.CPUProfile, "/out"}, 17}.encode(),
		kindFetched:    fetched{size: 9, problem: "no"}.encode(),
		kindExit:       exitReport{exit: procs.Exit{Code: 3}, order: 7, problem: "x"}.encode(),
	}
}

// reencode decodes a message and encodes the result.
func reencode(k kind, p []byte) ([]byte, error) {
	switch k {
	case kindHello:
		return reencodeBy(decodeHello, p)
	case kindWelcome:
		return reencodeBy(decodeWelcome, p)
	case kindConnect:
		return reencodeBy(decodeConnect, p)
	case kindOffer:
		return reencodeBy(decodeOffer, p)
	case kindAnswer:
		return reencodeBy(decodeAnswer, p)
	case kindStart:
		m, err := decodeSpec(p)
		return encodeSpec(m), err
	case kindFailed:
		m, _ := decodeFailure(p)
		_ = m.startError().Error()
		return reencodeBy(decodeFailure, p)
	case kindExit:
		return reencodeBy(decodeExitReport, p)
	case kindRecordDirs:
		return reencodeBy(decodeRecordDirs, p)
	case kindOwnDirs:
		return reencodeBy(decodeOwnDirs, p)
	case kindFetch:
		return reencodeBy(decodeFetch, p)
	case kindFetched:
		return reencodeBy(decodeFetched, p)
	case kindStarted:
		return reencodeBy(decodeStarted, p)
	case kindSignal, kindCredit:
		n, err := decodeNumber(p, maxInt)
		return appendNumber(nil, n), err
	}
	return nil, errors.New("the kind has no message")
}

func reencodeBy[M interface{ encode() []byte }](decode func([]byte) (M, error), p []byte) ([]byte, error) {
	m, err := decode(p)
	return m.encode(), err
}

func TestMessagesRoundTrip(t *testing.T) {
	for k, p := range messages() {
		again, err := reencode(k, p)
		require.NoError(t, err, "%d", k)
		assert.Equal(t, p, again, "%d", k)
		for cut := range p {
			_, err := reencode(k, p[:cut])
			assert.ErrorIs(t, err, ErrProtocol, "%d cut at %d", k, cut)
		}
		_, err = reencode(k, append(p, 0))
		assert.ErrorIs(t, err, ErrProtocol, "%d", k)
	}
	_, err := decodeSpec(encodeSpec(procs.Spec{Path: "/p", Args: []string{"p"}, Stdin: procs.StdinInherit}))
	assert.ErrorIs(t, err, ErrProtocol)
	_, err = decodeOffer(offer{path: "/p", hash: "../../etc"}.encode())
	assert.ErrorIs(t, err, ErrProtocol)
	_, err = decodeNumber(appendNumber(nil, 128), 127)
	assert.ErrorIs(t, err, ErrProtocol)
}

// Whatever arrives, readFrame returns a frame within its bounds, or an error.
func FuzzFrame(f *testing.F) {
	for k, p := range messages() {
		f.Add(appendFrame(nil, frame{kind: k, payload: p}))
	}
	f.Add(appendFrame(nil, frame{kind: kindData, stream: streamPMI, payload: []byte("cmd=init\n")}))
	f.Add([]byte{byte(kindData), 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bufio.NewReader(bytes.NewReader(b))
		for {
			got, err := readFrame(in)
			if err != nil {
				return
			}
			require.LessOrEqual(t, len(got.payload), got.kind.maxPayload())
			require.True(t, got.kind > 0 && got.kind < kindsEnd && got.stream < streamsEnd)
		}
	})
}

// A decoded message is the same after it has been encoded and decoded again.
func FuzzMessage(f *testing.F) {
	for k, p := range messages() {
		f.Add(byte(k), p)
	}
	f.Add(byte(kindWelcome), []byte{0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, k byte, p []byte) {
		once, err := reencode(kind(k), p)
		if err != nil {
			return
		}
		twice, err := reencode(kind(k), once)
		require.NoError(t, err)
		require.Equal(t, once, twice)
	})
}

// Whatever the launcher sends about streams, the daemon neither panics nor blocks.
func FuzzDaemon(f *testing.F) {
	add := func(frames ...frame) { f.Add(appendFrames(frames...)) }
	add(frame{kind: kindData, payload: []byte("cmd=x\n")}, frame{kind: kindCredit, stream: streamStdout, payload: []byte{9}}, frame{kind: kindEnd})
	add(frame{kind: kindData, stream: streamFile, rank: 1, payload: []byte("ELF")}, frame{kind: kindEnd, stream: streamFile, rank: 1})
	add(frame{kind: kindCredit, stream: streamStdout, payload: []byte{1}}, frame{kind: kindPing}, frame{kind: kindBye})
	add(frame{kind: kindCredit, stream: streamRecord, rank: 1, payload: []byte{1}}, frame{kind: kindData, stream: streamRecord, rank: 1, payload: []byte("x")})
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &daemon{up: newLink(), local: &procs.Local{}, ranks: map[uint32]*localRank{}, files: map[uint32]*inbox{}}
		d.fetches = map[uint32]*outbox{1: openOutbox(d.post, streamRecord, 1)}
		h := &localRank{}
		h.in[streamPMI], h.out[streamPMI], h.out[streamStdout] = openInbox(d.post, streamPMI, 0), openOutbox(d.post, streamPMI, 0), openOutbox(d.post, streamStdout, 0)
		d.ranks[0] = h
		d.files[1] = openInbox(d.post, streamFile, 1)
		in := bufio.NewReader(bytes.NewReader(b))
		for {
			got, err := readFrame(in)
			switch got.kind {
			case kindData, kindEnd, kindCredit, kindPing, kindBye, kindWelcome, kindExit:
			default:
				return // the other kinds act on processes
			}
			if err != nil || d.handle(got, nil) != nil {
				break
			}
		}
		require.LessOrEqual(t, len(h.in[streamPMI].buf), streamPMI.windowBytes())
	})
}

// Whatever a host sends, the launcher does not panic, and a protocol violation is an error.
func FuzzHost(f *testing.F) {
	add := func(frames ...frame) { f.Add(appendFrames(frames...)) }
	add(frame{kind: kindStarted, payload: started{pid: 5, cpus: []int{1, 2}, unbound: "no"}.encode()}, frame{kind: kindData, stream: streamStdout, payload: []byte("out")},
		frame{kind: kindCredit, payload: []byte{0}}, frame{kind: kindEnd, stream: streamPMI}, frame{kind: kindExit, payload: exitReport{order: 1}.encode()})
	add(frame{kind: kindAnswer, payload: answer{wanted: true}.encode()}, frame{kind: kindCredit, stream: streamFile, payload: []byte{1}})
	add(frame{kind: kindFailed, payload: failure{path: "/p"}.encode()}, frame{kind: kindLost, payload: []byte("why")}, frame{kind: kindNotice, payload: []byte("text\x1b")})
	add(frame{kind: kindWelcome, payload: welcome{proof: []byte("x"), cores: [][]int{{0}}}.encode()})
	add(frame{kind: kindOwnDirs, payload: ownDirs{own: []int{0}}.encode()}, frame{kind: kindFetched, rank: 1, payload: fetched{size: 3}.encode()},
		frame{kind: kindData, stream: streamRecord, rank: 1, payload: []byte("abc")}, frame{kind: kindEnd, stream: streamRecord, rank: 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &Cluster{cfg: Config{Notify: func(string, string) {}}, failed: make(chan error, 1), welcomed: make(chan struct{}, 1)}
		h := newHost(c, 0, "n1")
		h.link = newLink()
		c.hosts = []*Host{h}
		h.ranks[0] = newRemoteRank(h, 0, true)
		h.files[0] = &fileTransfer{out: openOutbox(h.post, streamFile, 0), answers: make(chan answer, 2)}
		record := &fetch{in: openInbox(h.post, streamRecord, 1), answer: make(chan fetched, 1)}
		h.fetches[1], h.fetched = record, 1
		in := bufio.NewReader(bytes.NewReader(b))
		for {
			got, err := readFrame(in)
			if err != nil || got.host != 0 || h.handle(got) != nil {
				break
			}
		}
		h.setLost(errors.New("over"))
		_, _, _ = h.ranks[0].Wait()
		require.LessOrEqual(t, len(h.ranks[0].outputs[0].buf), streamStdout.windowBytes())
		require.LessOrEqual(t, len(record.in.buf), streamRecord.windowBytes())
	})
}

// Whatever an agent prints before the first frame, the handshake finds a daemon or returns one line
// about what is wrong.
func FuzzHandshake(f *testing.F) {
	self := Program{Path: "/dev/null", hash: string(bytes.Repeat([]byte("a0"), 32))}
	ours, other := daemonLine+fmt.Sprint(version), daemonLine+fmt.Sprint(version+1)
	for _, text := range []string{"motd\n\n" + ours + "\nframes", wantLine + self.hash + "\n" + ours + "\n", other + "\n", ours, "\xff\x1b\n", "mpigo-daemon\xf11\n", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := &agentProcess{agent: Agent{Words: []string{"ssh"}, Form: FormShell}, host: "n1", exited: make(chan struct{})}
		close(p.exited)
		why := handshake(p, self, bufio.NewReaderSize(strings.NewReader(text), 64), io.Discard, func() {})
		if why == "" {
			require.Contains(t, text, ours)
		}
		require.NotContains(t, why, "\n")
		require.NotContains(t, why, "\x1b")
		require.Less(t, len(why), 2000)
	})
}
