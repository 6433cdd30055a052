// Package build turns PROGRAM into an executable file: a file as it is, a command found in PATH, or
// a Go package that it builds.
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

// Errors about a PROGRAM, each with the launcher's exit status.
var (
	ErrNotFound      = errors.New("not found")                     // exit status 127
	ErrNotExecutable = errors.New("not executable")                // exit status 126
	ErrCompile       = errors.New("the Go package does not build") // exit status 1
)

// Program is a PROGRAM that Find has resolved.
type Program struct {
	Path string // the file to execute, absolute
	// Package is the package to build: an import path, a directory or a .go file; "" if Path is
	// set.
	Package string
}

// Find resolves name: a file or directory if it is written as a path, otherwise a command in PATH,
// otherwise a directory or an import path. The error is ErrNotFound or ErrNotExecutable
// (errors.Is).
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
			return Program{}, fmt.Errorf("%s: %w in PATH; to run the file, write ./%s", name, ErrNotFound, name)
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
		return Program{}, fmt.Errorf("%s: %w: no permission; to permit it, run chmod +x %s", name, ErrNotExecutable, name)
	case err == nil:
		return absolute(name)
	case errors.Is(err, fs.ErrPermission):
		return Program{}, fmt.Errorf("%s: %w: no permission to read the directory", name, ErrNotExecutable)
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

// isImportPath reports whether name, which is not an existing file, can only be an import path. The
// go command decides whether such a package exists.
func isImportPath(name string) bool {
	return !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "./") && !strings.HasPrefix(name, "../") &&
		!strings.HasSuffix(name, ".go")
}

// Build builds pkg with the user's go command and its settings (GOFLAGS and others), with the build
// tags in tags unless that is "". It writes the binary to the directory outDir and returns its
// path. Messages of a successful build go to output.
//
// The error is ErrCompile (errors.Is) with the compiler's messages if the package does not build,
// ErrNotFound if the package or the go command does not exist, or the cause of ctx if that is done.
//
// env, in the form NAME=VALUE, is added to the environment of go and its children. If this process
// is killed, the kernel kills go, but not the compilers that go started. They are found by a
// variable in env.
func Build(ctx context.Context, pkg, tags, outDir string, env []string, output io.Writer) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("%s: %w: no such file, and no go command in PATH to build a package", pkg, ErrNotFound)
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

// withTags returns the arguments of a go subcommand, with the flag -tags unless tags is "".
func withTags(tags, subcommand string, args ...string) []string {
	if tags == "" {
		return append([]string{subcommand}, args...)
	}
	return append([]string{subcommand, "-tags=" + tags}, args...)
}

// failureText returns go's messages in one line, or err if go printed nothing.
func failureText(messages []byte, err error) string {
	if words := strings.Fields(string(messages)); len(words) > 0 {
		return strings.Join(words, " ")
	}
	return err.Error()
}

// CompileError means that a package does not build. It wraps ErrCompile.
type CompileError struct {
	Package string
	Output  string // messages of go, several lines
}

// Error returns one line with the package and the reason, followed by go's messages.
func (e *CompileError) Error() string {
	return fmt.Sprintf("%s: %v\n%s", e.Package, ErrCompile, e.Output)
}

// Unwrap returns ErrCompile.
func (e *CompileError) Unwrap() error { return ErrCompile }

// onlyFile returns the binary that go build left in dir. Only go knows its name. Go leaves no file
// for a package other than main.
func onlyFile(pkg, dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) != 1 {
		return "", &CompileError{Package: pkg, Output: "not a main package"}
	}
	return filepath.Join(dir, entries[0].Name()), nil
}

// buildDir returns the directory in which to run go, "" for the current one, and the name of pkg
// there. Go builds a package of another module only within that module. Otherwise go runs in the
// current directory, so that file names in its messages are relative to it.
func buildDir(pkg string) (dir, target string) {
	info, err := os.Stat(pkg)
	if err != nil {
		return "", pkg
	}
	inside := pkg
	if !info.IsDir() {
		inside = filepath.Dir(pkg)
	}
	if current, packageRoot := moduleRoot("."), moduleRoot(inside); current != packageRoot || current == "" {
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

// moduleRoot returns the directory of the go.mod that applies to dir, or "" if there is none.
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

// goCommand returns a go command that is interrupted, as by Ctrl-C, when ctx is done, and killed
// when this process dies. The kernel kills it when the thread that started it ends, so the caller
// must lock its goroutine to its thread.
func goCommand(ctx context.Context, dir string, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), env...) // Environ includes PWD
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 2 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}
