package tunable

import (
	"fmt"
	"slices"
	"strings"
)

// otherVariables begin with MPIGO_ like the variables of tunables, but the launcher or the library
// sets them.
var otherVariables = [...]string{
	"MPIGO_SECRET", "MPIGO_RANK", "MPIGO_SIZE", "MPIGO_LOCAL_RANK", "MPIGO_LOCAL_SIZE", "MPIGO_OVERSUBSCRIBED", "MPIGO_INTROSPECT_FD",
	"MPIGO_OWN_GOMAXPROCS", // the launcher has set GOMAXPROCS
	"MPIGO_INIT_PID",       // the process has called Init
	"MPIGO_JOINED_PID",     // and was launched
}

// testPrefix begins the names of variables that only tests read.
const testPrefix = "MPIGO_TEST_"

// UnknownVariables returns a warning for each variable in environ (NAME=VALUE) that begins with
// MPIGO_ and has no meaning, sorted. Most such names are misspelt tunables. A warning has one line
// and names a similar variable if there is one. An empty variable counts as not set.
func UnknownVariables(environ []string) []string {
	var warnings []string
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		key, ours := strings.CutPrefix(name, "MPIGO_")
		if !ours || value == "" || strings.HasPrefix(name, testPrefix) || slices.Contains(otherVariables[:], name) {
			continue
		}
		key = strings.ToLower(strings.ReplaceAll(key, "_", "."))
		if _, known := Find(key); known && EnvName(key) == name {
			continue
		}
		warning := fmt.Sprintf("%q is ignored: no tunable has this environment variable", name)
		if near := nearest(key); near != "" {
			warning += fmt.Sprintf(": did you mean %s?", EnvName(near))
		}
		warnings = append(warnings, warning)
	}
	slices.Sort(warnings)
	return slices.Compact(warnings)
}
