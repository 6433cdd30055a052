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

// A PMI-1 request is one line, and so is its answer (that to initack has four lines). Each line is
// "cmd=NAME key=value key=value\n" with single words as values. The only exception is spawn, whose
// request is a block of lines (see peer.go).
//
// The bounds follow from real peers. Slurm 22.05 reads a request with one read of 1024 bytes and
// takes the bytes for one whole line. MPICH 4.0's client reads an answer into 1024 bytes with a
// closing NUL.
const (
	maxRequestBytes = 1023    // of a line that our client sends, with its newline
	maxLineBytes    = 8 << 10 // of a line that either side accepts
	maxLineArgs     = 32      // key=value pairs in a line
	maxCommandBytes = 64

	// The limits that our server tells clients. The limits of names and keys are Hydra's. The limit
	// of values is less than Hydra's 1024: a put with the longest key and job name, and the answer
	// to a get, must stay below 1023 bytes.
	kvsNameMax = 256
	keyLenMax  = 64
	valLenMax  = 800

	// maxRanks bounds the job size that a process manager may claim, and thereby our allocations.
	maxRanks = 1 << 22
)

// barrierFailed is our server's answer to barrier_in if a rank has left: rank=N and state=N, its
// State. PMI-1 has no such answer.
const barrierFailed = "barrier_failed"

// getAll asks our server for all visible values whose keys begin with prefix=. The answer has
// count=N, and N lines follow, each with one key= and its value=. PMI-1 has no such request: the
// client sends it only to a manager whose answer to get_maxes has this word.
const (
	getAll       = "mpigo_get_all"
	getAllResult = "mpigo_get_all_result"
	getAllWord   = "mpigo_word"
)

// publish gives our server a value that is visible at once. published asks for the values after the
// first since=N. Its answer has the form of getAll's. PMI-1 has no such requests: the client sends
// them only to a manager whose answer to get_maxes has the word publish.
const (
	publish         = "mpigo_publish"
	publishResult   = "mpigo_publish_result"
	published       = "mpigo_published"
	publishedResult = "mpigo_published_result"
)

// mappingKey is the key under which a process manager says which rank is on which node.
const mappingKey = "PMI_process_mapping"

// message is one parsed line.
type message struct {
	cmd  string
	args []arg
}

type arg struct{ key, value string }

// parseLine parses one line without its newline. A word without '=' is a key with an empty value,
// because some peers send free text.
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

// isWord reports whether s consists of letters, digits and the bytes in more.
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

// formatLine makes "cmd=NAME key=value …\n" of pairs of words. The caller must not pass empty
// values, which newer versions of MPICH refuse.
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

// lineReader reads lines of bounded length. Its memory grows only with the lines that arrive.
type lineReader struct {
	r    *bufio.Reader
	part []byte // of the next line, from a call that has returned an error
}

var (
	errLineTooLong = errors.New("line too long")
	errPartOfLine  = errors.New("within a line") // the rest would count as a line
)

func newLineReader(r io.Reader) *lineReader { return &lineReader{r: bufio.NewReaderSize(r, 1024)} }

// readLine returns the next line without its newline. If the connection ends within a line, the
// error is io.ErrUnexpectedEOF. After a deadline within a line, another call goes on with it.
func (l *lineReader) readLine() (string, error) {
	long := l.part
	l.part = nil
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
		case len(long)+len(part) > 0:
			l.part = append(long, part...)
			return "", errors.Join(err, errPartOfLine)
		default:
			return "", err
		}
	}
}

// connError maps an error of a connection's Read or Write to ErrTimeout, ErrProtocol or ErrLost.
func connError(err error) error {
	switch {
	case errors.Is(err, errPartOfLine) && errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w %w", ErrTimeout, errPartOfLine)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrTimeout
	case errors.Is(err, errLineTooLong):
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	default:
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
}

// clip bounds the part of a peer's text that an error quotes.
func clip(s string) string {
	const maxBytes = 120
	if len(s) <= maxBytes {
		return s
	}
	return s[:maxBytes] + "…"
}
