package binding

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
)

// coresOf returns cores of one processor each, numbered in order, with these NUMA nodes.
func coresOf(nodes ...int) []Core {
	var cores []Core
	for cpu, node := range nodes {
		cores = append(cores, Core{CPUs: []int{cpu}, Node: node})
	}
	return cores
}

func TestDivideGivesEachRankAnEqualShare(t *testing.T) {
	for name, test := range map[string]struct {
		free  []Core
		ranks int
		want  [][]int
	}{
		"no rank":                     {coresOf(0, 0), 0, nil},
		"no core":                     {nil, 1, nil},
		"fewer cores than ranks":      {coresOf(0, 0), 3, nil},
		"a core each":                 {coresOf(0, 0), 2, [][]int{{0}, {1}}},
		"a remainder":                 {coresOf(0, 0, 0), 2, [][]int{{0}, {1}}},
		"several cores each":          {coresOf(0, 0, 0, 0, 0), 2, [][]int{{0, 1}, {2, 3}}},
		"all cores":                   {coresOf(0, 0, 1), 1, [][]int{{0, 1, 2}}},
		"a node each":                 {coresOf(0, 0, 1, 1), 2, [][]int{{0, 1}, {2, 3}}},
		"interleaved nodes":           {coresOf(0, 1, 0, 1), 2, [][]int{{0, 2}, {1, 3}}},
		"a share skips a node's rest": {coresOf(0, 0, 0, 1, 1, 1), 2, [][]int{{0, 1, 2}, {3, 4, 5}}},
		"odd nodes":                   {coresOf(0, 0, 0, 1, 1), 2, [][]int{{0, 1}, {3, 4}}},
		"one share of two nodes":      {coresOf(0, 0, 0, 1, 1, 1), 3, [][]int{{0, 1}, {3, 4}, {2, 5}}},
		"unknown nodes":               {coresOf(-1, -1), 2, [][]int{{0}, {1}}},
		"hardware threads": {
			[]Core{{CPUs: []int{0, 4}}, {CPUs: []int{1, 5}}, {CPUs: []int{2, 6}}, {CPUs: []int{3, 7}}}, 2,
			[][]int{{0, 1, 4, 5}, {2, 3, 6, 7}},
		},
	} {
		assert.Equal(t, test.want, Divide(test.free, test.ranks), name)
	}
}

func TestList(t *testing.T) {
	assert.Equal(t, "0-3,8,10-11", List([]int{0, 1, 2, 3, 8, 10, 11}))
	assert.Empty(t, List(nil))
}

func TestBusyProcessorsAreThoseIdleForLessThanHalf(t *testing.T) {
	before := "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 0 0 100 0 0 0 0 50 0\ncpu1 0 0 0 0 0 0 0 0 0 0\ncpu2 0 0 0 0 0 0 0 0 0 0\nintr 5\n"
	after := "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 101 0 0 103 0 0 0 0 51 0\ncpu1 3 0 0 1 0 0 0 0 3 0\ncpu2 0 0 0 1 2 0 0 0 0 0\ncpu7 9 0 0 0 0 0 0 0 0 0\n"
	assert.Equal(t, map[int]bool{1: true}, busyBetween(before, after))
	assert.Empty(t, busyBetween("", ""))
	assert.Empty(t, busyBetween("cpuX\ncpu\n\n", "cpu3\n"))
}

func TestProcessesBoundToSomeProcessorsTakeThem(t *testing.T) {
	process := func(list string) string {
		return "Name:\tx\nVmSize:\t9 kB\nCpus_allowed_list:\t" + list + "\nThreads:\t1\n"
	}
	statuses := []string{
		"", "Name:\tgone", process("0-63"), process("0-3"), process("2"), process("3,9"), process("9"), process("nonsense"),
		"Name:\tkworker/1\nCpus_allowed_list:\t1\nThreads:\t1\n",
	}
	assert.Equal(t, map[int]bool{2: true, 3: true}, boundTo(statuses, []int{0, 1, 2, 3}))
	assert.Empty(t, boundTo(statuses, []int{2}), "a launcher that may use one processor")
}

// fakeHost has cores of one processor each. Binders of the same host see each other's claims.
type fakeHost struct {
	cores, quota int
	others       map[int]bool // processors that other processes are bound to
	taken        map[int]bool // by claims
}

type fakeClaim struct {
	host *fakeHost
	cpu  int
}

func (c fakeClaim) release() { delete(c.host.taken, c.cpu) }

func (h *fakeHost) binder() *Binder {
	return &Binder{
		machine: func() slots.Machine {
			m := slots.Machine{Quota: h.quota}
			for cpu := range h.cores {
				m.Cores = append(m.Cores, []int{cpu})
			}
			return m
		},
		node:  func(int) int { return 0 },
		taken: func([]int) map[int]bool { return h.others },
		claim: func(cpu int) (claim, bool) {
			if h.taken[cpu] {
				return nil, false
			}
			h.taken[cpu] = true
			return fakeClaim{h, cpu}, true
		},
	}
}

func newFakeHost(cores int) *fakeHost { return &fakeHost{cores: cores, taken: map[int]bool{}} }

func shares(b *Binder, ranks int) (cpus [][]int, reason string) {
	for rank := range ranks {
		var share []int
		share, reason = b.Share(rank, ranks)
		cpus = append(cpus, share)
	}
	return cpus, reason
}

func TestTwoJobsAreNeverBoundToTheSameCore(t *testing.T) {
	h := newFakeHost(5)
	first, second, third := h.binder(), h.binder(), h.binder()
	h.others = map[int]bool{2: true, 3: true, 4: true}
	cpus, _ := shares(first, 2)
	assert.Equal(t, [][]int{{0}, {1}}, cpus)
	h.others = nil
	cpus, _ = shares(second, 2)
	assert.Equal(t, [][]int{{2}, {3}}, cpus, "the remainder is not claimed")
	cpus, reason := shares(third, 2)
	assert.Equal(t, [][]int{nil, nil}, cpus)
	assert.Equal(t, "1 of 5 cores are free, for 2 ranks", reason)
	assert.False(t, h.taken[4], "a job that is not bound claims nothing")

	first.Close()
	cpus, _ = shares(h.binder(), 3)
	assert.Equal(t, [][]int{{0}, {1}, {4}}, cpus)
}

func TestRanksWithoutFreeCoresAreNotBound(t *testing.T) {
	h := newFakeHost(4)
	h.quota = 2
	_, reason := shares(h.binder(), 2)
	assert.Contains(t, reason, "a CPU quota")
	h.quota = 0
	_, reason = shares(h.binder(), 5)
	assert.Equal(t, "4 cores for 5 ranks", reason)
	_, reason = shares(h.binder(), 1)
	assert.Contains(t, reason, "only rank")
	assert.Empty(t, h.taken)
}

func TestClaimOfACoreExcludesAnother(t *testing.T) {
	const cpu = 1 << 20 // no machine has it, so no job claims it
	first, ok := claimCore(cpu)
	require.True(t, ok)
	_, ok = claimCore(cpu)
	assert.False(t, ok)
	first.release()
	again, ok := claimCore(cpu)
	require.True(t, ok)
	again.release()
}
