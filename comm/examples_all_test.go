package comm_test

import (
	"go/ast"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryPublicCallHasAnExample: each exported function and method of the package is used in an
// example. An example without output, which go test only compiles, serves for calls that end the
// process or need a launcher.
func TestEveryPublicCallHasAnExample(t *testing.T) {
	used := map[string]bool{}
	for _, f := range goFiles(t, ".", true) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Example") {
				ast.Inspect(fn, func(n ast.Node) bool {
					if sel, ok := n.(*ast.SelectorExpr); ok {
						used[sel.Sel.Name] = true
					}
					return true
				})
			}
		}
	}
	calls := 0
	for _, f := range goFiles(t, ".", false) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() || fn.Recv != nil && !hasExamples(fn.Recv.List[0].Type) {
				continue
			}
			calls++
			assert.True(t, used[fn.Name.Name], "%s has no example", fn.Name.Name)
		}
	}
	require.Greater(t, calls, 70)
}

// hasExamples reports whether the calls of a type need examples.
func hasExamples(t ast.Expr) bool {
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	name, ok := t.(*ast.Ident)
	return ok && (name.Name == "Comm" || name.Name == "Message" || name.Name == "Group")
}
