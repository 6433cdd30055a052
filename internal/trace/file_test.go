package trace

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func sample() *File {
	return &File{
		Version: Version, Rank: 1, Size: 4, Host: "a", PID: 7, Command: []string{"solver", "-n"}, Written: 90, Dropped: 3,
		Clocks: []Clock{{At: 5, Ahead: -6, Error: 7}},
		Events: []Event{
			{Type: Call, At: 10, Nanos: 5, Name: "send", Peer: 3, Tag: 2, Bytes: 8, Comm: "world", Line: "main.go:3"},
			{Type: Sent, At: 12, Peer: 3, Tag: 2, Bytes: 8, Context: 1, Number: 4},
			{Type: Rail, At: 20, Track: -1, Name: "rail <x> failed", Peer: 3},
		},
	}
}

func TestReadReturnsWhatWasWritten(t *testing.T) {
	for _, n := range []int{0, 1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var b bytes.Buffer
			f := sample()
			f.Events = f.Events[:n]
			require.NoError(t, f.Write(&b))
			got, err := Read(&b)
			require.NoError(t, err)
			require.Equal(t, f, got)
		})
	}
}

func TestReadOfWrongFileFails(t *testing.T) {
	for name, change := range map[string]func(f *File){
		"rank":     func(f *File) { f.Rank = 4 },
		"size":     func(f *File) { f.Size = 1 << 40 },
		"written":  func(f *File) { f.Written = -1 },
		"clock":    func(f *File) { f.Clocks[0].Ahead = maxNanos + 1 },
		"peer":     func(f *File) { f.Events[1].Peer = 4 },
		"time":     func(f *File) { f.Events[0].At = maxNanos },
		"duration": func(f *File) { f.Events[0].Nanos = -1 },
		"track":    func(f *File) { f.Events[2].Track = -2 },
		"type":     func(f *File) { f.Events[2].Type = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			f := sample()
			change(f)
			require.NoError(t, f.Write(&b))
			_, err := Read(&b)
			require.ErrorIs(t, err, ErrFormat)
		})
	}
	for _, text := range []string{`{"v":99,"size":1}`, `{"v":1,"size":1,"events":[{`, ""} {
		_, err := Read(strings.NewReader(text))
		require.ErrorIs(t, err, ErrFormat)
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, sample().Write(&b))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Read(bytes.NewReader(text))
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		var again bytes.Buffer
		require.NoError(t, got.Write(&again))
		_, err = Read(&again)
		require.NoError(t, err)
	})
}
