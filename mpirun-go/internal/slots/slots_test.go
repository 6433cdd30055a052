package slots

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseListReadsHostsAndSlots(t *testing.T) {
	hosts, err := ParseList("localhost, node-1.example.org:16,::1,[fe80::1]:4,c[08-10]:2,r[1,3]n[0-1]")
	require.NoError(t, err)
	assert.Equal(t, []Host{
		{Name: "localhost", Unnumbered: 1}, {Name: "node-1.example.org", Slots: 16}, {Name: "::1", Unnumbered: 1}, {Name: "fe80::1", Slots: 4},
		{Name: "c08", Slots: 2}, {Name: "c09", Slots: 2}, {Name: "c10", Slots: 2},
		{Name: "r1n0", Unnumbered: 1}, {Name: "r1n1", Unnumbered: 1}, {Name: "r3n0", Unnumbered: 1}, {Name: "r3n1", Unnumbered: 1},
	}, hosts)
	hosts, err = ParseList("u@[::1]:4,u@[fe80::1],u@::1,u@n1:2,u@n[1-2]:3")
	require.NoError(t, err)
	assert.Equal(t, []Host{
		{Name: "u@::1", Slots: 4}, {Name: "u@fe80::1", Unnumbered: 1}, {Name: "u@::1", Unnumbered: 1}, {Name: "u@n1", Slots: 2},
		{Name: "u@n1", Slots: 3}, {Name: "u@n2", Slots: 3},
	}, hosts)
	for _, bad := range []string{
		"", ",", "a,,b", ":4", "a:", "a:0", "a:-1", "a:x", "a:65537", "n[", "n]", "n[]", "n[3-1]", "n[1-x]", "n[1", "n[[1]]", "n[1-9999]", "n[0-99]m[0-99]",
		"-oProxyCommand=x", "u@-oProxyCommand=x", "u@", "[::1]4", "u@[::1]x", "a b", "a;b", "$(a)", strings.Repeat("x", 300),
	} {
		_, err := ParseList(bad)
		assert.Error(t, err, "%q", bad)
	}
}

func TestParseFileReadsHostsAndSlots(t *testing.T) {
	hosts, err := ParseFile("f", strings.NewReader("# all\n\nlocalhost slots=4 # four\n\tother\r\nm[1-2] slots=2 max-slots=3\nn:5\n::1 max_slots=1\n"))
	require.NoError(t, err)
	assert.Equal(t, []Host{
		{Name: "localhost", Slots: 4}, {Name: "other", Unnumbered: 1}, {Name: "m1", Slots: 2, Max: 3}, {Name: "m2", Slots: 2, Max: 3},
		{Name: "n", Slots: 5}, {Name: "::1", Unnumbered: 1, Max: 1},
	}, hosts)
	for text, want := range map[string]string{
		"":                       "f: names no host",
		"# no host":              "f: names no host",
		"a\nb slots":             `f:2: "slots": want a line such as "host slots=4"`,
		"a slots=0":              `f:1: host a: "0" is not a number of slots from 1 to 65536`,
		"a\n\nn[1-":              `f:3: host "n[1-": brackets do not match`,
		strings.Repeat("x", 1e6): "f: bufio.Scanner: token too long",
	} {
		_, err := ParseFile("f", strings.NewReader(text))
		assert.EqualError(t, err, want)
	}
}

func TestSlurmReadsAllocation(t *testing.T) {
	hosts, err := Slurm("n[1-2],m07", "2(x2),1", "8(x3)")
	require.NoError(t, err)
	assert.Equal(t, []Host{{Name: "n1", Slots: 2}, {Name: "n2", Slots: 2}, {Name: "m07", Slots: 1}}, hosts)
	hosts, err = Slurm("n[1-2]", "", "4,2")
	require.NoError(t, err)
	assert.Equal(t, []Host{{Name: "n1", Slots: 4}, {Name: "n2", Slots: 2}}, hosts)
	hosts, err = Slurm("n1", "", "")
	require.NoError(t, err)
	assert.Equal(t, []Host{{Name: "n1", Unnumbered: 1}}, hosts)
	for _, bad := range [][2]string{{"", ""}, {"n[1-", ""}, {"n1,", ""}, {"n[1-2]", "1"}, {"n1", "1(x2)"}, {"n1", "x"}, {"n1", "1(x1"}, {"n1", "1(x)"}, {"n1", "1(x999999999)"}, {"n1", "0"}} {
		_, err := Slurm(bad[0], bad[1], "")
		assert.Error(t, err, "%q", bad)
	}
}

func TestTotalSlotsUnknownWithoutNumbers(t *testing.T) {
	n, known := TotalSlots([]Host{{Name: "n1", Slots: 2}, {Name: "n2", Slots: 3}})
	assert.True(t, known)
	assert.Equal(t, 5, n)
	_, known = TotalSlots([]Host{{Name: "n1", Slots: 2}, {Name: "n2", Unnumbered: 1}})
	assert.False(t, known)
}

func machine() Machine {
	return Machine{Name: "n1.example.org", Cores: [][]int{{0, 4}, {1, 5}, {2, 6}}}
}

func TestMergeAddsUpRequestsPerHost(t *testing.T) {
	m := machine()
	assert.Equal(t, []Host{{Name: "n1.example.org", Unnumbered: 1, Local: true}}, Merge(m, nil, false))
	requests := []Host{{Name: "n2", Slots: 1}, {Name: "n1", Slots: 2}, {Name: "n1.example.org", Unnumbered: 1}, {Name: "n2", Slots: 3, Max: 4}, {Name: "127.0.0.1", Slots: 1}}
	assert.Equal(t, []Host{{Name: "n2", Slots: 4}, {Name: "n1.example.org", Slots: 3, Unnumbered: 1, Local: true}}, Merge(m, requests, false))
	assert.Equal(t, []Host{{Name: "N2", Slots: 3}, {Name: "n1.example.org", Slots: 1, Local: true}, {Name: "U@n2", Slots: 1}, {Name: "u@N2", Slots: 1}},
		Merge(m, []Host{{Name: "N2", Slots: 1}, {Name: "n2", Slots: 2}, {Name: "N1", Slots: 1}, {Name: "U@n2", Slots: 1}, {Name: "u@N2", Slots: 1}}, false))
	assert.Equal(t, 9, Merge(m, requests, false)[1].SlotCount(m.CPUs()))
	assert.False(t, AllLocal(m, requests))
	own := []Host{{Name: "localhost", Slots: 1, Max: 1}, {Name: "n1", Slots: 2}, {Name: "localhost", Slots: 1, Max: 2}}
	assert.True(t, AllLocal(m, own))
	m.Addrs = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")}
	for name, here := range map[string]bool{"10.0.0.1": true, "2001:DB8:0::1": true, "::ffff:10.0.0.1": true, "10.0.0.2": false, "me@10.0.0.1": false, "10.0.0.1.example.org": false} {
		assert.Equal(t, here, AllLocal(m, []Host{{Name: name}}), name)
	}
	assert.Equal(t, []Host{{Name: "localhost", Slots: 2, Max: 3}, {Name: "n1", Slots: 2}}, Merge(m, own, true))
}

func TestMapPlacesRanks(t *testing.T) {
	places, err := Map(4, []Host{{Name: "h", Slots: 2, Local: true}}, []Machine{machine()}, Policy{}, true)
	require.NoError(t, err)
	require.Len(t, places, 4)
	assert.Equal(t, Place{Rank: 2, Host: 0, LocalRank: 2, LocalSize: 4, CPUs: []int{2, 6}}, places[2])
	assert.Equal(t, []int{0, 4}, places[3].CPUs, "the fourth rank gets the first core again")

	// The second host has six processors.
	hosts := []Host{{Name: "a", Slots: 2}, {Name: "b", Unnumbered: 1}, {Name: "c", Slots: 1, Max: 2}}
	machines := []Machine{machine(), machine(), machine()}
	for _, c := range []struct {
		size int
		by   Policy
		want []int
	}{
		{3, Policy{}, []int{0, 0, 1}},
		{12, Policy{}, []int{0, 0, 1, 1, 1, 1, 1, 1, 2, 0, 0, 1}},
		{12, Policy{RoundRobin: true}, []int{0, 1, 2, 0, 1, 1, 1, 1, 1, 0, 1, 2}},
		{14, Policy{RoundRobin: true}, []int{0, 1, 2, 0, 1, 1, 1, 1, 1, 0, 1, 2, 0, 1}},
		{5, Policy{PerNode: 2}, []int{0, 0, 1, 1, 2}},
	} {
		places, err := Map(c.size, hosts, machines, c.by, false)
		require.NoError(t, err)
		var got []int
		counts := map[int]int{}
		for rank, p := range places {
			assert.Equal(t, rank, p.Rank)
			assert.Equal(t, counts[p.Host], p.LocalRank)
			assert.Nil(t, p.CPUs)
			counts[p.Host]++
			got = append(got, p.Host)
		}
		assert.Equal(t, c.want, got, "%+v", c)
		assert.Equal(t, counts[0], places[0].LocalSize)
	}
	_, err = Map(7, hosts, machines, Policy{PerNode: 2}, false)
	assert.EqualError(t, err, "--map-by ppr:2:node places 6 ranks on 3 hosts, but the job has 7")
	_, err = Map(3, []Host{{Name: "a", Slots: 1, Max: 2}}, machines[:1], Policy{}, false)
	assert.EqualError(t, err, "3 ranks: the hosts' max-slots allow only 2")
}

func TestHostsNeeded(t *testing.T) {
	needed, err := HostsNeeded(3, []Host{{Slots: 2}, {Slots: 2}, {Slots: 2}}, Policy{})
	require.NoError(t, err)
	assert.Equal(t, []bool{true, true, false}, needed)
	needed, err = HostsNeeded(3, []Host{{Slots: 2}, {Unnumbered: 1}}, Policy{})
	require.NoError(t, err)
	assert.Nil(t, needed)
	needed, err = HostsNeeded(2, []Host{{Unnumbered: 1}, {Unnumbered: 1}, {Unnumbered: 1}}, Policy{PerNode: 1})
	require.NoError(t, err)
	assert.Equal(t, []bool{true, true, false}, needed)
	_, err = HostsNeeded(4, []Host{{Unnumbered: 1}, {Unnumbered: 1}, {Unnumbered: 1}}, Policy{PerNode: 1})
	require.Error(t, err)
}

func TestParsePolicy(t *testing.T) {
	for text, want := range map[string]Policy{"slot": {}, "node": {RoundRobin: true}, "ppr:12:node": {PerNode: 12}} {
		by, err := ParsePolicy(text)
		require.NoError(t, err)
		assert.Equal(t, want, by)
	}
	for _, bad := range []string{"", "core", "ppr:0:node", "ppr:1:socket", "ppr:node", "ppr:-1:node"} {
		_, err := ParsePolicy(bad)
		assert.Error(t, err, bad)
	}
}

func TestCoresGroupsSiblings(t *testing.T) {
	sys := t.TempDir()
	for cpu, siblings := range map[string]string{"cpu0": "0,2\n", "cpu1": "1,3\n", "cpu2": "0,2\n", "cpu3": "1,3\n"} {
		dir := filepath.Join(sys, cpu, "topology")
		require.NoError(t, os.MkdirAll(dir, 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "thread_siblings_list"), []byte(siblings), 0o666))
	}
	assert.Equal(t, [][]int{{0, 2}, {1, 3}}, cores([]int{0, 1, 2, 3}, sys))
	assert.Equal(t, [][]int{{1}, {2}}, cores([]int{1, 2}, sys), "only allowed processors")
	assert.Equal(t, [][]int{{3}, {8}}, cores([]int{3, 8}, sys), "processors without topology")
}

func TestThisMachineHasNameAndCPUs(t *testing.T) {
	m := ThisMachine()
	assert.NotEmpty(t, m.Name)
	assert.Positive(t, m.CPUs())
}

func TestParseCPUListReadsRanges(t *testing.T) {
	assert.Equal(t, []int{0, 1, 2, 3, 8}, ParseCPUList("0-3,8\n"))
	for _, bad := range []string{"", "x", "3-1", "-1", "0-99999999", "1-2-3"} {
		assert.Empty(t, ParseCPUList(bad), bad)
	}
}

func FuzzParseList(f *testing.F) {
	for _, s := range []string{"localhost", "a:1,b:2", "::1", ",", "a:999999999999", "n[1-3,07]:4,m", "[::1]:4", "r[0-1]n[00-11]", "[[", "]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := ParseList(list)
		if err == nil {
			checkHosts(t, list, hosts)
		}
	})
}

// checkHosts fails the test if a name could mean something else than a host to an agent, or if a
// number is out of bounds.
func checkHosts(t *testing.T, text string, hosts []Host) {
	require.LessOrEqual(t, len(hosts), MaxHosts, "%q", text)
	for _, h := range hosts {
		if checkName(h.Name) != nil || h.Slots < 0 || h.Slots > MaxSlots || h.Max < 0 || h.Max > MaxSlots || h.SlotCount(1) < 1 {
			t.Fatalf("%q gives %+v", text, h)
		}
	}
}

func FuzzSlurm(f *testing.F) {
	f.Add("n[1-2],m7", "1(x2),2", "")
	f.Add("n[01-10]", "", "8(x10)")
	f.Add("n", "(x", "")
	f.Fuzz(func(t *testing.T, nodes, tasks, cpus string) {
		if hosts, err := Slurm(nodes, tasks, cpus); err == nil {
			require.NotEmpty(t, hosts, "neither a host nor an error")
			checkHosts(t, nodes, hosts)
		}
	})
}

func FuzzParseFile(f *testing.F) {
	for _, s := range []string{"localhost slots=4\n", "#\na # b\n", "a slots=", "a\x00b", "\r\n", "n[1-4] slots=2 max-slots=3\nm:5\n::1\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := ParseFile("f", strings.NewReader(text))
		require.True(t, err != nil || len(hosts) > 0, "neither a host nor an error")
		checkHosts(t, text, hosts)
	})
}

func FuzzParseCPUList(f *testing.F) {
	for _, s := range []string{"0-3,8", "1", "5-", "0-65535"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, cpu := range ParseCPUList(text) {
			require.GreaterOrEqual(t, cpu, 0, "%q", text)
		}
	})
}

func TestOwnAddrsExcludesLinkLocal(t *testing.T) {
	for _, addr := range ownAddrs() {
		assert.True(t, addr.IsValid() && !addr.Is4In6() && !addr.IsLinkLocalUnicast(), addr)
	}
	assert.NotEmpty(t, ownAddrs())
}
