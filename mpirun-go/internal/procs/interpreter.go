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

// Reason is an error of the system's in words that say more.
type DetailedError struct {
	Text string
	Err  error
}

func (e *DetailedError) Error() string { return e.Text }

// Unwrap gives the system's error.
func (e *DetailedError) Unwrap() error { return e.Err }

// explain says of a program that is there and for which the system says that it is not what is missing: its interpreter, which is the dynamic loader
// for a binary.
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
	return &DetailedError{fmt.Sprintf("the file is there, but its interpreter %q is not", interpreter), err}
}

// maxInterpreter bounds what is read of a line that names one; the kernel reads no more than 256 bytes of it.
const maxInterpreterBytes = 256

// interpreterOf is what the system executes for a program, "" if that is not known, or nothing.
func interpreterOf(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	line, _ := bufio.NewReader(io.LimitReader(file, maxInterpreterBytes)).ReadString('\n')
	if command, isScript := strings.CutPrefix(line, "#!"); isScript {
		name, _, _ := strings.Cut(strings.Trim(command, " \t\n"), " ") // a carriage return is a part of the name
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
