package mpigo_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/mpigo/mpigo/"

// mayImport lists the packages of this module that each package may import. Imports go down only. A
// folder that is not listed has the rule of its longest listed prefix. Tests may import any
// package.
var mayImport = map[string][]string{
	"progress":                       {"internal/calls"},
	"internal/calls":                 {},
	"internal/atomicfile":            {}, // files that are replaced in one step
	"internal/gate":                  {}, // a bound for unauthenticated connections
	"internal/trace":                 {}, // the form of a rank's trace
	"internal/profile":               {}, // the form of a rank's profile
	"internal/cgroup":                {}, // the limits of control groups
	"internal/memcopy":               {},
	"internal/fence":                 {},
	"internal/race":                  {}, // for tests
	"internal/leaks":                 {}, // for tests
	"internal/tunable":               {},
	"internal/netdev":                {},
	"request":                        {"progress", "internal/calls"},
	"btl":                            {"progress"},
	"btl/base":                       {"btl"},
	"btl/transport":                  {"btl", "progress", "internal/tunable"},
	"btl/btltest":                    {"btl", "btl/faults", "internal/race", "progress"},
	"btl/faults":                     {"btl", "progress"},
	"btl/tcp":                        {"btl", "btl/base", "btl/transport", "internal/netdev", "internal/tunable", "progress"},
	"btl/ibverbs":                    {"btl", "btl/base", "btl/transport", "btl/ibverbs/libibverbs", "internal/netdev", "internal/rdma", "internal/tunable", "btl/ibverbs/verbs", "progress"},
	"btl/ibverbs/libibverbs":         {"btl/ibverbs/verbs", "internal/rdma"},
	"btl/ibverbs/simhca":             {"btl/ibverbs/verbs"},
	"btl/ibverbs/verbs":              {},
	"btl/ibverbs/internal/verbstest": {"btl/ibverbs/verbs"},
	"btl/loop":                       {"btl", "btl/base", "btl/transport", "internal/tunable", "progress"},
	"btl/sm":                         {"btl", "btl/base", "btl/transport", "internal/fence", "internal/memcopy", "internal/tunable", "progress"},
	"btl/pinned":                     {"btl"},
	"bml":                            {"bml/rating", "btl", "btl/pinned", "request", "progress"},
	"bml/rating":                     {},
	"internal/network":               {}, // simulated networks, for tests
	"pml":                            {"bml", "btl", "request", "progress"},
	// A test harness.
	"internal/railsim":    {"pml", "btl", "btl/loop", "internal/network", "request", "progress"},
	"internal/simulation": {"pml", "bml", "btl", "btl/faults", "btl/loop", "btl/transport", "btl/ibverbs", "btl/tcp", "internal/network", "request", "progress"},
	"scripts/simulate":    {"internal/railsim", "internal/simulation"},
	"scripts/slowrails":   {"comm", "request"},
	"scripts/mpinames":    {"internal/calls"},
	// Random programs on the public API.
	"internal/collprogram": {"comm", "request", "internal/calls"},
	"scripts/collprogram":  {"comm", "internal/collprogram"},
	// Programs that hang.
	"internal/hangcases":     {"comm"},
	"scripts/hangs":          {"comm", "internal/hangcases"},
	"internal/wireup":        {},
	"comm":                   {"comm/internal/audit", "comm/internal/coll", "comm/internal/rails", "comm/internal/userline", "comm/internal/userlog", "pml", "bml", "btl", "btl/loop", "btl/transport", "request", "progress", "internal/wireup", "internal/cgroup", "internal/tunable", "internal/observe", "internal/introspect", "internal/goroutines", "internal/relay", "internal/calls", "comm/internal/record", "internal/profile", "internal/trace", "internal/atomicfile"},
	"comm/internal/record":   {"comm/internal/userline", "internal/calls", "internal/profile", "internal/trace", "pml"},
	"comm/internal/audit":    {}, // what checked mode compares
	"comm/internal/userlog":  {},
	"comm/internal/userline": {}, // the caller's line
	// No Comm, no transport.
	"comm/internal/area":  {"btl", "internal/fence"},
	"comm/internal/coll":  {"comm/internal/area", "pml", "btl", "request", "progress", "internal/calls"},
	"comm/internal/rails": {"comm/internal/userlog", "pml", "btl", "btl/loop", "btl/sm", "btl/tcp", "btl/ibverbs", "btl/transport", "internal/tunable", "internal/wireup"},
	// Introspection of comm's ranks for mpitest.
	"internal/observe":    {},
	"internal/introspect": {"internal/observe"},
	"internal/jobsocket":  {"internal/introspect"},
	"internal/procstate":  {},
	"internal/relay":      {"internal/gate", "internal/introspect", "internal/jobsocket", "internal/procstate"},
	"internal/hangreport": {"internal/calls", "internal/goroutines", "internal/introspect", "internal/observe", "internal/shortpath", "internal/waitgraph"},
	"internal/shortpath":  {},                      // names of source files for reports
	"internal/goroutines": {"internal/introspect"}, // the program's goroutines
	"mpitest":             {"comm", "internal/observe", "internal/introspect", "internal/goroutines", "internal/hangreport"},
	"internal/waitgraph":  {}, // deadlock detection on a graph of waits
	"mpirun-go":           {"internal/wireup", "internal/cgroup", "internal/tunable", "mpirun-go", "internal/rdma", "internal/introspect", "internal/observe", "internal/hangreport", "internal/jobsocket", "internal/procstate", "internal/profile", "internal/trace", "internal/calls", "internal/atomicfile", "internal/gate", "internal/shortpath", "internal/svg", "internal/bench"},
	// Why TCP or verbs cannot be used.
	"mpirun-go/internal/info": {"internal/tunable", "mpirun-go", "internal/rdma", "btl/tcp", "btl/ibverbs/libibverbs"},
	// How TCP chooses and pairs addresses.
	"mpirun-go/internal/doctor": {"internal/wireup", "internal/cgroup", "internal/tunable", "mpirun-go", "internal/rdma", "internal/gate", "btl/tcp"},
	"examples":                  {"comm", "examples"},
	// Programs for the scripts.
	"scripts":                 {"comm", "request", "scripts", "internal/observe", "internal/svg", "btl/ibverbs/verbs"},
	"bench":                   {"internal/bench"},
	"internal/bench":          {"comm", "request", "internal/tunable", "internal/calls"},
	"bench/compare":           {"internal/svg"}, // runs programs
	"internal/svg":            {},               // drawings
	"internal/wireup/interop": {"internal/wireup"},
	"internal/rdma":           {}, // RDMA devices as the kernel describes them
}

func TestImportsGoDown(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	require.NoError(t, err)
	dec := json.NewDecoder(strings.NewReader(string(out)))
	seen := 0
	for {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		from, inside := strings.CutPrefix(pkg.ImportPath, module)
		if !inside {
			continue // the root package
		}
		allowed, known := rule(from)
		if !known {
			t.Errorf("package %s has no rule: add it to mayImport and to ARCHITECTURE.md", from)
			continue
		}
		seen++
		for _, path := range pkg.Imports {
			to, inside := strings.CutPrefix(path, module)
			if inside && to != from && !within(to, allowed) {
				t.Errorf("%s imports %s, which mayImport does not allow", from, to)
			}
		}
	}
	require.Greater(t, seen, 5, "number of packages that go list found")
}

// rule returns the packages that pkg may import. known is false if no rule applies.
func rule(pkg string) (allowed []string, known bool) {
	for p := pkg; ; {
		if allowed, known = mayImport[p]; known {
			return allowed, true
		}
		i := strings.LastIndexByte(p, '/')
		if i < 0 {
			return nil, false
		}
		p = p[:i]
	}
}

// within reports whether pkg is an allowed package or below one. For btl and comm only the package
// itself is allowed.
func within(pkg string, allowed []string) bool {
	for _, a := range allowed {
		if pkg == a || strings.HasPrefix(pkg, a+"/") && a != "btl" && a != "comm" {
			return true
		}
	}
	return false
}
