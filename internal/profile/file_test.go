package profile

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func sample() *File {
	return &File{
		Rank: 1, Size: 4, Host: "a", AppNanos: 5,
		Kinds: []Kind{{Name: "send", Calls: 3, Sizes: []uint64{0, 3}}},
		Sites: []Site{{Call: "send", File: "main.go", Line: 3, Calls: 3, Nanos: 7}},
		Sent:  []Traffic{{Peer: 3, Messages: 3, Bytes: 3}},
	}
}

func TestReadReturnsWhatWasWritten(t *testing.T) {
	var b bytes.Buffer
	f := sample()
	require.NoError(t, f.Write(&b))
	got, err := Read(&b)
	require.NoError(t, err)
	require.Equal(t, f, got)
}

func TestReadOfWrongFileFails(t *testing.T) {
	for name, change := range map[string]func(f *File){
		"rank":    func(f *File) { f.Rank = 4 },
		"size":    func(f *File) { f.Size = 1 << 40 },
		"time":    func(f *File) { f.AppNanos = -1 },
		"peer":    func(f *File) { f.Sent[0].Peer = 9 },
		"rail":    func(f *File) { f.Rails = []Rail{{Peer: -1}} },
		"numbers": func(f *File) { f.Sites[0].Nanos = -1 },
		"sizes":   func(f *File) { f.Kinds[0].Sizes = make([]uint64, 65) },
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
	_, err := Read(strings.NewReader(`{"v":99,"size":1}`))
	require.ErrorIs(t, err, ErrFormat)
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, sample().Write(&b))
	f.Add(b.Bytes())
	f.Add([]byte(`{"v":1,"rank":0,"size":1,"sites":[{"calls":1e400}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Read(bytes.NewReader(text))
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		require.Less(t, got.Rank, got.Size)
	})
}
