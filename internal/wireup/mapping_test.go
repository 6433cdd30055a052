package wireup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseMapping(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []int
	}{
		{"(vector,(0,1,4))", []int{0, 0, 0, 0}},
		{"(vector,(0,2,2))", []int{0, 0, 1, 1}},
		// Hydra: one slot, three ranks.
		{"(vector,(0,1,1))", []int{0, 0, 0}},
		{"(vector,(0,2,1),(0,2,1))", []int{0, 1, 0, 1}},       // Slurm, cyclic
		{"(vector,(0,1,2),(1,1,1))", []int{0, 0, 1, 0, 0, 1}}, // repeats
		// Repeats from the block with START 0.
		{"(vector,(3,1,1),(0,1,1))", []int{3, 0, 0, 0}},
		// No such block: repeats from the first.
		{"(vector,(3,1,1),(4,1,2))", []int{3, 4, 4, 3, 4, 4}},
		{"(vector,(0,1,1000000))", []int{0}}, // more room than ranks
		// Large numbers cost no memory.
		{"(vector,(4194304,4194304,4194304))", []int{1 << 22, 1 << 22}},
	} {
		got, err := parseMapping(tc.text, len(tc.want))
		require.NoError(t, err, tc.text)
		assert.Equal(t, tc.want, got, tc.text)
	}
}

func TestParseMappingOfBadTextFails(t *testing.T) {
	for _, text := range []string{
		"", "vector", "(vector)", "(vector,)", "(vector,())", "(vector,(0,1))", "(vector,(0,1,1,1))", "(vector,(0,1,1)",
		"(vector,(0,1,1)(0,1,1))", "(vector,(0,1,1),)", "(vector,(0,0,1))", "(vector,(0,1,0))", "(vector,(-1,1,1))",
		"(vector,(0,1,99999999999))", "(vector,(a,1,1))", "(block,(0,1,1))", "(vector,(0,1,1)) ", "(vector,((0,1,1)))",
	} {
		_, err := parseMapping(text, 4)
		assert.Error(t, err, "%q", text)
	}
}

func TestFormatMapping(t *testing.T) {
	for _, tc := range []struct {
		nodeOf []int
		want   string
	}{
		{[]int{0}, "(vector,(0,1,1))"},
		{[]int{7, 7, 7, 7}, "(vector,(0,1,4))"},
		{[]int{0, 0, 1, 1, 2, 2}, "(vector,(0,3,2))"},
		{[]int{5, 5, 3}, "(vector,(0,1,2),(1,1,1))"},
		{[]int{0, 1, 2, 0, 1, 2, 0, 1}, "(vector,(0,3,1))"},
		{[]int{0, 1, 0, 0}, "(vector,(0,2,1),(0,1,2))"},
	} {
		assert.Equal(t, tc.want, formatMapping(tc.nodeOf), "%v", tc.nodeOf)
	}
}

// A placement without a pattern does not fit in a value.
func TestFormatMappingOfTooLongMappingIsEmpty(t *testing.T) {
	nodeOf := make([]int, 4000)
	for i := range nodeOf {
		nodeOf[i] = i * i % 17
	}
	assert.Empty(t, formatMapping(nodeOf))
}

func TestFormatParseMappingRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodeOf := rapid.SliceOfN(rapid.IntRange(-3, 5), 1, 60).Draw(t, "nodes")
		text := formatMapping(nodeOf)
		if text == "" {
			t.Fatal("60 ranks always fit")
		}
		got, err := parseMapping(text, len(nodeOf))
		if err != nil {
			t.Fatal(err)
		}
		assert.Equal(t, renumber(nodeOf), got, text)
	})
}

// The fuzz target compares parseMapping, rank by rank, with a parser on fmt.Sscanf.
func FuzzProcessMapping(f *testing.F) {
	for _, text := range []string{"(vector,(0,1,4))", "(vector,(3,1,1),(0,2,2))", "(vector,(0,1,1),", "(vector,(1,2,3)x)"} {
		f.Add(text, 7)
	}
	f.Fuzz(func(t *testing.T, text string, size int) {
		size = size & 0xff
		got, err := parseMapping(text, size)
		if err != nil {
			return
		}
		require.Len(t, got, size)
		type block struct{ start, nodes, ranks int }
		var blocks []block
		for _, part := range strings.Split(strings.TrimSuffix(strings.TrimPrefix(text, "(vector,("), "))"), "),(") {
			var b block
			n, err := fmt.Sscanf(part, "%d,%d,%d", &b.start, &b.nodes, &b.ranks)
			require.NoError(t, err)
			require.Equal(t, 3, n)
			blocks = append(blocks, b)
		}
		at, slot := 0, 0
		for rank := range size {
			if slot == blocks[at].nodes*blocks[at].ranks {
				at, slot = at+1, 0
			}
			if at == len(blocks) {
				at = 0
				for i := len(blocks) - 1; i >= 0; i-- {
					if blocks[i].start == 0 {
						at = i
					}
				}
			}
			want := blocks[at].start + slot/blocks[at].ranks
			require.Equal(t, want, got[rank], "%s rank %d", text, rank)
			slot++
		}
	})
}
