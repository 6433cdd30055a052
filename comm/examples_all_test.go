package comm_test

import (
	"go/ast"
	"go/doc"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withoutOutput lists the calls whose examples are only compiled, because they end the process or
// need a launcher. It is never written.
var withoutOutput = []string{"Run", "WithTransports", "WithLogger", "Init", "Comm_Finalize", "Comm_Abort"}

// TestEveryPublicCallHasAnExample: each exported function of the package, options included, and
// each method of a handle has an example under its own name, with output that go test compares.
func TestEveryPublicCallHasAnExample(t *testing.T) {
	hasOutput := map[string]bool{} // by call, of those that have an example
	for _, f := range goFiles(t, ".", true) {
		for _, e := range doc.Examples(f) {
			hasOutput[e.Name] = hasOutput[e.Name] || e.Output != ""
		}
	}
	calls := 0
	for _, f := range slices.Concat(goFiles(t, ".", false), goFiles(t, "../request", false)) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() {
				continue
			}
			name := fn.Name.Name
			switch {
			case fn.Recv == nil && f.Name.Name == "request":
				continue // comm has its own of the same name, or programs do not need it
			case fn.Recv != nil:
				handle := handleOf(fn.Recv.List[0].Type)
				if handle == "" {
					continue
				}
				name = handle + "_" + name
			}
			calls++
			output, exists := hasOutput[name]
			assert.True(t, exists, "there is no Example%s", name)
			assert.Equal(t, !slices.Contains(withoutOutput, name), output, "whether Example%s has output", name)
		}
	}
	require.Greater(t, calls, 150)
}

// handleOf is the name of the type of a receiver, if its methods need examples, or "".
func handleOf(t ast.Expr) string {
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if name, ok := t.(*ast.Ident); ok && slices.Contains([]string{"Comm", "Message", "Group", "Request"}, name.Name) {
		return name.Name
	}
	return ""
}
