package calls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noCalls are exported functions and methods of comm and request that are none of MPI's and name no
// operation: what only Go needs, and what asks the library about itself.
var noCalls = []string{
	// running, and options
	"Run", "RunContext", "RunLocal", "ParseFlags", "OnFabric", "WithFabric", "WithSetting", "WithGrace", "WithLogger", "WithRails", "WithTransports", "InRankOrder",
	// operations of reductions
	"Band", "Bor", "Bxor", "Land", "Lor", "Lxor", "Max", "MaxLoc", "Min", "MinLoc", "Prod", "Sum",
	"Comm.Events", "Comm.Rails", "Comm.Stats", "Comm.TagUB", "Comm.WithContext",
	"WaitAllStatus", "Request.WaitContext", // forms of WaitAll and Wait
	"Request.Done", "Request.IsActive", "Request.IsNull", "Request.IsPersistent", "Empty", "WholeElements",
}

// TestTableHasEveryExportedCall: a function of comm or request, or a method of one of their
// handles, is in the table, and the table has no others.
func TestTableHasEveryExportedCall(t *testing.T) {
	exported := make(map[string]bool)
	for _, dir := range []string{"../../comm", "../../request"} {
		maps.Copy(exported, exportedIn(t, dir))
	}
	require.Greater(t, len(exported), 150)
	inTable := make(map[string]bool)
	for _, id := range All() {
		if name := table[id].name; name != "" {
			inTable[name] = true
			assert.True(t, exported[name], "comm and request do not export %s, which is in the table", name)
		}
	}
	for name := range exported {
		isCall := !slices.Contains(noCalls, name)
		assert.Equal(t, isCall, inTable[name], "%s is exported: it belongs either into the table of calls (table.go), or into noCalls (table_test.go)", name)
	}
	for _, name := range noCalls {
		assert.True(t, exported[name], "comm and request do not export %s, which is in noCalls", name)
	}
}

// exportedIn returns the exported functions of a package, and as Type.Method the exported methods
// of handles.
func exportedIn(t *testing.T, dir string) map[string]bool {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	names := make(map[string]bool)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, "_go127.go") {
			continue // methods of the same names as functions
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			fn, isFunc := d.(*ast.FuncDecl)
			if !isFunc || !fn.Name.IsExported() {
				continue
			}
			name := fn.Name.Name
			if fn.Recv != nil {
				on := fn.Recv.List[0].Type
				if star, isPointer := on.(*ast.StarExpr); isPointer {
					on = star.X
				}
				handle, _ := on.(*ast.Ident)
				if handle == nil || !slices.Contains([]string{"Comm", "Group", "Message", "Request"}, handle.Name) {
					continue
				}
				name = handle.Name + "." + name
			}
			names[name] = true
		}
	}
	return names
}

func TestNamesOfTableAreUnique(t *testing.T) {
	for what, of := range map[string]func(ID) string{
		"Go":     func(id ID) string { return table[id].name },
		"MPI":    ID.MPI,
		"errors": ID.String,
	} {
		seen := make(map[string]ID)
		for _, id := range All() {
			name := of(id)
			if other, taken := seen[name]; taken && name != "" {
				t.Errorf("%s: calls %d and %d are both called %s", what, other, id, name)
			}
			seen[name] = id
		}
	}
}

func TestEveryConstantHasItsRow(t *testing.T) {
	for i, r := range rows {
		assert.Equal(t, ID(i), r.id, "row %d, %s", i, r.name)
	}
}

func TestNamedFindsEveryName(t *testing.T) {
	for _, id := range All() {
		if id.String() != "" {
			assert.Equal(t, id, Named(id.String()))
		}
	}
	assert.Equal(t, None, Named(""))
	assert.Equal(t, None, Named("rotate"))
	assert.Equal(t, "rotate", GoName("rotate"), "a file of another version")
}

func TestFormsOfCollectives(t *testing.T) {
	block := ReduceScatterBlock
	for form, want := range [forms][3]string{
		Blocking:    {"ReduceScatterBlock", "MPI_Reduce_scatter_block", "reducescatterblock"},
		Nonblocking: {"IreduceScatterBlock", "MPI_Ireduce_scatter_block", "ireducescatterblock"},
		Persistent:  {"ReduceScatterBlockInit", "MPI_Reduce_scatter_block_init", "reducescatterblock init"},
		Started:     {"", "", "persistent reducescatterblock"},
	} {
		id := block.In(Form(form))
		assert.Equal(t, want, [3]string{id.Go(), id.MPI(), id.String()})
		assert.Equal(t, block, id.Base())
		assert.Equal(t, Form(form), id.Form())
		assert.Equal(t, block.NeedsAll(), id.NeedsAll())
		for other := range forms {
			assert.Equal(t, block.In(other), id.In(other), "from %v", id)
		}
	}
	assert.Equal(t, "Ibarrier", Barrier.In(Nonblocking).Go())
	assert.Equal(t, Idup, Dup.In(Nonblocking))
	assert.Equal(t, Dup, Dup.In(Persistent), "there is no such form")
	assert.Equal(t, Send, Send.In(Nonblocking), "it is no collective")
}

func TestCallsThatBeginOperations(t *testing.T) {
	for _, id := range []ID{Isend, Imrecv, Isendrecv, Idup, Start, StartAll, Barrier.In(Nonblocking)} {
		assert.True(t, id.Begins(), id)
	}
	for _, id := range []ID{Send, Iprobe, Improbe, SendInit, Wait, Init, Barrier, Barrier.In(Persistent)} {
		assert.False(t, id.Begins(), id)
	}
}

// TestFeaturesListCollectives: docs/features.md names each collective. Gather(v) stands for Gather
// and Gatherv.
func TestFeaturesListCollectives(t *testing.T) {
	text, err := os.ReadFile("../../docs/features.md")
	require.NoError(t, err)
	_, row, found := strings.Cut(string(text), "\n| collectives | ")
	require.True(t, found)
	row, _, _ = strings.Cut(row, "\n")
	var listed []string
	for _, word := range strings.FieldsFunc(row, func(r rune) bool { return strings.ContainsRune(" ,;|", r) }) {
		name, hasV := strings.CutSuffix(word, "(v)")
		listed = append(listed, name)
		if hasV {
			listed = append(listed, name+"v")
		}
	}
	for _, id := range All() {
		if id.HasAllForms() && id.Form() == Blocking {
			assert.Contains(t, listed, id.Go(), "%s is missing in the row of collectives in docs/features.md", id.Go())
		}
	}
}

func TestLookAtTableAllocatesNothing(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_ = ReduceScatter.In(Nonblocking).String()
		_ = Named("persistent neighboralltoallv")
	}))
}
