package race

import (
	"runtime/debug"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEnabledIsTheSettingOfTheBuild(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	require.Equal(t, slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}), Enabled)
}

func TestSomeIsAQuarterOrAll(t *testing.T) {
	some := func() []int { return []int{Some(1), Some(3), Some(300)} }
	t.Setenv("MPIGO_TEST_ALL", "")
	require.Equal(t, []int{1, 1, 75}, some())
	require.Equal(t, Enabled, Brief())
	t.Setenv("MPIGO_TEST_ALL", "true")
	require.Equal(t, []int{1, 3, 300}, some())
	require.False(t, Brief())
}
