package ibverbs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

func TestParsePorts(t *testing.T) {
	for _, c := range []struct {
		list  string
		local int
		want  []PortName
	}{
		{"mlx5_0", 0, []PortName{{"mlx5_0", 1}}},
		{"mlx5_0, mlx5_1:2", 3, []PortName{{"mlx5_0", 1}, {"mlx5_1", 2}}},
		{"a|b", 0, []PortName{{"a", 1}}},
		{"a|b", 1, []PortName{{"b", 1}}},
		{"a|b:2,c|d", 3, []PortName{{"b", 2}, {"d", 1}}},
	} {
		got, err := ParsePorts(strings.Split(c.list, ","), c.local)
		require.NoError(t, err, c.list)
		require.Equal(t, c.want, got, c.list)
	}
	for list, what := range map[string]string{
		"":      "empty name",
		"a,":    "empty name",
		"a:0":   "number from 1 to 255",
		"a:x":   "number from 1 to 255",
		"a:256": "number from 1 to 255",
		"a,b,a": "a:1 twice",
	} {
		_, err := ParsePorts(strings.Split(list, ","), 0)
		require.ErrorIs(t, err, verbs.ErrInvalid, list)
		require.ErrorContains(t, err, what, list)
	}
}

func TestChooseGID(t *testing.T) {
	linkLocal, global, ipv4 := verbs.GID{0xfe, 0x80, 15: 1}, verbs.GID{0x20, 1, 15: 1}, verbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}
	table := []verbs.GIDEntry{
		{Index: 0, GID: linkLocal, Type: verbs.GIDTypeRoCEv1}, {Index: 1, GID: linkLocal, Type: verbs.GIDTypeRoCEv2},
		{Index: 2, GID: ipv4, Type: verbs.GIDTypeRoCEv1}, {Index: 3, GID: global, Type: verbs.GIDTypeRoCEv2},
		{Index: 4, GID: ipv4, Type: verbs.GIDTypeRoCEv2},
	}
	for n, want := range []int{-1, 0, 1, 1, 3, 4} {
		g, ok := chooseGID(table[:n], nil, true)
		require.Equal(t, want >= 0, ok)
		if ok {
			require.Equal(t, want, g.Index, "of the first %d", n)
		}
	}
	for _, index := range []int{0, 2} {
		g, ok := chooseGID(table, &index, true)
		require.True(t, ok)
		require.Equal(t, index, g.Index, "as was asked for")
	}
	_, ok := chooseGID(table, new(9), true)
	require.False(t, ok)
	g, _ := chooseGID(table, nil, false)
	require.Equal(t, 0, g.Index, "InfiniBand: the port's first")
}
