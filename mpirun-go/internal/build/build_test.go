package build

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// writeTree creates files in a new directory and changes to it.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		mode := os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
	}
	t.Chdir(dir)
	return dir
}

func TestFindResolvesProgram(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"bin/tool": "#!/bin/sh", "bin/both": "#!/bin/sh", "both/main.go": "package main", "script": "#!/bin/sh", "data": "text",
		"prog/main.go": "package main", "runme.go": "#!/bin/sh",
	})
	t.Setenv("PATH", filepath.Join(dir, "bin"))
	for name, want := range map[string]Program{
		"tool":               {Path: filepath.Join(dir, "bin/tool")},
		"both":               {Path: filepath.Join(dir, "bin/both")},
		"./both":             {Package: "./both"},
		"./script":           {Path: filepath.Join(dir, "script")},
		"bin/tool":           {Path: filepath.Join(dir, "bin/tool")},
		dir + "/script":      {Path: filepath.Join(dir, "script")},
		"prog":               {Package: "prog"},
		"./prog":             {Package: "./prog"},
		".":                  {Package: "."},
		"prog/main.go":       {Package: "prog/main.go"},
		"./runme.go":         {Path: filepath.Join(dir, "runme.go")},
		"example.com/m/prog": {Package: "example.com/m/prog"},
	} {
		got, err := Find(name)
		require.NoError(t, err, name)
		assert.Equal(t, want, got, name)
	}
	for name, want := range map[string]error{
		"": ErrNotFound, "nothing": ErrNotFound, "script": ErrNotFound, "./nothing": ErrNotFound, "/nothing": ErrNotFound,
		"missing.go": ErrNotFound, "../nothing.go": ErrNotFound, "./data": ErrNotExecutable, "/dev/null": ErrNotExecutable,
	} {
		_, err := Find(name)
		assert.ErrorIs(t, err, want, name)
		assert.NotContains(t, err.Error(), "\n")
	}
}

func TestBuildDirOfOtherModule(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"go.mod": "module m", "prog/main.go": "package main", "other/go.mod": "module o", "other/x/main.go": "package main",
	})
	for pkg, want := range map[string][2]string{
		"./prog":          {"", "./prog"},
		"prog":            {"", "./prog"},
		dir + "/prog":     {"", dir + "/prog"},
		"prog/main.go":    {"", "prog/main.go"},
		"./other/x":       {"./other/x", "."},
		"other/x/main.go": {"other/x", "main.go"},
		"example.com/x/y": {"", "example.com/x/y"},
	} {
		in, target := buildDir(pkg)
		assert.Equal(t, want, [2]string{in, target}, pkg)
	}
}

// fakeGo installs a shell script as the go command in PATH.
func fakeGo(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestBuildReportsGoOutput(t *testing.T) {
	dir := writeTree(t, map[string]string{"prog/main.go": "package main"})
	into := t.TempDir()

	fakeGo(t, `echo "$@" in $PWD; echo warned >&2; echo >$3/prog`)
	var output bytes.Buffer
	path, err := Build(context.Background(), "./prog", "", into, nil, &output)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(into, "prog"), path)
	assert.Equal(t, "build -o "+into+"/ -- . in "+dir+"/prog\nwarned\n", output.String())

	fakeGo(t, `echo "$@" >&2; echo >$4/prog`)
	output.Reset()
	_, err = Build(context.Background(), "./prog", "a,b -x", t.TempDir(), nil, &output)
	require.NoError(t, err)
	assert.Contains(t, output.String(), "build -tags=a,b -x -o ")
	fakeGo(t, "echo main.go:1: wrong; exit 1")
	_, err = Build(context.Background(), "./prog", "", into, nil, &output)
	require.ErrorIs(t, err, ErrCompile)
	assert.EqualError(t, err, "./prog: the Go package does not build\nmain.go:1: wrong")

	fakeGo(t, "exit 0")
	_, err = Build(context.Background(), "./prog", "", t.TempDir(), nil, &output)
	assert.ErrorContains(t, err, "not a main package")

	for script, why := range map[string]string{
		"exit 1": "exit status 1",
		"echo 'go: no required module;' >&2; printf '\tgo get it\n' >&2; exit 1": "go: no required module; go get it",
	} {
		fakeGo(t, script)
		_, err = Build(context.Background(), "no/such", "", into, nil, &output)
		assert.ErrorIs(t, err, ErrNotFound)
		assert.EqualError(t, err, "no/such: not found: neither a file nor a Go package: "+why)
	}
}

func TestBuildEndsWithContext(t *testing.T) {
	dir := writeTree(t, map[string]string{"prog/main.go": "package main"})
	fakeGo(t, "echo >"+dir+"/started; exec sleep 1000")
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		for {
			if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
				cancel(interrupted)
				return
			}
		}
	}()
	_, err := Build(ctx, "./prog", "", t.TempDir(), nil, &bytes.Buffer{})
	assert.Equal(t, interrupted, err)
}
