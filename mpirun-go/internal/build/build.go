// Package build turns PROGRAM into something that can be executed: a file as it
// is, a name looked up in PATH, or a Go package built first.
package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// What is wrong with a PROGRAM.
var (
	ErrNotFound      = errors.New("not found")                     // exit status 127
	ErrNotExecutable = errors.New("not executable")                // exit status 126
	ErrCompile       = errors.New("the Go package does not build") // exit status 1
)

// Program is a PROGRAM found.
type Program struct {
	Path    string // what to execute, absolute
	Package string // what to build first: an import path, a directory or a .go file; "" if Path exists already
}

// Find decides what name means: a file or directory if it is written like a
// path, else a command in PATH, else a directory or an import path. The error Is
// ErrNotFound or ErrNotExecutable.
func Find(name string) (Program, error) {
	if name == "" {
		return Program{}, fmt.Errorf("%w: the name is empty", ErrNotFound)
	}
	if !strings.ContainsRune(name, '/') && name != "." && name != ".." {
		path, err := exec.LookPath(name)
		if err == nil {
			return absolute(path)
		}
		if strings.HasSuffix(name, ".go") {
			return findFile(name)
		}
		info, statErr := os.Stat(name)
		switch {
		case statErr == nil && info.IsDir():
			return Program{Package: name}, nil
		case errors.Is(err, fs.ErrPermission):
			return Program{}, fmt.Errorf("%s: %w", name, ErrNotExecutable)
		case statErr == nil:
			return Program{}, fmt.Errorf("%s: %w in PATH; ./%s is a file here", name, ErrNotFound, name)
		}
		return Program{}, fmt.Errorf("%s: %w in PATH", name, ErrNotFound)
	}
	return findFile(name)
}

func findFile(name string) (Program, error) {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return Program{Package: name}, nil
	case err == nil && strings.HasSuffix(name, ".go") && info.Mode()&0o111 == 0:
		return Program{Package: name}, nil
	case err == nil && !info.Mode().IsRegular():
		return Program{}, fmt.Errorf("%s: %w: neither a file nor a directory", name, ErrNotExecutable)
	case err == nil && syscall.Access(name, 1) != nil: // X_OK
		return Program{}, fmt.Errorf("%s: %w: no permission", name, ErrNotExecutable)
	case err == nil:
		return absolute(name)
	case errors.Is(err, fs.ErrPermission):
		return Program{}, fmt.Errorf("%s: %w: no permission to look", name, ErrNotExecutable)
	case isImportPath(name):
		return Program{Package: name}, nil
	}
	return Program{}, fmt.Errorf("%s: %w: no such file or directory", name, ErrNotFound)
}

func absolute(path string) (Program, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Program{}, fmt.Errorf("%s: %w: %v", path, ErrNotFound, err)
	}
	return Program{Path: abs}, nil
}

// isImportPath tells what can only be a Go package from a path that does not
// exist. Whether there is such a package, go says.
func isImportPath(name string) bool {
	return !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "./") && !strings.HasPrefix(name, "../") &&
		!strings.HasSuffix(name, ".go")
}

// Build builds pkg with the user's go (GOFLAGS and all) and tags, unless these are "", into the directory
// into, and returns the binary's path. What the compiler says goes to output
// after one line that says what failed; then the error Is ErrCompile. It Is
// ErrNotFound if there is no such package or no go, and the context's if that ended.
//
// env, NAME=VALUE, changes the environment of go and of what go starts. The kernel ends
// go with this process, but not the compilers: env is what one can find these by.
func Build(ctx context.Context, pkg, tags, outDir string, env []string, output io.Writer) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("%s: %w: it is no file, and there is no go command to build it with", pkg, ErrNotFound)
	}
	runtime.LockOSThread() // see goCommand
	defer runtime.UnlockOSThread()
	dir, target := buildDir(pkg)
	if dir == "" && target == pkg && isImportPath(pkg) {
		if _, err := os.Stat(pkg); err != nil {
			goOutput, err := goCommand(ctx, "", env, withTags(tags, "list", "--", target)...).CombinedOutput()
			if ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
			if err != nil {
				return "", fmt.Errorf("%s: %w: neither a file nor a Go package: %s", pkg, ErrNotFound, failureText(goOutput, err))
			}
		}
	}
	goOutput, err := goCommand(ctx, dir, env, withTags(tags, "build", "-o", outDir+"/", "--", target)...).CombinedOutput()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", &CompileError{Package: pkg, Output: strings.TrimSpace(string(goOutput))}
	}
	if len(goOutput) > 0 { // downloads and the like
		_, _ = output.Write(goOutput)
	}
	return onlyFile(pkg, outDir)
}

// withTags puts the flag -tags after go's subcommand.
func withTags(tags, subcommand string, args ...string) []string {
	if tags == "" {
		return append([]string{subcommand}, args...)
	}
	return append([]string{subcommand, "-tags=" + tags}, args...)
}

// inOneLine is why go has failed: in its own words, if it said any.
func failureText(said []byte, err error) string {
	if words := strings.Fields(string(said)); len(words) > 0 {
		return strings.Join(words, " ")
	}
	return err.Error()
}

// CompileError says that a package does not build. It Is ErrCompile.
type CompileError struct {
	Package string
	Output  string // go's own words, several lines
}

// Error is one line that says what failed, then go's own words.
func (e *CompileError) Error() string {
	return fmt.Sprintf("%s: %v\n%s", e.Package, ErrCompile, e.Output)
}

// Unwrap makes errors.Is(err, ErrCompile) true.
func (e *CompileError) Unwrap() error { return ErrCompile }

// onlyFile is the binary that go build left in its directory, whose name only
// go knows. It leaves none for a package that is not main.
func onlyFile(pkg, dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) != 1 {
		return "", &CompileError{Package: pkg, Output: "it is not a package main"}
	}
	return filepath.Join(dir, entries[0].Name()), nil
}

// where says in which directory to run go and what to call the package there.
// A directory of another module than the current one has to be built from
// within; otherwise messages read better from here.
func buildDir(pkg string) (dir, target string) {
	info, err := os.Stat(pkg)
	if err != nil {
		return "", pkg
	}
	inside := pkg
	if !info.IsDir() {
		inside = filepath.Dir(pkg)
	}
	if here, there := moduleRoot("."), moduleRoot(inside); here != there || here == "" {
		if info.IsDir() {
			return inside, "."
		}
		return inside, filepath.Base(pkg)
	}
	if filepath.IsAbs(pkg) || strings.HasPrefix(pkg, ".") || !info.IsDir() {
		return "", pkg
	}
	return "", "./" + pkg
}

// moduleRoot is the directory of the go.mod that rules dir, "" if there is none.
func moduleRoot(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for {
		if info, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil && !info.IsDir() {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// goCommand makes go end when ctx does, as by Ctrl-C, and when this process does.
// The latter means the thread that starts it, which therefore is to be locked.
func goCommand(ctx context.Context, dir string, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), env...) // with PWD
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 2 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}
