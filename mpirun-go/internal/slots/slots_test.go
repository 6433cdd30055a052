package slots

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseList(t *testing.T) {
	hosts, err := ParseList("localhost, node-1.example.org:16,::1")
	require.NoError(t, err)
	assert.Equal(t, []Host{{"localhost", 0}, {"node-1.example.org", 16}, {"::1", 0}}, hosts)
	for _, bad := range []string{"", ",", "a,,b", ":4", "a:", "a:0", "a:-1", "a:x", "a:65537"} {
		_, err := ParseList(bad)
		assert.Error(t, err, "%q", bad)
	}
}

func TestParseFile(t *testing.T) {
	hosts, err := ParseFile("f", strings.NewReader("# all\n\nlocalhost slots=4 # four\n\tother\n"))
	require.NoError(t, err)
	assert.Equal(t, []Host{{"localhost", 4}, {"other", 0}}, hosts)
	for text, want := range map[string]string{
		"":                       "f: names no host",
		"# nobody":               "f: names no host",
		"a\nb slots":             `f:2: "slots": want a line such as "host slots=4"`,
		"a slots=0":              `f:1: host a: "0" is not a number of slots from 1 to 65536`,
		strings.Repeat("x", 1e6): "f: bufio.Scanner: token too long",
	} {
		_, err := ParseFile("f", strings.NewReader(text))
		assert.EqualError(t, err, want)
	}
}

func machine() Machine {
	return Machine{Name: "n1.example.org", Cores: [][]int{{0, 4}, {1, 5}, {2, 6}}}
}

func TestHere(t *testing.T) {
	for _, c := range []struct {
		requests []Host
		want     int
	}{
		{nil, 6},
		{[]Host{{"localhost", 0}}, 6},
		{[]Host{{"n1", 2}, {"n1.example.org", 3}, {"127.0.0.1", 1}}, 6},
		{[]Host{{"::1", 1}}, 1},
	} {
		here, err := Here(machine(), c.requests)
		require.NoError(t, err)
		assert.Equal(t, Host{"n1.example.org", c.want}, here)
	}
	_, err := Here(machine(), []Host{{"localhost", 1}, {"n2", 1}})
	require.ErrorIs(t, err, ErrHosts)
	assert.EqualError(t, err, "host n2: several hosts are not supported yet: only this machine (localhost or n1.example.org)")
}

func TestMap(t *testing.T) {
	places := Map(4, Host{Name: "h", Slots: 2}, machine(), true)
	require.Len(t, places, 4)
	assert.Equal(t, Place{Rank: 2, Host: "h", LocalRank: 2, LocalSize: 4, CPUs: []int{2, 6}}, places[2])
	assert.Equal(t, []int{0, 4}, places[3].CPUs, "round again")
	for _, p := range Map(4, Host{Name: "h"}, machine(), false) {
		assert.Nil(t, p.CPUs)
	}
}

func TestCores(t *testing.T) {
	sys := t.TempDir()
	for cpu, siblings := range map[string]string{"cpu0": "0,2\n", "cpu1": "1,3\n", "cpu2": "0,2\n", "cpu3": "1,3\n"} {
		dir := filepath.Join(sys, cpu, "topology")
		require.NoError(t, os.MkdirAll(dir, 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "thread_siblings_list"), []byte(siblings), 0o666))
	}
	assert.Equal(t, [][]int{{0, 2}, {1, 3}}, cores([]int{0, 1, 2, 3}, sys))
	assert.Equal(t, [][]int{{1}, {2}}, cores([]int{1, 2}, sys), "only what may be used")
	assert.Equal(t, [][]int{{3}, {8}}, cores([]int{3, 8}, sys), "a processor that nothing is said about")
}

func TestThisMachine(t *testing.T) {
	m := ThisMachine()
	assert.NotEmpty(t, m.Name)
	assert.Positive(t, m.CPUs())
}

func TestParseCPUList(t *testing.T) {
	assert.Equal(t, []int{0, 1, 2, 3, 8}, parseCPUList("0-3,8\n"))
	for _, bad := range []string{"", "x", "3-1", "-1", "0-99999999", "1-2-3"} {
		assert.Empty(t, parseCPUList(bad), bad)
	}
}

func FuzzParseList(f *testing.F) {
	for _, s := range []string{"localhost", "a:1,b:2", "::1", ",", "a:999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := ParseList(list)
		for _, h := range hosts {
			if err == nil && (h.Name == "" || h.Slots < 0 || h.Slots > MaxSlots) {
				t.Fatalf("%q gives %+v", list, h)
			}
		}
	})
}

func FuzzParseFile(f *testing.F) {
	for _, s := range []string{"localhost slots=4\n", "#\na # b\n", "a slots=", "a\x00b", "\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := ParseFile("f", strings.NewReader(text))
		if err == nil && len(hosts) == 0 {
			t.Fatal("no host and no error")
		}
		for _, h := range hosts {
			if h.Name == "" || h.Slots < 0 || h.Slots > MaxSlots {
				t.Fatalf("%q gives %+v", text, h)
			}
		}
	})
}

func FuzzParseCPUList(f *testing.F) {
	for _, s := range []string{"0-3,8", "1", "5-", "0-65535"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, cpu := range parseCPUList(text) {
			if cpu < 0 {
				t.Fatalf("%q gives %d", text, cpu)
			}
		}
	})
}
