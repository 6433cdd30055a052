package mpitest_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryPublicCallHasAnExample: each exported function has an example with its name, with
// output.
func TestEveryPublicCallHasAnExample(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	calls, hasOutput := 0, map[string]bool{}
	for _, isTest := range []bool{true, false} {
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") != isTest {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution|parser.ParseComments)
			require.NoError(t, err)
			for _, e := range doc.Examples(f) {
				hasOutput[e.Name] = e.Output != ""
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && !isTest && fn.Recv == nil && fn.Name.IsExported() {
					calls++
					assert.True(t, hasOutput[fn.Name.Name], "there is no Example%s with output", fn.Name.Name)
				}
			}
		}
	}
	require.GreaterOrEqual(t, calls, 5)
}
