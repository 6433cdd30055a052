package wireup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// PMI-1 on the wire: one line a request, one line an answer (initack has four),
// each "cmd=NAME key=value key=value\n" with single words as values. The only
// exception is spawn, whose request is a block of lines (see server.go).
//
// What real peers bear decides the bounds below: Slurm 22.05 reads a request
// with one read of 1024 bytes and takes what it got for one whole line; MPICH
// 4.0's client reads an answer into 1024 bytes with a closing NUL.
const (
	maxRequestBytes = 1023    // of a line that our client sends, with its newline
	maxLineBytes    = 8 << 10 // of a line that either side takes
	maxLineArgs     = 32      // key=value pairs in a line
	maxCommandBytes = 64

	// What our server tells clients to be the limits. Names and keys as Hydra
	// has them; values shorter than its 1024, so that a put with the longest key
	// and job name, and the answer to a get, stay below 1023 bytes.
	kvsNameMax = 256
	keyLenMax  = 64
	valLenMax  = 800

	// maxRanks bounds what a process manager may claim as the job's size, and
	// so what we allocate on its word.
	maxRanks = 1 << 22
)

// barrierFailed is our server's answer to barrier_in if a rank has left: rank=N and
// state=N, its State. It is not PMI-1's, which knows no such answer.
const barrierFailed = "barrier_failed"

// getAll asks our server for all that is visible under keys that begin with prefix=. The answer says count=N, and N lines follow, each with one
// key= and its value=. It is not PMI-1's: only a manager that has this word in its answer to get_maxes is asked.
const (
	getAll       = "mpigo_get_all"
	getAllResult = "mpigo_get_all_result"
	getAllWord   = "mpigo_word"
)

// mappingKey is where a process manager says which rank is on which node.
const mappingKey = "PMI_process_mapping"

// message is one parsed line.
type message struct {
	cmd  string
	args []arg
}

type arg struct{ key, value string }

// parseLine reads one line without its newline. A word without '=' is a key
// with an empty value: some peers send free text.
func parseLine(line string) (message, error) {
	if len(line) > maxLineBytes {
		return message{}, errors.New("line too long")
	}
	for i := range len(line) {
		if line[i] < ' ' || line[i] == 0x7f {
			return message{}, errors.New("control character in line")
		}
	}
	var m message
	for word := range strings.SplitSeq(line, " ") {
		if word == "" {
			continue
		}
		key, value, _ := strings.Cut(word, "=")
		if m.cmd == "" {
			if key != "cmd" && key != "mcmd" {
				return message{}, errors.New("line does not begin with cmd=")
			}
			if !isCommand(value) {
				return message{}, errors.New("bad command name")
			}
			m.cmd = value
			continue
		}
		if len(m.args) == maxLineArgs {
			return message{}, errors.New("too many words in line")
		}
		m.args = append(m.args, arg{key, value})
	}
	if m.cmd == "" {
		return message{}, errors.New("empty line")
	}
	return m, nil
}

func isCommand(s string) bool {
	return s != "" && len(s) <= maxCommandBytes && isWord(s, "_-")
}

// isWord reports whether s has only letters, digits and the bytes of more.
func isWord(s, more string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte(more, c) >= 0:
		default:
			return false
		}
	}
	return true
}

// get returns the first value of key.
func (m message) get(key string) (string, bool) {
	for _, a := range m.args {
		if a.key == key {
			return a.value, true
		}
	}
	return "", false
}

// number returns the value of key as a decimal number in [low, high].
func (m message) number(key string, low, high int) (int, error) {
	text, ok := m.get(key)
	if !ok {
		return 0, fmt.Errorf("no %s=", key)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("bad %s=", key)
	}
	return n, nil
}

// formatLine makes "cmd=NAME key=value …\n" of pairs of words. Empty values are
// for the caller to avoid: newer MPICH refuses them.
func formatLine(cmd string, pairs ...string) string {
	var b strings.Builder
	b.WriteString("cmd=")
	b.WriteString(cmd)
	for i := 0; i+1 < len(pairs); i += 2 {
		b.WriteByte(' ')
		b.WriteString(pairs[i])
		b.WriteByte('=')
		b.WriteString(pairs[i+1])
	}
	b.WriteByte('\n')
	return b.String()
}

// lineReader reads lines of bounded length. Its memory grows with the lines
// that really come.
type lineReader struct{ r *bufio.Reader }

var errLineTooLong = errors.New("line too long")

func newLineReader(r io.Reader) lineReader { return lineReader{bufio.NewReaderSize(r, 1024)} }

// readLine returns the next line without its newline. A line that the
// connection's end cuts off is io.ErrUnexpectedEOF.
func (l lineReader) readLine() (string, error) {
	var long []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(long)+len(part) > maxLineBytes {
			return "", errLineTooLong
		}
		switch {
		case err == nil:
			return string(append(long, part[:len(part)-1]...)), nil
		case errors.Is(err, bufio.ErrBufferFull):
			long = append(long, part...)
		case errors.Is(err, io.EOF) && len(long)+len(part) > 0:
			return "", io.ErrUnexpectedEOF
		default:
			return "", err
		}
	}
}

// connError turns what a read or write of a connection returned into an error to decide on.
func connError(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrTimeout
	case errors.Is(err, errLineTooLong):
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	default:
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
}

// clip bounds what of a peer's text gets into an error.
func clip(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
