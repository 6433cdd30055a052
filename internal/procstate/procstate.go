// Package procstate reads the state of a process from /proc/PID/stat (proc_pid_stat(5)).
package procstate

import (
	"fmt"
	"os"
	"strings"
)

// State is the state of a process: its letter in that file.
type State byte

// Some states.
const (
	Unknown State = 0
	Stopped State = 'T' // by a signal such as SIGSTOP
	Traced  State = 't' // by a debugger
	Disk    State = 'D' // in a wait that no signal interrupts
	Zombie  State = 'Z' // has exited
)

// String describes the state in a few words, "" if it is unknown.
func (s State) String() string {
	switch s {
	case Unknown:
		return ""
	case Stopped:
		return "stopped by a signal"
	case Traced:
		return "stopped by a debugger"
	case Disk:
		return "in an uninterruptible wait of the kernel"
	case Zombie, 'X':
		return "exited"
	case 'R':
		return "running"
	}
	return "sleeping"
}

// Of returns the state of a process of this machine.
func Of(pid int) State {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Unknown
	}
	return Parse(string(stat))
}

// IsStopped reports whether the process executes nothing until it is told to go on.
func (s State) IsStopped() bool { return s == Stopped || s == Traced }

// Fields returns the fields of /proc/PID/stat after the name, which may contain spaces and
// parentheses.
func Fields(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}

// Parse returns the state in the text of the file.
func Parse(stat string) State {
	if fields := Fields(stat); len(fields) > 0 && len(fields[0]) == 1 && fields[0] >= "A" {
		return State(fields[0][0])
	}
	return Unknown
}
