package mpigo_test

import (
	"go/ast"
	"go/build"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/tunable"
)

var (
	// filePattern finds "path/file.go" and "path/file.go:Func" or "path/file.go:Type.Method".
	filePattern = regexp.MustCompile(`\b([\w-]+(?:/[\w-]+)*\.go)(?::([\w.]*\w))?`)
	// namePattern finds `pkg.Name` and `pkg.Type.Method` in backquotes.
	namePattern = regexp.MustCompile("`([a-z]+)\\.([A-Za-z]\\w*(?:\\.\\w+)?)`")
	// fencePattern finds the text between two lines of three backquotes.
	fencePattern = regexp.MustCompile("(?s)```\n(.*?)```")
	// tunablePattern finds `key` in backquotes, and the mark behind it.
	tunablePattern = regexp.MustCompile("`([a-z.]+)`( †)?")
)

func TestArchitectureNamesWhatExists(t *testing.T) {
	text := readText(t, "ARCHITECTURE.md")
	files := filePattern.FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, files)
	for _, m := range files {
		names, err := declaredIn(m[1])
		if err != nil {
			t.Errorf("ARCHITECTURE.md names a file: %v", err)
		} else if m[2] != "" && !names[m[2]] {
			t.Errorf("ARCHITECTURE.md names %s, but %s does not declare %s", m[0], m[1], m[2])
		}
	}
	names := namePattern.FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, names)
	for _, m := range names {
		if !packageDeclares(t, m[1], m[2]) {
			t.Errorf("ARCHITECTURE.md names %s, which package %s does not declare", m[0], m[1])
		}
	}
}

func TestArchitectureListsPackages(t *testing.T) {
	_, table, found := strings.Cut(readText(t, "ARCHITECTURE.md"), "## Packages\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	listed := map[string]bool{}
	for row := range strings.Lines(table) {
		if cells := strings.Split(row, "|"); len(cells) > 1 {
			for pkg := range strings.SplitSeq(cells[1], ",") {
				listed[strings.TrimSpace(pkg)] = true
			}
		}
	}
	for pkg := range mayImport {
		p := pkg
		for p != "." && !listed[p] {
			p = path.Dir(p) // a row stands for the folders below it, too
		}
		if p == "." {
			t.Errorf("the table of packages in ARCHITECTURE.md has no row for %s", pkg)
		}
	}
}

func TestArchitectureHasPeerTableOfBML(t *testing.T) {
	const head = "from        to          when\n"
	var table string
	for _, m := range fencePattern.FindAllStringSubmatch(readText(t, "ARCHITECTURE.md"), -1) {
		if strings.HasPrefix(m[1], head) {
			table = m[1]
		}
	}
	require.NotEmpty(t, table, "no table of a peer's transitions in ARCHITECTURE.md")
	var inCode strings.Builder
	for line := range strings.Lines(readText(t, "bml/doc.go")) {
		isRow := strings.HasPrefix(line, "//\t")
		line = strings.TrimPrefix(line, "//\t")
		switch {
		case inCode.Len() == 0 && line == head, inCode.Len() > 0 && isRow:
			inCode.WriteString(line)
		case inCode.Len() > 0:
			require.Equal(t, inCode.String(), table, "bml/doc.go and ARCHITECTURE.md")
			return
		}
	}
	require.Fail(t, "no table of a peer's transitions in bml/doc.go")
}

// TestReadmeShowsPartOfAnExample: the persistent requests in README.md are part of an example that
// is compiled and run.
func TestReadmeShowsPartOfAnExample(t *testing.T) {
	_, snippet, found := strings.Cut(readText(t, "README.md"), "```go\nrecv, err := ")
	require.True(t, found)
	snippet, _, _ = strings.Cut("recv, err := "+snippet, "```")
	var indented strings.Builder
	for line := range strings.Lines(snippet) {
		indented.WriteString("\t\t" + line)
	}
	require.Contains(t, readText(t, "comm/example_test.go"), indented.String())
}

// TestProgramOfFirstPageRuns: the program in the comment of the root package runs as one rank, and
// is the one of the package's example.
func TestProgramOfFirstPageRuns(t *testing.T) {
	var program strings.Builder
	for line := range strings.Lines(readText(t, "doc.go")) {
		if code, isCode := strings.CutPrefix(line, "//\t"); isCode || line == "//\n" && program.Len() > 0 {
			program.WriteString(strings.TrimPrefix(code, "//"))
		}
	}
	text := strings.TrimSpace(program.String()) + "\n"
	formatted, err := format.Source([]byte(text))
	require.NoError(t, err)
	require.Equal(t, text, string(formatted))
	_, body, found := strings.Cut(text, "world *comm.Comm) error {\n")
	require.True(t, found)
	body, _, _ = strings.Cut(body, "\t})\n")
	require.Contains(t, readText(t, "example_test.go"), body)
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	out, err := exec.Command("go", "run", file).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "the sum over 1 ranks is 1\n", string(out))
}

// TestTunablesPageHasDefaultsAndMarks: the page marks the tunables whose description says that
// all ranks have the same value.
func TestTunablesPageHasDefaultsAndMarks(t *testing.T) {
	marked, defaults := map[string]bool{}, map[string]string{}
	for row := range strings.Lines(readText(t, "docs/tunables.md")) {
		if cells := strings.Split(row, "|"); len(cells) > 2 {
			keys := tunablePattern.FindAllStringSubmatch(cells[1], -1)
			for _, m := range keys {
				marked[m[1]] = m[2] != ""
				if len(keys) == 1 {
					defaults[m[1]] = strings.Trim(cells[2], " `")
				}
			}
		}
	}
	for _, row := range tunable.All() {
		is, listed := marked[row.Key]
		require.True(t, listed, "docs/tunables.md lists %s", row.Key)
		require.Equal(t, strings.Contains(row.Doc, "the same at all ranks"), is, "docs/tunables.md marks %s", row.Key)
		if shown, single := defaults[row.Key]; single && shown != "unset" {
			require.Equal(t, row.Default, shown, "docs/tunables.md: default of %s", row.Key)
		}
	}
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// packageDeclares reports whether a package in a folder of the root declares a name.
func packageDeclares(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.go")
	require.NoError(t, err)
	for _, file := range files {
		if compiles, err := build.Default.MatchFile(filepath.Split(file)); err != nil || !compiles {
			continue // package parser may not know the language of a file for later versions of Go
		}
		names, err := declaredIn(file)
		require.NoError(t, err)
		if names[name] {
			return true
		}
	}
	return false
}

// declaredIn returns the names that a file declares: functions, types, constants and variables, and
// as Type.Method the methods of types and interfaces.
func declaredIn(file string) (map[string]bool, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			names[receiverPrefix(d)+d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				addNames(names, spec)
			}
		}
	}
	return names, nil
}

// receiverPrefix is "Type." for a method, and "" for a function.
func receiverPrefix(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.Ident:
			return x.Name + "."
		default:
			return ""
		}
	}
}

func addNames(names map[string]bool, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			names[name.Name] = true
		}
	case *ast.TypeSpec:
		names[s.Name.Name] = true
		i, isInterface := s.Type.(*ast.InterfaceType)
		if !isInterface {
			return
		}
		for _, method := range i.Methods.List {
			for _, name := range method.Names {
				names[s.Name.Name+"."+name.Name] = true
			}
		}
	}
}
