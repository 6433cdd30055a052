package profile

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/profile"
	"github.com/mpigo/mpigo/mpirun-go/internal/records"
)

func rankFile(rank int) *profile.File {
	return &profile.File{
		Version: profile.Version, Job: "a", Rank: rank, Size: 3, Host: "<evil>", Command: []string{"solver"}, AppNanos: 9e9,
		Kinds: []profile.Kind{{Name: "recv", Calls: 3, Sizes: []uint64{0, 3}}},
		Sites: []profile.Site{{
			Call: "recv", Function: "main.<x>", File: "/src/main.go", Line: 3, Calls: 3, Timed: 3, Nanos: 6e9,
			Waiting: 4e9, State: profile.LateSender, Min: 1, Max: 5e9,
		}},
		Sent:      []profile.Traffic{{Peer: 1, Messages: 3, Bytes: 3 << 10}},
		Protocols: []profile.Named{{Name: "SentEager", Count: 3}},
		Rails:     []profile.Rail{{Peer: 1, Name: "sm", State: "up", Health: 1000, Bytes: 5 << 20}},
	}
}

func TestPageAndTextOfAJob(t *testing.T) {
	dir := t.TempDir()
	for _, rank := range []int{0, 2} {
		f, err := os.Create(profile.Path(dir, rank))
		require.NoError(t, err)
		require.NoError(t, rankFile(rank).Write(f))
		require.NoError(t, f.Close())
	}
	j, err := Load(t.Context(), dir, records.Job{ID: "a", Size: 3})
	require.NoError(t, err)
	require.Equal(t, []int{1}, j.Missing)
	page, err := j.Write(dir)
	require.NoError(t, err)
	html, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(html), "main.go:3")
	assert.False(t, bytes.Contains(html, []byte("<evil>")), "what ranks say is escaped")
	assert.False(t, bytes.Contains(html, []byte("<x>")))
	var text bytes.Buffer
	require.NoError(t, j.Text(&text))
	assert.Contains(t, text.String(), "@ Missing    : 1\n")
	assert.Contains(t, string(html), "10 MiB", "of both ranks by the rail")
	assert.Regexp(t, `sm +up +2 +10485760 +0\n`, text.String())
	assert.Regexp(t, `late sender +8 +66\.67  main\.go:3, Recv, rank 0\n`, text.String())
}

// TestEstimatesAreMarked: each number that depends on samples has a mark, and no other one.
func TestEstimatesAreMarked(t *testing.T) {
	f := rankFile(0)
	f.Sites[0].Sends, f.Sites[0].Bytes = true, 24
	j := &Job{Size: 3, Files: []*profile.File{f}}
	report := func() (text, html string) {
		var t1, t2 bytes.Buffer
		require.NoError(t, j.Text(&t1))
		require.NoError(t, j.HTML(&t2))
		return t1.String(), t2.String()
	}
	text, html := report()
	require.Equal(t, 1, strings.Count(text, "≈"), "what it means")
	require.Equal(t, 1, strings.Count(html, "≈"))
	f.Sites[0].Estimated = true
	text, html = report()
	for _, line := range []string{
		`0 +9 +≈6 +≈66.67 +≈4 +≈0`, `\* +9 +≈6 +≈66.67 +≈4 +≈0`, `Recv +1 +≈6000 +≈66.67 +≈100.00 +≈3 +≈0.00 +≈66.67`,
		`Recv +1 +≈3 +≈24 +≈8 +≈100.00`, `late sender +≈4 +≈66.67  main.go:3, Recv, rank 0`,
		`Recv +1 +0 +≈3 +≈5000 +≈2000 +≈1e-06 +≈66.67 +≈100.00`, `    0     1            3           3072`,
	} {
		require.Regexp(t, `(?m)^ *`+line+`$`, text)
	}
	for _, number := range []string{"≈66.7 %", "≈6 s", "≈3<", "≈4 s", ">3<"} {
		require.Contains(t, html, number)
	}
}

func TestFilesOfTheSameNameAreToldApart(t *testing.T) {
	a, b := rankFile(0), rankFile(1)
	b.Sites[0].File = "/src/worker/main.go"
	j := &Job{Size: 3, Files: []*profile.File{a, b}}
	var text, html bytes.Buffer
	require.NoError(t, j.Text(&text))
	require.NoError(t, j.HTML(&html))
	assert.Regexp(t, `\n  1 src/main\.go +3 main\.<x> +Recv\n  2 worker/main\.go +3 `, text.String())
	assert.Contains(t, html.String(), "src/main.go:3")
	assert.Contains(t, html.String(), "worker/main.go:3")
}

// Whatever is in the file of a rank, there are a page and a text.
func FuzzProfileOfRank(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, rankFile(0).Write(&b))
	f.Add(b.Bytes())
	f.Add([]byte(`{"v":1,"rank":0,"size":65536,"app_nanos":9223372036854775807,"sites":[{"calls":1e308,"nanos":1e308},{"line":1,"nanos":1e308}],"sent":[{"peer":65535,"bytes":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := profile.Read(bytes.NewReader(text))
		if err != nil {
			require.ErrorIs(t, err, profile.ErrFormat)
			return
		}
		j := &Job{Size: file.Size, Files: []*profile.File{file}}
		require.NoError(t, j.HTML(&bytes.Buffer{}))
		require.NoError(t, j.Text(&bytes.Buffer{}))
	})
}

// TestProfileHasNamesOfTable: each call that is in a file has its name in Go in text and page.
func TestProfileHasNamesOfTable(t *testing.T) {
	f := rankFile(0)
	for _, id := range calls.All() {
		if id.Go() != "" && id.String() != "" {
			f.Kinds = append(f.Kinds, profile.Kind{Name: id.String(), Calls: 1, Sizes: []uint64{1}})
			f.Sites = append(f.Sites, profile.Site{Call: id.String(), File: "/src/main.go", Line: 7, Calls: 1, Timed: 1, Nanos: 1})
		}
	}
	j := &Job{Size: 3, Files: []*profile.File{f}}
	var text, page bytes.Buffer
	require.NoError(t, j.Text(&text))
	require.NoError(t, j.HTML(&page))
	for _, id := range calls.All() {
		if id.Go() == "" || id.String() == "" {
			continue
		}
		assert.Regexp(t, `(?m)\b`+id.Go()+`$`, text.String())
		assert.Contains(t, page.String(), id.Go())
		hasLengths := id.IsCollective() || id.SendsAtOnce()
		assert.Equal(t, hasLengths, regexp.MustCompile(`(?m)^`+id.Go()+` +0 +1$`).MatchString(text.String()), "lengths of %s", id.Go())
	}
}

// TestPageIsReadableInTheDarkAndOnAPhone: each color has a value for both schemes, and what is wide
// scrolls on its own.
func TestPageIsReadableInTheDarkAndOnAPhone(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, (&Job{Size: 2, Files: []*profile.File{rankFile(0), rankFile(1)}}).HTML(&b))
	html := b.String()
	light, dark, isThere := strings.Cut(html[:strings.Index(html, "\nbody {")], "@media (prefers-color-scheme: dark)")
	require.True(t, isThere)
	defined := regexp.MustCompile(`(--[a-z-]+):`)
	require.Equal(t, defined.FindAllString(light, -1), defined.FindAllString(dark, -1))
	for _, used := range regexp.MustCompile(`var\((--[a-z-]+)\)`).FindAllStringSubmatch(html, -1) {
		require.Contains(t, light, used[1]+":")
	}
	require.NotRegexp(t, `[:;][^:;{}]*#[0-9a-f]{3,6}`, html[strings.Index(html, "\nbody {"):], "colors that do not change")
	require.Equal(t, strings.Count(html, "<table>"), strings.Count(html, `<div class="scroll"><table>`))
	require.Contains(t, html, `name="viewport"`)
	for _, axis := range []string{">time</text>", ">rank</text>", ">sending rank</text>", ">receiving rank</text>"} {
		require.Contains(t, html, axis)
	}
}

func TestBarsFitAPhoneAndThePage(t *testing.T) {
	for ranks, want := range map[int]string{1: "330px", 8: "524px", 100: "850px"} {
		require.Contains(t, string(balance(make([]Times, ranks))), `<div style="width:`+want)
	}
}
