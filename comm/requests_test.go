package comm_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
)

// ofEngine lists the names that package request exports for the layers above it, and not for
// programs. All other names are in package comm too.
var ofEngine = map[string]bool{ // never written
	"Empty": true, "WholeElements": true, "Object": true, "Operation": true, "Shortcut": true, "Auditor": true,
	"Pool": true, "State": true, "Idle": true, "Inactive": true, "Active": true, "Complete": true,
}

func TestPackageCommHasAllThatProgramsNeedOfRequest(t *testing.T) {
	inComm := exportedNames(t, ".")
	ofRequest := exportedNames(t, "../request")
	require.Contains(t, ofRequest, "WaitAll")
	for name := range ofRequest {
		if !ofEngine[name] {
			assert.NotZero(t, inComm[name], "package comm lacks %s, which package request exports", name)
		}
	}
	for name := range ofEngine {
		assert.NotZero(t, ofRequest[name], "package request does not export %s", name)
	}
}

// TestEachCallOnRequestsHasItsExample: go doc and pkg.go.dev show an example with the name of a
// function, type or method beside it.
func TestEachCallOnRequestsHasItsExample(t *testing.T) {
	examples := map[string]bool{}
	for _, f := range goFiles(t, ".", true) {
		for _, d := range f.Decls {
			if fn, isFunc := d.(*ast.FuncDecl); isFunc {
				examples[fn.Name.Name] = true
			}
		}
	}
	for name, kind := range exportedNames(t, "../request") {
		if isCall := kind == token.FUNC || kind == token.TYPE; isCall && !ofEngine[name] {
			assert.True(t, examples["Example"+name], "Example%s", name)
		}
	}
	typ := reflect.TypeFor[comm.Request]()
	require.Positive(t, typ.NumMethod())
	for m := range typ.Methods() {
		assert.True(t, examples["ExampleRequest_"+m.Name], "ExampleRequest_%s", m.Name)
	}
}

// exportedNames returns the functions, types, constants and variables that a package exports, each
// with the keyword of its declaration.
func exportedNames(t *testing.T, dir string) map[string]token.Token {
	t.Helper()
	names := map[string]token.Token{}
	add := func(id *ast.Ident, kind token.Token) {
		if id.IsExported() {
			names[id.Name] = kind
		}
	}
	for _, f := range goFiles(t, dir, false) {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name, token.FUNC)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						add(s.Name, d.Tok)
					case *ast.ValueSpec:
						for _, id := range s.Names {
							add(id, d.Tok)
						}
					}
				}
			}
		}
	}
	return names
}

// goFiles parses the test files of a package, or the others. Files that this version of Go does not
// compile, and generated ones, are left out.
func goFiles(t *testing.T, dir string, tests bool) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") != tests {
			continue
		}
		if compiles, err := build.Default.MatchFile(filepath.Split(name)); err != nil || !compiles {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution|parser.ParseComments)
		require.NoError(t, err)
		if ast.IsGenerated(f) {
			continue
		}
		files = append(files, f)
	}
	return files
}
