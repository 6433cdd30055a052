package info

import (
	"errors"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/rdma"
	"github.com/mpigo/mpigo/internal/tunable"
)

func TestVersionInBuild(t *testing.T) {
	mpigo := debug.Module{Path: modulePath, Version: "v0.1.0"}
	user := debug.Module{Path: "example.com/user", Version: "v9.0.0"}
	replaced := debug.Module{Path: modulePath, Version: "v0.1.0", Replace: &debug.Module{Path: "../mpigo"}}
	for _, c := range []struct {
		build *debug.BuildInfo
		want  string
	}{
		{&debug.BuildInfo{Main: mpigo}, "v0.1.0"},
		// A tool of the user's module.
		{&debug.BuildInfo{Main: user, Deps: []*debug.Module{&mpigo}}, "v0.1.0"},
		{&debug.BuildInfo{Main: user, Deps: []*debug.Module{&replaced}}, "(devel)"},
		{&debug.BuildInfo{Main: debug.Module{Path: modulePath}}, "(devel)"},
		{new(debug.BuildInfo), "(devel)"},
	} {
		assert.Equal(t, c.want, versionIn(c.build))
	}
}

func TestRevisionIsOfThisModule(t *testing.T) {
	settings := []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-11-28T00:00:00Z"}, {Key: "vcs.modified", Value: "true"}}
	build := &debug.BuildInfo{Main: debug.Module{Path: modulePath}, Settings: settings}
	assert.Equal(t, "abc of 2026-11-28T00:00:00Z, modified", revisionIn(build))
	build.Main.Path = "example.com/user" // the commit is the user's
	assert.Equal(t, "not recorded", revisionIn(build))
}

func TestBuiltInWithoutCgo(t *testing.T) {
	assert.Equal(t, "self, sm, ibverbs, tcp", builtIn(nil))
	assert.Equal(t, "self, sm, tcp; not ibverbs: built without cgo", builtIn(errors.New("built without cgo")))
}

func TestTransportsSayWhyNot(t *testing.T) {
	verbsOf := func(devices []rdma.Device, library error, settings ...string) Transport {
		var set tunable.Set
		for _, value := range settings {
			var err error
			set, err = set.With("btl", value, tunable.FromCommandLine)
			require.NoError(t, err)
		}
		list := transports(devices, set, func() error { return library })
		require.Len(t, list, 4)
		require.Equal(t, "ibverbs", list[2].Name)
		return list[2]
	}
	port := func(state string) []rdma.Device {
		return []rdma.Device{{Name: "mlx5_0", Ports: []rdma.Port{{Number: 1, State: state}}}}
	}
	assert.Equal(t, Transport{"ibverbs", false, "no device in /sys/class/infiniband"}, verbsOf(nil, nil))
	assert.Equal(t, Transport{"ibverbs", false, "built without cgo"}, verbsOf(port("ACTIVE"), errors.New("built without cgo")))
	assert.Equal(t, Transport{"ibverbs", false, "no port is up: mlx5_0/1 is DOWN"}, verbsOf(port("DOWN"), nil))
	assert.Equal(t, Transport{"ibverbs", true, "mlx5_0/1"}, verbsOf(port("ACTIVE"), nil))
	assert.Equal(t, Transport{"ibverbs", false, "not in btl=self,tcp"}, verbsOf(port("ACTIVE"), nil, "self,tcp"))
}
