package mpigo_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// forDevelopers lists the pages, folders and examples for contributors. All others are for users,
// whose programs import package comm alone, and package mpitest in tests.
var forDevelopers = []string{ // never written
	"ARCHITECTURE.md", "CONTRIBUTING.md", // how the library is built and changed
	"CHANGELOG.md",                // names packages of earlier versions too
	"docs/evidence",               // how the library itself is tested and measured
	"comm/fabric_example_test.go", // options for the library's own tests, with their transport
}

func isForDevelopers(file string) bool {
	for f := file; f != "."; f = path.Dir(f) {
		for _, other := range forDevelopers {
			if f == other {
				return true
			}
		}
	}
	return false
}

var (
	// goBlockPattern finds the blocks of Go in a page.
	goBlockPattern = regexp.MustCompile("(?ms)^ *```go\n(.*?)^ *```")
	// importPattern finds the packages of this module that Go text names by their paths.
	importPattern = regexp.MustCompile(`"` + regexp.QuoteMeta(module) + `([\w/]+)"`)
	// selectorPattern finds pkg.Name.
	selectorPattern = regexp.MustCompile(`\b([a-z]\w*)\.([A-Z]\w*)`)
)

func TestExamplesImportOnlyComm(t *testing.T) {
	seen := 0
	for _, file := range filesWith(t, ".go") {
		isExample := strings.HasPrefix(file, "examples/") || strings.HasSuffix(file, "example_test.go") &&
			(strings.HasPrefix(file, "comm/") || strings.HasPrefix(file, "mpitest/"))
		if !isExample || isForDevelopers(file) {
			continue
		}
		seen++
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, imp := range f.Imports {
			name, err := strconv.Unquote(imp.Path.Value)
			require.NoError(t, err)
			pkg, isOurs := strings.CutPrefix(name, module)
			ofExamples := strings.HasPrefix(file, "examples/") && strings.HasPrefix(pkg, "examples/")
			if isOurs && !ofExamples && !isForPrograms(pkg, strings.HasSuffix(file, "_test.go")) {
				t.Errorf("%s imports %s: an example imports comm alone, and mpitest in a test", file, pkg)
			}
		}
	}
	require.Greater(t, seen, 20, "number of files")
}

func TestPagesUseOnlyComm(t *testing.T) {
	names := map[string]bool{} // of the packages that no page should need
	for pkg := range mayImport {
		if !isForPrograms(pkg, true) {
			names[path.Base(pkg)] = true
		}
	}
	require.True(t, names["request"] && names["pml"] && names["loop"])
	pages, blocks := 0, 0
	for _, file := range filesWith(t, ".md") {
		if isForDevelopers(file) {
			continue
		}
		pages++
		text := readText(t, file)
		for _, m := range goBlockPattern.FindAllStringSubmatch(text, -1) {
			blocks++
			for _, imp := range importPattern.FindAllStringSubmatch(m[1], -1) {
				assert.True(t, isForPrograms(imp[1], true), "%s: a block of Go imports %s", file, imp[1])
			}
			for _, s := range selectorPattern.FindAllStringSubmatch(m[1], -1) {
				assert.False(t, names[s[1]], "%s: a block of Go uses %s", file, s[0])
			}
		}
		for _, m := range namePattern.FindAllStringSubmatch(text, -1) {
			if s := selectorPattern.FindString(m[0]); s != "" { // settings are in lower case
				assert.False(t, names[m[1]], "%s names %s", file, s)
			}
		}
	}
	require.Greater(t, pages, 20, "number of pages")
	require.Greater(t, blocks, 2, "number of blocks of Go")
}

// isForPrograms reports whether a program, or the test of one, should import a package.
func isForPrograms(pkg string, inTest bool) bool { return pkg == "comm" || inTest && pkg == "mpitest" }

// filesWith lists the files below the root whose names end in ext, without hidden folders.
func filesWith(t *testing.T, ext string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case !d.IsDir() && filepath.Ext(file) == ext:
			files = append(files, filepath.ToSlash(file))
		}
		return nil
	}))
	return files
}
