package procs

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// DetailedError is a system error with a more specific text.
type DetailedError struct {
	Text string
	Err  error
}

func (e *DetailedError) Error() string { return e.Text }

// Unwrap returns the system's error.
func (e *DetailedError) Unwrap() error { return e.Err }

// explainStart returns a more specific error if the kernel reports ENOENT for an existing program
// because the program's interpreter does not exist. A binary's interpreter is the dynamic loader.
func explainStart(path string, err error) error {
	if !errors.Is(err, syscall.ENOENT) {
		return err
	}
	interpreter := interpreterOf(path)
	if interpreter == "" {
		return err
	}
	if _, missing := os.Stat(interpreter); !errors.Is(missing, fs.ErrNotExist) {
		return err
	}
	return &DetailedError{fmt.Sprintf("the file exists, but its interpreter %q does not", interpreter), err}
}

// maxInterpreterBytes bounds the length of an interpreter's name. The kernel reads at most 256
// bytes of a script's first line.
const maxInterpreterBytes = 256

// interpreterOf returns the interpreter that the kernel starts for a program, or "" if there is
// none or it is unknown.
func interpreterOf(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	line, _ := bufio.NewReader(io.LimitReader(file, maxInterpreterBytes)).ReadString('\n')
	if command, isScript := strings.CutPrefix(line, "#!"); isScript {
		// The kernel takes a carriage return as a part of the name.
		name, _, _ := strings.Cut(strings.Trim(command, " \t\n"), " ")
		name, _, _ = strings.Cut(name, "\t")
		return name
	}
	binary, err := elf.NewFile(file)
	if err != nil {
		return ""
	}
	for _, prog := range binary.Progs {
		if prog.Type == elf.PT_INTERP {
			name, _ := io.ReadAll(io.LimitReader(prog.Open(), maxInterpreterBytes))
			return strings.TrimRight(string(name), "\x00")
		}
	}
	return ""
}
