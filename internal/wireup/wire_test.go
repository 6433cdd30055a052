package wireup

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mpigo/mpigo/internal/leaks"
)

// TestMain fails if a goroutine outlives the tests.
func TestMain(m *testing.M) { leaks.Main(m) }

func TestParseLine(t *testing.T) {
	for _, tc := range []struct {
		line string
		cmd  string
		args []arg
	}{
		{"cmd=barrier_out", "barrier_out", nil},
		{"cmd=finalize ", "finalize", nil},
		{"  cmd=maxes  keylen_max=64", "maxes", []arg{{"keylen_max", "64"}}},
		{"cmd=put key=a value=x=y=z", "put", []arg{{"key", "a"}, {"value", "x=y=z"}}},
		{"cmd=put key= value", "put", []arg{{"key", ""}, {"value", ""}}},
		{"mcmd=spawn", "spawn", nil},
		{"cmd=get_result rc=0 value=(vector,(0,1,4))", "get_result", []arg{{"rc", "0"}, {"value", "(vector,(0,1,4))"}}},
	} {
		m, err := parseLine(tc.line)
		require.NoError(t, err, tc.line)
		assert.Equal(t, message{tc.cmd, tc.args}, m, tc.line)
	}
}

func TestParseLineOfBadLineFails(t *testing.T) {
	for _, line := range []string{
		"", " ", "cmd", "cmd=", "cmd= rc=0", "rc=0 cmd=init", "init", "cmd=in;it", "cmd=in\x00it",
		"cmd=get key=\x7f", "cmd=get\r", "cmd=" + strings.Repeat("x", 65),
		"cmd=x" + strings.Repeat(" a=b", maxLineArgs+1), "cmd=x a=" + strings.Repeat("b", maxLineBytes),
	} {
		_, err := parseLine(line)
		assert.Error(t, err, "%q", clip(line))
	}
}

func TestNumberOutsideRangeFails(t *testing.T) {
	m, err := parseLine("cmd=x a=7 b=-1 c= d=1e3 e=99999999999999999999 a=8")
	require.NoError(t, err)
	n, err := m.number("a", 0, 7)
	require.NoError(t, err)
	assert.Equal(t, 7, n)
	n, err = m.number("b", -1, 7)
	require.NoError(t, err)
	assert.Equal(t, -1, n)
	for _, key := range []string{"b", "c", "d", "e", "f"} {
		_, err := m.number(key, 0, 1000)
		assert.Error(t, err, key)
	}
}

func TestFormatParseLineRoundTrip(t *testing.T) {
	word := rapid.StringMatching(`[!-<>-~]{1,40}`)
	rapid.Check(t, func(t *rapid.T) {
		want := message{cmd: rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Draw(t, "cmd")}
		var pairs []string
		for i := range rapid.IntRange(0, maxLineArgs).Draw(t, "args") {
			a := arg{word.Draw(t, "key"), word.Draw(t, "value")}
			if i%2 == 0 {
				a.value += "=" + a.value
			}
			want.args = append(want.args, a)
			pairs = append(pairs, a.key, a.value)
		}
		got, err := parseLine(strings.TrimSuffix(formatLine(want.cmd, pairs...), "\n"))
		if err != nil {
			t.Fatal(err)
		}
		assert.Equal(t, want, got)
	})
}

func TestReadLineReturnsWholeLines(t *testing.T) {
	long := strings.Repeat("x", maxLineBytes-1)
	in := newLineReader(iotest.OneByteReader(strings.NewReader("one\n\n" + long + "\ncut")))
	for _, want := range []string{"one", "", long} {
		line, err := in.readLine()
		require.NoError(t, err)
		require.Equal(t, want, line)
	}
	_, err := in.readLine()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)

	_, err = newLineReader(strings.NewReader("")).readLine()
	require.ErrorIs(t, err, io.EOF)
}

// A peer that never ends its line must cost bounded memory.
func TestReadLineIsBounded(t *testing.T) {
	n := 0
	in := newLineReader(readerFunc(func(p []byte) (int, error) {
		n += len(p)
		copy(p, bytes.Repeat([]byte("x"), len(p)))
		return len(p), nil
	}))
	_, err := in.readLine()
	require.ErrorIs(t, err, errLineTooLong)
	assert.LessOrEqual(t, n, 2*maxLineBytes)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
