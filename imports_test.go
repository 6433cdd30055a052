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

// mayImport is the architecture: what each part may import of this module. Imports go
// down only. A folder not named here is covered by the longest prefix that is. Tests may
// import what they like.
var mayImport = map[string][]string{
	"progress":                       {},
	"internal/tunable":               {},
	"request":                        {"progress"},
	"btl":                            {"progress"},
	"btl/base":                       {"btl"},
	"btl/transport":                  {"btl", "progress", "internal/tunable"},
	"btl/btltest":                    {"btl", "btl/faults", "progress"},
	"btl/faults":                     {"btl", "progress"},
	"btl/tcp":                        {"btl", "btl/base", "btl/transport", "internal/tunable", "progress"},
	"btl/ibverbs":                    {"btl", "btl/base", "btl/transport", "btl/ibverbs/libibverbs", "internal/tunable", "btl/ibverbs/verbs", "progress"},
	"btl/ibverbs/libibverbs":         {"btl/ibverbs/verbs", "internal/rdma"},
	"btl/ibverbs/simhca":             {"btl/ibverbs/verbs"},
	"btl/ibverbs/verbs":              {},
	"btl/ibverbs/internal/verbstest": {"btl/ibverbs/verbs"},
	"btl/loop":                       {"btl", "btl/base", "btl/transport", "progress"},
	"btl/sm":                         {"btl", "btl/base", "btl/transport", "progress"},
	"pml":                            {"btl", "request", "progress"},
	"internal/simulation":            {"pml", "btl", "btl/faults", "btl/loop", "btl/ibverbs", "btl/tcp", "request", "progress"}, // a harness
	"scripts/simulate":               {"internal/simulation"},
	"internal/wireup":                {},
	"comm":                           {"pml", "btl", "btl/loop", "btl/transport", "comm/internal/rails", "request", "progress", "internal/wireup", "internal/tunable", "internal/observe"},
	"comm/internal/rails":            {"pml", "btl", "btl/loop", "btl/sm", "btl/tcp", "btl/ibverbs", "btl/transport", "internal/tunable", "internal/wireup"},
	"internal/observe":               {"btl/ibverbs/verbs"}, // what mpitest sees of comm's ranks
	"mpitest":                        {"comm", "request", "internal/observe", "internal/waitgraph"},
	"internal/waitgraph":             {}, // deadlocks, from who waits for whom
	"mpirun-go":                      {"internal/wireup", "internal/tunable", "mpirun-go", "internal/rdma"},
	"examples":                       {"comm", "request", "examples", "btl/loop"},
	"scripts":                        {"comm", "request", "internal/observe", "btl/ibverbs/verbs"}, // programs that the scripts run
	"bench":                          {"comm", "request", "internal/tunable"},
	"bench/compare":                  {}, // it runs programs
	"internal/wireup/interop":        {"internal/wireup"},
	"internal/rdma":                  {}, // what the kernel tells of RDMA devices
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
			continue // the root
		}
		allowed, known := rule(from)
		if !known {
			t.Errorf("package %s has no place in the architecture: add it to mayImport and to ARCHITECTURE.md", from)
			continue
		}
		seen++
		for _, path := range pkg.Imports {
			to, inside := strings.CutPrefix(path, module)
			if inside && to != from && !within(to, allowed) {
				t.Errorf("%s imports %s, which the architecture does not allow", from, to)
			}
		}
	}
	require.Greater(t, seen, 5, "go list found too few packages")
}

// rule is what a package may import.
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

// within reports whether pkg is one of the allowed packages. Only mpirun-go and the
// examples may have parts below them; elsewhere a folder stands for itself.
func within(pkg string, allowed []string) bool {
	for _, a := range allowed {
		if pkg == a || strings.HasPrefix(pkg, a+"/") && a != "btl" && a != "comm" {
			return true
		}
	}
	return false
}
