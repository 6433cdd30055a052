package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const file = "../../comm/methods_go127.go"

func TestFileIsUpToDate(t *testing.T) {
	want, err := generate("../../comm")
	require.NoError(t, err)
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "run: go generate ./comm")
}

// TestEveryFunctionOfCommHasMethod parses the file on its own. The parser of Go 1.26 reports the
// type parameters of methods, and only these, and goes on.
func TestEveryFunctionOfCommHasMethod(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution|parser.ParseComments|parser.AllErrors)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			assert.Contains(t, line, "method must have no type parameters")
		}
	}
	methods := map[string]*ast.FuncDecl{}
	for _, d := range f.Decls {
		fn := d.(*ast.FuncDecl)
		require.NotNil(t, fn.Recv)
		methods[fn.Name.Name] = fn
	}
	all, err := functions("../../comm")
	require.NoError(t, err)
	assert.Greater(t, len(all), 70)
	assert.Len(t, methods, len(all))
	for _, fn := range all {
		m := methods[fn.Name.Name]
		if assert.NotNil(t, m, fn.Name.Name) {
			assert.Contains(t, m.Doc.Text(), "["+fn.Name.Name+"]")
			assert.Equal(t, fn.Type.Params.NumFields()-1, m.Type.Params.NumFields(), fn.Name.Name)
			assert.Equal(t, fn.Type.Results.NumFields(), m.Type.Results.NumFields(), fn.Name.Name)
		}
	}
}

func TestDirectoryWithoutFunctionsOfCommIsRefused(t *testing.T) {
	_, err := generate(t.TempDir())
	assert.Error(t, err)
}
