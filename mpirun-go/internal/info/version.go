package info

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/btl/ibverbs/libibverbs"
	"github.com/mpigo/mpigo/internal/tunable"
)

const modulePath = "github.com/mpigo/mpigo"

// develVersion is the version of a build from a directory.
const develVersion = "(devel)"

// Version returns the version of this module as recorded in the build, or "(devel)".
func Version() string { return versionIn(readBuild()) }

// readBuild returns what go recorded in the program. It is empty if go recorded nothing.
func readBuild() *debug.BuildInfo {
	if build, ok := debug.ReadBuildInfo(); ok {
		return build
	}
	return new(debug.BuildInfo)
}

// versionIn returns this module's version. The main module is another one if mpirun-go is a tool of
// that module's go.mod.
func versionIn(build *debug.BuildInfo) string {
	for _, m := range append([]*debug.Module{&build.Main}, build.Deps...) {
		if m.Path != modulePath {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		return cmp.Or(m.Version, develVersion)
	}
	return develVersion
}

// revisionIn returns the commit that this module was built from, if go recorded it.
func revisionIn(build *debug.BuildInfo) string {
	setting := func(key string) string {
		for _, s := range build.Settings {
			if s.Key == key {
				return s.Value
			}
		}
		return ""
	}
	revision := setting("vcs.revision")
	if build.Main.Path != modulePath || revision == "" {
		return "not recorded"
	}
	if at := setting("vcs.time"); at != "" {
		revision += " of " + at
	}
	if setting("vcs.modified") == "true" {
		revision += ", modified"
	}
	return revision
}

// VersionText is the output of mpirun-go version.
func VersionText() string {
	build := readBuild()
	return fmt.Sprintf("mpirun-go %s %s %s/%s\n  module      %s %s\n  revision    %s\n  transports  %s\n",
		Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, modulePath, versionIn(build), revisionIn(build), builtIn(notBuilt()))
}

// notBuilt is why verbs are not built in; nil if they are.
func notBuilt() error {
	if _, err := libibverbs.New(); errors.Is(err, libibverbs.ErrNotBuilt) {
		return err
	}
	return nil
}

// builtIn lists the transports that are built in. notBuilt is why ibverbs is not; nil if it is.
func builtIn(notBuilt error) string {
	list := tunable.Transports()
	if notBuilt == nil {
		return strings.Join(list, ", ")
	}
	list = slices.DeleteFunc(list, func(name string) bool { return name == tunable.TransportIBVerbs })
	return fmt.Sprintf("%s; not %s: %v", strings.Join(list, ", "), tunable.TransportIBVerbs, notBuilt)
}
